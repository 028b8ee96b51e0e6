"""The way of a sample through a device, without any I/O.

    sample → local model → label, confidence → bin → policy ──accept──→ Answer(local)
                                                       └─offload→ Offload ──→ Answer(remote), or local if that failed

`Device` and `AsyncDevice` differ in how they wait for the remote, and in nothing else: all that they decide is here.

A device that waits for its remote in the thread that asks.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Literal

from hinge._checks import positive, whole
from hinge.bins import Bins, UniformBins
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.costs import FixedCost, OffloadCost, Radio, WrongCost, ZeroOneCost
from hinge.device.answer import Answer
from hinge.device.offload import Judged, Offload, Terms
from hinge.device.resilience import Breaker, RetryBudget
from hinge.device.status import Status, Tally
from hinge.device.storage.memory import Keeper, Memory
from hinge.device.storage.store import Store
from hinge.models.base import LocalModel, Scoring
from hinge.policies.policy import Explanation, Policy, State
from hinge.remotes import Remote
from hinge.remotes.function import Called, is_coroutine_function

Shadow = Literal["local", "remote"]

_answer = tuple.__new__  # half the price of Answer(…)


class Core(ABC):
    """What `Device` and `AsyncDevice` have in common; see `Device` for the parameters."""

    def __init__(
        self,
        local: LocalModel | Callable[[Any], Any],
        remote: Any,
        policy: Policy,
        *,
        deadline_s: float = 0.2,
        confidence: ConfidenceMeasure = max_softmax,
        bins: Bins | None = None,
        labels: Sequence[str] | None = None,
        price: OffloadCost | None = None,
        radio: Radio | None = None,
        wrong: WrongCost | None = None,
        state: str | Path | None = None,
        shadow: Shadow | None = None,
        breaker: Breaker | None = None,
        retries: RetryBudget | None = None,
        batch: int = 32,
        in_flight: int = 8,
    ) -> None:
        _check_policy(policy)
        if shadow not in (None, "local", "remote"):
            raise ValueError(f"Device: shadow must be None, 'local' or 'remote', got {shadow!r}")
        self._confidence, self._labels, self._shadow = confidence, _checked_names(labels), shadow
        self.local = local
        self._batch = whole("Device", "batch", batch, 1)
        self._in_flight = whole("Device", "in_flight", in_flight, 1)
        self._remote = self._asked(remote)
        self.bins = UniformBins(policy.bins) if bins is None else bins
        self._bin_of = _binning(self.bins, policy)
        self._terms = Terms(
            deadline_s=positive("Device", "deadline_s", deadline_s),
            price=price or _known_price(policy),
            radio=radio,
            wrong=wrong or ZeroOneCost(),
            labels=self._labels,
            breaker=_breaker(breaker, deadline_s, self._in_flight),
            retries=retries or RetryBudget(),
        )
        self._keeper: Keeper = Memory(policy) if state is None else Store(state, policy)
        self._tally = Tally(self._keeper, self.breaker)
        self._closed = False
        self._prepare()

    @abstractmethod
    def _asked(self, remote: Any) -> Any:
        """The remote in the form in which this kind of device asks."""

    @abstractmethod
    def _prepare(self) -> None:
        """What a kind of device needs to wait for its remote."""

    # -- the local model and the policy -------------------------------------------------------------------------------

    @property
    def local(self) -> LocalModel:
        """The local model. It may be replaced while the device runs; samples under way keep the one they began with."""
        return self._local

    @local.setter
    def local(self, model: LocalModel | Callable[[Any], Any]) -> None:
        if not isinstance(model, LocalModel):
            if not callable(model):
                raise TypeError(f"Device: local must be a model or a function from sample to scores, got {model!r}")
            model = Scoring(model, self._confidence, self._labels)
        self._local = model

    @property
    def breaker(self) -> Breaker:
        """What keeps a failing remote from being asked."""
        return self._terms.breaker

    @property
    def policy(self) -> Policy:
        """The policy, to look at; the device alone decides and learns with it."""
        return self._keeper.policy

    def explain(self, sample: Any) -> Explanation:
        """Why such a sample would be accepted or offloaded now; nothing is decided or learned."""
        label, confidence = self._local.answer(sample)
        return self._explain_bin(self._bin_of(confidence, label))

    def _explain_bin(self, bin: int) -> Explanation:
        return self._keeper.look(lambda policy: policy.explain(bin))

    def state(self) -> State:
        """All that the policy knows, as its own `state` has it, while other threads decide and learn."""
        return self._keeper.look(lambda policy: policy.state())

    @property
    def status(self) -> Status:
        """What became of all samples so far, and how the remote and the disk are."""
        return self._tally.status()

    def _judge(self, sample: Any) -> Judged:
        if self._closed:
            raise RuntimeError("Device: it is closed")
        label, confidence = self._local.answer(sample)
        bin = self._bin_of(confidence, label)
        return Judged(label, confidence, bin, self._keeper.decide(bin))

    def _judge_many(self, samples: Sequence[Any]) -> list[Judged]:
        if self._closed:
            raise RuntimeError("Device: it is closed")
        answers = self._local.answer_many(samples)
        bins = [self._bin_of(confidence, label) for label, confidence in answers]
        decisions = self._keeper.decide_many(bins)
        return [
            Judged(label, confidence, bin, decision)
            for (label, confidence), bin, decision in zip(answers, bins, decisions, strict=True)
        ]

    # -- answers ------------------------------------------------------------------------------------------------------

    def _accepted(self, judged: Judged) -> Answer:
        label, confidence, bin, decision = judged
        return _answer(Answer, (label, "local", confidence, bin, False, 0.0, decision, None, self._explain_bin))

    def _waits(self, judged: Judged) -> bool:
        """Whether the answer waits for the remote."""
        return judged.decision.offload if self._shadow is None else self._shadow == "remote"

    def _offload(self, samples: Sequence[Any], judged: Sequence[Judged]) -> Offload:
        return Offload(self._terms, self._keeper, self._tally, self._explain_bin, samples, judged)

    def _offloads(self, samples: Sequence[Any], judged: Sequence[Judged]) -> list[tuple[list[int], Offload]]:
        """The offloads of a batch, each with the places of its answers."""
        waiting = [place for place, each in enumerate(judged) if self._waits(each)]
        parts = [waiting[first : first + self._batch] for first in range(0, len(waiting), self._batch)]
        return [(part, self._offload([samples[k] for k in part], [judged[k] for k in part])) for part in parts]

    def _placed(
        self,
        judged: Sequence[Judged],
        offloads: Sequence[tuple[list[int], Offload]],
        results: Iterable[list[Answer]],
    ) -> list[Answer]:
        """The answers of a batch, each in its place."""
        answers = [self._accepted(each) for each in judged]
        for (places, _), found in zip(offloads, results, strict=True):
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
        return answers


def _binning(bins: Bins, policy: Policy) -> Callable[[float, Any], int]:
    if bins.bins != policy.bins:
        raise ValueError(f"Device: bins must be as many as the policy has, {policy.bins}, got {bins!r}")
    return bins.bin


def _check_policy(policy: Policy) -> None:
    if not isinstance(policy, Policy):
        raise TypeError(f"Device: policy must be a policy, got {policy!r}")
    if policy.needs:
        needs = " and ".join(sorted(need.value for need in policy.needs))
        raise TypeError(f"Device: policy must learn from offloads alone; {policy.name!r} must be told {needs}")


def _known_price(policy: Policy) -> FixedCost:
    if policy.offload_cost is None:
        raise TypeError("Device: price must say what an offload costs (FixedCost or MeasuredCost), as no policy knows")
    return FixedCost(policy.offload_cost)


def _checked_names(labels: Sequence[str] | None) -> Sequence[str] | None:
    if labels is not None and (isinstance(labels, str) or not all(isinstance(name, str) for name in labels)):
        raise TypeError(f"Device: labels must be the names of the classes, got {labels!r}")
    return labels


def _breaker(given: Breaker | None, deadline_s: float, in_flight: int) -> Breaker:
    """The breaker, which gives up what takes longer than its interval, and must not do so before the deadline."""
    if given is None:
        return Breaker(interval_s=max(10.0, 2 * deadline_s), at_once=max(5, in_flight))
    if given.interval_s <= deadline_s:
        raise ValueError(
            f"Device: deadline_s must be less than the breaker's interval_s, {given.interval_s:g}, got {deadline_s!r}"
        )
    return given


class Device(Core):
    """A local model, a policy and a remote: answers every sample, and asks the remote where that is worth its cost.

    >>> from hinge import Isotonic
    >>> device = Device(local=lambda sample: [0.0, sample], remote=lambda sample: int(sample > 1),
    ...                 policy=Isotonic(bins=16, offload_cost=0.5))
    >>> device.infer(3.0)
    Answer(label=1, source='remote', confidence=0.9526, bin=15, offloaded=True, cost=0.5)
    >>> [answer.source for answer in device.infer_many([3.0] * 20)][-1], device.infer(3.0).source
    ('remote', 'local')
    >>> print(device.explain(3.0))
    Bin 15 is accepted: local agreed in 21 of 21 offloads; checked again in 16466999 samples.
    >>> device.close()

    `local` is a function from sample to scores, or has `answer` and `answer_many` (see `LocalModel`). `remote` is an
    `OpenInference`, or a function from sample to label, or has `ask` and `close` (see `Remote`). Whatever the remote
    does, every sample gets one answer, by `deadline_s` after it was offloaded: the local one, if the remote fails.

    `confidence` and `bins` say how scores become a bin, `labels` names the classes. An offload costs what the policy
    was told, or what `price` makes of its measures (with `radio`, of its energy too); a mistake costs what `wrong`
    says. `state` is a folder in which the policy survives. In `shadow`, answers come always from "local" (the remote is
    asked behind the caller's back) or always from "remote", and the policy learns as it would have decided.
    `breaker` and `retries` keep a failing remote from being pestered. `infer_many` asks for `batch` samples in one
    request. No more than `in_flight` requests are under way at once, whoever makes them; others wait for their turn.
    """

    def _asked(self, remote: Any) -> Any:
        if isinstance(remote, Remote):
            return remote
        if callable(remote) and not is_coroutine_function(remote):
            return Called(remote, self._in_flight)
        what = "a coroutine function, which AsyncDevice takes" if callable(remote) else repr(remote)
        raise TypeError(f"Device: remote must be a remote or a function from sample to label, got {what}")

    def _prepare(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._room = BoundedSemaphore(self._in_flight)
        self._behind = BoundedSemaphore(4 * self._in_flight)

    def infer(self, sample: Any) -> Answer:
        """The answer to one sample."""
        judged = self._judge(sample)
        if self._waits(judged):
            return self._ask(self._offload([sample], [judged]))[0]
        if judged.decision.offload:
            self._ask_behind(sample, judged)
        return self._accepted(judged)

    def infer_many(self, samples: Iterable[Any]) -> list[Answer]:
        """The answers to many samples, which are decided together: none of them learns from another."""
        everything = list(samples)
        judged = self._judge_many(everything)
        offloads = self._offloads(everything, judged)
        answers = self._placed(judged, offloads, self._ask_all([offload for _, offload in offloads]))
        for sample, each in zip(everything, judged, strict=True):
            if each.decision.offload and not self._waits(each):
                self._ask_behind(sample, each)
        return answers

    def close(self) -> None:
        """Finish what is under way, and let go of the remote and of the folder."""
        self._closed = True
        try:
            if self._pool is not None:
                self._pool.shutdown()
            self._remote.close()
        finally:
            self._keeper.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_all(self, offloads: list[Offload]) -> list[list[Answer]]:
        if len(offloads) < 2:
            return [self._ask(offload) for offload in offloads]
        asked = [self._threads().submit(self._ask, offload) for offload in offloads]
        try:
            return [future.result() for future in asked]
        finally:  # interrupted, there are some that have not begun
            for future, offload in zip(asked, offloads, strict=True):
                if future.cancel():
                    offload.give_up(time.monotonic())

    def _ask(self, offload: Offload) -> list[Answer]:
        deadline = offload.start(time.monotonic())
        if not self._room.acquire(timeout=deadline.left(time.monotonic())):
            return offload.fall_back(time.monotonic())
        try:
            asking = offload.begin(time.monotonic())
            while asking:
                try:
                    return offload.settle(self._remote.ask(offload.samples, deadline), time.monotonic())
                except Exception as fault:  # whatever it is, there is a local answer
                    asking = offload.again(fault, time.monotonic())
            return offload.fall_back(time.monotonic())
        finally:
            self._room.release()
            offload.give_up(time.monotonic())  # if it was interrupted

    def _ask_behind(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; if too much is waiting already, not at all."""
        offload = self._offload([sample], [judged])
        if not self._behind.acquire(blocking=False):
            offload.give_up(time.monotonic())
            return
        asked = self._threads().submit(self._ask, offload)
        asked.add_done_callback(lambda _: self._behind.release())

    def _threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._in_flight, thread_name_prefix="hinge-device")
            return self._pool
