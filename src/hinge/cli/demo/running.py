"""The run of the demo: every image through the device, with the other policies looking on."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from hinge.cli import show
from hinge.cli.demo.beside import SideBySide
from hinge.cli.demo.comparison import Comparison
from hinge.cli.demo.outcome import Outcome
from hinge.cli.demo.stream import Row, cases, paced, rows
from hinge.cli.device.course import Seen
from hinge.cli.device.samples import Case
from hinge.cli.device.stopping import Stopping
from hinge.cli.device.telling import Progress, Telling, Warnings, Watched
from hinge.cli.device.view import View
from hinge.device.device import Device
from hinge.device.reporter import copy_of, licences
from hinge.simulation.sources import InOrder

_EVERY_S = 1.0  # between two lines of progress
_COMPARE_S = 0.5


class Silent(Warnings):
    """Says nothing of answers."""

    def tell(self, seen: Seen) -> None:
        """Nothing."""


class Page:
    """Reports to the live page; without a reporter, to nobody."""

    def __init__(self, reporter: Any, comparison: Comparison) -> None:
        self._reporter, self._comparison, self._compared = reporter, comparison, 0.0

    def tell(self, seen: Seen) -> None:
        """An answer, and now and then how the policies compare."""
        if self._reporter is None:
            return
        # the remote's label stands for the truth, as in the figures of the others
        self._reporter.saw(seen.answer, picture=seen.case.sample, truth=seen.case.remote)
        now = time.monotonic()
        if now - self._compared > _COMPARE_S:
            self._compared = now
            self.compare()

    def compare(self) -> None:
        """How the policies compare."""
        if self._reporter is not None:
            self._reporter.compare(self._comparison.rows())


def run(device: Device, source: InOrder, outcome: Outcome, reporter: Any, json: bool) -> int | None:
    """Answer all images, or those until a signal comes, which is returned."""
    stopping, wanted = Stopping(), outcome.wanted
    page = Page(reporter, outcome.comparison)
    stream: Iterable[tuple[Row, Case]] = zip(rows(source, wanted), cases(source, wanted), strict=True)
    if reporter is not None or (show.out.is_terminal and not json):
        stream = paced(stream)
    telling, began = _telling(device, outcome, json), time.monotonic()
    with telling, stopping:
        for row, case in stopping.until_stopped(stream):
            seen = _answer(device, row, case, outcome)
            telling.tell(seen)
            page.tell(seen)
    page.compare()
    outcome.seconds = time.monotonic() - began
    outcome.status, outcome.licences = device.status, licences(copy_of(device))
    return stopping.stopped_by


def _answer(device: Device, row: Row, case: Case, outcome: Outcome) -> Seen:
    began = time.perf_counter()
    answer = device.infer(case.sample)
    taken_s = time.perf_counter() - began
    outcome.clock.take(answer.source == "remote", taken_s)
    seen = outcome.course.take(case, answer, 1000 * taken_s)
    outcome.comparison.take(row, case, answer)
    outcome.examples.take(seen)
    return seen


def _telling(device: Device, outcome: Outcome, json: bool) -> Telling:
    if json:
        return Silent()
    if not show.out.is_terminal:
        return Progress(device, outcome.course, _EVERY_S)
    beside = SideBySide(outcome.comparison)
    title = f"hinge demo, {device.policy.name}"
    return Watched(View(device, outcome.course, title, outcome.wanted, beside))
