"""The models that are served: loaded from files, run behind a queue each, and replaced when their files change.

A new file is tried in a process of its own first, with limits on memory and time: a model that takes too much of
either, or crashes, leaves the old one serving.

Models run in threads. A request that finds a thread free starts at once. Those that find none are queued, and the next
free thread runs all of them that fit into one batch. If a batch fails, its requests are run one by one, so that each is
answered for itself. A request with more rows than a batch is run in slices; between two slices, queued requests have a
turn. A request that is cancelled leaves the queue, or is terminated where it runs. A model that has proved quick is run
in the event loop, at once if there is no other request: to hand it to a thread and back would take longer.
"""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from time import thread_time
from typing import Any, TypeAlias

import numpy as np

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.errors import InvalidMessage, InvalidModel, InvalidValue, UnknownName, printable
from hinge.models.onnx import as_array, input_specs, is_map, model_files, open_session, output_specs
from hinge.oip.messages import MAX_TENSORS, Message, ModelMetadata, build_model_metadata, model_name
from hinge.oip.tensors import Tensor, TensorSpec, dtype_of
from hinge.server.connections import Limits, Refusal, shutting_down
from hinge.server.observability import EventLog, Metrics

VERSION = "1"  # the only one of each model: a new file replaces the old
SHIPPED = {"fashion": fashion.remote_model, "fashion-local": fashion.local_model}
TRIAL_S = 30.0  # for a new model to be loaded and run once
TRIAL_BYTES = 2**30  # that it may take beyond eight times its file's size
QUICK_S = 0.002  # of processor time, for a run in the event loop: others wait for it
TOGETHER_S = 0.0005  # the same, if others have come: beyond, they are better served by threads
QUICK_RUNS = 16  # that must have been quick before, and up to a hundred times as many after one that was not

Tensors = Mapping[str, Tensor]
Form = tuple[tuple[str, tuple[int, ...]], ...]
Outcome = Tensors | Exception | None  # None: there is more of it to run
Stamp = tuple[tuple[int, int, int] | None, ...]  # what changes with the content of files; None: there is no file


@dataclass(frozen=True)
class Place:
    """A model's name and the path of its file."""

    name: str
    path: Path

    @classmethod
    def parse(cls, text: str | Path) -> Place:
        """Read NAME=PATH; or PATH, whose stem is the name; or the name of a model that comes with the package.

        >>> Place.parse("digits=models/v2.onnx")
        Place(name='digits', path=PosixPath('models/v2.onnx'))
        >>> Place.parse("models/digits.onnx").name, Place.parse("fashion").name
        ('digits', 'fashion')
        """
        named = re.fullmatch(r"([^/\\]*?)=(.*)", text, re.DOTALL) if isinstance(text, str) else None
        path = Path(named[2] if named else text)
        name = named[1] if named else path.stem
        if not named and not path.suffix and len(path.parts) <= 1 and not path.is_file():
            if path.name not in SHIPPED:
                raise UnknownName(f"there is no model {path.name!r}{did_you_mean(path.name, SHIPPED)}")
            name, path = path.name, SHIPPED[path.name]()
        if path.suffix.lower() in (".tflite", ".xml"):
            raise InvalidModel(f"{text}: ONNX models are served; a device runs this one itself: --remote {path}")
        try:
            return cls(model_name(name), path)
        except InvalidMessage as error:
            raise InvalidModel(f"{text}: {error}; give it one: NAME=PATH") from None


def parse_places(texts: Sequence[str | Path]) -> tuple[Place, ...]:
    """Read several, of different names."""
    places = tuple(Place.parse(text) for text in texts)
    if not places:
        raise InvalidValue("Server", "models", "must be one model at least, got none")
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        problem = f"must have different names, got {twice[0]!r} twice: give one as NAME=PATH"
        raise InvalidValue("Server", "models", problem)
    return places


@dataclass(frozen=True, eq=False)
class Model:
    """A model that is loaded. One that is `batchable` treats the rows of its tensors one by one."""

    session: Any
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    batchable: bool
    run_options: Callable[[], Any]  # makes options for a run, which ends early once `terminate` is set in them
    files: tuple[Path, ...] = ()  # it was loaded from
    stamp: Stamp = ()  # of these
    refusals: tuple[type[Exception], ...] = ()  # what a run raises if the inputs are not such as the model takes

    @classmethod
    def load(cls, path: Path, threads: int | None = None) -> Model:
        """The model in a file.

        >>> from hinge.fashion import local_model
        >>> Model.load(local_model()).batchable
        True
        """
        files = model_files(path)
        found = stamp(*files)  # before it is loaded: a later change will be noticed
        session = open_session(path, threads=threads)
        try:
            inputs, outputs = input_specs(session), output_specs(session)
        except InvalidModel as error:
            raise InvalidModel(f"{path}: {error}") from None
        if not 0 < len(inputs) <= MAX_TENSORS or not 0 < len(outputs) <= MAX_TENSORS:
            raise InvalidModel(f"{path}: a model that is served has 1 to {MAX_TENSORS} inputs, and as many outputs")
        nodes = [node for node in (*session.get_inputs(), *session.get_outputs()) if not is_map(node)]
        axes = {node.shape[0] if node.shape else 0 for node in nodes}
        batchable = len(axes) == 1 and not isinstance(axes.pop(), int)  # one axis of any size, by one name
        import onnxruntime  # here: `open_session` has explained its absence
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

        ends = (inputs, outputs, batchable)
        return cls(session, *ends, onnxruntime.RunOptions, files, found, (InvalidArgument,))

    @cached_property
    def takes_text(self) -> bool:
        return any(spec.datatype == "BYTES" for spec in self.inputs)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.outputs)

    @cached_property
    def same_rows(self) -> bool:
        """Whether all rows of its inputs have the same shape."""
        return not any(-1 in spec.shape[1:] for spec in self.inputs)

    def is_single(self, inputs: Tensors) -> bool:
        """Whether inputs have one row at most wherever the model takes any number of them."""
        free = (inputs[spec.name].shape[0] for spec in self.inputs if spec.shape[:1] == (-1,) and spec.name in inputs)
        return max(free, default=1) <= 1

    def fits(self, other: Model) -> bool:
        """Whether clients of the other can use this one without noticing."""
        return self.inputs == other.inputs and self.outputs == other.outputs

    def run(self, inputs: Tensors, options: Any) -> Tensors:
        """The outputs; raises `InvalidMessage` for inputs that the model does not take."""
        if self.takes_text:
            inputs = {name: _as_text(tensor) for name, tensor in inputs.items()}
        try:
            found = self.session.run(self.output_names, inputs, options)
        except self.refusals as error:
            raise InvalidMessage(str(error)) from error
        return dict(zip(self.output_names, map(as_array, found), strict=True))

    def run_together(self, requests: list[Tensors], rows: list[int], options: Any) -> list[Tensors]:
        """The outputs of each of several requests, which differ only in their rows, from one run."""
        joined = {name: np.concatenate([inputs[name] for inputs in requests]) for name in requests[0]}
        outputs = self.run(joined, options)
        ends = np.cumsum(rows).tolist()
        self._check_rows(outputs, ends[-1])
        spans = zip([0, *ends[:-1]], ends, strict=True)
        return [{name: tensor[start:end] for name, tensor in outputs.items()} for start, end in spans]

    def joined(self, parts: list[Tensors], rows: int) -> Tensors:
        """The outputs of one request, from those of its slices."""
        outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        self._check_rows(outputs, rows)
        return outputs

    def _check_rows(self, outputs: Tensors, rows: int) -> None:
        if any(len(tensor) != rows for tensor in outputs.values()):
            raise InvalidModel("the model's outputs do not have the rows of its inputs; serve it with --max-batch 1")


def stamp(*paths: Path) -> Stamp:
    """What distinguishes the content of files from what was there before."""
    return tuple(map(_stamp, paths))


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _as_text(tensor: Tensor) -> Tensor:
    """The tensor, with text in place of bytes, which onnxruntime would take for objects to print."""
    if tensor.dtype.kind != "O":
        return tensor
    text = np.empty(tensor.shape, object)
    try:
        text.ravel()[:] = [element.decode("utf-8") for element in tensor.ravel().tolist()]
    except UnicodeDecodeError:
        raise Refusal(400, "invalid", "the model takes text, and an element of BYTES is not UTF-8") from None
    return text


# -- the queue before a model -----------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Job:
    inputs: Tensors
    rows: int  # 0: neither joined nor sliced
    single: bool  # it has one row, or as many as the model always takes
    form: Form  # names and shapes of what makes a row; jobs of the same form can be joined
    answer: asyncio.Future[Tensors]
    model: Model | None = None  # the one that has begun with it: all slices are run on the same
    parts: list[Tensors] = field(default_factory=list)  # outputs of the slices that were run


@dataclass(eq=False, slots=True)
class _Turn:
    """What a thread is given: jobs to be run together, or one, of which it runs slices until others are queued."""

    model: Model
    jobs: list[_Job]
    options: Any


Inbox: TypeAlias = "SimpleQueue[_Turn | None]"


class Batcher:
    """The queue before a model. Only the runs happen in threads; all else in the event loop that it was made in."""

    def __init__(self, model: Model, *, workers: int, batch: int, observe: Callable[[float], None]) -> None:
        self.model = model
        self._batch = batch
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Job] = deque()
        self._begun: deque[_Job] = deque()  # large ones, of which slices are left
        self._begun_next = False
        self._turns: set[_Turn] = set()  # what runs
        self._inboxes: list[Inbox] = [SimpleQueue() for _ in range(workers)]
        self._idle = list(self._inboxes)  # a stack: the thread that ran last has the model in its caches
        self._closing = False
        self._quick = -float(QUICK_RUNS)  # above 0: the model has proved quick
        self._row_s = 0.0  # of processor time, by the last run
        self._soon = False  # whether the event loop will run what is queued
        self._threads = [
            threading.Thread(target=self._serve, args=(inbox,), name="model", daemon=True) for inbox in self._inboxes
        ]
        for thread in self._threads:
            thread.start()

    @property
    def queued(self) -> int:
        return len(self._waiting)

    def replace(self, model: Model) -> None:
        self.model, self._quick = model, -float(QUICK_RUNS)

    def run(self, inputs: Tensors, alone: bool = False) -> asyncio.Future[Tensors]:
        """The outputs, in a future that may be cancelled; `alone`, if no other request has begun to arrive."""
        sizes = {tensor.shape[0] for tensor in inputs.values()} if self.model.batchable and self._batch > 1 else ()
        rows = next(iter(sizes)) if len(sizes) == 1 else 0
        form = tuple((name, tensor.shape[1:]) for name, tensor in inputs.items()) if rows else ()
        single = rows == 1 or (rows == 0 and self.model.is_single(inputs))
        job = _Job(inputs, rows, single, form, self._loop.create_future())
        if self._closing:
            job.answer.set_exception(shutting_down())
            return job.answer
        job.answer.add_done_callback(partial(self._drop, job))
        self._waiting.append(job)
        here = self._quick > 0 and job.single and not self._turns and self.model.same_rows
        if here and alone:
            self._run_here(math.inf)
        elif not here or len(self._waiting) * self._row_s > TOGETHER_S:
            self._start()
        elif not self._soon:  # those that arrive in the same turn of the event loop join it
            self._soon = True
            self._loop.call_soon(self._run_here)
        return job.answer

    def abandon(self) -> None:
        """Refuse what is queued, and terminate what is running."""
        self._closing = True
        for turn in self._turns:
            turn.options.terminate = True
        waiting = [*self._waiting, *self._begun]
        self._waiting.clear()
        self._begun.clear()
        for job in waiting:
            if not job.answer.done():
                job.answer.set_exception(shutting_down())

    def close(self) -> None:
        """Stop the threads. (A process that ends while one of them is in the middle of a run would crash.)"""
        self.abandon()
        for inbox in self._inboxes:
            inbox.put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _drop(self, job: _Job, answer: asyncio.Future[Tensors]) -> None:
        if not answer.cancelled():
            return
        for queue in (self._waiting, self._begun):
            if job in queue:
                queue.remove(job)
        for turn in self._turns:
            if job in turn.jobs and all(each.answer.done() for each in turn.jobs):
                turn.options.terminate = True

    # -- turns --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        while self._idle and (self._waiting or self._begun):
            turn = self._next()
            self._turns.add(turn)
            self._idle.pop().put(turn)

    def _run_here(self, most_s: float = TOGETHER_S) -> None:
        """Run what is queued in the event loop, unless it may take longer or a thread is running the model."""
        self._soon = False
        if self._quick > 0 and len(self._waiting) * self._row_s < most_s:
            while self._waiting and not self._turns and self._waiting[0].single:
                turn = self._next()
                self._deliver(turn, self._outcomes(turn))
        self._start()

    def _next(self) -> _Turn:
        """Queued jobs, and large ones that have begun, take turns."""
        begun = bool(self._begun) and (self._begun_next or not self._waiting)
        first = (self._begun if begun else self._waiting).popleft()
        self._begun_next = not self._is_large(first)
        first.model = first.model or self.model
        return _Turn(first.model, [first, *self._joinable(first)], first.model.run_options())

    def _joinable(self, first: _Job) -> list[_Job]:
        """The jobs of the queue that can be run together with the first; they leave the queue."""
        rows, jobs = first.rows, list[_Job]()
        if first.rows and not self._is_large(first) and self._waiting:
            left: deque[_Job] = deque()
            for job in self._waiting:
                if job.form == first.form and rows + job.rows <= self._batch:
                    jobs.append(job)
                    rows += job.rows
                else:
                    left.append(job)
            self._waiting = left
        return jobs

    def _is_large(self, job: _Job) -> bool:
        return job.rows > self._batch

    def _finish(self, inbox: Inbox, turn: _Turn, outcomes: list[Outcome]) -> None:
        self._turns.discard(turn)
        self._idle.append(inbox)
        if outcomes[0] is None and not self._closing and not turn.jobs[0].answer.done():
            self._begun.append(turn.jobs[0])
        self._start()
        self._deliver(turn, outcomes)

    def _deliver(self, turn: _Turn, outcomes: list[Outcome]) -> None:
        for job, outcome in zip(turn.jobs, outcomes, strict=True):
            if job.answer.done():  # cancelled
                continue
            if self._closing and (outcome is None or isinstance(outcome, Exception)):
                job.answer.set_exception(shutting_down())
            elif isinstance(outcome, Exception):
                job.answer.set_exception(outcome)
            elif outcome is not None:
                job.answer.set_result(outcome)

    # -- in the threads -----------------------------------------------------------------------------------------------

    def _serve(self, inbox: Inbox) -> None:
        while (turn := inbox.get()) is not None:
            outcomes = self._outcomes(turn)
            try:
                self._loop.call_soon_threadsafe(self._finish, inbox, turn, outcomes)
            except RuntimeError:  # the loop was closed without waiting for this thread
                return
            del turn, outcomes  # an idle thread keeps no tensors

    def _outcomes(self, turn: _Turn) -> list[Outcome]:
        start = thread_time()
        outcomes = self._run_turn(turn)
        if not self._is_large(turn.jobs[0]):
            single = len(turn.jobs) == 1 and turn.jobs[0].single
            row_s = (thread_time() - start) / max(1, sum([job.rows for job in turn.jobs]))
            self._row_s = row_s if single else max(row_s, self._row_s)
            # Only a single row shows that one is quick: part of a run's time may be the same for any number of rows.
            # By the cube, a run that is a little too slow costs little, as some always are; one of 25 ms costs all.
            quick = self._quick + single - (row_s / QUICK_S) ** 3
            self._quick = max(-100 * QUICK_RUNS, min(quick, QUICK_RUNS))
        return outcomes

    def _run_turn(self, turn: _Turn) -> list[Outcome]:
        if len(turn.jobs) > 1:
            rows = [job.rows for job in turn.jobs]
            self._observe(sum(rows))
            try:
                return list(turn.model.run_together([job.inputs for job in turn.jobs], rows, turn.options))
            except Exception:  # one of them may be at fault: the others are run without it
                return [self._outcome(turn, job) for job in turn.jobs]
        if not self._is_large(turn.jobs[0]):
            self._observe(max(turn.jobs[0].rows, 1))
        return [self._outcome(turn, turn.jobs[0])]

    def _outcome(self, turn: _Turn, job: _Job) -> Outcome:
        try:
            return self._slices(turn, job) if self._is_large(job) else turn.model.run(job.inputs, turn.options)
        except Exception as error:
            return error

    def _slices(self, turn: _Turn, job: _Job) -> Tensors | None:
        """Run slices of a large job until it is done or cancelled, or others are queued."""
        while True:
            start = len(job.parts) * self._batch
            end = min(start + self._batch, job.rows)
            self._observe(end - start)
            part = {name: tensor[start:end] for name, tensor in job.inputs.items()}
            job.parts.append(turn.model.run(part, turn.options))
            if end == job.rows:
                return turn.model.joined(job.parts, job.rows)
            if self._waiting or self._begun or self._closing or job.answer.done():
                return None


# -- serving ---------------------------------------------------------------------------------------------------------


class Service:
    """A model under its name, with its queue. Made and used in the event loop."""

    def __init__(self, place: Place, model: Model, *, workers: int, limits: Limits, metrics: Metrics) -> None:
        self.place = place
        self.name = place.name
        self.model = model  # which the next requests are run on
        metrics.loaded(self.name, well=True)
        observe = metrics.watch_model(self.name, lambda: self.batcher.queued)
        self.batcher = Batcher(model, workers=workers, batch=limits.batch, observe=observe)

    def replace(self, model: Model) -> None:
        """Run the next requests on another model, if clients can use it without noticing."""
        if not model.fits(self.model):
            raise InvalidModel(f"{self.place.path}: its inputs or outputs are not those of the model it would replace")
        self.model = model
        self.batcher.replace(model)

    def metadata(self) -> Message:
        model = self.model
        return build_model_metadata(
            ModelMetadata(self.name, "onnxruntime_onnx", model.inputs, model.outputs, (VERSION,))
        )


class Watcher:
    """Replaces models whose files changed and then stayed the same for one interval."""

    def __init__(
        self, services: Iterable[Service], interval_s: float, threads: int | None, metrics: Metrics, log: EventLog
    ) -> None:
        self._services, self._interval_s, self._threads = tuple(services), interval_s, threads
        self._metrics, self._log = metrics, log
        self._tried = {service.name: service.model.stamp for service in self._services}
        self._seen = dict(self._tried)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            for service in self._services:
                await self._check(service)

    async def _check(self, service: Service) -> None:
        found = await asyncio.to_thread(stamp, *service.model.files)
        still = found == self._seen[service.name]  # else it may be being written
        self._seen[service.name] = found
        if still and found != self._tried[service.name]:
            self._tried[service.name] = found
            await self._reload(service)

    async def _reload(self, service: Service) -> None:
        path = service.place.path
        try:
            before = stamp(*await asyncio.to_thread(model_files, path))
            await try_model(path)
            model = await asyncio.to_thread(Model.load, path, self._threads)
            if model.stamp != before:
                raise InvalidModel(f"{path}: it changed while it was tried")
            service.replace(model)
            self._tried[service.name] = self._seen[service.name] = model.stamp
        except Exception as error:  # no file may end the watch
            self._metrics.loaded(service.name, well=False)
            problem = str(error) if isinstance(error, InvalidModel) else type(error).__name__
            self._log.write("error", "model not replaced", model=service.name, problem=problem)
        else:
            self._metrics.loaded(service.name, well=True)
            self._log.write("info", "model replaced", model=service.name)


async def try_model(path: Path) -> None:
    """Load a model and run it once, in a process with limits on memory and time; raise `InvalidModel` if that fails."""
    command = [sys.executable, "-c", "from hinge.server.models import _trial; _trial()", str(path), str(TRIAL_BYTES)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )

    def watch() -> str:
        try:
            return process.communicate(timeout=TRIAL_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return f"{path}: it was not loaded and run once in {TRIAL_S:g} s"

    try:
        said = await asyncio.to_thread(watch)
    except asyncio.CancelledError:
        process.kill()  # which ends the watching
        raise
    if process.returncode:
        died = f"{path}: the process that tried it ended with status {process.returncode}"
        raise InvalidModel(printable(said.strip() or died))


def _trial() -> None:
    """Load and run the model named on the command line; what is wrong with it is printed, with status 1."""
    import onnxruntime  # noqa: F401  # before the limit: what it takes is not the model's

    path, most = Path(sys.argv[1]), int(sys.argv[2])
    try:
        _limit_memory(most + 8 * sum(file.stat().st_size for file in model_files(path)))
        model = Model.load(path, threads=1)
        model.run({spec.name: _sample(spec) for spec in model.inputs}, model.run_options())
    except InvalidModel as error:
        sys.exit(print(error) or 1)
    except Exception as error:
        sys.exit(print(f"{path}: it failed on one sample: {type(error).__name__}") or 1)


def _limit_memory(more: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if sys.platform == "linux" else 0
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _sample(spec: TensorSpec) -> Tensor:
    """A tensor of zeros, or empty text, with one element along each axis of any size."""
    shape = tuple(1 if size < 0 else size for size in spec.shape)
    dtype = dtype_of(spec.datatype)
    return np.full(shape, b"", object) if dtype.kind == "O" else np.zeros(shape, dtype)
