"""What every policy is: a clock, a table, functions on that table, and a state to save, restore and merge.

A policy keeps everything it knows in `table`, a named tuple of typed arrays (`whole_column`, `real_column`) and
numbers. Its functions,

    offloads(table, bin, time) -> bool                       # what it would decide; only a price may be reviewed
    notes(table, bin, time) -> None                          # an offload was decided: what that changes at once
    learns(table, bin, agreed, cost, time, now) -> None      # decided at `time`, learned at `now`
    accepts(table, bin, time) -> None                        # a sample was accepted; most policies do not count those
    expects(table, cost) -> None                             # what offloading the next sample costs; few can use it

are plain functions in the subset of Python that numba compiles. The objects here call them as they are; the simulator
compiles the same functions and calls them on numpy's arrays.

What was learned is a set of sums (the columns named in `evidence`), so that merging is addition. Evidence is kept by
its source, the policy that gathered it: every source counts once, by any route. Everything else
in the table is derived from the evidence, or saved as it is (`carried`).

Names turn into policies in `build`, `restore` and `policy_class`, and nowhere else.
"""

import copy
import hashlib
import inspect
import secrets
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar, get_type_hints

from hinge._checks import agreement, did_you_mean, positive, real, share, shown, whole
from hinge.errors import HingeError, InvalidDecision, InvalidState, InvalidType, InvalidValue, UnknownName

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Wholes = MutableSequence[int]
Reals = MutableSequence[float]
COUNT, SUM, SQUARES = 0, 1, 2  # the entries of a column of costs: their number, sum and sum of squares
COST_SUMS = 3

signature = cache(inspect.signature)  # to ask for it takes as long as to build a policy


def whole_column(length: int, value: int = 0) -> Wholes:
    """A column of integers, 8 bytes each, as compiled code takes it too.

    >>> whole_column(3)
    array('q', [0, 0, 0])
    """
    return array("q", [value]) * length


def quick_column(length: int) -> Wholes:
    """A column of integers that every accepted sample reads and writes: a list, which Python does faster in.

    >>> quick_column(3)
    [0, 0, 0]
    """
    return [0] * length


def is_whole(column: Any) -> bool:
    """Whether a column holds integers."""
    return isinstance(column, list) or bool(column.typecode == "q")


def real_column(length: int, value: float = 0.0) -> Reals:
    """A column of real numbers, 8 bytes each.

    >>> real_column(2, 1.0)
    array('d', [1.0, 1.0])
    """
    return array("d", [value]) * length


@cache
def fields(table: type) -> list[tuple[str, Callable[[int], Any] | None, int | None]]:
    """The fields of a kind of table: what makes its column, if it is one, and how long that is, if it says so."""
    columns: dict[Any, Any] = {Reals: real_column, Wholes: whole_column}
    told = get_type_hints(table, include_extras=True)
    lengths = {name: getattr(hint, "__metadata__", (None,))[0] for name, hint in told.items()}
    return [(name, columns.get(hint), lengths[name]) for name, hint in get_type_hints(table).items()]


class Decision(NamedTuple):
    """What a policy decided for one sample, and all that `learn` needs to know about it later.

    A decision that waits for feedback carries its bin, its time and the id of the policy that made it. An accepted
    sample usually teaches nothing; it then gets the shared record `ACCEPTED`, so that accepting allocates nothing.
    """

    offload: bool
    bin: int | None = None
    time: int | None = None
    policy: str | None = None


ACCEPTED = Decision(offload=False)
_new = tuple.__new__  # creates a Decision in half the time of Decision(…)


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of a batch: an array to act on, and a `Decision` for each sample to learn from.

    >>> from hinge import HILCB
    >>> batch = HILCB(bins=16, offload_cost=0.5).decide_many([3, 11])
    >>> batch.offload.tolist(), batch[1].bin, len(batch)
    ([True, True], 11, 2)
    """

    offload: "NDArray[np.bool_]"
    bins: "NDArray[np.int64]"
    first_time: int
    policy: str
    accepted_wait: bool  # whether accepted samples, too, await feedback

    def __len__(self) -> int:
        return len(self.offload)

    def __getitem__(self, position: int) -> Decision:
        offload = bool(self.offload[position])
        if not offload and not self.accepted_wait:
            return ACCEPTED
        time = self.first_time + range(len(self))[position]
        return Decision(offload, int(self.bins[position]), time, self.policy)

    def __iter__(self) -> Iterator[Decision]:
        return (self[position] for position in range(len(self)))


@dataclass(frozen=True)
class Explanation:
    """Why a policy would decide as it would for the next sample of a bin; `str()` says it in one sentence."""

    bin: int
    offload_probability: float  # 0 or 1 for a deterministic policy
    offloads: float | None  # n: offloads of this bin learned so far; None: the policy does not count them
    agreement: float | None  # f: the share of them in which local agreed with remote; None before the first
    expiry: int | None  # the time from which this bin is offloaded again; None: never, or not decided by expiry
    samples_left: int | None  # samples of any bin until then
    reason: str

    def __str__(self) -> str:
        return self.reason


class Need(Enum):
    """What a policy must be told about every sample, beyond what an offload reveals."""

    COST = "the offload cost of every sample"
    AGREEMENT = "whether local agrees with remote on every sample"


def note_nothing(table: Any, bin: int, time: int) -> None:
    """An offload changes nothing until its feedback arrives."""


def derive_nothing(table: Any) -> None:
    """Nothing is derived from the evidence."""


NOT_TOLD = -1.0  # in place of a cost


def expect_nothing(table: Any, cost: float) -> None:
    """A cost that is known beforehand is of no use."""


class Functions(NamedTuple):
    """The functions of a policy on its table: plain functions, for the simulator and for budgets to call."""

    offloads: Callable[..., bool]
    notes: Callable[..., None]
    learns: Callable[..., None]
    accepts: Callable[..., None] = note_nothing
    expects: Callable[..., None] = expect_nothing


CHANGEABLE = ("offload_cost", "alpha")  # of a policy that has learned, where its evidence does not depend on them
STATE_VERSION = 1
OUTSTANDING = 65_536  # decisions that may wait for feedback at once; beyond that the oldest are dropped
MOST_SAMPLES = 2**53  # that a state may speak of: larger counts are not exact in a float, and nothing lives so long
HEAVIEST = 1e6  # that an offload of a log may count as
MOST_SIZE = 2**20  # of anything that parameters size: a state of a few bytes must not ask for gigabytes
_ROUNDING = 1e-6  # agreements may be sums of prices
_LARGEST = 1e300  # a number in a state: sums of a few of them are finite still

State = dict[str, Any]
Evidence = dict[str, list[float]]
Made = TypeVar("Made", bound="Policy")
Layout = TypeVar("Layout", bound=tuple[Any, ...])

_registry: dict[str, type["Policy"]] = {}


class Policy(ABC):
    """Decides, sample by sample, whether to accept the local answer, and learns from offloads.

    A subclass with a `name` is registered under it. Its constructor's parameters are also its public attributes, and
    the constructor ends with `start`. Not thread-safe: `hinge.Device` locks its policy.
    """

    name: ClassVar[str]
    evidence: tuple[str, ...] = ()  # columns that are sums of what was learned: saved, and added up by `merge`
    carried: tuple[str, ...] = ()  # columns that cannot be derived from the evidence: saved as they are
    licences: tuple[str, ...] = ()  # carried columns that end when a setting changes, as they were found by the old one
    spent: tuple[str, ...] = ()  # carried columns that hold what a budget has spent: a rollback leaves them alone
    order_matters: tuple[str, ...] = ()  # columns of the evidence that depend on the order of the feedback
    merges_on: tuple[str, ...] = ("bins",)  # parameters that two policies must share to add up their evidence
    needs: frozenset[Need] = frozenset()  # what it must be told about accepted samples
    weighs_cost: bool = True  # whether it uses what an offload cost
    charges_failures: bool = False  # whether a cost that it learns includes what failed offloads cost
    assumes_monotone: bool = False  # whether it relies on agreement not falling with confidence
    keeps_budget: ClassVar[bool] = False  # whether it keeps a budget, and so has another goal than the least cost

    bins: int
    offload_cost: float | None
    table: Any
    functions: Functions  # on the table, as `start` was given them, for programs that run them on a copy of it

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "name" not in cls.__dict__:
            return
        known = _registry.get(cls.name)
        if known and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ValueError(f"{cls.__qualname__}: the name {cls.name!r} is that of {known.__qualname__} already")
        _registry[cls.name] = cls

    def __init__(self, bins: int, offload_cost: float | None) -> None:
        owner = type(self).__name__
        self.bins = whole(owner, "bins", bins, 1, MOST_SIZE)
        self.offload_cost = None if offload_cost is None else real(owner, "offload_cost", offload_cost, 0, 1)
        self.time = 0
        self.learned = 0
        self.id = secrets.token_hex(8)
        self._pending: OrderedDict[int, Decision] = OrderedDict()  # oldest first, so that the oldest is quick to drop
        self._merged: dict[str, State] = {}
        self._owed = 0.0  # what failed offloads have cost that no answer was charged for yet
        self._charged = real_column(1)  # what the answer at hand counts beyond what it cost itself
        self._enclosed = False  # whether a budget has taken over its clock and its open decisions

    def start(
        self,
        table: Any,
        *,
        offloads: Callable[..., bool],
        learns: Callable[..., None],
        rebuilds: Callable[..., None] = derive_nothing,
        notes: Callable[..., None] = note_nothing,
        price: Reals | None = None,
        accepts: Callable[..., None] = note_nothing,
        expects: Callable[..., None] = expect_nothing,
    ) -> None:
        """Set the table and the functions on it; a constructor ends with this.

        `rebuilds(table)` derives everything from the evidence, after a restore or a merge. `price` is the column
        `table.price`, if there is one: a budget may raise what an offload costs there, and then rebuilds.
        """
        self.table, self.price_column, self._rebuilds = table, price, rebuilds
        self.functions = Functions(offloads, notes, learns, accepts, expects)
        self._offloads, self._notes, self._learns, self._accepts = offloads, notes, learns, accepts

    def blank(self, kind: type[Layout], unused: Sequence[str] = (), **given: Any) -> Layout:
        """A table that knows nothing: columns of a 0 for each bin, and the policy's parameters, but for what is given.

        A column that is `Annotated[Reals, 2]` has that many. Those that are `unused` are empty; so are, where the cost
        is known, `costs` and `filled`; `price` has one number, the cost. A field that is no column is a parameter,
        whatever its name.
        """
        learned = self.offload_cost is None
        known = {
            "costs": real_column(COST_SUMS if learned else 0),
            "price": real_column(1, self.offload_cost or 0.0),
            "filled": whole_column(self.bins + 1 if learned else 0),
            **given,
        }
        for name, column, length in fields(kind):
            if name not in known or (column is None and name not in given):
                known[name] = column(0 if name in unused else length or self.bins) if column else getattr(self, name)
        return kind(**{name: known[name] for name, _, _ in fields(kind)} | given)  # which refuses what is no field

    @property
    def takes_cost(self) -> bool:
        """Whether `decide` can be told what offloading the very sample costs."""
        return self.functions.expects is not expect_nothing

    # -- being built --------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the same policy again."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @classmethod
    def settings(cls) -> frozenset[str]:
        """The names of everything it can be built from: those of `parameters`, and `history` if it can be fitted."""
        return frozenset(signature(cls).parameters)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Policy":
        """The policy built from settings that may hold more than it needs."""
        return made(cls, cls, settings)

    @classmethod
    def is_informed(cls) -> bool:
        """Whether it knows more than a device can: the truth, labelled history, or how every sample would agree."""
        return bool(cls.settings() & {"history", "agreement"}) or Need.AGREEMENT in cls.needs

    def changed(self, **settings: Any) -> Self:
        """The same policy with another `offload_cost` or `alpha`, and all that it has learned.

        A policy whose evidence was gathered for one cost, or one that learns its cost, refuses another.

        >>> from hinge import HILCBLite
        >>> policy = HILCBLite(bins=2, offload_cost=0.5)
        >>> for decision in policy.decide_many([1] * 20):
        ...     policy.learn(decision, agreed=True)
        >>> policy.decide(1).offload, policy.changed(offload_cost=0.05).decide(1).offload
        (False, True)
        """
        owner, inside, state = type(self).__name__, self.unlimited, copy.deepcopy(self.state())
        parameters = state["parameters"]
        while "policy" in parameters:  # of a budget
            parameters = parameters["policy"]["parameters"]
        for name, value in settings.items():
            if name not in CHANGEABLE or name not in parameters:
                known = " and ".join(each for each in CHANGEABLE if each in parameters) or "nothing"
                raise InvalidValue(owner, name, f"cannot be changed: of {inside.name}, {known} can")
            if name in inside.merges_on or "threshold" in parameters:
                raise InvalidValue(owner, name, f"cannot be changed: what {inside.name} knows depends on it")
            if parameters[name] is None or value is None:
                raise InvalidValue(owner, name, "cannot be changed: one that is learned needs other evidence")
            parameters[name] = value
        for field, values in state["carried"].items():
            if field.rpartition(".")[2] in inside.licences:
                values[:] = [0] * len(values)
        type(self)(**state["parameters"])  # so that a wrong value is refused by its name
        return type(self).restore(state)

    def fresh(self, seed: int | None = None) -> Self:
        """The same policy before its first sample; a randomised one gets the new seed if one is given."""
        parameters = self.parameters
        if seed is not None and "seed" in parameters:
            parameters["seed"] = seed
        return type(self)(**parameters)

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        """Decide for the next sample, whose confidence lies in `bin`; advances `time` by one.

        `cost` is what offloading this very sample costs, where that is known beforehand and differs from sample to
        sample. Policies that cannot use it raise `TypeError`.
        """
        if cost is not None:
            return self._decide_at(bin, cost)
        if type(bin) is not int or not 0 <= bin < self.bins:
            bin = self._checked_bin(bin)
        time = self.time + 1
        offload = self._offloads(self.table, bin, time)
        self.time = time
        (self._notes if offload else self._accepts)(self.table, bin, time)
        return self._await(offload, bin, time) if offload or self.needs else ACCEPTED

    def _decide_at(self, bin: int, cost: float) -> Decision:
        bin, cost = self._checked_bin(bin), self._checked_told(cost)
        self.functions.expects(self.table, cost)
        try:
            return Policy.decide(self, bin)
        finally:
            self.functions.expects(self.table, NOT_TOLD)

    def _checked_told(self, cost: float) -> float:
        owner = type(self).__name__
        if not self.takes_cost:
            raise TypeError(f"{owner}: cost cannot be used before an offload; 'sentinel' can, got {cost!r}")
        return share(owner, "cost", cost)

    def decide_many(
        self, bins: "Iterable[int] | NDArray[np.integer[Any]]", costs: Iterable[float | None] | None = None
    ) -> Decisions:
        """Decide for a batch at once, as `decide` would one by one if nothing were learned in between.

        Bins and costs are checked first: a batch that is refused changes nothing.
        """
        import numpy as np  # batches are arrays; deciding one sample needs no more than the standard library

        checked = self._checked_bins(bins)
        first = self.time + 1
        if costs is None:
            decisions = [self.decide(bin) for bin in checked.tolist()]
        else:
            told = [None if cost is None else self._checked_told(cost) for cost in costs]
            if len(told) != len(checked):
                lengths = f"{len(checked)} and {len(told)}"
                raise ValueError(f"{type(self).__name__}: bins and costs must be equally long, got {lengths}")
            decisions = [self.decide(bin, cost) for bin, cost in zip(checked.tolist(), told, strict=True)]
        offload = np.fromiter((decision.offload for decision in decisions), bool, len(checked))
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
        """Learn what an offload revealed: whether local agreed with remote, and what the offload cost.

        Feedback may come in any order and with any delay, once for each decision. `agreed` is True or False, or, where
        wrong answers have different prices (`hinge.costs.CostMatrix`), one minus the price of this one. `cost` is
        needed only where the offload cost is learned; what failed offloads have cost is added to it (see `forget`).
        """
        time = self._waiting(decision)
        share_agreed = self._checked_agreement(decision, agreed)
        own = price = self._checked_cost(decision, cost)
        del self._pending[time]
        self.learned += 1
        if self._owed:
            price = min(1.0, own + self._owed)
            self._owed -= price - own
        self._charged[0] = price - own
        self._learns(self.table, decision.bin, share_agreed, price, time, self.time)

    def forget(self, decision: Decision, cost: float = 0.0) -> None:
        """Stop waiting for the feedback of a decision; nothing is learned from it about agreement.

        `cost` is what the offload cost though it failed. Where the cost is learned, the next answers are charged for
        it, up to a cost of 1 each: so an answer costs what is spent on one on average, failures included.

        >>> from hinge import Isotonic
        >>> policy = Isotonic(bins=16)
        >>> policy.forget(policy.decide(3), cost=0.9)
        >>> for _ in range(2):
        ...     policy.learn(policy.decide(3), agreed=True, cost=0.5)
        >>> policy.learned, policy.state()["evidence"]["costs"][:2]  # two costs and their sum: 0.9 + 0.5 + 0.5
        (2, [2.0, 1.9])
        """
        time, paid = self._waiting(decision), share(type(self).__name__, "cost", cost)
        del self._pending[time]
        if self.offload_cost is None and self.weighs_cost and self.charges_failures:
            self._owed += paid

    def spend(self, offloads: int) -> None:  # noqa: B027  # most policies have no budget
        """Count offloads that were not decided here against a hard budget, if there is one: nobody had a choice.

        >>> from hinge import Isotonic, at_most
        >>> policy = at_most(Isotonic(bins=16, offload_cost=0.5), offloads=0.2, window=10)
        >>> policy.spend(1)
        >>> [policy.decide(0).offload for _ in range(9)].count(True)
        1
        """

    def _waiting(self, decision: Decision) -> int:
        """The time of a decision that waits for feedback."""
        if not isinstance(decision, Decision):
            raise TypeError(f"{type(self).__name__}: decision must be a Decision, got {decision!r}")
        time = decision.time
        if time is not None:
            found = self._pending.get(time)
            if found is decision or found == decision:  # the first is quicker, and usual
                return time
        raise InvalidDecision(f"{type(self).__name__}: {self._refusal(decision)}, got {decision!r}")

    def _refusal(self, decision: Decision) -> str:
        if decision.time is None:
            return "decision was accepted and teaches nothing"
        if decision.policy != self.id:
            return "decision must come from this policy"
        return "decision must be waiting for feedback (learned before, or too many came after it)"

    def _checked_agreement(self, decision: Decision, agreed: float | None) -> float:
        if agreed is True or agreed is False or (type(agreed) is float and 0.0 <= agreed <= 1.0):  # what devices give
            return float(agreed)
        if agreed is None and not decision.offload and Need.AGREEMENT not in self.needs:
            return 1.0  # unknown for an accepted sample: no error was seen
        return agreement(type(self).__name__, "agreed", agreed)

    def _checked_cost(self, decision: Decision, cost: float | None) -> float:
        if type(cost) is float and 0.0 <= cost <= 1.0:
            return cost
        if cost is not None:
            return share(type(self).__name__, "cost", cost)
        if self.offload_cost is None and self.weighs_cost and (decision.offload or Need.COST in self.needs):
            raise TypeError(f"{type(self).__name__}: cost must be a number, as the offload cost is learned, got None")
        return self.offload_cost or 0.0

    def learn_log(
        self, bins: Iterable[int], agreed: Iterable[float], costs: Iterable[float] | None = None, *, weight: float
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
        if "offloads" not in self.evidence:
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
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{error} (in row {reader.time - 1} of the log)") from None
            digest.update(f"{decision.bin} {float(agrees)!r} {None if cost is None else float(cost)!r};".encode())
        weight = positive(owner, "weight", weight, HEAVIEST)
        self._take_all({**reader.state(), "id": f"log {digest.hexdigest()[:16]}"}, weight)

    # -- what others ask ----------------------------------------------------------------------------------------------

    @abstractmethod
    def explain(self, bin: int) -> Explanation:
        """Why the next sample of this bin would be accepted or offloaded, in numbers and as one sentence."""

    def is_audit(self, decision: Decision) -> bool:
        """Whether an offload that waits for feedback only checks a bin that is accepted by what is known of it."""
        return False

    @property
    def unlimited(self) -> "Policy":
        """The policy without the budgets around it; itself, unless it is one."""
        return self

    @property
    def limitable(self) -> bool:
        """Whether a budget may refuse its offloads: it learns from offloads alone, and not by their probability."""
        return not self.needs

    @property
    def alarms(self) -> dict[str, int]:
        """How often the policy noticed a change and dropped what it knew, by what had changed."""
        return {}

    @property
    def exhausted(self) -> bool:
        """Whether a budget leaves nothing to spend at present, so that samples are accepted that want offloading."""
        return False

    @property
    def warning(self) -> str | None:
        """What the policy cannot keep at present, in words; None: nothing."""
        return "the offload budget is exhausted" if self.exhausted else None

    def _explained(
        self, bin: int, probability: float, reason: str, expiry: int | None = None, left: int | None = None
    ) -> Explanation:
        """The explanation for a bin, with its counts."""
        offloads, agreements = self._counts(bin) or (None, 0.0)
        agreement = agreements / offloads if offloads else None
        return Explanation(bin, probability, offloads, agreement, expiry, left, reason)

    def _seen(self, bin: int) -> str:
        """What was seen of a bin, in words."""
        offloads, agreements = self._counts(bin) or (0.0, 0.0)
        return f"local agreed in {agreements:g} of {offloads:g} offloads" if offloads else "no offload of it seen yet"

    def _counts(self, bin: int) -> tuple[float, float] | None:
        """Offloads and agreements of a bin, if the policy keeps them."""
        return (self.table.offloads[bin], self.table.agreements[bin]) if hasattr(self.table, "offloads") else None

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({settings})"

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """All that the policy knows, as a dict that JSON can hold; `restore` continues bit-identically from it."""
        return {
            "hinge_state": STATE_VERSION,
            "policy": self.name,
            "id": self.id,
            "parameters": self.parameters,
            "merged": copy.deepcopy(self._merged),
            "time": self.time,
            "learned": self.learned,
            "as_of": self.unlimited._as_of(),
            "alarms": self.unlimited._alarms(),
            "evidence": {field: list(self._column(field)) for field in self.evidence},
            "carried": {field: list(self._column(field)) for field in self.carried},
            "pending": [[decision.time, decision.bin, decision.offload] for decision in self._pending.values()],
            "owed": self._owed,
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """The policy that `state()` described; raises `InvalidState` for one that no policy can have written."""
        parameters = cls._checked_header(state)["parameters"]
        try:
            policy = cls(**parameters)
        except Exception as error:  # parameters from a file may make a constructor, also a user's, fail in any way
            problem = f"{error}"[:200] or type(error).__name__
            raise InvalidState(f"{cls.__name__}: state has impossible parameters: {problem}") from error
        policy._fill(state)
        return policy

    def _column(self, field: str) -> Any:
        """A column of the table that is saved."""
        return getattr(self.table, field)

    def _as_of(self) -> int:
        """The time that the evidence in the table is as of."""
        return self.time

    def _alarms(self) -> list[int]:
        """How often evidence was dropped, by kind; for policies that forget."""
        return []

    def _rebuild(self) -> None:
        """Derive the rest of the table from the evidence."""
        self._rebuilds(self.table)

    def _recounted(self) -> None:  # noqa: B027  # most policies know no more than counts
        """Evidence has come as counts, not sample by sample."""

    def _fill(self, state: Mapping[str, Any]) -> None:
        id = state.get("id")
        if not isinstance(id, str) or not id:
            raise InvalidState(f"state: id must be a name, got {shown(id)}")
        self.id = id
        self.time, self.learned = _count(state, "time"), _count(state, "learned")
        self._merged = {source: self._snapshot(snapshot) for source, snapshot in _mapping(state, "merged").items()}
        evidence = self._snapshot(state)["evidence"]
        others = sum(_offloads_in(snapshot["evidence"]) for snapshot in self._merged.values())
        self._check_amount(evidence, self.learned + others)
        for field, values in evidence.items():
            column = self._column(field)
            column[:] = array("q" if is_whole(column) else "d", values)
        owed: Any = state.get("owed")
        if type(owed) not in (int, float) or not 0 <= owed <= self.time:  # every sample so far may have failed, at 1
            raise InvalidState(f"{type(self).__name__}: state owes {shown(owed)} for offloads that failed")
        self._owed = float(owed)
        pending = state.get("pending")
        if not isinstance(pending, list):
            raise InvalidState(f"{type(self).__name__}: pending must be a list, got {shown(pending)}")
        for entry in pending:
            self._restore_pending(entry)
        self._rebuild()
        for field in self.carried:
            column = self._column(field)
            column[:] = array("q" if is_whole(column) else "d", self._checked_field(_mapping(state, "carried"), field))
        self._refresh()

    def _refresh(self) -> None:
        """Check what was restored, and derive what depends on carried columns."""
        for source, snapshot in self._merged.items():
            if snapshot["as_of"] > self.time:
                raise InvalidState(f"{type(self).__name__}: state has evidence of {shown(source)} from the future")

    def _restore_pending(self, entry: object) -> None:
        if not (isinstance(entry, list | tuple) and len(entry) == 3 and isinstance(entry[2], bool)):
            raise InvalidState(f"{type(self).__name__}: state has an impossible pending decision: {shown(entry)}")
        try:
            bin, time = self._checked_bin(entry[1]), whole(type(self).__name__, "time", entry[0], 1, self.time)
        except (TypeError, ValueError) as error:
            raise InvalidState(f"{type(self).__name__}: state has an impossible pending decision: {error}") from error
        self._await(entry[2], bin, time)

    def _snapshot(self, state: Mapping[str, Any]) -> State:
        """The evidence in a state or in one source's part of it, checked and copied."""
        if not isinstance(state, Mapping):
            raise InvalidState(f"{type(self).__name__}: state must hold dicts as 'merged', got {shown(state)}")
        evidence = _mapping(state, "evidence")
        checked = {field: self._checked_field(evidence, field) for field in self.evidence}
        problem = _contradiction(checked)
        time, learned = _count(state, "time"), _count(state, "learned")
        if learned > time:
            problem = f"{learned} learned of {time} samples"
        if problem:
            raise InvalidState(f"{type(self).__name__}: state has {problem}")
        as_of, alarms = _count(state, "as_of"), state.get("alarms")
        if not isinstance(alarms, list) or not all(type(count) is int and 0 <= count <= self.time for count in alarms):
            raise InvalidState(f"{type(self).__name__}: alarms must be a list of counts, got {shown(alarms)}")
        return {"time": time, "learned": learned, "as_of": as_of, "alarms": list(alarms), "evidence": checked}

    def _checked_field(self, evidence: Mapping[str, Any], field: str) -> list[float]:
        column = self._column(field)
        values = evidence.get(field)
        if not isinstance(values, list) or len(values) != len(column):
            raise InvalidState(f"{type(self).__name__}: state needs {len(column)} numbers as {field!r}")
        kinds, limit = ((int,), 2**62) if is_whole(column) else ((int, float), _LARGEST)
        for value in values:
            if type(value) not in kinds or not 0 <= value <= limit:  # nor NaN
                raise InvalidState(f"{type(self).__name__}: state has {shown(value)} in {field!r}")
        return list(values)

    def _check_amount(self, evidence: Evidence, learned: float, source: str = "") -> None:
        """Evidence cannot count more offloads than were learned from."""
        counted = _offloads_in(evidence)
        if counted > learned * (1.0 + 1e-9) + _ROUNDING:
            of = f" of {shown(source)}" if source else ""
            raise InvalidState(f"{type(self).__name__}: state counts {counted:g} offloads{of}, but {learned:g} learned")

    @classmethod
    def _checked_header(cls, state: Mapping[str, Any]) -> Mapping[str, Any]:
        if not isinstance(state, Mapping):
            raise TypeError(f"{cls.__name__}: state must be a dict as state() returns it, got {shown(state)}")
        version = state.get("hinge_state")
        if "hinge_gate" in state:
            raise InvalidState(f"{cls.__name__}: state is that of a gate; give its policy's part, state['policy']")
        if type(version) is not int or version < 1:
            raise InvalidState(f"{cls.__name__}: state must have a 'hinge_state' version, got {shown(version)}")
        if version > STATE_VERSION:
            newer = f"state is of version {shown(version)}; this Hinge reads up to {STATE_VERSION}"
            raise InvalidState(f"{cls.__name__}: {newer}")
        if state.get("policy") != cls.name:
            raise InvalidState(
                f"{cls.__name__}: state must be of policy {cls.name!r}, got {shown(state.get('policy'))}"
            )
        if not all(isinstance(name, str) for name in _mapping(state, "parameters")):
            raise InvalidState(f"{cls.__name__}: state has impossible parameters: {shown(state['parameters'])}")
        return state

    # -- merging ------------------------------------------------------------------------------------------------------

    def merge(self, other_state: Mapping[str, Any]) -> None:
        """Add the evidence in another device's state to this policy's own.

        States may come in any order, by any route and repeatedly: of each source the latest evidence seen counts, once.
        What a state says about this policy itself is ignored. Evidence that ages is as old here as it is there.
        """
        self._take_all(other_state, 1.0)

    def _take_all(self, state: Mapping[str, Any], weight: float) -> None:
        self._check_like(type(self)._checked_header(state)["parameters"])
        other = type(self).restore(state)
        for field in self.evidence:
            mine, theirs = len(self._column(field)), len(other._column(field))
            if mine and mine != theirs:
                wanted = f"{type(self).__name__}: other_state must have {mine} numbers as {field!r}"
                raise InvalidState(f"{wanted}, got {theirs}: whether the cost is learned must be the same")
        sources = other._sources()
        for source, snapshot in sources.items():
            self._check_amount(snapshot["evidence"], snapshot["learned"], source)
        now = self.unlimited._catch_up()
        taken = [self._take(source, snapshot, weight, now) for source, snapshot in sources.items()]
        self._rebuild()
        if any(taken):
            self.unlimited._recounted()

    def _check_like(self, theirs: Mapping[str, Any]) -> None:
        """Evidence can be added only between policies that mean the same by it."""
        for name in self.merges_on:
            if getattr(self, name) != theirs.get(name):
                wanted = f"{type(self).__name__}: other_state must have {name}={getattr(self, name)!r}"
                raise InvalidState(f"{wanted}, got {shown(theirs.get(name))}")

    def _take(self, source: str, snapshot: State, weight: float, now: int) -> bool:
        """Count the evidence of a source, in place of what was known of it before; whether there is any that is new."""
        evidence = {field: self._weighed(field, snapshot["evidence"][field], weight) for field in self.evidence}
        known = self._merged.get(source)
        before = self.unlimited._left(known) if known else {field: [] for field in self.evidence}
        if source == self.id or (known and (*_age(known), _amount(before)) >= (*_age(snapshot), _amount(evidence))):
            return False
        for field in self.evidence:
            _add(self._column(field), evidence[field])
            _subtract(self._column(field), before[field])
        self._merged[source] = {**snapshot, "evidence": evidence, "as_of": now, "alarms": self.unlimited._alarms()}
        return any(evidence[field] != before[field] for field in self.evidence)

    def _weighed(self, field: str, values: list[float], weight: float) -> list[float]:
        """The values that count here: none of costs where the cost is known."""
        scaled = values if weight == 1.0 else [weight * value for value in values]  # whole numbers stay whole
        return list(scaled) if len(self._column(field)) else []

    def _sources(self) -> dict[str, State]:
        """What this policy knows at present, by the policy that gathered it."""
        total, inside = {field: list(self._column(field)) for field in self.evidence}, self.unlimited
        own = inside._aged(total, inside._as_of())
        sources = {}
        for source, snapshot in self._merged.items():
            evidence = inside._left(snapshot)
            sources[source] = {**snapshot, "evidence": evidence}
            for field, values in own.items():
                _subtract(values, evidence[field])
        return {self.id: {"time": self.time, "learned": self.learned, "evidence": own}, **sources}

    def _catch_up(self) -> int:
        """Bring evidence that ages to the present; returns that time."""
        return self.time

    def _left(self, snapshot: State) -> Evidence:
        """What is left at present of what was once merged."""
        return self._aged(snapshot["evidence"], snapshot["as_of"])

    def _aged(self, evidence: Evidence, since: int) -> Evidence:
        """What is left at present of evidence as of an earlier time."""
        return {field: list(values) for field, values in evidence.items()}


def _add(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        total[position] += value


def _subtract(total: MutableSequence[float], values: Sequence[float]) -> None:
    for position, value in enumerate(values):
        left = total[position] - value
        total[position] = left if left > 1e-9 * value else 0 * left  # sums leave a rounding error


def _age(snapshot: State) -> tuple[int, int]:
    """Of two states of one source, the later has seen more samples, and learned from more of them."""
    return snapshot["time"], snapshot["learned"]


def _amount(evidence: Evidence) -> float:
    """Of two copies of one state, the one that has faded less, or has the larger weight, is the larger."""
    return sum(map(sum, evidence.values()))


def _offloads_in(evidence: Evidence) -> float:
    """The offloads that evidence counts; 0 where a policy does not count them."""
    return sum(evidence.get("offloads", ()))


def _contradiction(evidence: Evidence) -> str | None:
    """What no feedback can have added up to: agreements ≤ offloads, and 0 ≤ cost² ≤ cost ≤ 1 for each cost."""
    offloads, agreements = evidence.get("offloads", []), evidence.get("agreements", [])
    for position, (agreed, seen) in enumerate(zip(agreements, offloads, strict=False)):
        if agreed > seen * (1.0 + 1e-9) + _ROUNDING:
            return f"{agreed} agreements of {seen} at {position}"
    costs = evidence.get("costs", [])
    for sums in zip(costs[::3], costs[1::3], costs[2::3], strict=False):  # number, sum, sum of squares
        if any(less > more * (1.0 + 1e-9) + _ROUNDING for more, less in pairwise(sums)):
            return f"impossible sums of costs: {sums}"
    return None


def _mapping(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    if not isinstance(value, Mapping):
        raise InvalidState(f"state: {key} must be a dict, got {shown(value)}")
    return value


def _count(state: Mapping[str, Any], key: str) -> int:
    value = state.get(key)
    if type(value) is not int or not 0 <= value <= MOST_SAMPLES:
        raise InvalidState(f"state: {key} must be a count, got {shown(value)}")
    return value


def made(kind: type[Made], maker: Callable[..., Made], settings: Mapping[str, Any], hint: str = "") -> Made:
    """What a constructor or a `fit` makes of the settings that it knows; raises `TypeError` if some are missing.

    Whatever else it raises, also a user's, says that it refuses them.
    """
    parameters = signature(maker).parameters
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty and parameter.name not in settings
    ]
    if missing:
        raise InvalidType(kind.name, ", ".join(missing), f"must be given{hint}")
    known = {key: value for key, value in settings.items() if key in parameters}
    try:
        return maker(**known)
    except HingeError:
        raise
    except Exception as error:
        refused, given = InvalidType if isinstance(error, TypeError) else InvalidValue, f"{known!r:.200}"
        problem = f"must be such as it can be built from, got {given}: {type(error).__name__}: {error}"
        raise refused(kind.name, "settings", problem) from error


def policy_names() -> list[str]:
    """The names of all policies, those that users have defined included; not those of budgets, which need a policy.

    >>> "hi-lcb" in policy_names(), "at-most" in policy_names()
    (True, False)
    """
    return sorted(name for name, policy in _registry.items() if "policy" not in policy.settings())


def policy_class(name: str) -> type[Policy]:
    """The policy of that name.

    >>> policy_class("hi-lbc")
    Traceback (most recent call last):
    hinge.errors.UnknownName: no policy is called 'hi-lbc'; did you mean 'hi-lcb'?
    """
    if name in _registry:
        return _registry[name]
    raise UnknownName(f"no policy is called {shown(name)}{did_you_mean(name, policy_names())}")


def build(name: str, **settings: Any) -> Policy:
    """A policy by name, from settings that may hold more than it needs; it uses those that it knows.

    A policy that is fitted on labelled history needs `history` and `agreed`; one that cannot be built says what is
    missing.

    >>> build("hi-lcb", bins=16, alpha=0.52, offload_cost=0.5, horizon=1000, seed=1)
    HILCB(bins=16, alpha=0.52, offload_cost=0.5, offload_unseen=True)
    """
    chosen = policy_class(name)
    known = {key for policy in _registry.values() for key in policy.settings()}
    for key in settings:
        if key not in known:
            raise TypeError(f"build: no policy has a setting {key!r}{did_you_mean(key, known)}")
    return chosen.from_settings(settings)


def restore(state: Mapping[str, Any]) -> Policy:
    """The policy that a saved state describes.

    >>> restore(build("kl", bins=8, offload_cost=0.3).state()).name
    'kl'
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("policy"), str):
        raise InvalidState(f"state must be a dict that names its policy, got {shown(state)}")
    return policy_class(state["policy"]).restore(state)
