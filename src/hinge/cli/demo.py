"""The command `demo`: a device and an edge server at work on real images, what that saves, and a report."""

import os
import signal
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from html import escape
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from hinge import fashion
from hinge._files import replacing
from hinge._html import document, draw, plot, section, table
from hinge.bins import UniformBins
from hinge.cli import console, options
from hinge.cli.device import StopSignals, show_page
from hinge.cli.device_samples import Case
from hinge.cli.device_summary import Warnings
from hinge.cli.options import option
from hinge.cli.settings import UsageError
from hinge.device.answer import Answer
from hinge.device.device import Device
from hinge.errors import HingeError
from hinge.ledger import Ledger
from hinge.simulation import Results, lineup, simulate
from hinge.simulation.sources import ConstantPrice, InOrder
from hinge.simulation.trade import OFFLOAD_COSTS, Trade, trade
from hinge.tasks import Classification
from hinge.traces import load_trace

LIVE = "probation"  # what the device decides by
BESIDE = ("always-local", "always-remote", "oracle", LIVE, "hi-lcb", "hi-lcb-lite", "hedge-hi")
MODEL, BINS = "fashion", 16
OFFLOAD_COST = 0.15  # that of the headline, by the rule of `hinge.simulation.trade`
DEADLINE_S = 5.0  # of a request: long, so that a busy machine does not spoil the comparison of policies
_NEEDED = ("onnxruntime", "aiohttp", "uvicorn", "prometheus_client", "plotly")
_ANNOUNCED = f"Serving {MODEL} at "
_OPENS = sys.platform in ("darwin", "win32")  # elsewhere a browser may be one in this very terminal
_DISPLAYS = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
_STOP_S = 10.0  # for the server to end
_SLOWEST_S = 0.15  # between the first two samples that are watched; 10 000 take a hundred times as long

if TYPE_CHECKING:
    from hinge.device.page.page import LivePage

T = TypeVar("T")
_CALLED = {"always-local": "local only", "always-remote": "remote only"}
_COLUMNS = {  # headings, and how to write the figure of that name
    "cost": ("cost_per_sample", "{:.4f}"),
    "offloads": ("offload_fraction", "{:.1%}"),
    "true acc.": ("true_accuracy", "{:.2%}"),
    "agrees": ("accuracy", "{:.2%}"),
    "ms": ("latency_ms", "{:.3f}"),
}
_STYLE = """
.policies { white-space: nowrap } .policies th { text-align: right; white-space: normal } .live td { font-weight: 600 }
.policies td:nth-child(n + 2) { text-align: right; font-variant-numeric: tabular-nums }
@media (max-width: 30rem) { .policies { font-size: 0.75rem } .policies th, .policies td { padding: 0.3rem 0.25rem } }
"""


@dataclass
class Outcome:
    """What a demo has found."""

    offload_cost: float
    trade: Trade
    ledger: Ledger = field(default_factory=Ledger)  # of the device
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))  # of local and remote answers
    checked: int = 0  # answers of the remote
    differences: int = 0  # of these, not as recorded
    elsewhere: int = 0  # samples in another bin than recorded
    results: Results | None = None  # of all policies, on the record of these images
    faults: dict[str, int] = field(default_factory=dict)

    def add(self, case: Case, answer: Answer, recorded_bin: int, seconds: float) -> None:
        """Count an answer."""
        offloaded, as_recorded = answer.source == "remote", answer.label == case.remote
        right = answer.label == case.truth
        if offloaded:
            self.ledger.offload(self.offload_cost, agreed=float(as_recorded), right=right)
            self.checked += 1
            self.differences += not as_recorded
        else:
            self.ledger.accept(float(as_recorded), right=right)
        self.elsewhere += UniformBins(BINS).bin(answer.confidence) != recorded_bin
        self.seconds[offloaded].append(seconds)

    def rows(self) -> list[dict[str, Any]]:
        """Return the figures of every policy: of the device as counted, of the others as simulated beside it."""
        found = []
        accepted, offloaded = (1000 * sum(each) / max(1, len(each)) for each in self.seconds)
        for row in self.results.figures() if self.results else ():
            figures = self.ledger.figures() if row["policy"] == LIVE else {key: row[key] for key in _FIGURES}
            share = figures["offload_fraction"]
            figures["offloads"] = round(share * self.ledger.samples)
            latency = (1.0 - share) * accepted + share * offloaded
            more = {"latency_ms": latency, "latency_estimated": row["policy"] != LIVE}
            found.append({"policy": row["policy"], **figures, **more})
        return found

    def as_dict(self, wanted: int) -> dict[str, Any]:
        """Return what is found, for programs."""
        return {
            "samples": self.ledger.samples,
            "complete": self.ledger.samples == wanted,
            "seconds": sum(map(sum, self.seconds)),
            "offload_cost": self.offload_cost,
            "bins": BINS,
            "remote_answers": {"checked": self.checked, "not_as_recorded": self.differences},
            "bins_not_as_recorded": self.elsewhere,
            "faults": self.faults,
            "policies": self.rows(),
            "trade": self.trade.as_dict(),
        }


_FIGURES = tuple(Ledger().figures().keys() - {"offloads"})


def demo_command(
    *,
    samples: Annotated[int, option("Images to stream; from the first again after 10 000.", 1)] = 10_000,
    offload_cost: Annotated[float, option("From 0 to 1; by default that of the headline.", 0, 1)] = OFFLOAD_COST,
    page: options.Page = None,
    out: Annotated[Path, option("The report to write, one page of HTML.")] = Path("hinge-demo.html"),
    as_json: options.Json = False,
) -> None:
    """Real images are streamed through a device, and a report is written. The server is a process of its own, with the
    Fashion-MNIST model that comes with Hinge; the device asks it over HTTP, and decides by probation. Other policies
    are simulated on the record of the same images. In the end it says what is gained at every price, and where nothing
    is.

    Example: hinge demo --out demo.html
    """
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: pip install 'hinge-gate[cli,device,server,report]'")
    if out.is_dir() or not out.parent.is_dir():
        raise UsageError(f"--out {out}: must be a file in a folder that exists")
    source = InOrder(load_trace(MODEL), UniformBins(BINS), ConstantPrice(offload_cost))
    with console.interruptible(), ExitStack() as stack:
        with console.status("starting the edge server"):
            url = stack.enter_context(edge_server())
        with console.status("simulating other prices"):
            prices = (*OFFLOAD_COSTS, offload_cost)
            outcome = Outcome(offload_cost, trade(MODEL, LIVE, offload_costs=prices, machine_code=False))
        device = stack.enter_context(_device(url, offload_cost))
        live = None if page is None else show_page(device, page, stack)
        if live is not None and (_OPENS or not _DISPLAYS.isdisjoint(os.environ)):
            webbrowser.open(live.url)
        _end(run(device, source, samples, outcome, live), outcome, samples, out, as_json)
        if live is not None:
            with suppress(KeyboardInterrupt):
                console.note(f"The live page stays at {live.url} until Ctrl-C")
                threading.Event().wait()


def _end(stopped_by: int | None, outcome: Outcome, samples: int, out: Path, as_json: bool) -> None:
    """Write the report of a run that was not interrupted, and print what was found."""
    if stopped_by is None:
        with console.status("writing the report"), replacing(out) as stream:
            stream.write(page_of(outcome).encode())
    if as_json:
        console.print_json({**outcome.as_dict(samples), "report": str(out) if stopped_by is None else None})
    elif outcome.ledger.samples:
        print_outcome(outcome)
    if stopped_by is not None:
        console.end_interrupted("this is what was done. No report was written.", 128 + stopped_by)
    if not as_json:
        console.say(f"Look at {out}")


@contextmanager
def edge_server() -> Iterator[str]:
    """Serve the remote model in a process of its own while the block runs; yields the address of the server."""
    words = [sys.executable, "-m", "hinge", "serve", MODEL, "--port", "0", "--log-level", "error"]
    environment = {name: value for name, value in os.environ.items() if name != "HINGE_TOKEN"}  # the demo shows none
    before = signal.signal(signal.SIGTERM, lambda kind, _: sys.exit(128 + kind))  # so that the server is stopped, too
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(words, env=environment, text=True, **pipes) as process:
        try:
            said = process.stdout.readline().rstrip() if process.stdout else ""
            if not said.startswith(_ANNOUNCED):
                raise HingeError(f"the edge server did not start: {said.removeprefix('hinge: ')}")
            yield said.removeprefix(_ANNOUNCED)
        finally:
            process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_STOP_S)
            finally:  # also after a second Ctrl-C
                process.kill()
                signal.signal(signal.SIGTERM, before)


def _device(url: str, offload_cost: float) -> Device:
    from hinge import OnnxModel, OpenInference

    local, remote = OnnxModel(fashion.local_model()), OpenInference(url, model=MODEL)
    task = Classification(fashion.CLASSES)
    return Device(local, remote, offload_cost=offload_cost, task=task, deadline_s=DEADLINE_S)


def run(device: Device, source: InOrder, samples: int, outcome: Outcome, live: "LivePage | None") -> int | None:
    """Answer all images, or those until a signal comes, which is returned; then simulate the other policies."""
    signals, stream = StopSignals(), zip(cases(source), recorded_bins(source, samples), strict=False)
    with console.progress("streaming images", compiles=False) as report, Warnings(), signals:
        for case, bin in signals.until_stopped(stream if live is None else paced(stream)):
            began = time.perf_counter()
            answer = device.infer(case.sample)
            outcome.add(case, answer, bin, time.perf_counter() - began)
            report(outcome.ledger.samples, samples)
            if live is not None:
                live.saw(answer, picture=case.sample, truth=case.truth)
    outcome.faults, done = device.status.fell_back, outcome.ledger.samples
    if done:
        ready = lineup(BESIDE, source, offload_cost=outcome.offload_cost, horizon=samples, fitted=True)
        outcome.results = simulate(ready, source, done, 1, machine_code=False)
    return signals.stopped_by


def recorded_bins(source: InOrder, samples: int) -> Iterator[int]:
    """Yield the recorded bin of each sample."""
    for chunk in source.stream(0, samples):
        yield from chunk.bins.tolist()


def paced(items: Iterable[T]) -> Iterator[T]:
    """Yield the items slowly enough to be watched, and most slowly at first, while there is most to learn."""
    began = time.monotonic()
    for number, item in enumerate(items):
        time.sleep(max(0.0, _SLOWEST_S * number**0.5 - (time.monotonic() - began)))
        yield item


def cases(source: InOrder) -> Iterator[Case]:
    """Yield the images, with the true labels and what the remote said of them; from the first again after the last."""
    images, labels = fashion.labelled_images()
    for image, label, remote in cycle(zip(images, labels, source.trace.answers[1].tolist(), strict=True)):
        yield Case(image, fashion.CLASSES[label], fashion.CLASSES[int(remote)])


# -- what was found ----------------------------------------------------------------------------------------------------


def _cells(outcome: Outcome) -> Iterator[list[str]]:
    """Yield the rows of the table."""
    for row in outcome.rows():
        name = f"{LIVE} (live)" if row["policy"] == LIVE else _CALLED.get(row["policy"], row["policy"])
        numbers = [form.format(row[key]) for key, form in _COLUMNS.values()]
        numbers[-1] = "≈" * row["latency_estimated"] + numbers[-1]
        yield [name, *numbers]


def _legend(outcome: Outcome) -> list[str]:
    """Return what the columns are, and how the live answers compare with the recorded ones."""
    recorded = f"the live remote's {outcome.checked} answers: {outcome.differences} not as recorded"
    lines = [
        f"cost per sample: {outcome.offload_cost:g} for an offload, 1 for an accepted answer that disagrees with the "
        "remote's",
        "true acc.: answers that are right by the labels; agrees: answers as the remote's",
        "ms per sample: measured; ≈: by the device's accepted and offloaded samples",
        recorded + (f"; {outcome.elsewhere} samples in another bin" if outcome.elsewhere else ""),
    ]
    if outcome.faults:
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(outcome.faults.items()))
        lines.append(f"answered locally, as the remote failed: {kinds}")
    return lines


def print_outcome(outcome: Outcome) -> None:
    """Print the table of all policies, what its columns mean, and what is gained at every price."""
    title = f"{outcome.ledger.samples:,} images in {sum(map(sum, outcome.seconds)):.1f} s, over HTTP"
    console.print_rows(("", *_COLUMNS), _cells(outcome), title, bold=f"{LIVE} (live)")
    for line in _legend(outcome):
        console.say(line, style="dim")
    console.print_trade(outcome.trade, outcome.offload_cost)


def page_of(outcome: Outcome) -> str:
    """Return the report as HTML that needs nothing else: no network, no other file."""
    about = [
        f"{outcome.ledger.samples:,} test images of Fashion-MNIST, through a device with a local model of 15 kB. Where "
        f"{LIVE} decided so, it asked an edge server with a model of 3.5 MB over HTTP.",
        " ".join(outcome.trade.sentences(outcome.offload_cost)),
    ]
    prices, price = list(outcome.trade.rows()), f"{outcome.offload_cost:g}"
    marked = [("live" if row["price"] == price else "", list(row.values())) for row in prices]
    gain = plot("trade", draw(outcome.trade.panels())) + table("policies", list(prices[0]), marked)
    rows = [("live" if row[0].startswith(LIVE) else "", row) for row in _cells(outcome)]
    legend = "".join(f'<p class="note">{escape(line)}</p>' for line in _legend(outcome))
    beside = table("policies", ["", *_COLUMNS], rows) + legend
    curves = outcome.results.panels() if outcome.results else []
    parts = [
        section("trade", "The trade", f"What {LIVE} gains at every price of an offload, and where nothing is.", gain),
        section("policies", "Side by side", f"At {price} for an offload.", beside),
        section("regret", "Over time", "The same policies, simulated on these images.", plot("regret", draw(curves))),
    ]
    return document("The demo", about, parts, _STYLE)
