"""The command `demo`: a device and an edge server at work on real images, other policies beside them, and a report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table

from hinge import fashion
from hinge._files import replacing
from hinge._html import PALETTE, Curve, Panel, document, draw, plot, section, table
from hinge.bins import UniformBins
from hinge.cli import console, options
from hinge.cli.device import StopSignals
from hinge.cli.device_samples import Case
from hinge.cli.device_view import Answered, Display, Figures, View
from hinge.cli.options import option
from hinge.device.answer import Answer
from hinge.device.device import Device
from hinge.device.page.page import LivePage
from hinge.device.page.pictures import data_url, small
from hinge.device.page.snapshot import copy_of, licences
from hinge.device.status import Status
from hinge.errors import HingeError
from hinge.ledger import Ledger
from hinge.policies import Policy
from hinge.policies.policy import Explanation
from hinge.remotes import Deadline
from hinge.simulation import checkpoints, lineup, run_seeds
from hinge.simulation.engine import policy_seed
from hinge.simulation.sources import ConstantPrice, InOrder
from hinge.simulation.trade import OFFLOAD_COSTS, Trade, trade
from hinge.traces import load_trace

FLAGSHIP = "sentinel"  # what the device decides by
SHADOWS = ("hi-lcb", "hi-lcb-lite", "hedge-hi")
BOUNDS = ("always-local", "always-remote", "oracle")
MODEL = "fashion"
BINS = 16
OFFLOAD_COST = 0.15  # that of the headline, by the rule of `hinge.simulation.trade`
DEADLINE_S = 5.0  # of a request: long, so that a busy machine does not spoil the comparison of policies

_NEEDED = ("onnxruntime", "aiohttp", "h11", "uvicorn", "prometheus_client", "plotly")
_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
_POINTS = 200  # of a curve
_EXAMPLES = 13  # of each source, at most
_WARM_UP, _TIMED_LOCAL, _TIMED_REMOTE = 5, 1_000, 200  # answers: first ones are slow, as caches are cold
_PROGRESS_S, _COMPARE_S = 1.0, 0.5  # between two lines of progress, and two comparisons on the page
_SLOWEST_S = 0.15  # between the first two samples that are watched; 10 000 take a hundred times as long
_SHORTEST_S = 0.002  # a shorter sleep is not worth it

T = TypeVar("T")


@options.grouped
def demo_command(
    samples: int = option("Images to stream; from the first again after 10 000.", default=10_000, min=1),
    offload_cost: float = option(
        "What an offload costs, from 0 to 1. By default the highest price at which nine tenths of the "
        "accuracy that the remote adds are kept.",
        default=OFFLOAD_COST,
        min=0,
        max=1,
    ),
    page: options.PagePort = None,
    out: Path = option("The report to write, one page of HTML.", default=Path("hinge-demo.html")),
    json: options.Json = False,
) -> None:
    """Real images are streamed through a device, beside other policies, and a report is written.

    The server is a process of its own, with the Fashion-MNIST model that comes with Hinge; the device asks it over
    HTTP. It decides by sentinel; hi-lcb, hi-lcb-lite and hedge-hi run in shadow. In a terminal, or with --page, the
    images come slowly enough to be watched. In the end it says what is gained at every price, and where nothing is.

    Example: hinge demo --out demo.html
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: pip install 'hinge-gate[cli,device,server,report]'")
    from hinge import OnnxModel, OpenInference

    if out.is_dir() or not out.parent.is_dir():
        raise options.UsageError(f"--out {out}: must be a file in a folder that exists")
    with console.interruptible(), ExitStack() as stack:
        with console.status("starting the edge server"):
            url = stack.enter_context(edge_server())
        with console.status("simulating other prices"):
            prices = (*OFFLOAD_COSTS, offload_cost)
            gain = trade(MODEL, FLAGSHIP, bins=BINS, offload_costs=prices, machine_code=False)
        source, live = recorded(offload_cost), None
        comparison = Comparison(source, samples, offload_cost)
        local, remote = OnnxModel(fashion.local_model()), OpenInference(url, model=MODEL)
        device = Device(local, remote, comparison.flagship, labels=fashion.CLASSES, deadline_s=DEADLINE_S)
        stack.enter_context(device)
        with console.status("measuring both models"):
            timing = measure(device, remote, cases(source, samples), comparison)
        outcome = Outcome(samples, offload_cost, gain, comparison, Figures(BINS), timing)
        if page is not None:
            try:
                live = stack.enter_context(LivePage(device, page))
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"--page {page}") from error
            console.note(f"Live page: {live.url}")
            # a browser in this terminal would be in the way
            if sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in _DISPLAYS):
                webbrowser.open(live.url)
        _print_end(outcome, out, run(device, source, outcome, live, json), json)
        if live is not None:
            with suppress(KeyboardInterrupt):
                console.note(f"The live page stays at {live.url} until Ctrl-C")
                while True:
                    time.sleep(60)


def _print_end(outcome: Outcome, out: Path, stopped_by: int | None, json: bool) -> None:
    """Write the report of a run that was not interrupted, and print what was found."""
    if stopped_by is None:
        with console.status("writing the report"), replacing(out) as stream:
            stream.write(page_of(outcome).encode())
    if json:
        console.print_json({**outcome.as_dict(), "report": str(out) if stopped_by is None else None})
    elif outcome.figures.samples:
        print_outcome(outcome)
    if stopped_by is not None:
        console.end_interrupted("this is what was done. No report was written.", 128 + stopped_by)
    if not json:
        console.say(f"Look at {out}")


# -- the edge server --------------------------------------------------------------------------------------------------

_ANNOUNCED = f"Serving {MODEL} at "
_START_S, _STOP_S, _POLL_S = 60.0, 10.0, 0.02


@contextmanager
def edge_server() -> Iterator[str]:
    """Serve the remote model in a process of its own while the block runs; yields the address of the server."""
    arguments = [sys.executable, "-m", "hinge", "serve", MODEL, "--port", "0", "--log-level", "warning"]
    environment = {name: value for name, value in os.environ.items() if name != "HINGE_TOKEN"}  # the demo shows none
    with tempfile.TemporaryDirectory(prefix="hinge-demo-", ignore_cleanup_errors=True) as folder, _unwound_by_signals():
        log = Path(folder, "server.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield _address(process, log)
        finally:
            process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_S)
            finally:  # also after a second Ctrl-C
                process.kill()
                process.wait()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the server prints its address."""
    end = time.monotonic() + _START_S
    while True:
        ended = process.poll() is not None
        lines = log.read_text("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith(_ANNOUNCED):
                return line.removeprefix(_ANNOUNCED)
        if ended:
            why = lines[-1].removeprefix("hinge: ") if lines else f"it ended with status {process.returncode}"
            raise HingeError(f"the edge server did not start: {why}")
        if time.monotonic() > end:
            raise HingeError(f"the edge server did not start in {_START_S:.0f} s")
        time.sleep(_POLL_S)


@contextmanager
def _unwound_by_signals() -> Iterator[None]:
    """While the block runs, SIGTERM and SIGHUP raise SystemExit, so that the server is stopped."""
    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {kind: signal.signal(kind, lambda kind, _: sys.exit(128 + kind)) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


# -- the images, and what is recorded of them -------------------------------------------------------------------------


class RecordedSample(NamedTuple):
    """What is recorded of a sample: a row of `hinge.simulation.sources.Samples`."""

    bin: int
    agreed: float
    cost: float
    gap: float
    local_right: float
    remote_right: float

    def add_to(self, ledger: Ledger, offloaded: bool, agreed: float | None = None, right: float | None = None) -> None:
        """Add it to a ledger; `agreed` and `right` are of the answer, where that is not the recorded one."""
        if right is None:
            right = self.remote_right if offloaded else self.local_right
        if offloaded:
            ledger.offload(self.cost, gap=self.gap, right=right)
        else:
            ledger.accept(self.agreed if agreed is None else agreed, gap=self.gap, right=right)

    def replay(self, policy: Policy, ledger: Ledger) -> None:
        """Let a policy decide about it, which learns from the record what the remote would have said."""
        decision = policy.decide(self.bin)
        if decision.offload:
            policy.learn(decision, self.agreed, self.cost)
        self.add_to(ledger, decision.offload)


def recorded(offload_cost: float) -> InOrder:
    """What both models said of the images, as the simulator sees it."""
    return InOrder(load_trace("fashion"), UniformBins(BINS), ConstantPrice(offload_cost))


def rows(source: InOrder, samples: int) -> Iterator[RecordedSample]:
    """The record of each sample."""
    for chunk in source.stream(0, samples):
        yield from map(RecordedSample, *(column.tolist() for column in chunk if column is not None))


def cases(source: InOrder, samples: int) -> Iterator[Case]:
    """The images, with the true labels and what the remote said of them; from the first again after the last."""
    images, labels = fashion.labelled_images()
    remote = source.trace.answers[1].tolist()
    for number in range(samples):
        row = number % len(images)
        yield Case(images[row], fashion.CLASSES[labels[row]], fashion.CLASSES[int(remote[row])])


def paced(items: Iterable[T]) -> Iterator[T]:
    """The items slowly enough to be watched, and most slowly at first, while there is most to learn."""
    began = time.monotonic()
    for number, item in enumerate(items):
        left = _SLOWEST_S * number**0.5 - (time.monotonic() - began)
        if left > _SHORTEST_S:
            time.sleep(left)
        yield item


# -- the policies side by side ----------------------------------------------------------------------------------------


class History:
    """The ledger of one policy, and how its sums grew."""

    def __init__(self, samples: int) -> None:
        self._every = max(1, samples // _POINTS)
        self.ledger = Ledger()
        self.points: list[tuple[int, float, int]] = []  # samples, regret and offloads

    def mark(self) -> None:
        """Keep the sums so far, if it is time."""
        ledger = self.ledger
        if ledger.samples % self._every == 0:
            self.points.append((ledger.samples, ledger.regret, ledger.offloads))


class Comparison:
    """The device's policy beside others in shadow, which learn from the record what the remote would have said."""

    def __init__(self, source: InOrder, samples: int, offload_cost: float) -> None:
        names = (*BOUNDS, FLAGSHIP, *SHADOWS)
        ready = lineup(names, source, offload_cost=offload_cost, horizon=samples)
        seed = policy_seed(run_seeds(0, 1)[0])  # as the first run of 'hinge evaluate'
        fresh = {name: policy.fresh(seed) for name, policy in ready.items()}
        self.flagship: Policy = fresh.pop(FLAGSHIP)  # which the device drives
        self.histories = {name: History(samples) for name in names}
        self.checked = self.differences = self.elsewhere = 0
        self._shadows = [(policy, self.histories[name].ledger) for name, policy in fresh.items()]

    def add(self, row: RecordedSample, case: Case, answer: Answer) -> None:
        """Count what the device did, and what each of the others would have done."""
        offloaded, as_recorded = answer.source == "remote", answer.label == case.remote
        row.add_to(self.histories[FLAGSHIP].ledger, offloaded, float(as_recorded), answer.label == case.truth)
        self.elsewhere += answer.bin != row.bin
        if offloaded:
            self.check(as_recorded)
        for policy, ledger in self._shadows:
            row.replay(policy, ledger)
        for history in self.histories.values():
            history.mark()

    def check(self, as_recorded: bool) -> None:
        """Count an answer of the live remote, and whether it is the recorded one."""
        self.checked += 1
        self.differences += not as_recorded

    def rows(self) -> list[dict[str, Any]]:
        return [{"policy": name, **history.ledger.figures()} for name, history in self.histories.items()]

    def __rich__(self) -> RenderableType:
        """Local only, and the policies that are live or in shadow, a line each, to be shown with the device."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("side by side", no_wrap=True)
        for heading in ("offloaded", "cost per sample", "regret", "true acc."):
            table.add_column(heading, justify="right", no_wrap=True)
        forms = {"offload_fraction": ".1%", "cost_per_sample": ".4f", "regret": ".1f", "true_accuracy": ".1%"}
        called = {"always-local": "local only", FLAGSHIP: f"{FLAGSHIP}, live"}
        for name in ("always-local", FLAGSHIP, *SHADOWS):
            figures = self.histories[name].ledger.figures()
            cells = (f"{figures[key] or 0.0:{form}}" for key, form in forms.items())
            table.add_row(called.get(name, f"{name}, in shadow"), *cells, style="green" if name == FLAGSHIP else None)
        return Padding(table, (1, 0, 0, 0))


# -- timing -----------------------------------------------------------------------------------------------------------


class Timing:
    """Milliseconds of a sample: of each model by itself, and by what the device took to accept and to offload.

    >>> timing = Timing(local_ms=1.0, remote_ms=2.0, requests=200)
    >>> timing.estimate_ms(offload_fraction=0.5)
    2.0
    >>> timing.add(False, 0.001), timing.add(True, 0.007)
    (None, None)
    >>> timing.estimate_ms(0.5), timing.estimate_ms(0.25)
    (4.0, 2.5)
    """

    def __init__(self, local_ms: float, remote_ms: float, requests: int) -> None:
        self.local_ms, self.remote_ms = local_ms, remote_ms
        self.requests = requests  # over which the remote was measured
        self._counts, self._seconds = [0, 0], [0.0, 0.0]  # of samples that were accepted, and offloaded

    def add(self, offloaded: bool, seconds: float) -> None:
        self._counts[offloaded] += 1
        self._seconds[offloaded] += seconds

    def estimate_ms(self, offload_fraction: float) -> float:
        """What a device takes for a sample if it offloads this share; for this very device, what it took."""
        expected = (self.local_ms, self.local_ms + self.remote_ms)
        kinds = zip(self._counts, self._seconds, expected, strict=True)
        accepted, offloaded = (1000 * seconds / count if count else ms for count, seconds, ms in kinds)
        return (1.0 - offload_fraction) * accepted + offload_fraction * offloaded


def measure(device: Device, remote: Any, cases: Iterator[Case], comparison: Comparison) -> Timing:
    """Ask both models about the first images, the remote about a part of them; its answers are checked, too."""

    def ask(case: Case) -> str:
        label = remote.ask([case.sample], Deadline.after(DEADLINE_S, time.monotonic())).labels[0]
        return fashion.CLASSES[int(label)]

    def timed(answer: Callable[[Case], Any], cases: Sequence[Case]) -> tuple[float, list[Any]]:
        for case in cases[:_WARM_UP]:
            answer(case)
        began = time.perf_counter()
        answers = list(map(answer, cases))
        return 1000 * (time.perf_counter() - began) / len(cases), answers

    first = list(islice(cases, _TIMED_LOCAL))
    asked = first[:: max(1, len(first) // _TIMED_REMOTE)][:_TIMED_REMOTE]
    local_ms, _ = timed(lambda case: device.local.answer(case.sample), first)
    remote_ms, labels = timed(ask, asked)
    for case, label in zip(asked, labels, strict=True):
        comparison.check(label == case.remote)
    return Timing(local_ms, remote_ms, len(asked))


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """What a demo has found."""

    wanted: int  # samples
    offload_cost: float
    trade: Trade
    comparison: Comparison
    figures: Figures
    timing: Timing
    examples: list[tuple[Answered, str]] = field(default_factory=list)  # some, with the reasons given right after
    seconds: float = 0.0
    status: Status | None = None  # of the device, in the end
    licences: Sequence[Explanation] = field(default_factory=list)

    @property
    def faults(self) -> dict[str, int]:
        """Answers that the remote could not give, by the kind of failure."""
        return self.status.fell_back if self.status else {}

    def rows(self) -> list[dict[str, Any]]:
        """The figures of every policy, with the milliseconds that a sample takes: measured, or else estimated."""
        measured = {"always-local": self.timing.local_ms, "always-remote": self.timing.remote_ms}
        rows = self.comparison.rows()
        for row in rows:
            name = row["policy"]
            estimate = self.timing.estimate_ms(row["offload_fraction"] or 0.0)
            row["latency_ms"] = measured.get(name, estimate)
            row["latency_estimated"] = name not in (*measured, FLAGSHIP)
        return rows

    def as_dict(self) -> dict[str, Any]:
        compared = self.comparison
        return {
            "samples": self.figures.samples,
            "complete": self.figures.samples == self.wanted,
            "seconds": self.seconds,
            "offload_cost": self.offload_cost,
            "bins": len(self.licences),
            "remote_answers": {"checked": compared.checked, "not_as_recorded": compared.differences},
            "bins_not_as_recorded": compared.elsewhere,
            "faults": self.faults,
            "policies": self.rows(),
            "trade": self.trade.as_dict(),
        }


def run(device: Device, source: InOrder, outcome: Outcome, page: LivePage | None, json: bool) -> int | None:
    """Answer all images, or those until a signal comes, which is returned."""
    signals, wanted, comparison = StopSignals(), outcome.wanted, outcome.comparison
    stream: Iterable[tuple[RecordedSample, Case]] = zip(rows(source, wanted), cases(source, wanted), strict=True)
    if page is not None or (console.out.is_terminal and not json):
        stream = paced(stream)
    view = View(device, outcome.figures, f"hinge demo, {device.policy.name}", wanted, outcome.comparison)
    output = Display() if json else view.display(_PROGRESS_S)
    began, compared = time.monotonic(), 0.0
    due = {source: checkpoints(wanted, _EXAMPLES).tolist() for source in ("local", "remote")}  # most at the beginning
    with output, signals:
        for row, case in signals.until_stopped(stream):
            asked = time.perf_counter()
            answer = device.infer(case.sample)
            seconds = time.perf_counter() - asked
            outcome.timing.add(answer.source == "remote", seconds)
            comparison.add(row, case, answer)
            seen = outcome.figures.add(case, answer, 1000 * seconds)
            if wanted_by := [when for when in due[answer.source] if when <= seen.number + 1]:
                del due[answer.source][: len(wanted_by)]
                outcome.examples.append((seen, answer.reason))
            output.show(seen)
            if page is not None:  # the remote's label stands for the truth, as in the figures of the others
                page.saw(answer, picture=case.sample, truth=case.remote)
                if time.monotonic() - compared > _COMPARE_S:
                    compared = time.monotonic()
                    page.compare(comparison.rows())
    if page is not None:
        page.compare(comparison.rows())
    outcome.seconds = time.monotonic() - began
    outcome.status, outcome.licences = device.status, licences(copy_of(device))
    return signals.stopped_by


# -- what was found ----------------------------------------------------------------------------------------------------


HEADINGS = ("", "cost", "offloads", "", "true acc.", "agrees", "regret", "ms")
NAMES = {"always-local": "local only", "always-remote": "remote only", FLAGSHIP: f"{FLAGSHIP} (live)"}


def cells(row: dict[str, Any]) -> Sequence[str]:
    """A row of the table."""
    return (
        NAMES.get(row["policy"], row["policy"]),
        f"{row['cost_per_sample']:.4f}",
        f"{row['offloads']}",
        f"{row['offload_fraction']:.1%}",
        f"{row['true_accuracy']:.2%}",
        f"{row['accuracy']:.2%}",
        f"{row['regret']:.1f}",
        f"{'≈' if row['latency_estimated'] else ''}{row['latency_ms']:.3f}",
    )


def legend(outcome: Outcome) -> list[str]:
    """What the columns are, and how the live answers compare with the recorded ones."""
    compared, price = outcome.comparison, outcome.offload_cost
    lines = [
        f"cost per sample: {price:g} for an offload, 1 for an accepted answer that disagrees with the remote's",
        "true acc.: answers that are right by the labels; agrees: answers as the remote's",
        "regret: what decisions other than the oracle's are expected to cost in sum, by bin",
        f"ms per sample: measured; remote only: {outcome.timing.requests} requests; ≈: by the device's offloads",
    ]
    recorded = f"the live remote's {compared.checked} answers: {compared.differences} not as recorded"
    recorded += f"; {outcome.timing.requests} of them to measure its time"
    lines.append(recorded + (f"; {compared.elsewhere} samples in another bin" if compared.elsewhere else ""))
    if outcome.faults:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
        lines.append(f"answered locally, as the remote failed: {kinds}")
    return lines


def print_outcome(outcome: Outcome) -> None:
    """The table of all policies, and what its columns mean."""
    title = f"{outcome.figures.samples:,} images in {outcome.seconds:.1f} s, over HTTP"
    console.print_rows(HEADINGS, map(cells, outcome.rows()), title, bold=NAMES[FLAGSHIP])
    for line in legend(outcome):
        console.say(line, style="dim")
    console.print_trade(outcome.trade, outcome.offload_cost)


# -- the page ---------------------------------------------------------------------------------------------------------

_WINDOWS = 50  # over which the rate of offloads is taken
_LICENSED, _UNLICENSED = PALETTE[4], PALETTE[6]
_COLOURS = dict(zip(("local only", "remote only", FLAGSHIP, "oracle", *SHADOWS), PALETTE, strict=False))
_DASHED = "hi-lcb-lite"  # decides as hi-lcb where agreement rises with confidence

STYLE = """
.examples { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 0.75rem; padding: 0 }
.examples li { display: flex; gap: 0.75rem; border: 1px solid #ddd; padding: 0.5rem; list-style: none }
.examples img { width: 84px; height: 84px; image-rendering: pixelated; flex: none }
.examples p { margin: 0; font-size: 0.8rem; color: #555 } .examples strong { color: #1a1a1a }
.examples .remote { border-left: 4px solid #0072B2 } .examples .local { border-left: 4px solid #009E73 }
.policies { white-space: nowrap } .policies th { text-align: right } .live td { font-weight: 600 }
.policies td:nth-child(n + 2) { text-align: right; font-variant-numeric: tabular-nums }
@media (max-width: 30rem) { .policies { font-size: 0.75rem } .policies th, .policies td { padding: 0.3rem 0.25rem } }
"""


def page_of(outcome: Outcome) -> str:
    """The report as HTML that needs nothing else: no network, no other file."""
    about = [
        f"{outcome.figures.samples:,} test images of Fashion-MNIST in {outcome.seconds:.1f} s, through a device with a "
        f"local model of 15 kB. Where {FLAGSHIP} decided so, it asked an edge server with a model of 3.5 MB over HTTP; "
        f"{', '.join(SHADOWS)} ran in shadow.",
        " ".join(outcome.trade.sentences(outcome.offload_cost)),
    ]
    parts = (_trade, _table, _over_time, _bins, _examples)
    return document("The demo", about, [part(outcome) for part in parts], STYLE)


def _trade(outcome: Outcome) -> str:
    rows, price = list(outcome.trade.rows()), f"{outcome.offload_cost:g}"
    note = f"What {FLAGSHIP} gains at every price of an offload, simulated on the 10,000 images, and where nothing is."
    marked = (("live" if row["price"] == price else "", list(row.values())) for row in rows)
    drawn = plot("trade", draw(outcome.trade.panels(), colours=_COLOURS)) + table("policies", list(rows[0]), marked)
    return section("trade", "The trade", note, drawn)


def _table(outcome: Outcome) -> str:
    rows = (("live" if row["policy"] == FLAGSHIP else "", cells(row)) for row in outcome.rows())
    notes = "".join(f'<p class="note">{escape(line)}</p>' for line in legend(outcome))
    body = table("policies", HEADINGS, rows) + notes
    return section("policies", "Side by side", f"At {outcome.offload_cost:g} for an offload.", body)


def _over_time(outcome: Outcome) -> str:
    histories = outcome.comparison.histories
    shown = {name: histories[name] for name in (FLAGSHIP, *SHADOWS)}
    alone = {NAMES[name]: histories[name] for name in ("always-local", "always-remote")}
    ends = {name: history.ledger.regret for name, history in (alone | shown).items()}
    dear = max(alone, key=lambda name: ends[name])  # would squash the others: it leaves the plot
    top = 1.1 * max(end for name, end in ends.items() if name != dear)
    curves = [_regret(name, history) for name, history in (alone | shown).items()]
    note = "What decisions other than the oracle's have cost so far. The oracle knows how often both agree in each bin."
    note += f" {dear.capitalize()} leaves the plot, and ends at {ends[dear]:.0f}." if ends[dear] > top else ""
    panel = Panel("", "samples", "regret", curves, top=top or None)
    regret = section("regret", "Regret", note, plot("regret", draw([panel], colours=_COLOURS)))
    note = "The share of the samples that each policy offloaded, window by window; local only: none, remote only: all."
    panel = Panel("", "samples", "share offloaded", [_rate(name, history) for name, history in shown.items()])
    return regret + section("offloads", "Offloads", note, plot("offloads", draw([panel], colours=_COLOURS)))


def _regret(name: str, history: History) -> Curve:
    times, regrets, _ = np.array(history.points).T.tolist()
    return Curve(name, times, regrets, dashed=name == _DASHED)


def _rate(name: str, history: History) -> Curve:
    step = max(1, len(history.points) // _WINDOWS)
    times, _, counts = np.array([(0, 0.0, 0), *history.points[step - 1 :: step]]).T
    return Curve(name, times[1:].tolist(), (np.diff(counts) / np.diff(times)).tolist(), dashed=name == _DASHED)


def _bins(outcome: Outcome) -> str:
    from plotly import graph_objects

    known, bins = [each for each in outcome.licences if each.offloads], len(outcome.licences)
    drawn = graph_objects.Figure()
    for title, colour, licensed in (("accepted", _LICENSED, True), ("offloaded", _UNLICENSED, False)):
        chosen = [each for each in known if (each.offload_probability == 0.0) == licensed]
        drawn.add_bar(
            name=title,
            x=[(each.bin + 0.5) / bins for each in chosen],
            y=[each.agreement for each in chosen],
            width=0.9 / bins,
            marker_color=colour,
            text=[f"{each.offloads:g}" for each in chosen],
            textposition="inside",
            insidetextanchor="start",
            hovertext=[each.reason for each in chosen],
            hoverinfo="text",
        )
    even, said = 1.0 - outcome.offload_cost, "above, accepting is cheaper"
    drawn.add_hline(y=even, line_dash="dash", annotation_text=said, annotation_position="top left")
    drawn.update_xaxes(title_text="confidence of the local model", range=[0, 1])
    drawn.update_yaxes(title_text="local agreed with remote", range=[0, 1], tickformat=".0%")
    margin = {"l": 60, "r": 15, "t": 40, "b": 50}
    drawn.update_layout(template="plotly_white", height=420, margin=margin, legend={"orientation": "h", "y": 1.12})
    note = "What the device learned from its offloads, and in the end accepts. In each bar: the offloads behind it."
    return section("bins", "Agreement and licences", note, plot("bins", drawn))


def _examples(outcome: Outcome) -> str:
    cards = ""
    for (number, case, answer), reason in outcome.examples:
        pixels = small(case.sample)
        picture = "" if pixels is None else f'<img src="{data_url(pixels)}" alt="image {number}">'
        verdict = "right" if answer.label == case.truth else f"wrong: it is {case.truth}"
        said = f"<strong>{escape(answer.label)}</strong>, says {answer.source} ({verdict})"
        sure = f"No. {number}, local confidence {answer.confidence:.2f}"
        words = f"<div><p>{said}</p><p>{sure}</p><p>{escape(reason)}</p></div>"
        cards += f'<li class="{answer.source}">{picture}{words}</li>'
    note = "Some of the answers, with the reason that the device gave right after each; most are from the beginning."
    return section("examples", "Answers", note, f'<ul class="examples">{cards}</ul>')
