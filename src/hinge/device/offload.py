"""One request to the remote, for one sample or for a batch: from the breaker's leave to its outcome, without I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from hinge._checks import real
from hinge.costs import OffloadCost, Radio, WrongCost
from hinge.device.answer import Answer
from hinge.device.resilience import Attempt, Breaker, RetryBudget
from hinge.device.status import Tally
from hinge.device.storage.memory import Keeper
from hinge.errors import BreakerOpen, InvalidDecision, RemoteError, RemoteFailed, RemoteInvalid, RemoteLate
from hinge.policies.policy import Decision, Explanation
from hinge.remotes import Deadline, Reply

_RETRIED = {"unreachable"}  # what is late would be late again, and what was answered would be again


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
    labels: Sequence[str] | None
    breaker: Breaker
    retries: RetryBudget


class Offload:
    """Goes this way: `start`; `begin`; then the remote, until `settle` or not `again`; then `fall_back` if it failed.

    Every way through it ends in one answer for each sample, or in `give_up`. What failed teaches nothing.
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
        self._attempts = 0
        self._fault: RemoteFailed = RemoteLate("all requests that may be under way at once are")
        self._ended = False

    def start(self, now: float) -> Deadline:
        """From now on the time runs; returns when it ends."""
        self._began = now
        self.deadline = Deadline(now + self._terms.deadline_s)
        return self.deadline

    def begin(self, now: float) -> bool:
        """Whether the remote may be asked."""
        self._attempt = self._terms.breaker.begin(now)
        if self._attempt is None:
            last = f" Last: {self._tally.last_fault}" if self._tally.last_fault else ""
            self._fault = BreakerOpen(f"{self._terms.breaker.explain(now)}{last}".rstrip("."))
            return False
        self._terms.retries.attempted()
        self._attempts = 1
        return True

    def again(self, fault: Exception, now: float) -> bool:
        """Note that the remote failed; whether it may be asked once more, which is once only."""
        self._fault = fault if isinstance(fault, RemoteFailed) else RemoteError(_described(fault))
        if self._attempt is None:  # the remote is not to blame for what failed in settling its reply
            return False
        # That it refuses a sample says nothing about the next one.
        report = self._terms.breaker.released if self._fault.kind == "refused" else self._terms.breaker.failed
        report(self._attempt, now)
        self._attempt = None
        if self._fault.kind not in _RETRIED or self._attempts > 1 or self.deadline.expired(now):
            return False
        if self._terms.retries.retry():
            self._attempt = self._terms.breaker.begin(now)
        self._attempts += self._attempt is not None
        return self._attempt is not None

    def give_up(self, now: float) -> None:
        """Nobody waits any more, if somebody did: the remote is not to blame, and nothing is learned."""
        if self._ended:
            return
        if self._attempt is not None:
            self._terms.breaker.released(self._attempt, now)
            self._attempt = None
        self._tally.dropped(len(self._judged))
        self._end()

    def settle(self, reply: Reply, now: float) -> list[Answer]:
        """Learn from the reply, and answer with it; if it makes no sense, raise `RemoteFailed` and learn nothing."""
        if self.deadline.expired(now):
            raise RemoteLate("no answer in time")
        labels = self._checked(reply)
        agreed = self._agreements(labels)
        if self._attempt is not None:
            self._terms.breaker.succeeded(self._attempt, now)
            self._attempt = None
        cost = self._cost(reply.bytes, now)
        for judged, agrees in zip(self._judged, agreed, strict=True):
            if judged.decision.offload:
                with suppress(InvalidDecision):  # given up since: too many came after it, or the state was rolled back
                    self._keeper.learn(judged.decision, agrees, cost)
        self._tally.answered(len(labels), sum(agreed), cost)
        self._ended = True
        return [
            Answer(label, "remote", judged.confidence, judged.bin, True, cost, judged.decision, None, self._explains)
            for label, judged in zip(labels, self._judged, strict=True)
        ]

    def fall_back(self, now: float) -> list[Answer]:
        """Answer from the local model, as the remote failed."""
        cost = 0.0
        if self._attempts:
            with suppress(Exception):  # a price that fails must not cost the answer
                cost = self._cost(0, now)
        self._tally.fell_back(self._fault, len(self._judged), cost)
        self._end()
        asked = self._attempts > 0
        return [
            Answer(
                *(judged.label, "local", judged.confidence, judged.bin, asked, cost, judged.decision),
                *(str(self._fault), self._explains),
            )
            for judged in self._judged
        ]

    def _end(self) -> None:
        self._ended = True
        for judged in self._judged:
            if judged.decision.offload:
                with suppress(InvalidDecision):
                    self._keeper.forget(judged.decision)

    def _checked(self, reply: Reply) -> list[Any]:
        labels = list(reply.labels)
        if len(labels) != len(self._judged):
            raise RemoteInvalid(f"{len(labels)} labels for {len(self._judged)} samples")
        return [checked_label(label, self._terms.labels) for label in labels]

    def _agreements(self, labels: list[Any]) -> list[float]:
        try:
            pairs = zip(self._judged, labels, strict=True)
            agreed = (self._terms.wrong.agreed(judged.label, label) for judged, label in pairs)
            return [real("wrong", "agreed", each, 0, 1) for each in agreed]
        except (TypeError, ValueError) as error:
            raise RemoteInvalid(str(error)) from error

    def _cost(self, bytes: float, now: float) -> float:
        """What each sample pays: it waits for the whole time, and shares bytes, calls and energy with the others."""
        latency_ms, samples = max(0.0, 1000 * (now - self._began)), len(self._judged)
        radio = self._terms.radio
        energy_j = 0.0 if radio is None else radio.energy_j(latency_ms=latency_ms, bytes=bytes)
        cost = self._terms.price.cost(
            latency_ms=latency_ms, bytes=bytes / samples, energy_j=energy_j / samples, calls=self._attempts / samples
        )
        return real("price", "cost", cost, 0, 1)


def checked_label(label: Any, names: Sequence[str] | None) -> Any:
    """A label as plain data: the name of the class, where there are names and the remote answers with its number.

    >>> checked_label(1, ["cat", "dog"]), checked_label("dog", ["cat", "dog"]), checked_label(1, None)
    ('dog', 'dog', 1)
    >>> checked_label(float("nan"), None)
    Traceback (most recent call last):
    hinge.errors.RemoteInvalid: no label, but nan
    """
    plain = label.item() if isinstance(label, np.generic) else label
    if not isinstance(plain, str | int | float) or plain != plain:
        raise RemoteInvalid(f"no label, but {plain!r:.50}")
    if names is None or (isinstance(plain, str) and plain in names):
        return plain
    if isinstance(plain, int) and 0 <= plain < len(names):
        return names[plain]
    raise RemoteInvalid(f"an unknown label, {plain!r:.50}")


def _described(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}"
