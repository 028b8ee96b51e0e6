"""What `hinge device` shows: figures of the run so far, a live view or a line now and then, JSON lines, a summary.

The summary says what was gained, where an offload has a price. Over local alone, exactly: each answer of the remote
shows whether the local one would have differed, which costs 1, and what asking cost is known; the other answers are
local ones either way. What these cost is not seen, so what remote alone would have saved is estimated: from the
agreement at offloads, bin by bin, with an interval. Without a price, it says how far all answers agree with the remote.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from rich.bar import Bar
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hinge.cli import console
from hinge.cli.device_samples import Case
from hinge.device.answer import Answer
from hinge.device.device import Device
from hinge.device.page.snapshot import copy_of, licences
from hinge.device.status import Status
from hinge.errors import BreakerOpen, PolicyFailed, QueueTimeout, printable
from hinge.ledger import Ledger, ratio
from hinge.policies.policy import Explanation
from hinge.simulation.sources import ConstantPrice, Synthetic
from hinge.simulation.trade import OFFLOAD_COSTS, trade
from hinge.theory import Estimate

Behind = Mapping[int, tuple[int, float]]  # by bin: answers of the remote that could be compared, and agreed
_NOTHING: Behind = MappingProxyType({})
_FEWEST = 100  # samples: on fewer there is no curve to show
_MOST = 10_000  # samples that the curve is simulated on, in a second or two
_STEP = math.log(1.01)  # latencies are counted by logarithm, in steps of a hundredth
_EVERY_S = 5.0  # between two lines of progress
_AGAIN_S = 60.0  # between two warnings of the same
_UPDATES = 4  # of the view, per second
_AROUND = 13  # lines that are neither bins nor answers, an alarm among them
_BESIDE_BARS = 70  # columns that are no bars, if licences have room to be read
_WINDOW = 20  # updates over which the speed is taken: five seconds


# -- figures ----------------------------------------------------------------------------------------------------------


class Answered(NamedTuple):
    """A sample that was answered."""

    number: int
    case: Case
    answer: Answer


class Figures:
    """The figures of a run so far, in memory that does not grow with it.

    >>> figures = Figures(bins=1)
    >>> figures.gain(paid=0.0, asked=0), figures.latency_ms(0.5)  # there was no answer yet
    (None, None)
    """

    def __init__(self, bins: int, priced: bool = True) -> None:
        self.priced = priced  # whether an offload has a price; without one, no cost is told
        self._ledger = Ledger()  # without costs, which the device's status has: some are paid after the answer
        self._latencies: Counter[int] = Counter()
        self.in_bin, self._answered, self._agreed = np.zeros((3, bins), np.int64)  # samples, and what remote answered
        self._local_right = self._labelled = 0
        self.last: deque[Answered] = deque(maxlen=8)

    @property
    def samples(self) -> int:
        return self._ledger.samples

    @property
    def offloads(self) -> int:
        """Samples that the policy decided to offload."""
        return self._ledger.offloads

    def add(self, case: Case, answer: Answer, latency_ms: float) -> Answered:
        seen = Answered(self.samples, case, answer)
        agreed = None if case.remote is None else float(answer.label == case.remote)
        right = None if case.truth is None else bool(answer.label == case.truth)
        if answer.decision.offload:
            self._ledger.offload(0.0, agreed=agreed, right=right)
        else:
            self._ledger.accept(agreed, right=right)
        self.in_bin[answer.bin] += 1
        if answer.source == "remote":
            self._answered[answer.bin] += 1
            self._agreed[answer.bin] += bool(answer.label == answer.local)
        if case.truth is not None:
            self._labelled += 1
            self._local_right += bool(answer.local == case.truth)
        self._latencies[round(math.log(max(latency_ms, 1e-6)) / _STEP)] += 1
        self.last.append(seen)
        return seen

    def latency_ms(self, part: float) -> float | None:
        """The time within which this part of the answers came, to a hundredth of it."""
        left = part * self._latencies.total()
        for step, count in sorted(self._latencies.items()):
            left -= count
            if left <= 0:
                return math.exp(step * _STEP)
        return None

    def as_dict(self, status: Status, seconds: float) -> dict[str, Any]:
        """The summary, named as in the other commands; None stands for what is not known."""
        sums, spent = self._ledger.figures(), status.offload_cost if self.priced else None
        paid = None if spent is None else ratio(spent, self.samples)
        unsent = sum(status.fell_back.get(each.kind, 0) for each in (BreakerOpen, QueueTimeout, PolicyFailed))
        known = ("answered_by_remote", "fell_back", "dropped", "breaker", "last_fault", "not_durable", "alarms")
        costs = {key: sums[key] for key in ("cost_per_sample", "true_cost_per_sample")}
        asked = status.answered_by_remote + sum(status.fell_back.values()) - unsent
        return {
            "samples": self.samples,
            "seconds": seconds,
            **{key: sums[key] for key in ("offloads", "offload_fraction", "accuracy", "true_accuracy")},
            "asked": asked,
            **{key: getattr(status, key) for key in known},
            "offload_cost": spent,
            "agreement": ratio(status.agreed, status.compared),
            "offload_cost_per_sample": paid,
            **{key: None if None in (cost, paid) else cost + paid for key, cost in costs.items()},
            "latency_ms_p50": self.latency_ms(0.5),
            "latency_ms_p99": self.latency_ms(0.99),
            "gain": self.gain(spent, asked, status.behind),
        }

    def gain(self, paid: float | None, asked: int, behind: Behind = _NOTHING) -> dict[str, Any] | None:
        """What was gained, if asking so often has cost so much, where that is known; None without a remote's answer.

        What the remote answered `behind` the caller counts as if it had been given.
        """
        estimate = self._estimate(behind)
        if estimate is None:
            return None
        answers, accepted = int(estimate.offloads.sum()), 1.0 - estimate.offloads / np.maximum(self.in_bin, 1)
        spared = answers - int(estimate.agreements.sum())
        wrong = estimate.cost(accepted, 0.0)
        low, high = (None, None) if paid is None else estimate.cost(accepted, paid / asked)
        return {
            "answers": answers,
            "spared": spared,
            "saved_on_local": None if paid is None else (spared - paid) / self.samples,
            "local_true_accuracy": ratio(self._local_right, self._labelled),
            "remote_cost_per_sample": None if paid is None else paid / asked,
            "cost_low": low,
            "cost_high": high,
            "accuracy_low": 1.0 - wrong[1],
            "accuracy_high": 1.0 - wrong[0],
        }

    def _estimate(self, behind: Behind) -> Estimate | None:
        """Agreement by what the remote answered, to the caller or behind it; None without an answer."""
        told = np.array([behind.get(bin, (0, 0)) for bin in range(len(self.in_bin))], np.int64).T
        answered = np.minimum(self._answered + told[0], self.in_bin)  # a run that is cut off has one sample fewer
        return Estimate(self.in_bin, answered, np.minimum(self._agreed + told[1], answered)) if answered.any() else None

    def print_gain(
        self, found: dict[str, Any], paid: float | None, right: float | None, behind: Behind = _NOTHING
    ) -> None:
        """Print what `gain` found, with the curve of other prices; `right`: the device's own true accuracy."""
        would = "would have " if behind else ""
        spare, cost, agree = f"{would}spared", f"{would}cost", "would agree" if behind else "agree"
        saved, price = found["saved_on_local"], found["remote_cost_per_sample"]
        spared, answers = console.counted(found["spared"], "answer"), console.counted(found["answers"], "answer")
        if paid is None:
            low, high = found["accuracy_low"], found["accuracy_high"]
            console.say(
                f"Asking {spare} {spared} unlike the remote's; of all answers, {low:.2%} to {high:.2%} {agree} with "
                f"the remote's, by what {answers} of the remote leave possible."
            )
        else:
            less = f"{abs(saved):.4f} a sample {'less' if saved >= 0 else 'more'} than local alone"
            console.say(f"Asking cost {paid:.4g} and {spare} {spared} unlike the remote's, at 1 each: {less}.")
            console.say(
                f"Remote alone would have cost {price:.4g} a sample; this device {cost} {found['cost_low']:.4f} to "
                f"{found['cost_high']:.4f}, by what {answers} of the remote leave possible."
            )
        if right is not None and not behind:  # else local alone has answered
            local = found["local_true_accuracy"]
            worse = ": asking the remote made the answers worse" if right < local else ""
            console.say(f"Right by the true labels: local alone {local:.2%}, this device {right:.2%}{worse}.")
        estimate = self._estimate(behind)
        if paid is not None and estimate is not None and self.samples >= _FEWEST:
            price = round(price, 4)
            source = Synthetic(estimate.agreement, ConstantPrice(price), estimate.samples)
            console.say("At other prices, with the agreement that these answers make most likely:")
            prices, horizon = (*OFFLOAD_COSTS, price), min(self.samples, _MOST)
            console.print_trade(trade(source, offload_costs=prices, horizon=horizon, machine_code=False), price)


# -- while it runs ----------------------------------------------------------------------------------------------------


class Display(logging.Handler):
    """Gets every answer while its block runs. This one prints none, but the device's warnings, on standard error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._printed: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, the same one at most once a minute."""
        text, now = record.getMessage(), time.monotonic()
        if now >= self._printed.get(text, -math.inf) + _AGAIN_S:
            self._printed[text] = now
            console.warn(text)

    def show(self, seen: Answered) -> None:
        """Print an answer, or figures, if it is time."""

    def __enter__(self) -> None:
        logging.getLogger("hinge").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("hinge").removeHandler(self)


class JsonLines(Display):
    """A JSON object for every answer."""

    def show(self, seen: Answered) -> None:
        number, case, answer = seen
        known = {key: value for key in ("name", "truth") if (value := getattr(case, key)) is not None}
        console.print_json({"sample": number, **answer.as_dict(), **known}, line=True)


class ProgressLines(Display):
    """A line on standard error every few seconds."""

    def __init__(self, device: Device, figures: Figures, every_s: float | None = None) -> None:
        super().__init__()
        self._device, self._figures = device, figures
        self._every_s = _EVERY_S if every_s is None else every_s
        self._began = self._printed_at = time.monotonic()

    def show(self, seen: Answered) -> None:
        """Print the figures so far, if it is time."""
        now, figures, status = time.monotonic(), self._figures, self._device.status
        if now - self._printed_at < self._every_s:
            return
        self._printed_at = now
        speed, part = figures.samples / (now - self._began), figures.offloads / figures.samples
        why = "" if status.breaker == "closed" or status.last_fault is None else f" ({status.last_fault})"
        line = f"{console.counted(figures.samples, 'sample')}, {speed:.0f} per second, {part:.1%} offloaded"
        console.note(f"{line}, breaker {status.breaker}{why}")


class LiveView(Display):
    """A view in a terminal, drawn a few times a second, and erased in the end; alarms are in it."""

    def __init__(self, view: RenderableType) -> None:
        super().__init__()
        self._live = Live(view, console=console.out, refresh_per_second=_UPDATES, transient=True)
        self.setLevel(logging.CRITICAL + 1)

    def __enter__(self) -> None:
        super().__enter__()
        self._live.start()

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        super().__exit__()


# -- the view ---------------------------------------------------------------------------------------------------------


class View:
    """A device at work: its figures, the licences of its bins, and its last answers. Drawn a few times a second."""

    def __init__(
        self, device: Device, figures: Figures, title: str, length: int | None, *beside: RenderableType
    ) -> None:
        self._device, self._figures, self._title, self._length = device, figures, printable(title), length
        self._beside = beside  # shown below the figures
        self._began = time.monotonic()
        self._updates: deque[tuple[float, int]] = deque([(self._began, 0)], maxlen=_WINDOW)

    def display(self, every_s: float | None = None) -> Display:
        """What shows it: the view in a terminal, elsewhere a line now and then."""
        return LiveView(self) if console.out.is_terminal else ProgressLines(self._device, self._figures, every_s)

    def __rich_console__(self, terminal: Console, options: ConsoleOptions) -> RenderResult:
        height = terminal.size.height - _AROUND - sum(len(terminal.render_lines(each)) for each in self._beside)
        bins, answers = len(self._figures.in_bin), max(2, min(len(self._figures.last), height // 3))
        if height - answers < bins <= height - 2:
            answers = height - bins  # fewer, so that each bin has a row of its own
        rows = max(1, height - answers)
        yield Group(
            self._heading(options.max_width),
            self._state(self._device.status),
            *self._beside,
            self._bins(rows, options.max_width),
            self._answers(list(self._figures.last)[-answers:]),
            Text(" "),  # where the terminal echoes Ctrl-C
        )

    def _heading(self, width: int) -> RenderableType:
        clock = str(timedelta(seconds=int(time.monotonic() - self._began)))
        title = Text(self._title, style="bold", no_wrap=True, overflow="ellipsis")
        title.truncate(max(1, width - len(clock) - 1), overflow="ellipsis", pad=True)
        return title.append(f" {clock}", style="default")

    def _state(self, status: Status) -> RenderableType:
        figures = self._figures
        of = "" if self._length is None else f" of {_count(self._length)}"
        cost = f"{status.offload_cost:.1f}, {_ratio(status.offload_cost, figures.samples, '{:.4f}')} per sample"
        cost = cost if figures.priced else "no price was given"
        agreement = _ratio(status.agreed, status.compared, "{:.1%}")
        offloaded = f"{_count(figures.offloads)}, {_ratio(figures.offloads, figures.samples, '{:.1%}')}"
        table, alone = Table.grid(padding=(0, 2, 0, 0)), Table.grid(padding=(0, 2, 0, 0))
        for each in (table, table, alone):
            each.add_column(no_wrap=True, min_width=12)
            each.add_column(no_wrap=True, overflow="ellipsis")
        table.add_row("samples", f"{_count(figures.samples)}{of}", "per second", _count(round(self._speed())))
        table.add_row("offloads", offloaded, "local agreed", f"{agreement} of remote's answers")
        safe = Text("safe on disk", style="green") if status.on_disk else Text("in memory only")
        lost = status.not_durable and Text(printable(status.not_durable), style="red")
        table.add_row("offload cost", cost, "state", lost or safe)
        alone.add_row("remote", _remote(status))  # these would be cut, had they another beside them
        alone.add_row("fell back", _kinds(status.fell_back))
        alarms = [Text(printable(f"alarms: {_kinds(status.alarms)}"), style="red")] if status.alarms else []
        return Group(table, alone, *alarms)

    def _speed(self) -> float:
        """Samples per second, lately."""
        now, samples = time.monotonic(), self._figures.samples
        self._updates.append((now, samples))
        then, before = self._updates[0]
        return (samples - before) / (now - then) if now > then else 0.0

    def _bins(self, rows: int, width: int) -> RenderableType:
        counts = self._figures.in_bin
        together = -(-len(counts) // rows)  # bins to a row, where there are more than rows
        spans = self._device.gate.bins.spans()
        known, spent = licences(copy_of(self._device)), self._device.policy.exhausted
        room = max(7, min(40, width - _BESIDE_BARS))
        table = console.table(width=width)
        table.add_column("confidence", no_wrap=True, width=11)
        table.add_column("samples", no_wrap=True, width=room)
        table.add_column("", justify="right", no_wrap=True, width=6)
        table.add_column("agreed", justify="right", no_wrap=True, width=13)
        table.add_column("licence", no_wrap=True, overflow="ellipsis", ratio=1)
        for first in range(0, len(counts), together):
            bins = range(first, min(first + together, len(counts)))
            part = sum(counts[first : bins.stop]) / max(1, self._figures.samples)
            span = f"{spans[first][1]:.2f} – {spans[bins.stop - 1][2]:.2f}"
            evidence, licence = _licence(known[first : bins.stop], spent)
            table.add_row(span, Bar(1.0, 0.0, part, width=room, color="blue"), f"{part:.1%}", evidence, licence)
        return table

    def _answers(self, last: Sequence[Answered]) -> RenderableType:
        table = Table.grid(padding=(0, 1, 0, 0), expand=True)
        table.add_column(justify="right", no_wrap=True, min_width=len(str(self._figures.samples)))
        table.add_column(no_wrap=True, width=6)
        table.add_column(no_wrap=True, width=14, overflow="ellipsis")
        table.add_column(no_wrap=True, ratio=1, overflow="ellipsis")
        for number, _, answer in last:
            style = "cyan" if answer.source == "remote" else "yellow" if answer.fault else "green"
            reason = Text(printable(answer.reason), style="dim")
            table.add_row(str(number), Text(answer.source, style), Text(printable(answer.label)), reason)
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


def _remote(status: Status) -> Text:
    fault = printable(status.last_fault)
    if status.breaker != "closed":
        return Text(f"fails: breaker {status.breaker}; {fault}", style="red", overflow="ellipsis")
    if not status.attempts.succeeded:
        return Text(f"failed: {fault}" if status.last_fault else "not asked yet", style="yellow")
    again = f"answers again; failed last: {fault}" if status.attempts.opened else "answers"
    return Text(again, style="green", overflow="ellipsis")


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


# -- in the end -------------------------------------------------------------------------------------------------------


def print_summary(figures: dict[str, Any], behind: bool) -> None:
    """The figures of a run that are known, as a table; `behind`: the remote was asked after the local answer."""
    rows = []
    for name, form, key in _ROWS:
        value = figures[key]
        if isinstance(value, dict):
            rows += [(f"{name}: {kind}", str(count)) for kind, count in sorted(value.items())]
        elif value is not None and (value or key != "dropped"):
            name += " behind the caller" if behind and key == "asked" else ""
            rows.append((name, printable(form.format(value))))
    console.print_rows(("", ""), rows)
    if figures["last_fault"] is not None:
        console.say(f"The remote failed last: {figures['last_fault']}")


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
