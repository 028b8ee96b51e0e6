"""A device: answers every sample, from its local model or from the remote one.

    sample → local model → label, confidence → gate ──accept──→ Answer(local)
                                                └─offload→ Offloader → Answer(remote), or local if that failed

`Device` waits for its remote in the thread that asks, `AsyncDevice` in an event loop; `BaseDevice` is what they share.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path
from threading import Thread
from typing import Any, Literal

from hinge._checks import real, seconds, whole
from hinge.confidence import max_softmax
from hinge.costs import FixedCost, OffloadPrice
from hinge.device.answer import Answer
from hinge.device.breaker import Breaker
from hinge.device.locked import LockedGate, copy_of
from hinge.device.offload import Judged, Offloader
from hinge.device.record import record
from hinge.device.status import Status, StatusTracker
from hinge.device.store import Store, read
from hinge.gate import Gate
from hinge.models import LocalModel, OwnModel, as_local, digest_of_local
from hinge.policies.policy import ACCEPTED, Decision, Explanation, Policy, State
from hinge.remotes.adapters import for_threads
from hinge.tasks import Classification, Task
from hinge.traces import Trace

Shadow = Literal["local", "remote"]
Part = tuple[list[int], list[Any], list[Judged]]  # of a batch: the places of its samples, the samples, what was decided


class BaseDevice(ABC):
    """What `Device` and `AsyncDevice` have in common; see `Device` for the parameters."""

    _process = os.getpid()  # kept up to date below: to ask the system at every sample takes a tenth of its time

    def __init__(
        self,
        local: LocalModel | Callable[[Any], Any],
        remote: Any,
        gate: Gate | Policy | None = None,
        *,
        offload_cost: float | None = None,
        task: Task | None = None,
        deadline_s: float = 0.2,
        price: OffloadPrice | None = None,
        state: str | Path | None = None,
        shadow: Shadow | None = None,
        breaker: Breaker | None = None,
        batch: int = 32,
        in_flight: int = 8,
    ) -> None:
        gate = _checked_gate(gate, offload_cost, price)
        self.task = _checked_task(task, gate)
        gate = _measured(gate, self.task)
        if shadow not in (None, "local", "remote"):
            raise ValueError(f"Device: shadow must be None, 'local' or 'remote', got {shadow!r}")
        self._shadow, self._local = shadow, as_local("Device", local, self.task)
        self._batch = whole("Device", "batch", batch, 1)
        self._in_flight = whole("Device", "in_flight", in_flight, 1)
        deadline_s = seconds("Device", "deadline_s", deadline_s)
        price = _checked_price(price, gate)
        self._forecast = _checked_forecast(price, gate.policy)
        self.breaker = _checked_breaker(breaker, deadline_s)
        self._given, self._remote = remote, self._keeping_the_deadline(remote)
        self._store = LockedGate(gate) if state is None else self._store_in(state, gate)
        self._group = self._store.gate.group
        self._status = StatusTracker(self._store, self.breaker)
        if self._store.damage is not None:
            self._status.alarm("the state was damaged", self._store.damage)
        if self._store.another_local:
            self._status.alarm(
                "the state was learned with another local model",
                f"{state}: the file of the local model is another now, and bins belong to one model; use a new folder, "
                "unless the two answer nearly alike",
            )
        known = None if self.gate.price is not None else self.policy.offload_cost
        if known is not None and self._forecast is None and price != FixedCost(known):
            self._status.alarm(
                "the gate decides by another cost than the device charges",
                f"by its own offload_cost, {known:g}, and not by price, {type(price).__name__}; "
                "leave one of them out: a gate without offload_cost measures what the price charges",
            )
        self._offloader = Offloader(
            store=self._store,
            status=self._status,
            breaker=self.breaker,
            price=price,
            task=self.task,
            deadline_s=deadline_s,
            in_flight=self._in_flight,
        )
        self._made_in, self._closed = self._process, False
        self._background = set[Any]()  # threads or tasks that ask for nobody who waits

    @abstractmethod
    def _keeping_the_deadline(self, remote: Any) -> Any:
        """The remote in the form in which this kind of device asks it."""

    @abstractmethod
    def _store_in(self, folder: str | Path, gate: Gate) -> Store:
        """The state in a folder, written in a way that suits this kind of device."""

    @property
    def local(self) -> LocalModel:
        """The local model. It may be replaced while the device runs; samples in flight keep the one they began with."""
        return self._local.model if isinstance(self._local, OwnModel) else self._local

    @local.setter
    def local(self, model: LocalModel | Callable[[Any], Any]) -> None:
        self._local = as_local("Device", model, self.task)
        if self._store.on_disk:
            self._store.learns_from(digest_of_local(self._local))

    @property
    def gate(self) -> Gate:
        """The gate, to read; the device alone decides and learns with it."""
        return self._store.gate

    @property
    def policy(self) -> Policy:
        """The policy of the gate."""
        return self._store.policy

    @property
    def status(self) -> Status:
        """What became of all samples so far, and how the remote and the disk are."""
        return self._status.status()

    def explain(self, sample: Any) -> Explanation:
        """Why such a sample would be accepted or offloaded now; nothing is decided or learned."""
        return self._store.explain(self._local.answer(sample)[1])

    def local_failed(self, samples: int, problem: str | None) -> None:
        """Count samples that the remote alone has answered, as the local model failed. Thread-safe.

        Nothing is decided or learned; what they spent counts against a budget. A `problem` raises an alarm.
        """
        self._store.apply(lambda gate: gate.spend(samples))
        self._status.local_failed(samples, problem)

    def state(self) -> State:
        """A snapshot of all that the gate knows, as its own `state` returns it. Thread-safe."""
        return self._store.locked(lambda gate: gate.state())

    def copy_of_gate(self) -> Gate:
        """Return a copy of the gate, to read while the device goes on. Thread-safe."""
        return self._store.locked(copy_of)

    def merge(self, *others: State | str | PathLike[str]) -> None:
        """Add what other devices have learned: their states, or their folders, also while they use them. Thread-safe.

        Each device counts once, by the latest of its states, and this one not again; if one is refused, none is added.
        """
        self._store.merge(*(each if isinstance(each, dict) else read(Path(each)).gate for each in others))

    def _unusable(self) -> RuntimeError:
        """The error to raise where a device is asked that is closed, or belongs to another process."""
        if self._closed:
            return RuntimeError("Device: it is closed")
        return RuntimeError(
            "Device: it was made in another process; make it in the worker, after the fork, or start workers by spawn"
        )

    # -- deciding -----------------------------------------------------------------------------------------------------

    def _expected_cost(self, sample: Any) -> float | None:
        """What offloading a sample would cost, if the price can say."""
        try:
            cost = self._forecast(sample) if self._forecast else None
            return None if cost is None else real("price", "forecast", cost, 0, 1)
        except Exception as error:  # a forecast that fails must not cost the answer
            self._status.alarm("the offload cost cannot be forecast", str(error) or type(error).__name__)
            return None

    def _rounds(
        self, samples: Sequence[Any], answers: Sequence[tuple[Any, float]], together: bool
    ) -> Iterator[tuple[Sequence[Any], list[Judged]]]:
        """Decide for samples in order, round by round: what one round teaches counts in the next.

        A round ends once as many wait for the remote as samples were decided before it, `batch` at least, and at most
        what can be in flight at once. So a device without experience learns from its first request, and one with
        experience has all its requests in flight.
        """
        if len(answers) != len(samples):
            raise ValueError(f"Device: local must answer each of {len(samples)} samples, got {len(answers)} answers")
        groups = [self._group(confidence) for _, confidence in answers]  # refused before anything is decided
        first = 0
        while first < len(samples):
            room = min(max(self._batch, self.policy.time), self._batch * self._in_flight)
            end, judged, waiting = first, list[Judged](), 0
            while end < len(samples) and waiting < room:
                step = len(samples) if together else room - waiting
                begin, end = end, min(len(samples), end + step)
                part = self._decided_many(samples[begin:end], answers[begin:end], groups[begin:end])
                waiting += sum(map(self._waits, part))
                judged += part
            yield samples[first:end], judged
            first = end

    def _decided_many(
        self, samples: Sequence[Any], answers: Sequence[tuple[Any, float]], groups: Sequence[int]
    ) -> list[Judged]:
        costs = None if self._forecast is None else [self._expected_cost(sample) for sample in samples]
        try:
            decisions = self._store.decide_many([confidence for _, confidence in answers], costs)
        except Exception as error:  # of any kind: there are local answers
            failure = self._status.policy_failed("decide_many", error)
            rows = zip(answers, groups, strict=True)
            return [Judged(label, confidence, group, ACCEPTED, failure) for (label, confidence), group in rows]
        return [
            Judged(label, confidence, group, decision)
            for (label, confidence), group, decision in zip(answers, groups, decisions, strict=True)
        ]

    def _undecided(self, label: Any, confidence: float, group: int, error: Exception) -> Answer:
        failure = self._status.policy_failed("decide", error)
        return self._offloader.undecided(Judged(label, confidence, group, ACCEPTED, failure))

    def _waits(self, judged: Judged) -> bool:
        if judged.failure is not None:
            return False
        return judged.decision.offload if self._shadow is None else self._shadow == "remote"

    def _accepted(self, judged: Judged) -> Answer:
        label, confidence, group, decision, failure = judged
        if failure is not None:
            return self._offloader.undecided(judged)
        return self._accept(label, confidence, group, decision)

    def _accept(self, label: Any, confidence: float, group: int, decision: Decision) -> Answer:
        return Answer(
            label=label,
            source="local",
            confidence=confidence,
            group=group,
            decision=decision,
            local=label,
            explains=self._store.explain,
        )

    def _parts(self, samples: Sequence[Any], judged: Sequence[Judged]) -> list[Part]:
        waiting = [place for place, each in enumerate(judged) if self._waits(each)]
        places = [waiting[first : first + self._batch] for first in range(0, len(waiting), self._batch)]
        return [(part, [samples[k] for k in part], [judged[k] for k in part]) for part in places]

    def _merged(self, judged: Sequence[Judged], parts: Sequence[Part], found: Iterable[list[Answer]]) -> list[Answer]:
        answers = [self._accepted(each) for each in judged]
        for (places, _, _), part in zip(parts, found, strict=True):
            for place, answer in zip(places, part, strict=True):
                answers[place] = answer
        return answers


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=lambda: setattr(BaseDevice, "_process", os.getpid()))


class Device(BaseDevice):
    """A local model, a gate and a remote: answers every sample, and asks the remote where that is worth its cost.

    >>> device = Device(lambda sample: [0.0, sample], lambda sample: int(sample > 1), offload_cost=0.5)
    >>> device.infer(3.0)
    Answer(label=1, source='remote', confidence=0.9526, offloaded=True, cost=0.5)
    >>> [answer.source for answer in device.infer_many([3.0] * 20)][-1], device.infer(3.0).source
    ('remote', 'local')
    >>> print(device.explain(3.0))
    Confidence 0.94–1 is accepted for 128 more samples: 21 of 21 agreed.
    >>> device.close()

    `local` is a function from sample to scores, or has `answer` and `answer_many` (see `LocalModel`). `remote` is an
    `OpenInference`, or a function from sample to label, or has `ask` and `close` (see `hinge.remotes`). Whatever the
    remote does, every sample gets one answer, by `deadline_s` after it was offloaded: the local one, if the remote
    fails.

    `offload_cost` is that of the default gate; anything else is said by a `gate`. A `task` (`hinge.tasks`) says what
    local and remote give, how sure local is, how far two answers agree, and what the classes are called:
    `Classification(["cat", "dog"])`. An offload costs what the policy was told, or what `price` makes of its latency
    and size, or 0 where there is no price and the policy weighs none. A price with a `forecast` (see
    `hinge.costs.Forecast`) is asked before every decision. `state` is a folder in which the policy survives. In
    `shadow`, answers come always from "local" (the remote is asked in the background) or always from "remote", and the
    policy learns as it would have decided.
    `breaker` limits the requests to a failing remote. `infer_many` asks for `batch` samples at once.
    No more than `in_flight` requests are in flight at once, from all threads together; others wait.

    Thread-safe. A device belongs to the process that made it; in a forked one it raises `RuntimeError`.
    """

    _remote: Any

    def _keeping_the_deadline(self, remote: Any) -> Any:
        return for_threads(remote)

    def _store_in(self, folder: str | Path, gate: Gate) -> Store:
        return Store(folder, gate, local=digest_of_local(self._local))

    def infer(self, sample: Any) -> Answer:
        """The answer to one sample."""
        if self._closed or self._process != self._made_in:
            raise self._unusable()
        label, confidence = self._local.answer(sample)
        group = self._group(confidence)
        try:
            decision = self._store.decide(confidence, None if self._forecast is None else self._expected_cost(sample))
        except Exception as error:  # of any kind: there is a local answer
            return self._undecided(label, confidence, group, error)
        if not decision.offload and self._shadow != "remote":
            return self._accept(label, confidence, group, decision)
        judged = Judged(label, confidence, group, decision)
        if self._shadow == "local":
            self._ask_in_background(sample, judged)
            return self._accepted(judged)
        return self._offloader.ask(self._remote, [sample], [judged])[0]

    def infer_many(self, samples: Iterable[Any], *, together: bool = False) -> list[Answer]:
        """The answers to many samples, in their order; later ones profit from what earlier ones have taught.

        They are decided in rounds, and no more than `batch × in_flight` of them wait for the remote at once; fewer, as
        long as the device has seen fewer samples. `together` decides for all before any is asked, so that none learns
        from another. Every request has the deadline to itself, from when it is its turn. The local model answers all
        samples first: what it refuses is refused before anything is asked. What a round has taught stays learned if a
        later one is interrupted.
        """
        if self._closed or self._process != self._made_in:
            raise self._unusable()
        everything, answers = list(samples), list[Answer]()
        for part, judged in self._rounds(everything, self._local.answer_many(everything), together):
            requests = self._parts(part, judged)
            answers += self._merged(judged, requests, self._ask_all(requests))
            for sample, each in zip(part, judged, strict=True):
                if each.decision.offload and not self._waits(each):
                    self._ask_in_background(sample, each)
        return answers

    def record(
        self,
        samples: Iterable[Any],
        truth: Iterable[Any] | None = None,
        *,
        out: str | Path | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> Trace:
        """What both models say of all samples, as a trace for `hinge.evaluate`; nothing is decided or learned.

        See `hinge.record`, which needs no device.
        """
        if self._closed or self._process != self._made_in:
            raise self._unusable()
        return record(
            self.local, self._given, samples, truth, task=self.task, batch=self._batch, out=out, progress=progress
        )

    def close(self) -> None:
        """Wait for requests in flight, a deadline at most, then close the remote and the state."""
        self._closed = True
        if self._process != self._made_in:
            return  # all that there is to close belongs to the process that made it
        try:
            for thread in list(self._background):
                with suppress(RuntimeError):  # it is not started yet
                    thread.join()
            self._offloader.drain()
            self._remote.close()
        finally:
            self._store.close()

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask_all(self, parts: Sequence[Part]) -> list[list[Answer]]:
        """Ask for all parts, in this thread and in others beside it, as far as others can be started."""
        waiting, found, errors = deque(enumerate(parts)), dict[int, list[Answer]](), list[BaseException]()

        def work() -> None:
            while not errors:
                try:
                    number, (_, samples, judged) = waiting.popleft()
                except IndexError:
                    return
                try:
                    found[number] = self._offloader.ask(self._remote, samples, judged)
                except BaseException as error:  # raised again below, in the caller's thread
                    errors.append(error)

        helpers = [Thread(target=work, name="hinge-device") for _ in parts[1 : self._in_flight]]
        started = list[Thread]()
        try:
            with suppress(RuntimeError):  # the system has no thread left
                for helper in helpers:
                    helper.start()
                    started.append(helper)
            work()
            for helper in started:
                helper.join()
            if errors:
                raise errors[0]
        finally:  # interrupted, there are parts that have not begun
            while waiting:
                _, (_, _, judged) = waiting.popleft()
                self._offloader.cancel(judged)
        return [found[number] for number in range(len(parts))]

    def _ask_in_background(self, sample: Any, judged: Judged) -> None:
        """Ask the remote while the caller goes on; not at all, if too much is waiting or no thread can be started."""

        def ask() -> None:
            try:
                self._status.answered_behind(self._offloader.ask(self._remote, [sample], [judged]))
            finally:
                self._background.discard(thread)

        thread = Thread(target=ask, name="hinge-shadow")
        if len(self._background) < 4 * self._in_flight:
            self._background.add(thread)
            try:
                thread.start()
                return
            except RuntimeError:  # the system has no thread left
                self._background.discard(thread)
        self._offloader.cancel([judged])


def _checked_gate(gate: Gate | Policy | None, offload_cost: float | None, price: OffloadPrice | None) -> Gate:
    if gate is None:
        if offload_cost is None and price is None:
            raise TypeError("Device: gate, offload_cost or price must be given, got none of them")
        return Gate(offload_cost=offload_cost)
    if offload_cost is not None:
        raise TypeError(f"Device: offload_cost is the gate's, and cannot be given beside it, got {offload_cost!r}")
    if isinstance(gate, Policy):
        gate = Gate(gate)
    elif not isinstance(gate, Gate):
        raise TypeError(f"Device: gate must be a Gate or a policy, got {gate!r}")
    if gate.policy.needs:
        needs = " and ".join(sorted(need.value for need in gate.policy.needs))
        raise TypeError(f"Device: policy must learn from offloads alone; {gate.policy.name!r} must be told {needs}")
    return gate


def _measured(gate: Gate, task: Task) -> Gate:
    """The gate with the task's measure of confidence, which its saved state names."""
    if task.confidence == gate.confidence:
        return gate
    if gate.confidence is not max_softmax:
        raise TypeError(f"Device: confidence is the task's, and cannot be given beside it, got {gate.confidence!r}")
    return gate.measuring(task.confidence)


def _checked_price(price: OffloadPrice | None, gate: Gate) -> OffloadPrice:
    """The price; without one, what the gate was told, or nothing where it does not weigh costs."""
    if price is None:
        if gate.price is not None or gate.policy.learns_cost:
            raise TypeError(
                "Device: price must say what an offload costs (FixedCost or MeasuredCost), as no gate knows"
            )
        return FixedCost(gate.offload_price)
    if not callable(getattr(price, "cost", None)) or isinstance(price, type):
        use = "FixedCost(0.3), a MeasuredCost, or an object with their method cost"
        raise TypeError(f"Device: price must be such as {use}, got {price!r:.200}")
    return price


def _checked_forecast(price: OffloadPrice, policy: Policy) -> Callable[[Any], float | None] | None:
    forecast: Callable[[Any], float | None] | None = getattr(price, "forecast", None)
    if forecast is not None and policy.functions.offloads_at is None:
        raise TypeError(f"Device: price must not have a forecast, as {policy.name!r} cannot use it, got {price!r}")
    return forecast


def _checked_task(task: Task | None, gate: Gate) -> Task:
    if task is None:
        return Classification(measure=gate.confidence)
    if not isinstance(task, Task) or isinstance(task, type):
        raise TypeError(f"Device: task must have answer, confidence and agreement, got {task!r}")
    return task


def _checked_breaker(given: Breaker | None, deadline_s: float) -> Breaker:
    """The breaker, whose interval must be longer than the deadline: what takes longer counts as failed."""
    if given is None:
        return Breaker(interval_s=max(10.0, 2 * deadline_s))
    if given.interval_s <= deadline_s:
        raise ValueError(
            f"Device: deadline_s must be less than the breaker's interval_s, {given.interval_s:g}, got {deadline_s!r}"
        )
    return given
