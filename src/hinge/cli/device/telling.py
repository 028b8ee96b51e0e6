"""Who is told of answers as they come: a program, a person at a terminal, or whoever reads the log."""

from __future__ import annotations

import logging
import math
import time
from typing import Any, Protocol

from rich import box
from rich.live import Live
from rich.table import Table

from hinge.cli import show
from hinge.cli.device.course import Course, Seen
from hinge.cli.device.view import View
from hinge.device.device import Device
from hinge.device.status import Status

_EVERY_S = 5.0  # between two lines of progress
_AGAIN_S = 60.0  # between two warnings of the same
_UPDATES = 4  # of the view, per second


class Telling(Protocol):
    """Is told of every answer, while its block runs."""

    def tell(self, seen: Seen) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Warnings:
    """Prints what the device warns of on standard error; what comes and goes, once in a while."""

    def __init__(self) -> None:
        self._handler = logging.StreamHandler()
        self._handler.setFormatter(logging.Formatter("hinge: %(message)s"))
        self._handler.addFilter(self._is_news)
        self._said: dict[str, float] = {}

    def _is_news(self, record: logging.LogRecord) -> bool:
        text, now = record.getMessage(), time.monotonic()
        if record.levelno < logging.WARNING or now < self._said.get(text, -math.inf) + _AGAIN_S:
            return False
        self._said[text] = now
        return True

    def __enter__(self) -> None:
        logging.getLogger("hinge").addHandler(self._handler)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("hinge").removeHandler(self._handler)


class Lines(Warnings):
    """An object of JSON for every answer."""

    def tell(self, seen: Seen) -> None:
        """Print the answer."""
        number, case, answer = seen
        known = {"name": case.name, "truth": case.truth}
        show.print_line({"sample": number, **answer.as_dict(), **{k: v for k, v in known.items() if v is not None}})


class Progress(Warnings):
    """A line on standard error now and then."""

    def __init__(self, device: Device, course: Course, every_s: float | None = None) -> None:
        super().__init__()
        self._device, self._course = device, course
        self._every_s = _EVERY_S if every_s is None else every_s
        self._began = self._told = time.monotonic()

    def tell(self, seen: Seen) -> None:
        """Print how things stand, if it is time."""
        now, course = time.monotonic(), self._course
        if now - self._told < self._every_s:
            return
        self._told = now
        speed, share = course.samples / (now - self._began), course.offloads / course.samples
        line = f"{show.counted(course.samples, 'sample')}, {speed:.0f} per second, {share:.1%} offloaded"
        show.err.print(f"{line}, {_breaker(self._device.status)}", highlight=False, markup=False, soft_wrap=True)


class Watched:
    """The view in a terminal, which is gone in the end."""

    def __init__(self, view: View) -> None:
        self._live = Live(view, console=show.out, refresh_per_second=_UPDATES, transient=True)
        self._quiet = logging.NullHandler()  # alarms are in the view

    def tell(self, seen: Seen) -> None:
        """The view looks for itself."""

    def __enter__(self) -> None:
        logging.getLogger("hinge").addHandler(self._quiet)
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        logging.getLogger("hinge").removeHandler(self._quiet)


def _breaker(status: Status) -> str:
    """How the remote fares, and why."""
    why = "" if status.breaker == "closed" or status.last_fault is None else f" ({status.last_fault})"
    return f"breaker {status.breaker}{why}"


def print_summary(figures: dict[str, Any], behind: bool) -> None:
    """The figures of a run as a table, without those that nobody knows; whether the remote was asked behind callers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    for name, form, key in _ROWS:
        value = figures[key]
        if isinstance(value, dict):
            for kind, count in sorted(value.items()):
                table.add_row(f"{name}: {kind}", str(count))
        elif value is not None and (value or key != "dropped"):
            table.add_row(f"{name} behind the caller" if behind and key == "asked" else name, form.format(value))
    show.print_table(table)
    if figures["last_fault"] is not None:
        fault = f"The remote failed last: {figures['last_fault']}"
        show.out.print(fault, highlight=False, markup=False, soft_wrap=True)


_ROWS = (  # what it is called, its format, and its key in JSON
    ("samples", "{}", "samples"),
    ("seconds", "{:.1f}", "seconds"),
    ("offloads", "{}", "offloads"),
    ("offloads, of all samples", "{:.2%}", "offload_fraction"),
    ("asked", "{}", "asked"),
    ("answered by the remote", "{}", "answered_by_remote"),
    ("fell back", "{}", "fell_back"),
    ("dropped", "{}", "dropped"),
    ("local agreed, of the remote's answers", "{:.2%}", "agreement"),
    ("offload cost per sample", "{:.4f}", "offload_cost_per_sample"),
    ("cost per sample", "{:.4f}", "cost_per_sample"),
    ("agrees with the remote", "{:.2%}", "accuracy"),
    ("true accuracy", "{:.2%}", "true_accuracy"),
    ("true cost per sample", "{:.4f}", "true_cost_per_sample"),
    ("milliseconds, half within", "{:.3g}", "latency_ms_p50"),
    ("milliseconds, 99 % within", "{:.3g}", "latency_ms_p99"),
    ("breaker", "{}", "breaker"),
    ("not durable", "{}", "not_durable"),
    ("alarms", "{}", "alarms"),
)
