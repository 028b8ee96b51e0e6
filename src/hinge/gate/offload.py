"""One request to the remote, for one sample or for a batch: from the breaker's leave to its outcome, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from hinge.costs import OffloadCost, Radio, WrongCost
from hinge.errors import InvalidDecision, RemoteFailed
from hinge.gate.answer import Answer
from hinge.gate.breaker import Attempt, Breaker
from hinge.gate.deadline import Deadline
from hinge.gate.remote.asking import Reply
from hinge.gate.retries import RetryBudget
from hinge.gate.storage.memory import Keeper
from hinge.gate.tally import Tally
from hinge.policies.decision import Decision, Explanation

_RETRIED = {"unreachable", "error"}  # what is late would be late again, and what is invalid invalid


class Judged(NamedTuple):
    """A sample as the local model and the policy see it."""

    label: Any
    confidence: float
    bin: int
    decision: Decision


@dataclass(frozen=True)
class Terms:
    """On which terms a device asks its remote."""

    deadline_s: float
    price: OffloadCost
    radio: Radio | None
    wrong: WrongCost
    labels: Sequence[Any] | None
    breaker: Breaker
    retries: RetryBudget


class Offload:
    """Asks in this order: `begin`; then the remote, until `settle` or not `again`; then `fall_back` if it failed.

    Every way through it ends in one answer for each sample. What failed teaches nothing.
    """

    def __init__(
        self,
        terms: Terms,
        keeper: Keeper,
        tally: Tally,
        explains: Callable[[int], Explanation],
        samples: Sequence[Any],
        judged: Sequence[Judged],
    ) -> None:
        self._terms, self._keeper, self._tally, self._explains = terms, keeper, tally, explains
        self.samples, self._judged = samples, judged
        self._attempt: Attempt | None = None
        self._asked = False
        self._fault = RemoteFailed("", "breaker")

    def begin(self, now: float) -> bool:
        """Whether the remote may be asked, from now until the deadline."""
        self.deadline = Deadline(now + self._terms.deadline_s)
        self._began = now
        self._attempt = self._terms.breaker.begin(now)
        if self._attempt is None:
            self._fault = RemoteFailed(self._terms.breaker.explain(now).rstrip("."), "breaker")
            return False
        self._terms.retries.attempted()
        self._asked = True
        return True

    def again(self, fault: Exception, now: float) -> bool:
        """Note that the remote failed; whether it may be asked once more by the same deadline."""
        self._fault = fault if isinstance(fault, RemoteFailed) else RemoteFailed(_described(fault), "error")
        if self._attempt is None:  # the failure of an attempt that was settled already is that of settling it
            return False
        self._terms.breaker.failed(self._attempt, now)
        self._attempt = None
        if self._fault.kind not in _RETRIED or self.deadline.expired(now) or not self._terms.retries.retry():
            return False
        self._attempt = self._terms.breaker.begin(now)
        return self._attempt is not None

    def give_up(self, now: float) -> None:
        """Nobody waits any more: the remote is not to blame, and nothing is learned."""
        if self._attempt is not None:
            self._terms.breaker.released(self._attempt, now)
            self._attempt = None
        self._forget()

    def settle(self, reply: Reply, now: float) -> list[Answer]:
        """Learn from the reply, and answer with it; if it makes no sense, raise `RemoteFailed` and learn nothing."""
        if self.deadline.expired(now):
            raise RemoteFailed("no answer in time", "late")
        labels = self._checked(reply)
        agreed = self._agreements(labels)
        if self._attempt is not None:
            self._terms.breaker.succeeded(self._attempt, now)
            self._attempt = None
        cost = self._cost(reply.bytes / len(labels), now)
        for judged, agrees in zip(self._judged, agreed, strict=True):
            if judged.decision.offload:
                with suppress(InvalidDecision):  # given up since: too many came after it, or the state was rolled back
                    self._keeper.learn(judged.decision, agrees, cost)
        self._tally.answered(len(labels), sum(agreed), cost)
        return [
            Answer(label, "remote", judged.confidence, judged.bin, True, cost, judged.decision, None, self._explains)
            for label, judged in zip(labels, self._judged, strict=True)
        ]

    def fall_back(self, now: float) -> list[Answer]:
        """Answer from the local model, as the remote failed."""
        self._forget()
        cost = self._cost(0, now) if self._asked else 0.0
        self._tally.fell_back(self._fault.kind, len(self._judged))
        return [
            Answer(
                *(judged.label, "local", judged.confidence, judged.bin, self._asked, cost, judged.decision),
                *(str(self._fault), self._explains),
            )
            for judged in self._judged
        ]

    def _forget(self) -> None:
        for judged in self._judged:
            if judged.decision.offload:
                with suppress(InvalidDecision):
                    self._keeper.forget(judged.decision)

    def _checked(self, reply: Reply) -> list[Any]:
        labels = list(reply.labels)
        if len(labels) != len(self._judged):
            raise RemoteFailed(f"{len(labels)} labels for {len(self._judged)} samples", "invalid")
        names = self._terms.labels
        return labels if names is None else [_named(label, names) for label in labels]

    def _agreements(self, labels: list[Any]) -> list[float]:
        try:
            pairs = zip(self._judged, labels, strict=True)
            return [self._terms.wrong.agreed(judged.label, label) for judged, label in pairs]
        except (TypeError, ValueError) as error:
            raise RemoteFailed(str(error), "invalid") from error

    def _cost(self, bytes: float, now: float) -> float:
        latency_ms = max(0.0, 1000 * (now - self._began))
        radio = self._terms.radio
        energy_j = 0.0 if radio is None else radio.energy_j(latency_ms=latency_ms, bytes=bytes)
        return self._terms.price.cost(latency_ms=latency_ms, bytes=bytes, energy_j=energy_j)


def _named(label: Any, names: Sequence[Any]) -> Any:
    """The name of a class, where the remote answers with its number."""
    if label in names:
        return label
    if isinstance(label, int) and 0 <= label < len(names):
        return names[label]
    raise RemoteFailed(f"an unknown label, {label!r:.50}", "invalid")


def _described(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"
