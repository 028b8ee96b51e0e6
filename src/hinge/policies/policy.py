"""The contract of every policy: a table, functions on it, and an object around both that decides, learns and saves.

A policy keeps what it knows in `table`, a named tuple of typed columns (`whole_column`, `real_column`) and numbers. Its
`Functions` are plain functions on that table, in the subset of Python that numba compiles. The objects here call them
as they are; the simulator compiles the same functions and calls them on numpy's arrays.

What was learned is a set of sums (the columns named in `evidence`), so that merging is addition. Everything else in the
table is either saved as it is (`saved`) or derived from these (`Functions.rebuilds`).

What an offload costs, what a budget adds to that, and how bins are formed are the gate's (`hinge.gate`): it tells the
policy the price to decide by.

Names turn into policies in `build`, `restore` and `policy_class`, and nowhere else.
"""

import hashlib
import inspect
import secrets
from abc import ABC, abstractmethod
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, ClassVar, NamedTuple, Self

from hinge._checks import agreement, did_you_mean, real, share, shown, whole
from hinge._columns import Reals, is_whole
from hinge.errors import HingeError, InvalidDecision, InvalidState, InvalidType, InvalidValue, UnknownName

State = dict[str, Any]

STATE_VERSION = 1
FOREVER = 2**62  # samples, or a time that no clock reaches
MAX_PENDING = 65_536  # decisions that may wait for feedback at once; beyond that the oldest are dropped
MAX_SAMPLES = 2**53  # that a state may speak of: larger counts are not exact in a float
MAX_SIZE = 2**20  # of anything that parameters size: a state of a few bytes must not ask for gigabytes
_MAX_NUMBER = 1e300  # in a state: sums of a few of them are finite still
_ROUNDING = 1e-6  # sums of agreements leave a rounding error
KEPT, DROPPED, DROPPED_ALL = 0, 1, 2  # what became of the record of a bin, or of all, when an offload was learned

signature = cache(inspect.signature)  # asking for it takes as long as building a policy


class Decision(NamedTuple):
    """What was decided for one sample, and all that `learn` needs to know about it later.

    A decision that waits for feedback carries its bin, its time and the id of the policy that made it; with bins that
    fit themselves also the cell, as the bin may be another by then. An accepted sample usually teaches nothing; it gets
    the shared record `ACCEPTED`, so that accepting allocates nothing.
    """

    offload: bool
    bin: int | None = None
    time: int | None = None
    policy: str | None = None
    cell: int | None = None


ACCEPTED = Decision(offload=False)


@dataclass(frozen=True)
class Explanation:
    """Why a policy would decide as it would for the next sample of a bin; `str()` says it in one sentence."""

    bin: int
    offload_probability: float  # 0 or 1 for a deterministic policy
    offloads: float | None  # n: offloads of this bin learned so far; None: the policy does not count them
    agreement: float | None  # f: the share of them in which local agreed with remote; None before the first
    samples_left: int | None  # samples until the bin is offloaded again; None: not decided by a licence, or never
    reason: str

    def __str__(self) -> str:
        return self.reason


class Need(Enum):
    """What a policy must be told about every sample, beyond what an offload reveals."""

    COST = "the offload cost of every sample"
    AGREEMENT = "whether local agrees with remote on every sample"


def skip(table: Any, bin: int, time: int) -> None:
    """Change nothing."""


def rebuild_nothing(table: Any) -> None:
    """Derive nothing from the evidence."""


def set_price(table: Any, price: float, extra: float, time: int) -> None:
    """Set the price that the table is decided by."""
    table.price[0] = min(price + extra, 1.0)


def add_cells(table: Any, cells: Any, time: int) -> None:
    """Take over the records of bins that were formed anew."""
    from_cells(cells, table.offloads, table.agreements)


def from_cells(cells: Any, offloads: Reals, agreements: Reals) -> None:
    """Set the records of bins to the sums of their cells' records."""
    for bin in range(len(offloads)):
        offloads[bin] = agreements[bin] = 0.0
    for cell in range(len(cells.group)):
        bin = cells.group[cell]
        offloads[bin] += cells.offloads[cell]
        agreements[bin] += cells.agreements[cell]


class Functions(NamedTuple):
    """What a policy does, as plain functions on its table."""

    offloads: Callable[..., bool]  # (table, bin, time): whether to offload; changes nothing
    learns: Callable[..., int]  # (table, bin, agreed, cost, time, now): decided at `time`; what became of the record
    accepts: Callable[..., None] = skip  # (table, bin, time): the sample was accepted
    asks: Callable[..., None] = skip  # (table, bin, time): it is being offloaded
    passes: Callable[..., None] = skip  # (table, bin, time): it was accepted, but not because the policy says so
    offloads_at: Callable[..., bool] | None = None  # (table, bin, time, price): at a price for this sample alone
    reprices: Callable[..., None] | None = None  # (table, price, extra, time): what offloads cost from now on
    regroups: Callable[..., None] | None = None  # (table, cells, time): bins were formed anew
    rebuilds: Callable[..., None] = rebuild_nothing  # (table): derive the rest from evidence and what was saved


_registry: dict[str, type["Policy"]] = {}


class Policy(ABC):
    """Decides, sample by sample, whether to accept the local answer, and learns from offloads.

    A subclass with a `name` is registered under it. Its constructor's parameters are also its public attributes, and
    the constructor sets `table` and `functions`. Not thread-safe: `hinge.Device` locks its gate.
    """

    name: ClassVar[str]
    evidence: tuple[str, ...] = ()  # columns that are sums of what was learned: added up by `merge`
    saved: tuple[str, ...] = ()  # other columns that cannot be derived: saved as they are
    needs: frozenset[Need] = frozenset()  # what it must be told about accepted samples
    assumes_monotone: ClassVar[bool] = False  # whether it relies on agreement not falling with confidence
    weighs_price: ClassVar[bool] = True  # whether it decides by what an offload costs

    bins: int
    offload_cost: float | None
    table: Any
    functions: Functions

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
        self.bins = whole(owner, "bins", bins, 1, MAX_SIZE)
        self.offload_cost = None if offload_cost is None else real(owner, "offload_cost", offload_cost, 0, 1)
        self.time = 0
        self.learned = 0
        self.id = secrets.token_hex(8)
        self.elsewhere = 0  # offloads learned by others, whose counts a gate keeps
        self.pending: OrderedDict[int, Decision] = OrderedDict()  # what waits for feedback, by time; the oldest first
        self._merged: dict[str, State] = {}

    # -- being built --------------------------------------------------------------------------------------------------

    @property
    def parameters(self) -> dict[str, Any]:
        """The constructor's arguments: enough to build the same policy again."""
        return {name: getattr(self, name) for name in signature(type(self)).parameters}

    @classmethod
    def settings(cls) -> frozenset[str]:
        """Return the names of what it can be built from: `parameters`, and `history` if it can be fitted."""
        return frozenset(signature(cls).parameters)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "Policy":
        """Return the policy built from settings that may hold more than it needs."""
        policy: Policy = make(cls, cls, settings)
        return policy

    @classmethod
    def is_informed(cls) -> bool:
        """Return whether it knows more than a device can: the truth, labelled history, or every agreement."""
        return bool(cls.settings() & {"history", "agreement"}) or Need.AGREEMENT in cls.needs

    def fresh(self, seed: int | None = None) -> Self:
        """Return the same policy before its first sample; a randomised one gets the new seed if one is given."""
        parameters = self.parameters
        if seed is not None and "seed" in parameters:
            parameters["seed"] = seed
        return type(self)(**parameters)

    # -- deciding -----------------------------------------------------------------------------------------------------

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        """Decide for the next sample, whose confidence lies in `bin`; advances `time` by one.

        `cost` is what offloading this very sample costs, where that is known beforehand and differs from sample to
        sample: it decides this sample only. Policies that cannot use it raise `TypeError`.
        """
        if type(bin) is not int or not 0 <= bin < self.bins:
            bin = self._checked_bin(bin)
        time, functions = self.time + 1, self.functions
        if cost is None:
            offload = functions.offloads(self.table, bin, time)
        elif functions.offloads_at is None:
            raise TypeError(f"{type(self).__name__}: cost cannot be used before an offload, got {cost!r}")
        else:
            offload = functions.offloads_at(self.table, bin, time, share(type(self).__name__, "cost", cost))
        self.time = time
        if offload:
            functions.asks(self.table, bin, time)
        elif cost is None:
            functions.accepts(self.table, bin, time)
        else:
            functions.passes(self.table, bin, time)
        return self._await(offload, bin, time) if offload or self.needs else ACCEPTED

    def decide_many(self, bins: Iterable[int]) -> list[Decision]:
        """Decide for a batch as `decide` would one by one; a batch with an impossible bin changes nothing."""
        checked = [self._checked_bin(bin) for bin in bins]
        return [self.decide(bin) for bin in checked]

    def overrule(self, bin: int, offload: bool, audit: bool = False) -> Decision:
        """Count a sample that a gate decided, and wait for its feedback if it is offloaded.

        A gate looks at the price, and keeps to a budget. `audit` says that the policy would have offloaded it, too.
        """
        self.time += 1
        if offload:
            if audit:
                self.functions.asks(self.table, bin, self.time)
            return self._await(True, bin, self.time)
        self.functions.passes(self.table, bin, self.time)
        return ACCEPTED

    @property
    def takes_price(self) -> bool:
        """Whether it decides by a price that a gate can tell and move."""
        return self.functions.reprices is not None

    def reprice(self, price: float, extra: float = 0.0) -> None:
        """Set what an offload costs from now on, and what a budget adds to that."""
        if self.functions.reprices is None:
            raise TypeError(f"{type(self).__name__}: the price is its own and cannot be told")
        self.functions.reprices(self.table, price, extra, self.time)

    def _checked_bin(self, bin: object) -> int:
        return whole(type(self).__name__, "bin", bin, 0, self.bins - 1)

    def _await(self, offload: bool, bin: int, time: int) -> Decision:
        """Return the record of a decision from which the policy expects to learn."""
        pending = self.pending
        if len(pending) >= MAX_PENDING:
            pending.popitem(last=False)
        decision = pending[time] = Decision(offload, bin, time, self.id)
        return decision

    # -- learning -----------------------------------------------------------------------------------------------------

    def learn(
        self, decision: Decision, agreed: float | None = None, cost: float | None = None, *, bin: int | None = None
    ) -> int:
        """Learn what an offload revealed: whether local agreed with remote, and what the offload cost.

        Feedback may come in any order and with any delay, once for each decision. `agreed` is True or False, or how far
        the answers agree, from 0 to 1. `cost` is needed only by policies that learn it. `bin` is the bin by now, where
        it is another. Returns what became of the record: `KEPT`, `DROPPED` for that of the bin, or `DROPPED_ALL`.
        """
        time, held = self._waiting(decision)
        agrees, paid = self._checked_agreement(held, agreed), self._checked_cost(held, cost)
        del self.pending[time]
        self.learned += 1
        return self.functions.learns(self.table, held.bin if bin is None else bin, agrees, paid, time, self.time)

    def forget(self, decision: Decision) -> None:
        """Stop waiting for the feedback of a decision, and learn nothing from it."""
        del self.pending[self._waiting(decision)[0]]

    def place(self, decision: Decision, cell: int) -> Decision:
        """Return a decision that waits for feedback as one that knows its cell."""
        placed = decision._replace(cell=cell)
        if decision.time is not None:
            self.pending[decision.time] = placed
        return placed

    def _waiting(self, decision: Decision) -> tuple[int, Decision]:
        """Return the time of a decision that waits for feedback, and what was decided then."""
        if not isinstance(decision, Decision):
            raise TypeError(f"{type(self).__name__}: decision must be a Decision, got {decision!r}")
        time = decision.time
        if time is not None and decision.policy == self.id and time in self.pending:
            return time, self.pending[time]
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
        if cost is not None:
            return share(type(self).__name__, "cost", cost)
        if self.offload_cost is None and self.learns_cost and (decision.offload or Need.COST in self.needs):
            raise TypeError(f"{type(self).__name__}: cost must be a number, as the offload cost is learned, got None")
        return self.offload_cost or 0.0

    @property
    def learns_cost(self) -> bool:
        """Whether it learns what an offload costs by itself, from the costs of offloads."""
        return "costs" in self.evidence and self.offload_cost is None

    def learn_log(self, bins: Iterable[int], agreed: Iterable[float], costs: Iterable[float] | None = None) -> None:
        """Learn a log of this very pair of models, oldest sample first, as if each sample had been offloaded.

        The same log counts once.

        >>> from hinge.policies import Probation
        >>> policy = Probation(bins=2, offload_cost=0.5)
        >>> policy.learn_log([1] * 20, [True] * 20)
        >>> policy.decide(1).offload, policy.decide(0).offload
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
                reader.learn(reader._await(True, reader._checked_bin(bin), reader.time), agrees, cost)
            except (TypeError, ValueError) as error:
                kind = TypeError if isinstance(error, TypeError) else ValueError
                raise kind(f"{error} (in row {reader.time - 1} of the log)") from None
            digest.update(f"{bin} {float(agrees)!r} {None if cost is None else float(cost)!r};".encode())
        self.merge({**reader.state(), "id": f"log {digest.hexdigest()[:16]}"})

    # -- what others ask ----------------------------------------------------------------------------------------------

    @abstractmethod
    def explain(self, bin: int) -> Explanation:
        """Say why the next sample of this bin would be accepted or offloaded, in numbers and as one sentence."""

    @property
    def alarms(self) -> dict[str, int]:
        """How often the policy noticed a change and dropped what it knew, by what had changed."""
        return {}

    @property
    def warning(self) -> str | None:
        """What the policy cannot keep at present, in words; None: nothing."""
        return None

    def counts(self, bin: int) -> tuple[float, float] | None:
        """Return offloads and agreements of a bin, if the policy counts them."""
        return (self.table.offloads[bin], self.table.agreements[bin]) if "offloads" in self.evidence else None

    def _explained(self, bin: int, probability: float, reason: str, left: int | None = None) -> Explanation:
        offloads, agreements = self.counts(bin) or (None, 0.0)
        return Explanation(bin, probability, offloads, agreements / offloads if offloads else None, left, reason)

    def _seen(self, bin: int) -> str:
        offloads, agreements = self.counts(bin) or (0.0, 0.0)
        return f"{agreements:g} of {offloads:g} agreed" if offloads else "not yet compared"

    def __repr__(self) -> str:
        settings = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({settings})"

    # -- state --------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return all that the policy knows as a dict that JSON can hold; `restore` continues bit-identically."""
        return {
            "hinge_state": STATE_VERSION,
            "policy": self.name,
            "parameters": self.parameters,
            "id": self.id,
            "time": self.time,
            "learned": self.learned,
            "table": {name: list(getattr(self.table, name)) for name in (*self.evidence, *self.saved)},
            "pending": [[held.time, held.bin, held.offload, held.cell] for held in self.pending.values()],
            "elsewhere": self.elsewhere,
            "merged": {**self._merged},
        }

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Return the policy that `state()` described; raises `InvalidState` for one that no policy can have written."""
        cls._check_header(state)
        try:
            policy = cls(**_mapping(state, "parameters"))
        except Exception as error:  # parameters from a file may make a constructor, also a user's, fail in any way
            problem = f"{error}"[:200] or type(error).__name__
            raise InvalidState(f"{cls.__name__}: state has impossible parameters: {problem}") from error
        policy._fill(state)
        return policy

    @classmethod
    def _check_header(cls, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping):
            raise TypeError(f"{cls.__name__}: state must be a dict as state() returns it, got {shown(state)}")
        if "hinge_gate" in state:
            raise InvalidState(f"{cls.__name__}: state is that of a gate; give its policy's part, state['policy']")
        version = state.get("hinge_state")
        if version != STATE_VERSION:
            raise InvalidState(f"{cls.__name__}: state must be of version {STATE_VERSION}, got {shown(version)}")
        if state.get("policy") != cls.name:
            raise InvalidState(f"{cls.__name__}: state must be of {cls.name!r}, got {shown(state.get('policy'))}")

    def _fill(self, state: Mapping[str, Any]) -> None:
        owner, id, pending = type(self).__name__, state.get("id"), state.get("pending")
        if not isinstance(id, str) or not id:
            raise InvalidState(f"{owner}: id must be a name, got {shown(id)}")
        self.id, self.time, self.learned = id, _count(owner, state, "time"), _count(owner, state, "learned")
        if self.learned > self.time:
            raise InvalidState(f"{owner}: state has {self.learned} learned of {self.time} samples")
        merged = _mapping(state, "merged")
        self._merged = {source: self._checked_source(known) for source, known in merged.items()}
        self._set_columns(_mapping(state, "table"), (*self.evidence, *self.saved))
        self.elsewhere = _count(owner, state, "elsewhere")
        counted = sum(getattr(self.table, "offloads", ()))
        learned = self.learned + self.elsewhere + sum(known["learned"] for known in self._merged.values())
        if "offloads" in self.evidence and counted > learned * (1 + 1e-9) + _ROUNDING:
            raise InvalidState(f"{owner}: state counts {counted:g} offloads, but {learned:g} learned")
        if not isinstance(pending, list):
            raise InvalidState(f"{owner}: pending must be a list, got {shown(pending)}")
        for entry in pending:
            if not (isinstance(entry, list | tuple) and len(entry) == 4 and isinstance(entry[2], bool)):
                raise InvalidState(f"{owner}: state has an impossible pending decision: {shown(entry)}")
            try:
                made = self._await(entry[2], self._checked_bin(entry[1]), whole(owner, "time", entry[0], 1, self.time))
                if entry[3] is not None:
                    self.place(made, whole(owner, "cell", entry[3], 0, MAX_SIZE))
            except (TypeError, ValueError) as error:
                raise InvalidState(f"{owner}: state has an impossible pending decision: {error}") from error
        self.functions.rebuilds(self.table)
        self._check_table()

    def _set_columns(self, given: Mapping[str, Any], names: Iterable[str]) -> None:
        owner = type(self).__name__
        for name in names:
            column, values = getattr(self.table, name), given.get(name)
            integral = is_whole(column)
            if not isinstance(values, list) or len(values) != len(column):
                raise InvalidState(f"{owner}: state needs {len(column)} numbers as {name!r}")
            limit = FOREVER if integral else _MAX_NUMBER
            for value in values:
                if type(value) not in ((int,) if integral else (int, float)) or not 0 <= value <= limit:  # nor NaN
                    raise InvalidState(f"{owner}: state has {shown(value)} in {name!r}")
            column[:] = values if isinstance(column, list) else array(column.typecode, values)
        self._check_counts(given)

    def _check_counts(self, given: Mapping[str, Any]) -> None:
        """Refuse what no feedback can have added up to."""
        if "offloads" in self.evidence and "agreements" in self.evidence:
            for bin, (n, a) in enumerate(zip(given["offloads"], given["agreements"], strict=True)):
                if a > n * (1.0 + 1e-9) + _ROUNDING:
                    raise InvalidState(f"{type(self).__name__}: state has {a} agreements of {n} in bin {bin}")
        if self.learns_cost:
            number, total, squares = given["costs"]
            if not squares <= total * (1 + 1e-9) + _ROUNDING or not total <= number * (1 + 1e-9) + _ROUNDING:
                raise InvalidState(f"{type(self).__name__}: state has impossible sums of costs: {given['costs']}")

    def _check_table(self) -> None:  # noqa: B027  # most tables have nothing else that could contradict itself
        """Refuse what a restored table cannot hold."""

    # -- merging ------------------------------------------------------------------------------------------------------

    def merge(self, state: Mapping[str, Any]) -> None:
        """Add the evidence in the state of another policy to this one's own, as if the offloads had been made here.

        States may come in any order and repeatedly: of each source the latest counts, once. What a state says about
        this very policy is ignored. Policies that do not count offloads refuse.
        """
        owner = type(self).__name__
        if "offloads" not in self.evidence:
            raise TypeError(f"{owner}: what it knows does not add up")
        self._check_header(state)
        other = type(self).restore(state)
        for name in ("bins", "learns_cost"):
            if getattr(self, name) != getattr(other, name):
                wanted = f"must have {name}={getattr(self, name)!r}, got {getattr(other, name)!r}"
                raise InvalidState(f"{owner}: the state to merge {wanted}")
        counted = sum(self.table.offloads)
        for source, known in {**other._merged, other.id: other._own()}.items():
            before = self._merged.get(source)
            if source == self.id or (before and before["learned"] >= known["learned"]):
                continue
            for name in self.evidence:
                column = getattr(self.table, name)
                for place, value in enumerate(known[name]):
                    column[place] = max(0.0, column[place] + value - (before[name][place] if before else 0.0))
            self._merged[source] = known
        self.recount(sum(self.table.offloads) - counted)

    def recount(self, samples: float) -> None:
        """Take account of evidence that came as counts of so many samples."""
        self.functions.rebuilds(self.table)

    def _own(self) -> State:
        """Return what this policy has learned itself."""
        own: State = {"learned": self.learned}
        for name in self.evidence:
            others = [known[name] for known in self._merged.values()]
            column = getattr(self.table, name)
            own[name] = [max(0.0, value - sum(each[k] for each in others)) for k, value in enumerate(column)]
        return own

    def _checked_source(self, known: object) -> State:
        if not isinstance(known, Mapping):
            raise InvalidState(f"{type(self).__name__}: state must hold dicts as 'merged', got {shown(known)}")
        checker = self.fresh()
        checker._set_columns(known, self.evidence)
        return {
            "learned": _count(type(self).__name__, known, "learned"),
            **{name: list(getattr(checker.table, name)) for name in self.evidence},
        }


def _mapping(state: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = state.get(key)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidState(f"state: {key} must be a dict, got {shown(value)}")
    return value


def _count(owner: str, state: Mapping[str, Any], key: str) -> int:
    value = state.get(key)
    if type(value) is not int or not 0 <= value <= MAX_SAMPLES:
        raise InvalidState(f"{owner}: {key} must be a count, got {shown(value)}")
    return value


def make(kind: type[Policy], maker: Callable[..., Any], settings: Mapping[str, Any], hint: str = "") -> Any:
    """Return what a constructor or a `fit` makes of the settings it knows; `TypeError` if some are missing."""
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
    except Exception as error:  # whatever a user's constructor raises
        refused = InvalidType if isinstance(error, TypeError) else InvalidValue
        raise refused(kind.name, "settings", f"are invalid: {known!r:.200}: {type(error).__name__}: {error}") from error


def policy_names() -> list[str]:
    """Return the names of all policies, those that users have defined included.

    >>> "hi-lcb" in policy_names()
    True
    """
    return sorted(_registry)


def policy_class(name: str) -> type[Policy]:
    """Return the policy of that name.

    >>> policy_class("hi-lbc")
    Traceback (most recent call last):
    hinge.errors.UnknownName: no policy is called 'hi-lbc'; did you mean 'hi-lcb'?
    """
    if name in _registry:
        return _registry[name]
    raise UnknownName(f"no policy is called {shown(name)}{did_you_mean(name, policy_names())}")


def build(name: str, **settings: Any) -> Policy:
    """Return a policy by name, from settings that may hold more than it needs; it uses those that it knows.

    A policy that is fitted on labelled history needs `history` and `agreed`.

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
    """Return the policy that a saved state describes.

    >>> restore(build("hi-lcb", bins=8, offload_cost=0.3).state()).name
    'hi-lcb'
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("policy"), str):
        raise InvalidState(f"state must be a dict that names its policy, got {shown(state)}")
    return policy_class(state["policy"]).restore(state)
