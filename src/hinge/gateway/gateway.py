"""What gateways of all protocols share: the device on the page and in the metrics, and the headers of answers."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from hinge._checks import seconds, whole
from hinge.device.answer import Answer, Source
from hinge.device.async_device import AsyncDevice
from hinge.device.breaker import Breaker
from hinge.device.metrics import DeviceCollector
from hinge.device.page.page import LivePage
from hinge.errors import BreakerOpen, RemoteFailed, RemoteInvalid, RemoteLate, RemoteRefused, printable
from hinge.gate import Gate
from hinge.policies.policy import Policy
from hinge.remotes import AsyncRemote, Deadline
from hinge.remotes.http import Overloaded
from hinge.server.app import App, Exchange
from hinge.server.observability import Metrics
from hinge.server.server import BaseServer
from hinge.tasks import Task

NAME = "gateway"  # in metrics
IN_FLIGHT = 64  # offloads at the same time
CLOSE_S = 5.0  # for offloads in flight, once all requests are answered: a server has 10 to end
START_S = 2.0  # for a server to answer at the start
LOCAL_SHARE = 0.5  # of the time for a request, for the local model
IN_TIME = 0.95  # of the time that a client waits: an answer at the very end of it would come too late
_WHOLE = 0.9  # of that time: with less, the server is not to blame (a gateway before this one takes 5 %)
_MAX_REASON = 400  # characters

T = TypeVar("T")


class Hurried(RemoteLate):
    """Late by a deadline that the client has shortened, or a large request, for which the server is not to blame."""


class Unanswered(Exception):
    """No model has answered, and why not, by "local" and "remote"."""

    def __init__(self, failures: Mapping[Source, RemoteFailed]) -> None:
        super().__init__()
        self.failures = failures


class Gateway(BaseServer):
    """A server whose answers are a device's, which is shown live at `page`, a port, if that is given.

    `away` has the servers that could not be reached at the start, and why.
    """

    def __init__(
        self,
        gate: Gate | Policy,
        *,
        deadline_s: float,
        device: Mapping[str, Any] | None = None,
        page: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.deadline_s = seconds("Gateway", "deadline_s", deadline_s)
        self._page_port = None if page is None else whole("Gateway", "page", page, 0, 65535)
        self.page: LivePage | None = None  # while it runs
        self.away: dict[str, RemoteFailed] = {}
        self._gate, self._device = gate, dict(device or {})

    def make_device(self, local: Callable[[Any], Any], remote: AsyncRemote, task: Task | None = None) -> AsyncDevice:
        settings = {"deadline_s": self.deadline_s, "in_flight": IN_FLIGHT, **self._device}
        return AsyncDevice(local, remote, self._gate, task=task, **settings)

    def show(self, device: AsyncDevice) -> LivePage | None:
        """Open the live page of the device."""
        self.page = None if self._page_port is None else LivePage(device, self._page_port).start()
        return self.page


class GatedApp(App):
    """An application whose answers are a device's."""

    asked_again: tuple[type[RemoteFailed], ...] = (BreakerOpen,)  # failures after which local may answer all the same

    def __init__(self, server: Gateway, services: Mapping[str, Any], device: AsyncDevice, metrics: Metrics) -> None:
        super().__init__(server, services, metrics)
        self.device = device
        self._deadline_s = server.deadline_s
        known = device.breaker
        self.local_breaker = Breaker(known.failures, known.interval_s, name="local model")
        self._local_failure: RemoteFailed | None = None  # the last
        self._refused = 0  # requests in a row that the local server refused, and the remote answered
        self._not_gated = ""  # why, as it was logged last
        self._page = server.show(device)
        metrics.registry.register(DeviceCollector(device))

    async def close(self) -> None:
        """Wait for offloads in flight, but not for their deadline, then close the device."""
        await super().close()
        if self._page is not None:
            await asyncio.to_thread(self._page.close)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.device.close()

    def told(self, failures: Mapping[Source, RemoteFailed]) -> str:
        """What went wrong with each model."""
        raise NotImplementedError  # each protocol says it in its own form

    async def answer(
        self,
        exchange: Exchange,
        deadline: Deadline,
        *,
        gated: Callable[[Deadline], Awaitable[tuple[T, dict[str, str]]]],
        remote: Callable[[Deadline], Awaitable[T]],
        local: Callable[[Deadline], Awaitable[T]],
        samples: int = 1,
    ) -> tuple[T, dict[str, str]]:
        """Return the answer of the gate, or of the remote where local fails, or of local where that fails, too.

        With it come headers that say so. `gated` is given the deadline for its local model. If none of them answers,
        `Unanswered` is raised.
        """
        try:
            return await gated(deadline.split(LOCAL_SHARE))
        except RemoteFailed as failure:
            failures: dict[Source, RemoteFailed] = {"local": failure}
        self.log_not_gated(exchange, failures["local"], self.told(failures))
        again = isinstance(failures["local"], self.asked_again)  # the remote must leave it time for that
        try:
            found = await remote(deadline.split(0.5) if again else deadline)
            self.local_failed(samples, failures["local"])
            return found, because("remote", f"Not gated: {self.told(failures)}.")
        except RemoteFailed as failure:
            failures["remote"] = failure
        if again and deadline.left():  # without time, the first failure says more
            try:
                return await local(deadline), because("local", f"Not gated: {self.told(failures)}.")
            except RemoteFailed as failure:
                failures["local"] = failure
        raise Unanswered(failures)

    @contextmanager
    def asking_local(self, deadline: Deadline) -> Iterator[None]:
        """Around a request to the local model, whose outcome moves its breaker; raises `BreakerOpen` if that is open.

        So a model that is late, or works for nothing, does so for a few requests and not for each. What fails at once
        does not count: to ask again costs nothing, and shows at once that the model is back. Nor does it count to be
        late by a deadline that the client has shortened: one client's hurry must not take the model from the others.
        """
        shortened = deadline.left() < _WHOLE * LOCAL_SHARE * self._deadline_s
        attempt = self.local_breaker.begin(time.monotonic())
        if attempt is None:
            raise self.left_alone()
        report = self.local_breaker.released  # also if the client has gone
        try:
            yield
            report, self._not_gated, self._refused = self.local_breaker.succeeded, "", 0
        except (RemoteLate, RemoteInvalid) as failure:
            if shortened and isinstance(failure, RemoteLate):
                raise Hurried(f"{failure}, of which there was little") from None
            self._local_failure, report = failure, self.local_breaker.failed
            raise
        finally:
            report(attempt, time.monotonic())

    def left_alone(self) -> BreakerOpen:
        failure: BreakerOpen = BreakerOpen(self.local_breaker.situation(time.monotonic()), self._local_failure)
        return failure

    def local_failed(self, samples: int, failure: RemoteFailed) -> None:
        """Count samples that the remote alone has answered, and say why: for as long as it is so, in the same words.

        A server that refuses a request is not down, or not at once.
        """
        problem: str | None = None
        if isinstance(failure, RemoteRefused):
            self._refused += 1
            if self._refused >= self.local_breaker.failures:
                problem = f"it refuses one request after the other, now by {failure}"
        else:
            self._refused = 0
            problem = None if isinstance(failure, Hurried) else self._cause(failure)
        self.device.local_failed(samples, problem)

    def log_not_gated(self, exchange: Exchange, failure: RemoteFailed, problem: str) -> None:
        """A warning where the local model fails for another reason than last time; the same again is not news."""
        before, self._not_gated = self._not_gated, self._cause(failure)
        level = "debug" if self._not_gated == before else "warning"
        self._log.write(level, "not gated", id=exchange.id, problem=problem)

    def _cause(self, failure: RemoteFailed) -> str:
        return str(self._local_failure if isinstance(failure, BreakerOpen) else failure)

    def gated(self, answers: Sequence[Answer]) -> dict[str, str]:
        """The headers of answers that the gate decided on."""
        if self._page is not None:
            for answer in answers:
                self._page.saw(answer)
        sources = {answer.source for answer in answers}
        return {
            **because(sources.pop() if len(sources) == 1 else "both", _summed(answers)),
            "hinge-confidence": f"{min(answer.confidence for answer in answers):.4g}",
            "hinge-cost": f"{sum(answer.cost for answer in answers):.6g}",
        }


def deadline_of(exchange: Exchange, most_s: float) -> Deadline:
    """When the answer must leave: `most_s` after the request has come, or earlier where the client waits less."""
    told = exchange.headers.get("x-envoy-expected-rq-timeout-ms", "")
    left_s = IN_TIME * int(told) / 1000 if told.isdigit() and len(told) < 10 else most_s
    return Deadline.after(min(most_s, left_s), exchange.received_s)


def _summed(answers: Sequence[Answer]) -> str:
    """Why the answers came from where they came: of one the evidence, of several what became of how many."""
    if len(answers) == 1:
        return answers[0].reason
    wanted = sum(answer.decision.offload or answer.offloaded for answer in answers)
    faults = Counter(answer.fault for answer in answers if answer.fault is not None)
    told = [f"{len(answers) - wanted} accepted", f"{wanted} offloaded"]
    if faults:
        told[1] += f", of which {faults.total()} failed: {', '.join(fault for fault, _ in faults.most_common(3))}"
    elif wanted and not any(answer.offloaded for answer in answers):
        told[1] += " in shadow, where the local answers stand"
    return "; ".join(told)


def unanswered(failures: Collection[RemoteFailed]) -> tuple[int, dict[str, str]]:
    """The status of an answer where all servers failed, and its headers.

    >>> unanswered([RemoteLate("no answer in time"), RemoteInvalid("no chat completion")])
    (504, {})
    """
    overloaded = [failure for failure in failures if isinstance(failure, Overloaded)]
    if overloaded and len(overloaded) == len(failures):
        waits = [failure.retry_after_s for failure in overloaded if failure.retry_after_s is not None]
        headers = {"retry-after": str(max(waits))} if waits else {}
        return 429 if {failure.status for failure in overloaded} == {429} else 503, headers
    return 504 if any(isinstance(failure, RemoteLate) for failure in failures) else 502, {}


def because(source: str, reason: str) -> dict[str, str]:
    """The headers that say who answered, and why.

    >>> because("local", "Not gated: it is a stream.")
    {'hinge-answered-by': 'local', 'hinge-reason': 'Not gated: it is a stream.'}
    >>> because("local", "Bins 8–12 together: 32 of 49.")["hinge-reason"]
    'Bins 8-12 together: 32 of 49.'
    """
    plain = printable(reason, _MAX_REASON).replace("–", "-").encode("ascii", "replace").decode()
    return {"hinge-answered-by": source, "hinge-reason": plain}
