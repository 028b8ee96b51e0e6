"""What every policy is: a clock, a table, functions on that table, and a way to save it all.

A policy keeps everything it knows in `table`, a named tuple of typed arrays (see `columns`) and numbers. Its functions,

    offloads(table, bin, time) -> bool                       # what it would decide; changes nothing that matters
    notes(table, bin, time) -> None                          # an offload is decided: what that changes at once
    learns(table, bin, agreed, cost, time, now) -> None      # decided at `time`, learned at `now`

are module-level functions in the subset of Python that numba compiles. The objects here call them as they are; the
simulator compiles the same functions and calls them on numpy's arrays. Most policies have nothing to note.
"""

import hashlib
import secrets
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar

from hinge.arguments import real, whole
from hinge.errors import InvalidDecision
from hinge.policies.decision import Decision, Decisions, Explanation
from hinge.policies.merging import Merging
from hinge.policies.saving import State

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def note_nothing(table: Any, bin: int, time: int) -> None:
    """An offload changes nothing until its feedback comes."""


_new = tuple.__new__  # half the price of Decision(…)
OUTSTANDING = 65_536  # decisions that may wait for feedback at once; beyond that the oldest are given up


class Need(Enum):
    """What a policy must be told, in every slot, beyond what an offload reveals."""

    COST = "the offload cost of every sample"
    AGREEMENT = "whether local agrees with remote on every sample"


class Policy(Merging):
    """Decides, sample by sample, whether to accept the local answer, and learns from offloads.

    A subclass with a `name` is registered under it. Its constructor's parameters are also its public attributes.
    """

    name: ClassVar[str]
    registry: ClassVar[dict[str, type["Policy"]]] = {}
    needs: frozenset[Need] = frozenset()
    wraps: ClassVar[bool] = False  # whether it is built around another policy
    can_be_overruled: ClassVar[bool] = True  # whether it may be refused an offload without learning wrongly
    enclosed: bool = False  # whether it is inside another policy
    keeps_budget: ClassVar[bool] = False  # whether it has a budget to keep, and so another goal than the least cost
    weighs_cost: bool = True  # whether what an offload cost is of any use to it
    assumes_monotone: bool = False  # whether it relies on agreement not falling with confidence

    bins: int
    offload_cost: float | None
    table: Any
    _offloads: Callable[..., bool]
    _notes: Callable[..., None] = staticmethod(note_nothing)
    _learns: Callable[..., None]
    _rebuilds: Callable[..., None] | None = None  # finds anew all that is derived from the evidence

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            return
        known = Policy.registry.get(cls.name)
        if known and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{cls.__qualname__}: the name {cls.name!r} is that of {known.__qualname__} already")
        Policy.registry[cls.name] = cls

    def __init__(self, bins: int, offload_cost: float | None) -> None:
        owner = type(self).__name__
        self.bins = whole(owner, "bins", bins, 1)
        self.offload_cost = None if offload_cost is None else real(owner, "offload_cost", offload_cost, 0, 1)
        self.time = 0
        self.learned = 0
        self.id = secrets.token_hex(8)
        self._pending: OrderedDict[int, Decision] = OrderedDict()  # oldest first, and the oldest is quick to drop
        self._merged: dict[str, State] = {}

    # -- deciding -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def decide(self, bin: int) -> Decision:
        """Decide for the next sample, whose confidence lies in `bin`; advances `time` by one."""

    def decide_many(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> Decisions:
        """Decide for a batch at once, as `decide` would one by one if nothing were learned in between."""
        import numpy as np  # batches are arrays; deciding one sample needs no more than the standard library

        checked = self._checked_bins(bins)
        first = self.time + 1
        offload = np.fromiter((self.decide(int(bin)).offload for bin in checked), bool, len(checked))
        return Decisions(offload, checked, first, self.id, bool(self.needs))

    def _checked_bins(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> "NDArray[np.int64]":
        import numpy as np

        array = np.asarray(bins if hasattr(bins, "__array__") else list(bins))
        if array.size == 0:
            return np.zeros(0, np.int64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise TypeError(f"{type(self).__name__}: bins must be a list of integers, got {bins!r}")
        if array.min() < 0 or array.max() >= self.bins:
            wrong = int(np.flatnonzero((array < 0) | (array >= self.bins))[0])
            raise ValueError(
                f"{type(self).__name__}: bins[{wrong}] must be an integer from 0 to {self.bins - 1}, got {array[wrong]}"
            )
        return array.astype(np.int64, copy=False)

    def _checked_bin(self, bin: object) -> int:
        return whole(type(self).__name__, "bin", bin, 0, self.bins - 1)

    def _await(self, offload: bool, bin: int, time: int) -> Decision:
        """The record of a decision from which the policy expects to learn."""
        pending = self._pending
        if len(pending) >= OUTSTANDING:
            pending.popitem(last=False)
        decision = pending[time] = _new(Decision, (offload, bin, time, self.id))
        return decision

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Take in what an offload revealed: whether local agreed with remote, and what the offload cost.

        Feedback may come in any order and with any delay, once for each decision. `agreed` is True or False, or, where
        wrong answers have different prices (`hinge.costs.CostMatrix`), one minus the price of this one. `cost` is
        needed only where the offload cost is learned.
        """
        time = self._waiting(decision)
        agreement = self._checked_agreement(decision, agreed)
        price = self._checked_cost(decision, cost)
        del self._pending[time]
        self.learned += 1
        self._learns(self.table, decision.bin, agreement, price, time, self.time)

    def forget(self, decision: Decision) -> None:
        """Wait no longer for the feedback of a decision, which is as if it had never been due.

        >>> from hinge import Isotonic
        >>> policy = Isotonic(bins=16, offload_cost=0.5)
        >>> policy.forget(policy.decide(3))
        >>> policy.state()["pending"], policy.learned
        ([], 0)
        """
        del self._pending[self._waiting(decision)]

    def _waiting(self, decision: Decision) -> int:
        """The time of a decision that waits for feedback."""
        if not isinstance(decision, Decision):
            raise TypeError(f"{type(self).__name__}: decision must be a Decision, got {decision!r}")
        time = decision.time
        if time is None or self._pending.get(time) != decision:
            raise InvalidDecision(f"{type(self).__name__}: {self._refusal(decision)}, got {decision!r}")
        return time

    def learn_log(
        self,
        bins: Iterable[int],
        agreed: Iterable[float],
        costs: Iterable[float] | None = None,
        *,
        weight: float,
    ) -> None:
        """Start from a log, oldest sample first, as if each of its samples had been offloaded and counted `weight`.

        Weight 1 is for a log of the very same stream: what it licenses may not be checked again for very long. One and
        the same log counts once, with the largest weight, also where devices that started from it are merged.

        >>> from hinge import Isotonic, UniformBins, load_trace
        >>> trace, policy = load_trace("fashion"), Isotonic(bins=16, offload_cost=0.5)
        >>> policy.learn_log(trace.bins_by(UniformBins(16)), trace.agreed, weight=0.01)
        >>> policy.decide(15).offload, policy.decide(3).offload
        (False, True)
        """
        owner = type(self).__name__
        if not {"offloads", "pane_offloads"} & {*self.evidence}:
            raise TypeError(f"{owner}: learn_log needs a policy that counts offloads")
        rows, agreements = list(bins), list(agreed)
        paid: list[Any] = [None] * len(rows) if costs is None else list(costs)
        if not len(rows) == len(agreements) == len(paid):
            lengths = f"{len(rows)}, {len(agreements)} and {len(paid)}"
            raise ValueError(f"{owner}: bins, agreed and costs must be equally long, got {lengths}")
        reader, digest = self.fresh(), hashlib.sha256()
        for bin, agrees, cost in zip(rows, agreements, paid, strict=True):
            reader.time += 1
            try:
                decision = reader._await(True, reader._checked_bin(bin), reader.time)
                reader.learn(decision, agrees, cost)
            except (TypeError, ValueError) as error:
                raise type(error)(f"{error} (in row {reader.time - 1} of the log)") from None
            digest.update(f"{decision.bin} {float(agrees)!r} {None if cost is None else float(cost)!r};".encode())
        self.warm_start({**reader.state(), "id": f"log {digest.hexdigest()[:16]}"}, weight)

    def _refusal(self, decision: Decision) -> str:
        if decision.time is None:
            return "decision was accepted and teaches nothing"
        if decision.policy != self.id:
            return "decision must come from this policy"
        return "decision must be waiting for feedback (learned before, or too many came after it)"

    def _checked_agreement(self, decision: Decision, agreed: float | None) -> float:
        if agreed is True or agreed is False:
            return float(agreed)
        if agreed is None and not decision.offload and Need.AGREEMENT not in self.needs:
            return 0.0  # nobody knows, and the policy does not look
        if type(agreed).__name__ in ("bool", "bool_"):  # numpy's booleans
            return float(bool(agreed))
        return real(type(self).__name__, "agreed", agreed, 0, 1)

    def _checked_cost(self, decision: Decision, cost: float | None) -> float:
        if cost is not None:
            return real(type(self).__name__, "cost", cost, 0, 1)
        if self.offload_cost is None and self.weighs_cost and (decision.offload or Need.COST in self.needs):
            raise TypeError(f"{type(self).__name__}: cost must be a number, as the offload cost is learned, got None")
        return self.offload_cost or 0.0

    @property
    def alarms(self) -> dict[str, int]:
        """How often the policy found the world changed and dropped what it knew, by what had changed."""
        return {}

    @property
    def exhausted(self) -> bool:
        """Whether a budget leaves nothing to spend at present, so that samples are accepted that want offloading."""
        return False

    # -- explaining ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def explain(self, bin: int) -> Explanation:
        """Why the next sample of this bin would be accepted or offloaded, in numbers and as one sentence."""

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({settings})"
