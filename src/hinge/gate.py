"""A gate: how scores become a confidence, a confidence a bin, and a bin a decision, at a price and within a budget.

    scores ──confidence measure──→ confidence ──bins──→ bin ──policy──→ Decision
                                                              ↑ price, budget

They decide together and are saved together: evidence that was gathered in one set of bins, by one measure, means
nothing in another. `Gate.resume` therefore refuses a state whose bins, measure or policy differ.

What an offload costs is the gate's: fixed, told for each sample (`decide(…, cost=…)`), or measured (`learn(…, cost=…)`,
`hinge.price`). So is a budget (`hinge.budget`), and forming bins that fit themselves (`hinge.cells`).
"""

from __future__ import annotations

import hashlib
import json
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hinge._checks import real, share
from hinge.bins import Bins, EdgeBins, FittedBins, UniformBins, restore_bins, span_text
from hinge.budget import LEVEL, catch_up, charge, drain, extra_price, make_budget, restore_budget
from hinge.cells import CELL_EDGES, CELLS, DUE, FORMED, checked_rows, form_bins, write_record
from hinge.errors import HingeError, InvalidState
from hinge.policies import Probation, Threshold, build
from hinge.policies.policy import MAX_SAMPLES, Decision, Explanation, Policy, State
from hinge.policies.policy import restore as restore_policy
from hinge.price import LOOK, MEAN, look_later, make_price, pay, restore_price

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from hinge.confidence import ConfidenceMeasure

GATE_VERSION = 1


class Gate:
    """A confidence measure, bins, a policy, a price and a budget.

    >>> gate = Gate(offload_cost=0.5)  # the default policy, bins that fit themselves, the largest softmax probability
    >>> decision = gate.decide([2.0, 1.0, 0.0])
    >>> decision.offload
    True
    >>> gate.learn(decision, agreed=True)

    `policy` is a policy, or the name of one. `offload_cost` is what an offload costs, as a share of a wrong answer;
    without it the price is measured: `learn` is told what each offload cost. `budget` is the largest share of samples
    to offload. `bins` is a number of uniform bins, a list of the edges between bins, or a `Bins`; without it bins fit
    themselves, unless the policy is an object, which says how many it has. `confidence` is a function from scores to a
    number from 0 to 1 (default: `hinge.max_softmax`).

    >>> from hinge import HILCB, margin
    >>> Gate(HILCB(bins=256, offload_cost=0.5), confidence=margin)
    Gate(HILCB(...), bins=UniformBins(bins=256), confidence=margin)
    """

    def __init__(
        self,
        policy: Policy | str | None = None,
        *,
        offload_cost: float | None = None,
        bins: int | Iterable[float] | Bins | None = None,
        confidence: ConfidenceMeasure | None = None,
        budget: float | None = None,
    ) -> None:
        if isinstance(policy, Policy) and offload_cost is not None:
            raise TypeError(f"Gate: offload_cost must be given to the policy, got {offload_cost!r} beside {policy!r}")
        if bins is not None and not isinstance(bins, Bins):
            bins = EdgeBins(bins) if isinstance(bins, Iterable) else UniformBins(bins)
        measured = offload_cost is None and not isinstance(policy, Policy)
        if not isinstance(policy, Policy):
            policy = _named(policy, 16 if bins is None else bins.bins, offload_cost)
            if bins is None and policy.functions.regroups is not None:
                bins = FittedBins()
        if bins is None:
            edges = policy.edges if isinstance(policy, Threshold) else None
            bins = UniformBins(policy.bins) if edges is None else EdgeBins(edges)
        if bins.bins != policy.bins:
            raise ValueError(f"Gate: bins must be as many as the policy has, {policy.bins}, got {bins!r}")
        if isinstance(bins, FittedBins) and policy.functions.regroups is None:
            raise TypeError(f"Gate: {policy.name} needs fixed bins, as its evidence is no counts; give bins=16")
        if confidence is None:
            from hinge.confidence import max_softmax as confidence  # needs numpy, which policies alone do not
        if not callable(confidence):
            raise TypeError(f"Gate: confidence must be a function from scores to a number, got {confidence!r}")
        self.policy, self.bins, self.confidence = policy, bins, confidence
        self.price = make_price() if measured and policy.takes_price and policy.weighs_price else None
        self.budget = None if budget is None else make_budget(real("Gate", "budget", budget, 0, 1))
        self._share = budget
        if self.budget is not None and policy.functions.offloads_at is None:
            raise TypeError(f"Gate: {policy.name} keeps no budget, as its price cannot be raised")
        self._cells = bins.cells if isinstance(bins, FittedBins) else None
        self._merged: dict[str, State] = {}

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(
        self, scores: ArrayLike | None = None, *, confidence: float | None = None, cost: float | None = None
    ) -> Decision:
        """Accept or offload one sample, by its scores or by its confidence.

        `cost` is what offloading this very sample costs, where that is known; it decides this sample only.

        >>> Gate(offload_cost=0.5).decide()
        Traceback (most recent call last):
        TypeError: Gate: scores or confidence must be given, and not both
        """
        if scores is not None and confidence is None:
            confidence = self.confidence(scores)
        elif scores is not None or confidence is None:
            raise TypeError("Gate: scores or confidence must be given, and not both")
        cells, policy = self._cells, self.policy
        if cells is None:
            cell, bin = None, self.bins.bin(confidence)
        else:
            if not (type(confidence) is float and 0.0 <= confidence <= 1.0):
                confidence = real("Gate", "confidence", confidence, 0, 1)
            cell = bisect_right(CELL_EDGES, confidence)
            bin = cells.group[cell]
        if self.budget is not None:
            decision = self._decide_within(bin, cost)
        elif self.price is not None and cost is None and policy.time + 1 > self.price.sums[LOOK]:
            decision = self._decide_looking(bin)
        else:
            decision = policy.decide(bin) if cost is None else policy.decide(bin, cost)
        if cells is None or cell is None:
            return decision
        cells.samples[cell] += 1.0
        return decision if decision.time is None else policy.place(decision, cell)

    def _decide_looking(self, bin: int) -> Decision:
        """Offload what is licensed, too, to see the price."""
        policy = self.policy
        if policy.functions.offloads(policy.table, bin, policy.time + 1):
            return policy.decide(bin)
        return policy.overrule(bin, True)

    def _decide_within(self, bin: int, cost: float | None) -> Decision:
        """Decide at the price that meets the budget, and charge the bucket."""
        policy, budget, offloads_at = self.policy, self.budget, self.policy.functions.offloads_at
        if budget is None or offloads_at is None:
            return policy.decide(bin, cost)
        time = policy.time + 1
        catch_up(budget, time)
        price = self.offload_price if cost is None else share("Gate", "cost", cost)
        wanted = offloads_at(policy.table, bin, time, min(1.0, price + extra_price(budget)))
        look = self.price is not None and time > self.price.sums[LOOK]
        return policy.overrule(bin, (wanted or look) and charge(budget), audit=wanted)

    @property
    def offload_price(self) -> float:
        """What an offload costs at present, as far as the gate knows."""
        if self.price is not None:
            return self.price.sums[MEAN]
        return self.policy.offload_cost or 0.0

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn whether local agreed with remote in an offload, and what it cost.

        Feedback may come in any order, once for each decision. `agreed` is True or False, or how far the answers agree,
        from 0 to 1. `cost` is needed where the price is measured.
        """
        policy, cells = self.policy, self._cells
        if self.price is not None and cost is None and isinstance(decision, Decision) and decision.offload:
            raise TypeError("Gate: cost must be a number, as the price is measured, got None")
        held = policy.pending.get(decision.time or 0) if isinstance(decision, Decision) else None
        cell = None if held is None else held.cell
        if cells is None or cell is None:
            policy.learn(decision, agreed, cost)
        else:
            outcome = policy.learn(decision, agreed, cost, bin=cells.group[cell])
            write_record(cells, cell, 1.0 if agreed is None else float(agreed), outcome)
            if policy.time >= cells.due[DUE]:
                self._form_bins()
        if decision.offload and (self.price is not None or self.budget is not None):
            self._pay(cost)

    def forget(self, decision: Decision, cost: float = 0.0) -> None:
        """Stop waiting for the feedback of a decision; `cost` is what the offload cost though it failed.

        0 is for a remote that was not asked, which says nothing about the price, and puts off a look at it.

        >>> gate = Gate()  # the price is measured
        >>> gate.forget(gate.decide(confidence=0.5))
        >>> gate.offload_price
        0.5
        """
        paid = share("Gate", "cost", cost)
        self.policy.forget(decision)
        if self.price is not None and paid > 0.0:
            self._pay(paid)
        elif self.price is not None:
            look_later(self.price, self.policy.time)

    def spend(self, samples: int) -> None:
        """Take offloads from the budget that were made without a decision."""
        if self.budget is not None:
            catch_up(self.budget, self.policy.time)
            drain(self.budget, samples)

    def _pay(self, cost: float | None) -> None:
        """Take account of a cost, and tell the policy the price."""
        if self.price is not None and cost is not None:
            pay(self.price, cost, self.policy.time)
        if self.policy.takes_price:
            extra = 0.0 if self.budget is None else extra_price(self.budget)
            self.policy.reprice(self.offload_price, extra)

    def _form_bins(self) -> None:
        policy, cells = self.policy, self._cells
        if cells is not None and policy.functions.regroups is not None:
            form_bins(cells, policy.table, 1.0 - self.offload_price, policy.time)
            policy.functions.regroups(policy.table, cells, policy.time)

    # -- evidence of others -------------------------------------------------------------------------------------------

    def learn_log(self, trace: Any) -> None:
        """Learn a log of this very pair of models, oldest sample first, as if each sample had been offloaded.

        `trace` has columns `confidence` and `agreed`, and `offload_cost` where the price is measured. The same log
        counts once.

        >>> from hinge import load_trace
        >>> gate = Gate(offload_cost=0.3)
        >>> gate.learn_log(load_trace("fashion"))
        >>> gate.decide(confidence=0.999).offload, gate.decide(confidence=0.3).offload
        (False, True)
        """
        confidences, agreements = [float(x) for x in trace.confidence], [float(x) for x in trace.agreed]
        costs = getattr(trace, "offload_cost", None)
        paid = [None] * len(agreements) if costs is None or self.price is None else [float(x) for x in costs]
        reader, digest = self.fresh(), hashlib.sha256()
        for confidence, agreed, cost in zip(confidences, agreements, paid, strict=True):
            bin, cell = reader._arrive(confidence)
            decision = reader.policy.overrule(bin, True)
            if cell is not None:
                decision = reader.policy.place(decision, cell)
            reader.learn(decision, agreed, reader.offload_price if cost is None else cost)
            digest.update(f"{confidence!r} {agreed!r} {cost!r};".encode())
        reader.policy.id = f"log {digest.hexdigest()[:16]}"
        self.merge(reader.state())

    def _arrive(self, confidence: float) -> tuple[int, int | None]:
        """Count a sample, and return its bin and cell."""
        if self._cells is None:
            return self.bins.bin(confidence), None
        cell = bisect_right(CELL_EDGES, confidence)
        self._cells.samples[cell] += 1.0
        return self._cells.group[cell], cell

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the evidence in the state of another gate to this one's own, as if the offloads had been made here.

        States may come in any order and repeatedly: of each source the latest counts, once. A state with other bins,
        another measure or another policy is refused.
        """
        other = self.fresh().resume(state)
        if self._cells is None or other._cells is None:
            self.policy.merge(other.policy.state())
            return
        counted, news = sum(self._cells.samples), False
        for source, known in {**other._merged, other.policy.id: other._own()}.items():
            before = self._merged.get(source)
            if source == self.policy.id or (before and before["learned"] >= known["learned"]):
                continue
            for rows, sign in ((known["cells"], 1.0), (before["cells"] if before else [], -1.0)):
                for cell, samples, offloads, agreements in rows:
                    self._cells.samples[cell] = max(0.0, self._cells.samples[cell] + sign * samples)
                    self._cells.offloads[cell] = max(0.0, self._cells.offloads[cell] + sign * offloads)
                    self._cells.agreements[cell] = max(0.0, self._cells.agreements[cell] + sign * agreements)
            self._merged[source], news = known, True
        if news:
            self.policy.elsewhere = sum(known["learned"] for known in self._merged.values())
            self._form_bins()
            self.policy.recount(sum(self._cells.samples) - counted)

    def _own(self) -> State:
        """Return what this gate has learned itself, by cell."""
        cells = {row[0]: row[1:] for row in self.bins.state()["used"]}
        for known in self._merged.values():
            for cell, *counts in known["cells"]:
                if cell in cells:
                    cells[cell] = [max(0.0, mine - theirs) for mine, theirs in zip(cells[cell], counts, strict=True)]
        return {"learned": self.policy.learned, "cells": [[cell, *counts] for cell, counts in cells.items()]}

    def explain(self, confidence: float) -> Explanation:
        """Say why the next sample of this confidence would be accepted or offloaded.

        >>> print(Gate(offload_cost=0.5).explain(0.97))
        Confidence 0.94–1 is offloaded: not yet compared; too few to tell whether accepting pays.
        """
        why = self._within_budget(self.policy.explain(self.bins.bin(confidence)))
        try:
            low, high = self.bins.spans()[why.bin]
        except NotImplementedError:  # bins of one's own
            return why
        return replace(why, reason=f"Confidence {span_text(low, high)}{why.reason.removeprefix(f'Bin {why.bin}')}")

    def _within_budget(self, why: Explanation) -> Explanation:
        """Say what a budget makes of the next sample, where that is not what the policy says."""
        policy, offloads_at = self.policy, self.policy.functions.offloads_at
        if self.budget is None or offloads_at is None:
            return why
        ahead, time = self.budget._replace(sums=copy(self.budget.sums)), policy.time + 1
        catch_up(ahead, time)
        wanted = offloads_at(policy.table, why.bin, time, min(1.0, self.offload_price + extra_price(ahead)))
        spent = ahead.sums[LEVEL] < 1.0
        probability = float(wanted and not spent)
        if why.offload_probability == probability or (0.0 < why.offload_probability < 1.0 and not spent):
            return why
        if spent and wanted:
            done = "is accepted, as the budget is spent"
        else:
            done = (
                "is offloaded, as the budget has room" if wanted else "is accepted at the price that keeps the budget"
            )
        reason = f"Bin {why.bin} {done}; otherwise it{why.reason.removeprefix(f'Bin {why.bin}')}"
        return replace(why, offload_probability=probability, samples_left=None, reason=reason)

    def group(self, confidence: float) -> int:
        """Return the bin of a confidence; of bins that fit themselves, a number that is never used again."""
        bin, cells = self.bins.bin(confidence), self._cells
        return bin if cells is None else bin + self.policy.bins * cells.due[FORMED]

    def measuring(self, confidence: ConfidenceMeasure) -> Gate:
        """Return this gate with another measure of confidence; they share what they know."""
        other = copy(self)
        other.confidence = confidence
        return other

    def fresh(self, seed: int | None = None) -> Gate:
        """Return the same gate before its first sample."""
        bins = self.bins.fresh() if isinstance(self.bins, FittedBins) else self.bins
        gate = Gate(self.policy.fresh(seed), bins=bins, confidence=self.confidence, budget=self._share)
        gate.price = None if self.price is None else make_price()
        return gate

    # -- saving -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return all that the gate knows as a dict that JSON can hold.

        >>> state = Gate(offload_cost=0.5, bins=16).state()
        >>> state["hinge_gate"], state["bins"], state["confidence"], state["policy"]["learned"]
        (1, {'kind': 'uniform', 'bins': 16}, {'name': 'max_softmax'}, 0)
        """
        return {
            **self.description(),
            "bins": self.bins.state(),
            "policy": self.policy.state(),
            "price": None if self.price is None else list(self.price.sums),
            "budget": None if self.budget is None else [self._share, list(self.budget.sums)],
            "merged": {**self._merged},
        }

    def description(self) -> State:
        """Return the part of `state` that never changes: version, kind of bins and confidence measure."""
        from hinge.confidence import measure_state

        bins = {"kind": "fitted"} if self._cells is not None else self.bins.state()
        return {"hinge_gate": GATE_VERSION, "bins": bins, "confidence": measure_state(self.confidence)}

    @classmethod
    def restore(
        cls, state: Mapping[str, Any], *, bins: Bins | int | None = None, confidence: ConfidenceMeasure | None = None
    ) -> Gate:
        """Return the gate that `state()` described; it continues bit-identically.

        A state names a confidence measure or bins of your own, and no state can make Hinge import code: give such a
        measure as `confidence`, such bins as `bins`. Given ones must be those that the state names.

        >>> gate = Gate(offload_cost=0.5)
        >>> Gate.restore(gate.state()).state() == gate.state()
        True
        """
        from hinge.confidence import measure_state, restore_measure

        _check_header(state)
        if bins is None or state["bins"].get("kind") == "fitted":
            bins = restore_bins(state["bins"])
        elif isinstance(bins, int):
            bins = UniformBins(bins)
        if confidence is None:
            confidence = restore_measure(state["confidence"])
        _check_same("bins", state["bins"], bins.state())
        _check_same("confidence", state["confidence"], measure_state(confidence))
        budget = state.get("budget")
        if budget is not None and not (isinstance(budget, list) and len(budget) == 2):
            raise InvalidState(f"Gate: state has an impossible budget: {budget!r:.200}")
        policy = _restored(state["policy"])
        try:
            gate = cls(policy, bins=bins, confidence=confidence, budget=budget[0] if budget else None)
        except (TypeError, ValueError) as error:
            raise InvalidState(f"Gate: state cannot be restored: {error}") from error
        if gate.budget is not None and budget is not None:
            restore_budget(gate.budget, budget[1], policy.time)
        if state.get("price") is not None:
            gate.price = make_price()
            restore_price(gate.price, state["price"])
        gate._merged = _checked_sources(state.get("merged"))
        if policy.elsewhere != sum(known["learned"] for known in gate._merged.values()):
            raise InvalidState(f"Gate: state has {policy.elsewhere} offloads from elsewhere, but other sources")
        cells = [held.cell for held in policy.pending.values()]
        if any((cell is None or cell >= CELLS) if gate._cells is not None else cell is not None for cell in cells):
            raise InvalidState("Gate: state has pending decisions of impossible cells")
        return gate

    def resume(self, state: Mapping[str, Any]) -> Gate:
        """Return a gate that continues from a state, with the bins, measure and price of this one.

        The state of a gate with other bins, another measure, another policy or other parameters is refused.

        >>> from hinge import margin
        >>> Gate(offload_cost=0.5).resume(Gate(offload_cost=0.5, confidence=margin).state())
        Traceback (most recent call last):
        hinge.errors.InvalidState: Gate: the state was made with confidence {'name': 'margin'}, and this gate has \
{'name': 'max_softmax'}: give the gate the same, or use another folder or file for its state
        """
        _check_header(state)
        mine = self.description()
        held = {"kind": "fitted"} if state["bins"].get("kind") == "fitted" else state["bins"]
        _check_same("bins", held, mine["bins"])
        _check_same("confidence", state["confidence"], mine["confidence"])
        _check_same("measured price", state.get("price") is not None, self.price is not None)
        budget = state.get("budget")
        _check_same("budget", budget[0] if isinstance(budget, list) and budget else None, self._share)
        policy = _restored(state["policy"])
        _check_same("policy", policy.name, self.policy.name)
        for name, value in self.policy.parameters.items():
            _check_same(f"{policy.name}'s {name}", policy.parameters[name], value)
        return Gate.restore(state, bins=self.bins, confidence=self.confidence)

    def __repr__(self) -> str:
        measure = getattr(self.confidence, "__name__", None) or repr(self.confidence)
        budget = "" if self._share is None else f", budget={self._share:g}"
        return f"Gate({self.policy!r}, bins={self.bins!r}, confidence={measure}{budget})"


def _named(name: str | None, bins: int, offload_cost: float | None) -> Policy:
    """Return the policy of that name, or the default."""
    if name is None:
        return Probation(bins, 0.5 if offload_cost is None else offload_cost)
    if not isinstance(name, str):
        raise TypeError(f"Gate: policy must be a policy or the name of one, got {name!r}")
    settings = {"bins": bins} if offload_cost is None else {"bins": bins, "offload_cost": offload_cost}
    return build(name, **settings)


def restore(state: Mapping[str, Any]) -> Any:
    """Return the `Gate` or the `Policy` whose `state()` this is.

    >>> from hinge import HILCB
    >>> restore(Gate(offload_cost=0.3).state()).policy, restore(HILCB(bins=2, offload_cost=0.5).state()).name
    (Probation(bins=16, offload_cost=0.3), 'hi-lcb')
    """
    if isinstance(state, Mapping) and "hinge_gate" in state:
        return Gate.restore(state)
    return restore_policy(unsealed(state))


def sealed(state: Mapping[str, Any]) -> State:
    """Return a state with a checksum, as a file should have it; `restore` and `unsealed` refuse one that was changed.

    >>> sealed({"time": 3})
    {'time': 3, 'crc32': 'eb9a67c3'}
    """
    content = {key: value for key, value in state.items() if key != "crc32"}
    return {**content, "crc32": f"{zlib.crc32(json.dumps(content, sort_keys=True, allow_nan=False).encode()):08x}"}


def unsealed(state: Mapping[str, Any]) -> State:
    """Return the state without its checksum, if it matches; a state without one is returned as it is.

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


def _check_same(what: str, held: object, mine: object) -> None:
    if _plain(held) != _plain(mine):
        raise InvalidState(
            f"Gate: the state was made with {what} {held}, and this gate has {mine}: "
            "give the gate the same, or use another folder or file for its state"
        )


def _check_header(state: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping):
        raise InvalidState(f"Gate: state must be a dict as state() returns it, got {state!r:.200}")
    version = state.get("hinge_gate")
    if "hinge_gate" not in state and "hinge_state" in state:
        raise InvalidState("Gate: state is that of a policy alone; hinge.restore reads it")
    if version != GATE_VERSION:
        raise InvalidState(f"Gate: state must be of version {GATE_VERSION}, got {version!r:.200}")
    unsealed(state)
    for part in ("bins", "confidence", "policy"):
        if not isinstance(state.get(part), Mapping):
            raise InvalidState(f"Gate: state must have {part!r} as a dict, got {state.get(part)!r:.200}")


def _checked_sources(merged: object) -> dict[str, State]:
    """Return what others have learned, by cell, if that is what a state has."""
    if not isinstance(merged, Mapping) or not all(isinstance(known, Mapping) for known in merged.values()):
        raise InvalidState(f"Gate: state must have a dict of dicts as 'merged', got {merged!r:.200}")
    sources = {}
    for source, known in merged.items():
        learned = known.get("learned")
        if type(learned) is not int or not 0 <= learned <= MAX_SAMPLES:
            raise InvalidState(f"Gate: state has an impossible number of offloads of {source!r:.200}: {learned!r:.200}")
        sources[str(source)] = {"learned": learned, "cells": checked_rows(known.get("cells"))}
    return sources


def _restored(state: Mapping[str, Any]) -> Policy:
    try:
        return restore_policy(state)
    except HingeError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError, MemoryError, RecursionError) as error:
        raise InvalidState(f"Gate: the policy's state cannot be restored: {error}") from error


def _plain(value: object) -> Any:
    """Return a value as JSON has it: tuples are lists, whatever the state has been through."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidState(f"Gate: state must be plain data: {error}") from error
