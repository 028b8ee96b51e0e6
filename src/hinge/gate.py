"""A gate: how scores become a confidence, a confidence a bin, and a bin a decision.

    scores ──confidence measure──→ confidence ──bins──→ bin ──policy──→ Decision

The three are decided with together and saved together: evidence that was gathered in one set of bins, by one measure,
means nothing in another. `Gate.resume` therefore refuses a state whose bins, measure or policy differ.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hinge.bins import Bins, EdgeBins, UniformBins, restore_bins
from hinge.errors import HingeError, InvalidState
from hinge.policies.budgets import Budgeted
from hinge.policies.policy import CHANGEABLE, Decision, Policy, State
from hinge.policies.policy import restore as restore_policy
from hinge.policies.sentinel import Sentinel

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hinge.confidence import ConfidenceMeasure

GATE_VERSION = 1
DEFAULT_POLICY, DEFAULT_BINS = Sentinel, 16


class Gate:
    """A confidence measure, bins and a policy.

    >>> gate = Gate(offload_cost=0.5)  # the default policy, 16 uniform bins, the largest softmax probability
    >>> decision = gate.decide([2.0, 1.0, 0.0])
    >>> decision.offload, decision.bin
    (True, 10)
    >>> gate.learn(decision, agreed=True)
    >>> gate.decide(confidence=0.83).bin
    13

    `bins` is a number of uniform bins, a list of the edges between bins, or a `Bins`; without it there are as many as
    the policy has. `confidence` is a function from scores to a number from 0 to 1 (default: `hinge.max_softmax`).
    `offload_cost` is for the default policy; None has it learned from offloads.

    >>> from hinge import HILCB, margin
    >>> Gate(HILCB(bins=256, offload_cost=0.5), confidence=margin)
    Gate(HILCB(...), bins=UniformBins(bins=256), confidence=margin)
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        offload_cost: float | None = None,
        bins: int | Iterable[float] | Bins | None = None,
        confidence: ConfidenceMeasure | None = None,
    ) -> None:
        if bins is not None and not isinstance(bins, Bins):
            bins = EdgeBins(bins) if isinstance(bins, Iterable) else UniformBins(bins)
        if policy is None:
            policy = DEFAULT_POLICY(bins=DEFAULT_BINS if bins is None else bins.bins, offload_cost=offload_cost)
        elif not isinstance(policy, Policy):
            raise TypeError(f"Gate: policy must be a policy, got {policy!r}")
        elif offload_cost is not None:
            raise TypeError(f"Gate: offload_cost must be given to the policy, got {offload_cost!r} beside {policy!r}")
        if bins is None:
            bins = UniformBins(policy.bins)
        if bins.bins != policy.bins:
            raise ValueError(f"Gate: bins must be as many as the policy has, {policy.bins}, got {bins!r}")
        if confidence is None:
            from hinge.confidence import max_softmax as confidence  # needs numpy, which policies alone do not
        if not callable(confidence):
            raise TypeError(f"Gate: confidence must be a function from scores to a number, got {confidence!r}")
        self.policy, self.bins, self.confidence = policy, bins, confidence

    def bin(self, confidence: float, label: object = None) -> int:
        """The bin of a confidence; `label`, the local answer, matters to `ClassBins` only."""
        return self.bins.bin(confidence, label)

    def decide(
        self,
        scores: ArrayLike | None = None,
        *,
        confidence: float | None = None,
        label: object = None,
        cost: float | None = None,
    ) -> Decision:
        """Accept or offload one sample, by its scores or by its confidence; `cost` is as for `Policy.decide`.

        >>> Gate(offload_cost=0.5).decide()
        Traceback (most recent call last):
        TypeError: Gate: scores or confidence must be given, and not both
        """
        if scores is not None and confidence is None:
            confidence = self.confidence(scores)
        elif scores is not None or confidence is None:
            raise TypeError("Gate: scores or confidence must be given, and not both")
        bin = self.bins.bin(confidence, label)
        return self.policy.decide(bin) if cost is None else self.policy.decide(bin, cost)

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn whether local agreed with remote in an offload, and what it cost; see `Policy.learn`."""
        self.policy.learn(decision, agreed, cost)

    # -- saving -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Bins, confidence measure and all that the policy knows, as a dict that JSON can hold.

        >>> state = Gate(offload_cost=0.5).state()
        >>> state["hinge_gate"], state["bins"], state["confidence"], state["policy"]["learned"]
        (1, {'kind': 'uniform', 'bins': 16}, {'name': 'max_softmax'}, 0)
        """
        return {**self.description(), "policy": self.policy.state()}

    def description(self) -> State:
        """The part of `state` that never changes: version, bins and confidence measure."""
        from hinge.confidence import measure_state

        return {"hinge_gate": GATE_VERSION, "bins": self.bins.state(), "confidence": measure_state(self.confidence)}

    @classmethod
    def restore(
        cls, state: Mapping[str, Any], *, bins: Bins | int | None = None, confidence: ConfidenceMeasure | None = None
    ) -> Gate:
        """The gate that `state()` described; it continues bit-identically.

        A state names a confidence measure or bins of your own, and no state can make Hinge import code: give such a
        measure as `confidence`, such bins as `bins`. Given ones must be those that the state names.

        >>> gate = Gate(offload_cost=0.5)
        >>> Gate.restore(gate.state()).state() == gate.state()
        True
        """
        from hinge.confidence import measure_state, restore_measure

        _check_header(state)
        if bins is None:
            bins = restore_bins(state["bins"])
        elif isinstance(bins, int):
            bins = UniformBins(bins)
        if confidence is None:
            confidence = restore_measure(state["confidence"])
        _check_same("bins", state["bins"], bins.state())
        _check_same("confidence", state["confidence"], measure_state(confidence))
        return cls(_restored(state["policy"]), bins=bins, confidence=confidence)

    def resume(self, state: Mapping[str, Any]) -> Gate:
        """A gate that continues from a state, with the bins and the measure of this one.

        The state of a gate with other bins, another measure, another policy or other parameters is refused. The state
        of a policy alone does not say its bins and measure: they are taken to be those of this gate.

        >>> from hinge import margin
        >>> Gate(offload_cost=0.5).resume(Gate(offload_cost=0.5, confidence=margin).state())
        Traceback (most recent call last):
        hinge.errors.InvalidState: Gate: the state was made with confidence {'name': 'margin'}, and this gate has \
{'name': 'max_softmax'}: give the gate the same, or use another folder or file for its state
        """
        held: Mapping[str, Any] = state
        if isinstance(state, Mapping) and "hinge_gate" in state:
            _check_header(state)
            held, mine = state["policy"], self.description()
            _check_same("bins", state["bins"], mine["bins"])
            _check_same("confidence", state["confidence"], mine["confidence"])
        policy = _restored(held)
        _check_alike(policy, self.policy)
        return Gate(policy, bins=self.bins, confidence=self.confidence)

    def __repr__(self) -> str:
        measure = getattr(self.confidence, "__name__", None) or repr(self.confidence)
        return f"Gate({self.policy!r}, bins={self.bins!r}, confidence={measure})"


def restore(state: Mapping[str, Any]) -> Any:
    """The `Gate` or the `Policy` whose `state()` this is.

    >>> from hinge import HILCB
    >>> restore(Gate(offload_cost=0.3).state()).policy, restore(HILCB(bins=2, offload_cost=0.5).state()).name
    (Sentinel(bins=16, offload_cost=0.3, stakes=None), 'hi-lcb')
    """
    if isinstance(state, Mapping) and "hinge_gate" in state:
        return Gate.restore(state)
    return restore_policy(unsealed(state))


def policy_state(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the policy in a gate's state, or in a policy's own, its checksum verified."""
    whole = unsealed(state)
    if "hinge_gate" not in whole:
        return whole
    _check_header(whole)
    return dict(whole["policy"])


def sealed(state: Mapping[str, Any]) -> State:
    """A state with a checksum, as a file should have it; `restore` and `unsealed` refuse one that was changed.

    >>> sealed({"time": 3})
    {'time': 3, 'crc32': 'eb9a67c3'}
    """
    content = {key: value for key, value in state.items() if key != "crc32"}
    return {**content, "crc32": f"{zlib.crc32(json.dumps(content, sort_keys=True, allow_nan=False).encode()):08x}"}


def unsealed(state: Mapping[str, Any]) -> State:
    """The state without its checksum, if it matches; a state without one is returned as it is.

    >>> unsealed({"time": 4, "crc32": "eb9a67c3"})
    Traceback (most recent call last):
    hinge.errors.InvalidState: the state does not match its checksum: it was damaged or edited
    """
    if not isinstance(state, Mapping):
        raise InvalidState(f"a state must be a dict, got {state!r:.200}")
    if "crc32" in state:
        try:
            whole = sealed(state)["crc32"] == state["crc32"]
        except (TypeError, ValueError, RecursionError):
            whole = False
        if not whole:
            raise InvalidState("the state does not match its checksum: it was damaged or edited")
    return {key: value for key, value in state.items() if key != "crc32"}


def _check_alike(held: Policy, mine: Policy) -> None:
    """The same policy with the same parameters, also inside budgets."""
    _check_same("policy", held.name, mine.name)
    for name, value in mine.parameters.items():
        if name == "policy" and isinstance(held, Budgeted) and isinstance(mine, Budgeted):
            _check_alike(held.inside, mine.inside)
        else:
            change = f" ('hinge state set FOLDER {name}={value}' changes it)" if name in CHANGEABLE else ""
            _check_same(f"{held.name}'s {name}", held.parameters[name], value, change)


def _check_same(what: str, held: object, mine: object, change: str = "") -> None:
    if _plain(held) != _plain(mine):
        raise InvalidState(
            f"Gate: the state was made with {what} {held}, and this gate has {mine}{change}: "
            "give the gate the same, or use another folder or file for its state"
        )


def _check_header(state: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping):
        raise InvalidState(f"Gate: state must be a dict as state() returns it, got {state!r:.200}")
    version = state.get("hinge_gate")
    if "hinge_gate" not in state and "hinge_state" in state:
        raise InvalidState("Gate: state is that of a policy alone; hinge.restore reads it, or gate.resume continues it")
    if type(version) is not int or version < 1:
        raise InvalidState(f"Gate: state must have a 'hinge_gate' version, got {version!r:.200}")
    if version > GATE_VERSION:
        raise InvalidState(f"Gate: state is of version {version}; this Hinge reads up to {GATE_VERSION}")
    unsealed(state)
    for part in ("bins", "confidence", "policy"):
        if not isinstance(state.get(part), Mapping):
            raise InvalidState(f"Gate: state must have {part!r} as a dict, got {state.get(part)!r:.200}")


def _restored(state: Mapping[str, Any]) -> Policy:
    try:
        return restore_policy(state)
    except HingeError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, MemoryError, RecursionError) as error:
        raise InvalidState(f"Gate: the policy's state cannot be restored: {error}") from error


def _plain(value: object) -> Any:
    """As JSON has it: tuples are lists, whatever the state has been through."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidState(f"Gate: state must be plain data: {error}") from error
