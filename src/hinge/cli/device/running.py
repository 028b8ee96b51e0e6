"""One run of a device over its samples, from the first answer to the summary."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import TypeVar

import typer

from hinge.cli import show
from hinge.cli.device.arriving import Arrival
from hinge.cli.device.course import Course
from hinge.cli.device.samples import Case, Stream
from hinge.cli.device.stopping import Stopping
from hinge.cli.device.telling import Lines, Progress, Telling, Watched, print_summary
from hinge.cli.device.view import View
from hinge.device.device import Device
from hinge.device.reporter import Reporter
from hinge.device.store import CLOSED
from hinge.errors import RemoteFailed

T = TypeVar("T")


class Run:
    """How many samples are answered, how many together, and for whom: a program or a person."""

    def __init__(self, batch: int, limit: int | None, shadow: str | None, json: bool) -> None:
        self._batch, self._limit, self._shadow, self._json = batch, limit, shadow, json
        self._stopping = Stopping()
        self._refusal: RemoteFailed | None = None
        self.reporter: Reporter | None = None
        self._warned = False  # of reports that do not arrive
        self.arrival: Arrival | None = None

    def horizon(self, stream: Stream) -> int | None:
        """How many samples will come, if that is known."""
        known = [length for length in (stream.length, self._limit) if length is not None]
        return min(known, default=None)

    def through(self, device: Device, stream: Stream, title: str) -> None:
        """Answer the samples, until they end or somebody ends it."""
        self._course, self._began = Course(device.policy.bins), time.monotonic()
        cases = islice(stream.cases, self._limit)
        telling = self._telling(device, title, self.horizon(stream))
        with telling, self._stopping:
            for part in _batches(self._stopping.until_stopped(cases), self._batch):
                self._answer(device, part, telling)
                if self._is_refused(device):
                    break
        self._seconds = time.monotonic() - self._began

    def end(self, device: Device) -> None:
        """Print the summary of a device that is closed, so that nothing is under way any more."""
        self._warn_of_reports()
        status = device.status
        if status.not_durable == CLOSED:
            status = replace(status, not_durable=None)
        figures = self._course.figures(status, self._seconds)
        stopped_by = self._stopping.stopped_by
        if self._json:
            complete = stopped_by is None and self._refusal is None
            known = {"policy": device.policy.name, "shadow": self._shadow, "complete": complete}
            show.print_line({"summary": {**known, **figures}})
        else:
            print_summary(figures, behind=self._shadow == "local")
        if self._refusal is not None:
            raise self._refusal
        if stopped_by is not None:
            show.err.print("Interrupted: this is what was done.")
            raise typer.Exit(128 + stopped_by)

    def _is_refused(self, device: Device) -> bool:
        """Whether a remote that came late turns out to be one that can never answer."""
        try:
            if self.arrival is not None and self.arrival.is_awaited:
                self.arrival.look(device.status)
        except RemoteFailed as error:
            self._refusal = error
        return self._refusal is not None

    def _telling(self, device: Device, title: str, length: int | None) -> Telling:
        if self._json:
            return Lines()
        if show.out.is_terminal:
            return Watched(View(device, self._course, title, length))
        return Progress(device, self._course)

    def _answer(self, device: Device, part: list[Case], telling: Telling) -> None:
        began = time.perf_counter()
        if self._batch == 1:
            answers = [device.infer(part[0].sample)]
        else:
            answers = device.infer_many([case.sample for case in part])
        latency_ms = 1000 * (time.perf_counter() - began)
        for case, answer in zip(part, answers, strict=True):
            telling.tell(self._course.take(case, answer, latency_ms))
            if self.reporter is not None:
                self.reporter.saw(answer, picture=case.sample, truth=case.truth)
        self._warn_of_reports()

    def _warn_of_reports(self) -> None:
        """Say once that reports do not arrive, which does no harm to the answers."""
        problem = None if self.reporter is None else self.reporter.problem
        if problem is not None and not self._warned:
            self._warned = True
            show.warn(f"--report: {problem}")


def _batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    source = iter(items)
    while part := list(islice(source, size)):
        yield part
