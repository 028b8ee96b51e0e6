"""The command `demo`."""

import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from hinge import fashion
from hinge._checks import real, whole
from hinge.cli import options, show
from hinge.cli.demo.browser import open_page
from hinge.cli.demo.comparison import Comparison
from hinge.cli.demo.edge import MODEL, edge_server
from hinge.cli.demo.outcome import Examples, Outcome
from hinge.cli.demo.running import run
from hinge.cli.demo.stream import BINS, cases, recorded
from hinge.cli.demo.table import print_outcome
from hinge.cli.demo.timing import DEADLINE_S, Clock, measure
from hinge.cli.device.course import Course
from hinge.device.device import Device
from hinge.traces.files import replacing

_NEEDED = ("onnxruntime", "h11", "uvicorn", "prometheus_client", "plotly")


def demo_command(
    samples: Annotated[int, typer.Option(help="Images to stream; from the first again after 10 000.")] = 10_000,
    offload_cost: Annotated[float, typer.Option(help="What an offload costs, from 0 to 1.")] = 0.5,
    port: Annotated[int, typer.Option(help="The port of the edge server; 0 takes any that is free.")] = 0,
    page: Annotated[
        bool, typer.Option("--page", help="Open the live page, and keep it up after the run until Ctrl-C.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The report to write, one page of HTML.")] = Path("hinge-demo.html"),
    json: options.Json = False,
) -> None:
    """Stream real images through a device and an edge server, beside other policies, and write a report.

    The server is a process of its own, with the Fashion-MNIST model that comes with Hinge; the device asks it over
    HTTP. It decides by isotonic; hi-lcb, hi-lcb-lite and hedge-hi look on. In a terminal, or with --page, the images
    come slowly enough to be watched.

    Example: hinge demo --out demo.html
    """
    wanted, price = whole("demo", "samples", samples, 1), real("demo", "offload_cost", offload_cost, 0, 1)
    whole("demo", "port", port, 0, 65_535)
    _check_extras()
    if out.is_dir() or not out.parent.is_dir():
        raise ValueError(f"--out {out}: must be a file in a folder that exists")
    with show.interruptible(), ExitStack() as open_things:
        with show.status("starting the edge server"):
            url = open_things.enter_context(edge_server(port))
        outcome, stopped_by = _perform(url, wanted, price, page, json, open_things)
        _tell(outcome, out, stopped_by, json)
        if page:
            _stay(url)


def _check_extras() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ImportError(f"the demo needs {', '.join(missing)}: pip install 'hinge-gate[cli,device,server,report]'")


def _perform(
    url: str, wanted: int, price: float, page: bool, json: bool, open_things: ExitStack
) -> tuple[Outcome, int | None]:
    from hinge import OnnxModel, OpenInference

    source = recorded(price)
    comparison = Comparison(source, wanted, price)
    local, remote = OnnxModel(fashion.local_model()), OpenInference(url, model=MODEL)
    device = Device(local, remote, comparison.flagship, labels=fashion.CLASSES, deadline_s=DEADLINE_S)
    open_things.enter_context(device)
    with show.status("measuring both models"):
        timing = measure(device, remote, cases(source, wanted), comparison)
    outcome = Outcome(wanted, price, comparison, Course(BINS), timing, Clock(timing), Examples(wanted))
    reporter: Any = None
    if page:
        from hinge.device.reporter import Reporter

        reporter = open_things.enter_context(Reporter(device, url, "demo"))
        open_page(f"{url}/")
    return outcome, run(device, source, outcome, reporter, json)


def _tell(outcome: Outcome, out: Path, stopped_by: int | None, json: bool) -> None:
    """Print what was found, and write the report of a run that came to its end."""
    if stopped_by is None:
        _write_report(outcome, out)
    if outcome.course.samples and not json:
        print_outcome(outcome)
    if json:
        show.print_json({**outcome.as_dict(), "report": str(out) if stopped_by is None else None})
    elif stopped_by is None:
        show.out.print(f"Look at {out}", highlight=False, soft_wrap=True)
    if stopped_by is not None:
        show.err.print("Interrupted: this is what was done. No report was written.")
        raise typer.Exit(128 + stopped_by)


def _write_report(outcome: Outcome, out: Path) -> None:
    with show.status("writing the report"):
        from hinge.cli.demo.report import page_of

        with replacing(out) as stream:
            stream.write(page_of(outcome).encode())


def _stay(url: str) -> None:
    """Ctrl-C is how this is meant to end."""
    with suppress(KeyboardInterrupt):
        show.err.print(f"The live page stays at {url}/ until Ctrl-C", highlight=False, soft_wrap=True)
        while True:
            time.sleep(60)
