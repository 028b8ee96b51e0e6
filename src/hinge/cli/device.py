"""The command `device`: its options (its models' are in `device_models`, shared ones in `options`), and its run."""

import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from hinge.cli import console, options
from hinge.cli.device_models import Fit, ModelOptions, set_up
from hinge.cli.device_samples import SAMPLES, Case
from hinge.cli.device_summary import Figures, Warnings, print_gain, print_summary
from hinge.cli.options import Certificates, GateOptions, flag, option
from hinge.cli.settings import UsageError
from hinge.confidence import max_softmax
from hinge.device.device import Device
from hinge.device.store import CLOSED
from hinge.errors import HingeError, InvalidModel
from hinge.models import RecordedModel, refused_among
from hinge.policies.policy import MAX_SAMPLES
from hinge.tasks import Classification

if TYPE_CHECKING:
    from hinge.device.page.page import LivePage

T = TypeVar("T")
_UPDATE_S = 0.25  # between two updates of the line of progress


def device_command(
    samples: Annotated[str, option(f"{SAMPLES}, or a trace by name or file.", allow_leading_hyphen=True)] = "fashion",
    /,
    *,
    models: ModelOptions = ModelOptions(),
    certificates: Certificates = Certificates(),
    deciding: GateOptions = GateOptions(),
    deadline_s: Annotated[float, option("Seconds from an offload until the local answer stands.")] = 0.2,
    limit: Annotated[int | None, option("End after this many samples.", 1, MAX_SAMPLES)] = None,
    state: options.State = None,
    shadow: options.Shadow = None,
    metrics_port: Annotated[int | None, option("Serve Prometheus at this port; 0: any free one.", 0, 65_535)] = None,
    page: options.Page = None,
    as_json: Annotated[bool, flag("Print a JSON object for every answer, then the summary.", name="--json")] = False,
    config: options.Config = None,
) -> None:
    """A device answers samples with the local model, and asks the remote where that is worth its cost.

    Example: hinge device --local local.onnx --remote http://edge:8080 --model remote images/
    """
    if state is not None and state.exists() and not state.is_dir():
        raise UsageError(f"{state} is not a folder")
    with console.interruptible(), ExitStack() as stack:
        setup = stack.enter_context(closing(set_up(samples, models, certificates)))
        if models.confidence is not None and isinstance(setup.local, RecordedModel):
            raise UsageError(f"--confidence is for models, and {samples} is a trace, which has confidences")
        if setup.fit is not None:
            setup.fit.check_at_start()
        horizon = min((n for n in (setup.stream.length, limit) if n is not None), default=None)
        known, price = deciding.price(setup.recorded)
        device = Device(
            setup.local,
            setup.remote,
            deciding.build(known, horizon, models.measure),
            task=Classification(setup.stream.classes, models.measure or max_softmax),
            deadline_s=deadline_s,
            price=price,
            state=state,
            shadow=shadow,
        )
        stack.enter_context(closing(device))
        if metrics_port is not None:
            _serve_metrics(device, metrics_port, stack)
        live = None if page is None else show_page(device, page, stack)
        run = DeviceRun(device, setup.fit, live, priced=price is not None)
        title = f"{samples}, {deciding.name}, remote {setup.where}"
        run.answer_all(islice(setup.stream.cases, limit), title, as_json)
    run.print_end(shadow, as_json)  # of a device that is closed, so that nothing is in flight


def _serve_metrics(device: Device, port: int, stack: ExitStack) -> None:
    from hinge.device.metrics import MetricsServer

    try:
        server = stack.enter_context(MetricsServer(device, port))
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"--metrics-port {port}") from error
    console.note(f"Metrics at {server.url}")


def show_page(device: Device, port: int, stack: ExitStack) -> "LivePage":
    """Serve the live page of a device until the stack is closed."""
    from hinge.device.page.page import LivePage

    live = stack.enter_context(LivePage(device, port))
    console.note(f"The live page is at {live.url}")
    return live


class DeviceRun:
    """One run of a device over its samples."""

    def __init__(self, device: Device, fit: Fit | None, page: "LivePage | None", priced: bool) -> None:
        self._device, self._fit, self._page = device, fit, page
        self.figures = Figures(priced)
        self._signals = StopSignals()
        self._ended_by: HingeError | None = None
        self._seconds = 0.0

    def answer_all(self, cases: Iterable[Case], title: str, as_json: bool) -> None:
        """Answer the samples, until they end, a signal comes, one is refused, or the remote turns out not to fit."""
        began, updated = time.monotonic(), 0.0
        with Warnings(), console.status(title) as tell, self._signals:
            try:
                for case in self._signals.until_stopped(cases):
                    self._answer(case, as_json)
                    if self._fit is not None and not self._fit.checked:
                        self._fit.check_again(self._device.status)
                    if time.monotonic() - updated > _UPDATE_S:
                        updated = time.monotonic()
                        tell(f"{title}: {self.figures.progress(self._device.status, updated - began)}")
            except HingeError as error:
                if not self.figures.samples:  # else there is something to sum up first
                    raise
                self._ended_by = error
        self._seconds = time.monotonic() - began

    def _answer(self, case: Case, as_json: bool) -> None:
        began = time.perf_counter()
        try:
            answer = self._device.infer(case.sample)
        except InvalidModel as error:
            found = refused_among(self._device.local, [case.sample])
            if found is None:
                raise
            name = f" ({case.name})" if case.name else ""
            raise InvalidModel(f"sample {self.figures.samples}{name}: {found[1]}") from error
        number = self.figures.samples
        self.figures.add(case, answer, 1000 * (time.perf_counter() - began))
        if self._page is not None:
            self._page.saw(answer, picture=case.sample, truth=case.truth)
        if as_json:
            known = {key: value for key in ("name", "truth") if (value := getattr(case, key)) is not None}
            console.print_json({"sample": number, **answer.as_dict(), **known}, line=True)

    def print_end(self, shadow: str | None, as_json: bool) -> None:
        """Print the summary; raise what ended the run early."""
        status, stopped_by = self._device.status, self._signals.stopped_by
        if status.not_durable == CLOSED:
            status = replace(status, not_durable=None)
        figures, complete = self.figures.as_dict(status, self._seconds), stopped_by is None and self._ended_by is None
        if as_json:
            known = {"policy": self._device.policy.name, "shadow": shadow, "complete": complete}
            console.print_json({"summary": {**known, **figures}}, line=True)
        else:
            print_summary(figures, behind=shadow == "local")
            if figures["gain"] is not None and complete:
                print_gain(figures, self.figures.estimate(status.behind), behind=bool(status.behind))
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
        """Yield the items until a signal comes, which also ends the wait for the next."""
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
