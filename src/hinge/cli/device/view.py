"""A device at work, in a terminal: how it fares, which licences it holds, and what it answered last."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hinge.cli.device.course import Course, Seen
from hinge.device.device import Device
from hinge.device.reporter import copy_of, licences
from hinge.device.status import Status
from hinge.policies.policy import Explanation

_AROUND = 13  # lines that are neither bins nor answers, an alarm among them
_BESIDE_BARS = 70  # columns that are no bars, if licences have room to be read
_WINDOW = 20  # looks over which the speed is taken: five seconds
_BLOCKS = " ▏▎▍▌▋▊▉█"


class Beside(Protocol):
    """What is shown beside the device, in so many lines."""

    lines: int

    def __rich__(self) -> RenderableType: ...


class View:
    """What to show of a device; it is drawn anew a few times a second, and measures nothing by itself."""

    def __init__(
        self, device: Device, course: Course, title: str, length: int | None, beside: Beside | None = None
    ) -> None:
        self._device, self._course, self._title, self._length = device, course, title, length
        self._beside = beside
        self._began = time.monotonic()
        self._looks: deque[tuple[float, int]] = deque([(self._began, 0)], maxlen=_WINDOW)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        height = console.size.height - _AROUND - (self._beside.lines if self._beside else 0)
        bins, answers = len(self._course.in_bin), max(2, min(len(self._course.last), height // 3))
        if height - answers < bins <= height - 2:
            answers = height - bins  # fewer, so that each bin has a row of its own
        rows = max(1, height - answers)
        yield Group(
            self._heading(options.max_width),
            self._state(self._device.status),
            *([self._beside] if self._beside else []),
            self._bins(rows, options.max_width),
            self._answers(list(self._course.last)[-answers:]),
            Text(" "),  # where the terminal echoes Ctrl-C
        )

    # -- how it fares -------------------------------------------------------------------------------------------------

    def _heading(self, width: int) -> RenderableType:
        seconds = int(time.monotonic() - self._began)
        clock = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        title.truncate(max(1, width - len(clock) - 1), overflow="ellipsis", pad=True)
        return title.append(f" {clock}", style="default")

    def _state(self, status: Status) -> RenderableType:
        course = self._course
        of = "" if self._length is None else f" of {_count(self._length)}"
        cost = f"{status.offload_cost:.1f}, {_ratio(status.offload_cost, course.samples, '{:.4f}')} per sample"
        agreement = _ratio(status.agreed, status.answered_by_remote, "{:.1%}")
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(2):
            table.add_column(no_wrap=True, min_width=12)
            table.add_column(no_wrap=True)
        table.add_row("samples", f"{_count(course.samples)}{of}", "per second", _count(round(self._speed())))
        offloaded = f"{_count(course.offloads)}, {_ratio(course.offloads, course.samples, '{:.1%}')}"
        table.add_row("offloads", offloaded, "local agreed", f"{agreement} of remote's answers")
        table.add_row("offload cost", cost, "state", _durability(status))
        alone = Table.grid(padding=(0, 2, 0, 0))  # rows that would be cut, had they another beside them
        alone.add_column(no_wrap=True, min_width=12)
        alone.add_column(no_wrap=True, overflow="ellipsis")
        alone.add_row("remote", _remote(status))
        alone.add_row("fell back", _kinds(status.fell_back))
        alarms = [Text(f"alarms: {_kinds(status.alarms)}", style="red")] if status.alarms else []
        return Group(table, alone, *alarms)

    def _speed(self) -> float:
        """Samples per second, lately."""
        now, samples = time.monotonic(), self._course.samples
        self._looks.append((now, samples))
        then, before = self._looks[0]
        return (samples - before) / (now - then) if now > then else 0.0

    # -- licences -----------------------------------------------------------------------------------------------------

    def _bins(self, rows: int, width: int) -> RenderableType:
        counts = self._course.in_bin
        together = -(-len(counts) // rows)  # bins to a row, where there are more than rows
        known, spent = licences(copy_of(self._device)), self._device.policy.exhausted
        room = max(7, min(40, width - _BESIDE_BARS))
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), width=width)
        table.add_column("confidence", no_wrap=True, width=11)
        table.add_column("samples", no_wrap=True, width=room)
        table.add_column("", justify="right", no_wrap=True, width=6)
        table.add_column("agreed", justify="right", no_wrap=True, width=13)
        table.add_column("licence", no_wrap=True, overflow="ellipsis", ratio=1)
        for first in range(0, len(counts), together):
            bins = range(first, min(first + together, len(counts)))
            share = sum(counts[first : bins.stop]) / max(1, self._course.samples)
            span = f"{first / len(counts):.2f} – {bins.stop / len(counts):.2f}"
            evidence, licence = _licence(known[first : bins.stop], spent)
            table.add_row(span, _bar(share, room), f"{share:.1%}", evidence, licence)
        return table

    # -- answers ------------------------------------------------------------------------------------------------------

    def _answers(self, last: Sequence[Seen]) -> RenderableType:
        table = Table.grid(padding=(0, 1, 0, 0), expand=True)
        table.add_column(justify="right", no_wrap=True, min_width=len(str(self._course.samples)))
        table.add_column(no_wrap=True, width=6)
        table.add_column(no_wrap=True, width=14, overflow="ellipsis")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        for number, _, answer in last:
            style = "cyan" if answer.source == "remote" else "yellow" if answer.fault else "green"
            reason = Text(answer.reason, style="dim")
            table.add_row(str(number), Text(answer.source, style), Text(str(answer.label)), reason)
        return table


def _licence(bins: Sequence[Explanation], spent: bool) -> tuple[str, Text]:
    """How often local agreed in these bins, and until when they are accepted; with a budget that is spent, all are."""
    offloads = sum(each.offloads or 0 for each in bins)
    agreements = sum((each.offloads or 0) * (each.agreement or 0) for each in bins)
    evidence = f"{agreements:.4g} of {offloads:.4g}" if offloads else ""
    accepted = [each for each in bins if each.offload_probability == 0.0]
    if not accepted:
        chance = max(each.offload_probability for each in bins)
        offloaded = "none" if chance == 1.0 else f"offloaded by chance, {chance:.2f}"
        return evidence, Text("none; the budget is spent", "yellow") if spent else Text(offloaded, "dim")
    left = [each.samples_left for each in accepted if each.samples_left is not None]
    until = f"{_count(min(left))} sample{'s' * (min(left) != 1)} left" if left else "for good"
    some = "" if len(accepted) == len(bins) else f"{len(accepted)} of {len(bins)} bins, "
    return evidence, Text(some + until, style="green")


def _bar(share: float, width: int) -> Text:
    eighths = round(share * width * 8)
    if share and not eighths:
        eighths = 1
    return Text(("█" * (eighths // 8) + _BLOCKS[eighths % 8]).rstrip().ljust(width), style="blue")


def _remote(status: Status) -> Text:
    if status.breaker != "closed":
        return Text(f"fails: breaker {status.breaker}; {status.last_fault}", style="red", overflow="ellipsis")
    if not status.attempts.succeeded:
        return Text(f"failed: {status.last_fault}" if status.last_fault else "not asked yet", style="yellow")
    again = f"answers again; failed last: {status.last_fault}" if status.attempts.opened else "answers"
    return Text(again, style="green", overflow="ellipsis")


def _durability(status: Status) -> Text:
    if status.not_durable is not None:
        return Text(status.not_durable, style="red")
    return Text("safe on disk", style="green") if status.on_disk else Text("in memory only")


def _kinds(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {_count(count)}" for kind, count in sorted(counts.items())) or "never"


def _count(number: int) -> str:
    """A count that can be read.

    >>> _count(1234567), _count(16466999000)
    ('1 234 567', '1.6e+10')
    """
    return f"{number:,}".replace(",", " ") if number < 10**9 else f"{number:.1e}"


def _ratio(part: float, whole: float, form: str) -> str:
    return form.format(part / whole) if whole else "–"
