"""The commands `device`, a device run over samples, from the first answer to the summary, and `record`, both models."""

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice, tee
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from hinge.cli import console, options
from hinge.cli.device_models import Fit, ModelOptions, set_up
from hinge.cli.device_samples import Case
from hinge.cli.device_view import Display, Figures, JsonLines, View, print_summary
from hinge.cli.options import Certificates, GateOptions, UsageError, argument, option
from hinge.confidence import max_softmax
from hinge.device.device import Device
from hinge.device.record import record
from hinge.device.store import CLOSED
from hinge.errors import HingeError, InvalidModel
from hinge.models import Recorded, refused_among
from hinge.policies.policy import MOST_SAMPLES
from hinge.traces import trace_names

if TYPE_CHECKING:
    from hinge.device.page.page import LivePage

T = TypeVar("T")


@options.grouped
def device_command(
    *,
    samples: str = argument(
        "A folder of images, an .npz or .npy file, '-' for raw frames on standard input, a trace by name or "
        "file, or 'fashion' for the images that come with Hinge.",
        default="fashion",
        autocompletion=trace_names,
    ),
    models: ModelOptions,
    certificates: Certificates,
    deciding: GateOptions,
    deadline_s: float = option("Seconds from an offload until the local answer stands.", default=0.2),
    batch: int = option("Samples that are decided together, and sent together.", default=1, min=1),
    limit: int | None = option(
        "End after this many samples; some policies have to know how many.", min=1, max=MOST_SAMPLES
    ),
    state: options.State = None,
    shadow: options.Shadow = None,
    metrics_port: int | None = option(
        "Serve metrics for Prometheus at this port of 127.0.0.1; 0 takes any that is free.", min=0, max=65_535
    ),
    page: options.PagePort = None,
    json: bool = option("Print a JSON object for every answer, and then the summary.", default=False),
    config: options.Config = None,
) -> None:
    """A device answers samples with the local model, and asks the remote where that is worth its cost.

    Example: hinge device --local local.onnx --remote http://edge:8080 --model remote images/
    """
    if state is not None and state.exists() and not state.is_dir():
        raise UsageError(f"{state} is not a folder")
    with console.interruptible(), ExitStack() as stack:
        setup = stack.enter_context(closing(set_up(samples, models, certificates)))
        if models.confidence is not None and isinstance(setup.local, Recorded):
            raise UsageError(f"--confidence is for models, and {samples} is a trace, which has confidences")
        if setup.fit is not None:
            setup.fit.check_at_start()
        horizon = min((n for n in (setup.stream.length, limit) if n is not None), default=None)
        known, price = deciding.price(setup.recorded)
        gate = deciding.build(known, horizon, models.measure)
        device = Device(
            setup.local,
            setup.remote,
            gate,
            labels=setup.stream.classes,
            batch=batch,
            deadline_s=deadline_s,
            price=price,
            state=state,
            shadow=shadow,
        )
        stack.enter_context(closing(device))
        if metrics_port is not None:
            from hinge.device.metrics import MetricsServer

            try:
                server = stack.enter_context(MetricsServer(device, metrics_port))
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"--metrics-port {metrics_port}") from error
            console.note(f"Metrics at {server.url}")
        live = None
        if page is not None:
            from hinge.device.page.page import LivePage

            try:
                live = stack.enter_context(LivePage(device, page))
            except OSError as error:
                raise OSError(error.errno, error.strerror, f"--page {page}") from error
            console.note(f"The live page is at {live.url}")
        run = DeviceRun(device, setup.fit, live, batch, priced=price is not None)
        title = f"hinge device {samples}, {deciding.name}, remote {setup.where}"
        shown = JsonLines() if json else View(device, run.figures, title, horizon).display()
        run.answer_all(islice(setup.stream.cases, limit), shown)
    run.print_end(shadow, json)  # of a device that is closed, so that nothing is in flight


class DeviceRun:
    """One run of a device over its samples."""

    def __init__(
        self,
        device: Device,
        fit: Fit | None,
        page: "LivePage | None",
        batch: int,
        priced: bool = True,
    ) -> None:
        self._device, self._fit, self._page, self._batch = device, fit, page, batch
        self.figures = Figures(device.policy.bins, priced)
        self._signals = StopSignals()
        self._ended_by: HingeError | None = None
        self._seconds = 0.0

    def answer_all(self, cases: Iterable[Case], output: Display) -> None:
        """Answer the samples, until they end, a signal comes, one is refused, or the remote turns out not to fit."""
        began = time.monotonic()
        with output, self._signals:
            stream = self._signals.until_stopped(cases)
            try:
                while part := list(islice(stream, self._batch)):
                    self._answer(part, output)
                    if self._fit is not None and not self._fit.checked:
                        self._fit.check_again(self._device.status)
            except HingeError as error:
                if not self.figures.samples:  # else there is something to sum up first
                    raise
                self._ended_by = error
        self._seconds = time.monotonic() - began

    def _answer(self, part: list[Case], output: Display) -> None:
        began = time.perf_counter()
        try:
            if self._batch == 1:
                answers = [self._device.infer(part[0].sample)]
            else:
                answers = self._device.infer_many([case.sample for case in part])
        except InvalidModel as error:
            raise self._named(part, error) from error
        latency_ms = 1000 * (time.perf_counter() - began)
        for case, answer in zip(part, answers, strict=True):
            output.show(self.figures.add(case, answer, latency_ms))
            if self._page is not None:
                self._page.saw(answer, picture=case.sample, truth=case.truth)

    def _named(self, part: list[Case], error: InvalidModel) -> InvalidModel:
        """The error with the sample that the local model refuses."""
        found = refused_among(self._device.local, [case.sample for case in part])
        if found is None:
            return error
        place, problem = found
        name = f" ({part[place].name})" if part[place].name else ""
        return InvalidModel(f"sample {self.figures.samples + place}{name}: {problem}")

    def print_end(self, shadow: str | None, json: bool) -> None:
        """Print the summary; raise what ended the run early."""
        status, stopped_by = self._device.status, self._signals.stopped_by
        if status.not_durable == CLOSED:
            status = replace(status, not_durable=None)
        figures = self.figures.as_dict(status, self._seconds)
        if json:
            complete = stopped_by is None and self._ended_by is None
            known = {"policy": self._device.policy.name, "shadow": shadow, "complete": complete}
            console.print_json({"summary": {**known, **figures}}, line=True)
        else:
            print_summary(figures, behind=shadow == "local")
            if figures["gain"] is not None and stopped_by is None and self._ended_by is None:
                costs = figures["offload_cost"], figures["true_accuracy"]
                self.figures.print_gain(figures["gain"], *costs, status.behind)
        if self._ended_by is not None:
            raise self._ended_by
        if stopped_by is not None:
            console.end_interrupted(code=128 + stopped_by)


class StopSignals:
    """Ends a run at SIGINT or SIGTERM between two samples, never within one, so that what was decided is also learned.

    >>> with StopSignals() as signals:
    ...     for number in signals.until_stopped(range(10)):
    ...         if number == 2:
    ...             signal.raise_signal(signal.SIGINT)
    >>> number, signals.stopped_by
    (2, 2)
    """

    def __init__(self) -> None:
        self.stopped_by: int | None = None
        self._waiting = False
        self._before: dict[int, Any] = {}

    def until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        """The items until a signal comes, which also ends the wait for the next."""
        source = iter(items)
        try:
            while True:
                self._waiting = True
                if self.stopped_by is not None:
                    return
                item = next(source)
                self._waiting = False
                yield item
        except (StopIteration, KeyboardInterrupt):
            return
        finally:
            self._waiting = False

    def __enter__(self) -> "StopSignals":
        self._before = {kind: signal.signal(kind, self._stop) for kind in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for kind, handler in self._before.items():
            signal.signal(kind, handler)

    def _stop(self, kind: int, frame: FrameType | None) -> None:
        again, self.stopped_by = self.stopped_by is not None, kind
        if self._waiting or again:  # a second signal does not wait
            self._waiting = False
            raise KeyboardInterrupt


# -- a recording -------------------------------------------------------------------------------------------------------


@options.grouped
def record_command(
    *,
    samples: str = argument(
        "A folder of images, an .npz or .npy file, '-' for raw frames on standard input, or 'fashion' for "
        "the images that come with Hinge.",
        default=...,
    ),
    out: Path = option("The file for the trace: .npz, .csv or .parquet.", default=...),
    models: ModelOptions,
    certificates: Certificates,
    batch: int = option("Samples that the models are asked about at once.", default=32, min=1),
    deadline_s: float = option("Seconds for the remote to answer a batch.", default=30.0),
    limit: int | None = option("End after this many samples.", min=1, max=MOST_SAMPLES),
    json: options.Json = False,
) -> None:
    """Both models answer every sample; 'hinge evaluate' then says what each policy would have cost. A recording that
    is interrupted is kept beside the file, and the same command goes on with it. A remote that fails is asked again,
    four times within 15 seconds.

    Example: hinge record images/ --local local.onnx --remote http://edge:8080 --model remote --out trace.npz
    """
    known = {name: value for name, value in vars(models).items() if name not in ("local", "remote", "model")}
    given = {name: str(value) for name, value in {**known, **vars(certificates)}.items() if value is not None}
    with console.interruptible(), closing(set_up(samples, models, certificates)) as setup:
        stream = setup.stream
        if isinstance(setup.local, Recorded):
            raise UsageError(f"{samples} is a trace, recorded already: hinge evaluate {samples}")
        if setup.fit is not None:
            setup.fit.check()
        asked, truth = tee(islice(stream.cases, limit))
        length = min((n for n in (stream.length, limit) if n is not None), default=None)
        with console.progress(f"recording {samples}", compiles=False) as bar, Display():
            try:
                trace = record(
                    setup.local,
                    setup.remote,
                    (case.sample for case in asked),
                    (case.truth for case in truth),
                    labels=stream.classes,
                    confidence=models.measure or max_softmax,
                    batch=batch,
                    deadline_s=deadline_s,
                    out=out,
                    about={f"--{name}": value for name, value in given.items()},
                    progress=lambda done: bar(done, length),
                )
            except BaseException as error:
                for kept in getattr(error, "__notes__", ()):
                    console.warn(kept)
                raise
    figures = {key: getattr(trace, key) for key in ("agreement", "local_accuracy", "remote_accuracy")}
    text = f"{out}: {console.counted(len(trace), 'sample')}, local agrees with remote on {trace.agreement:.2%}"
    if trace.label is not None:
        text += f"; local is right on {trace.local_accuracy:.2%}, remote on {trace.remote_accuracy:.2%}"
    further = f"What each policy would have cost on them: hinge evaluate {out}"
    console.print_either(json, {"out": str(out), "samples": len(trace), **figures}, text, further)
