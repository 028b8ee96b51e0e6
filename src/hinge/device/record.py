"""Recording: two models asked about every sample, for a trace that `hinge.evaluate` reads.

A recording to a file `out` goes on where it was interrupted. What was recorded is kept in `out.part`, a line of JSON
per sample behind a line that names the models, until all of it is written to `out`. A sample is known again by its
digest; a model by the digest of its file, and by its answers to the first samples, which are asked for again.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from hashlib import blake2b
from itertools import islice, zip_longest
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hinge._checks import seconds, whole
from hinge.device.offload import checked_reply
from hinge.device.status import hardly_any
from hinge.errors import InvalidModel, InvalidTrace, RemoteFailed, RemoteInvalid, RemoteRefused
from hinge.models import Classifier, LocalModel, as_local, digest_of, refused_among
from hinge.remotes.adapters import as_remote
from hinge.remotes.remote import Deadline, Remote, Reply, failure_of
from hinge.tasks import Classification, Task
from hinge.traces import Trace, write_trace
from hinge.traces.files import writer_of

Case = tuple[Any, Any]  # a sample, and its true label or None
Row = dict[str, Any]  # of the trace
_COLUMNS = ("confidence", "local", "remote", "label", "cost", "agreed", "local_right", "remote_right")
_WAITS_S = (1.0, 2.0, 4.0, 8.0)  # before a remote that failed is asked again
_OFTEN = 10  # samples with a true label of which one model at least should give it once
_SAME = 1e-4  # what batches of another size may change in a confidence

_log = logging.getLogger(__name__)


def record(
    local: LocalModel | Callable[[Any], Any],
    remote: Any,
    samples: Iterable[Any],
    truth: Iterable[Any] | None = None,
    *,
    task: Task | None = None,
    batch: int = 32,
    deadline_s: float = 30.0,
    out: str | PathLike[str] | None = None,
    about: Mapping[str, str] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Trace:
    """The answers of both models to all samples, as a trace; `truth` has the true labels.

    The models and `task` are as for `Device`; a model from a file may be the
    remote, too. Of a task other than classification the trace holds how far the answers agree, and how far they are
    right; the answers too, where all of them are labels.

    The remote is asked for `batch` samples at once. One that cannot be reached, fails or takes longer than `deadline_s`
    is asked again, four times within 15 seconds; what it refuses ends the recording, and so does an exception of a
    function, which has no deadline. `progress` is told how many samples are done.

    Where the models hardly ever agree, or labels are none that they give, the log `hinge` has a warning at the end.

    `about` is kept in the trace, beside what is known of the models.

    With `out`, the trace is written there (.npz, .csv or .parquet) as it grows: the same call goes on with a recording
    that was interrupted, and refuses one of other samples or models.

    >>> trace = record(lambda x: [0.0, x], lambda x: int(x > 1), [-2.0, 0.5, 3.0], truth=[0, 0, 1])
    >>> trace.confidence.round(2), trace.local, trace.remote, trace.label
    (array([0.88, 0.62, 0.95]), array([0, 1, 1]), array([0, 0, 1]), array([0, 0, 1]))
    """
    batch = whole("record", "batch", batch, 1)
    task = task or Classification()
    pair = _Pair(local, remote, task, seconds("record", "deadline_s", deadline_s))
    cases = _cases(samples, truth)
    kept = None if out is None else _Kept(Path(out), pair.about)
    rows = [] if kept is None else kept.read(cases, pair, batch)
    report = progress or (lambda _: None)
    try:
        report(len(rows))
        while part := list(islice(cases, batch)):
            new = pair.rows(part, len(rows))
            with _located(len(rows), len(part)):
                _trace(rows[:1] + new)  # what is wrong beside the first of all is found now, not when all are there
            if kept is not None:
                kept.append(part, new)
            rows += new
            report(len(rows))
    except BaseException as error:
        if kept is not None and rows:
            error.add_note(f"{len(rows)} samples are kept in {kept.path}, and the same command goes on")
        raise
    known = pair.about | {"date": str(datetime.now(UTC).date())}
    trace = _trace(rows, name=Path(out or "").stem, about={**known, **(about or {})})
    if kept is not None:
        kept.finish(trace)
    for doubt in _doubts(trace):
        _log.warning("%s", doubt)
    return trace


def _cases(samples: Iterable[Any], truth: Iterable[Any] | None) -> Iterator[Case]:
    if truth is None:
        yield from ((sample, None) for sample in samples)
        return
    end = object()
    for case in zip_longest(samples, truth, fillvalue=end):
        if case[0] is end or case[1] is end:
            many = "more" if case[0] is end else "fewer"
            raise ValueError(f"record: truth must have one label per sample, got {many} labels than samples")
        yield case


class _Pair:
    """The two models."""

    def __init__(self, local: Any, remote: Any, task: Task, deadline_s: float) -> None:
        self._local = as_local("record", local, task)
        self._remote: Remote = as_remote("record", remote)
        self._task, self._deadline_s = task, deadline_s
        self.about = _about("local", local) | _about("remote", remote)

    def rows(self, cases: Sequence[Case], first: int = 0) -> list[Row]:
        """What is recorded of some samples; `first` is the number of the first, for errors."""
        samples = [sample for sample, _ in cases]
        rows = []
        for number, (case, (local, confidence)) in enumerate(
            zip(cases, self._answered(samples, first), strict=True), first
        ):
            with _located(number):
                known = {"local": self._answer("local", local), "confidence": float(confidence)}
                rows.append(self.truth(case) | known)
        reply = self._ask(samples)
        cost = {} if reply.cost is None else {"cost": float(reply.cost)}
        remotes = checked_reply(reply, len(samples), self._task)
        return [self._judged(row | {"remote": remote} | cost) for row, remote in zip(rows, remotes, strict=True)]

    def _answered(self, samples: Sequence[Any], first: int) -> Sequence[tuple[Any, float]]:
        """The local model's answers; the sample that it refuses is named."""
        try:
            return self._local.answer_many(samples)
        except InvalidModel as error:
            found = refused_among(self._local, samples)
            if found is None:
                raise
            with _located(first + found[0]):
                raise found[1] from error

    def _judged(self, row: Row) -> Row:
        """A row with what is recorded in place of answers that are no labels."""
        if isinstance(self._task, Classification):
            return row
        pairs = {"agreed": ("local", "remote"), "local_right": ("local", "label"), "remote_right": ("remote", "label")}
        known = {name: pair for name, pair in pairs.items() if pair[1] in row}
        return row | {name: self._task.agreement(row[one], row[other]) for name, (one, other) in known.items()}

    def truth(self, case: Case) -> Row:
        if case[1] is None:
            return {}
        label = self._answer("truth", case[1])
        if isinstance(self._local, Classifier) and (problem := self._local.label_problem(label)):
            raise InvalidTrace(f"truth {problem}")
        return {"label": label}

    def _answer(self, what: str, given: Any) -> Any:
        try:
            return self._task.answer(given)
        except (TypeError, ValueError) as error:
            raise InvalidTrace(f"{what} must be a possible answer, got {error}") from None

    def _ask(self, samples: Sequence[Any]) -> Reply:
        """The remote's reply; one that is away or fails is asked again, as it may come back."""
        waits_s = list(_WAITS_S)
        while True:
            try:
                return self._remote.ask(samples, Deadline.after(self._deadline_s))
            except (RemoteFailed, OSError) as error:
                failure, where = failure_of(error), self.about["remote"]
                named = str(failure) if str(failure).startswith(where) else f"{where}: {failure}"
                if not waits_s or isinstance(failure, RemoteRefused | RemoteInvalid):  # which would be so again
                    raise type(failure)(named) from error
                _log.warning("%s; asking again in %g s", named, waits_s[0])
            time.sleep(waits_s.pop(0))


class _Kept:
    """The file beside `out` in which an unfinished recording is kept."""

    def __init__(self, out: Path, about: dict[str, str]) -> None:
        writer_of("record", out)  # refuses a suffix that no trace has, before the work is done
        if out.exists():
            raise FileExistsError(errno.EEXIST, "there is a trace already; remove it, or name another", str(out))
        if not out.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(out.parent))
        self._out, self.path, self._about = out, out.with_name(f"{out.name}.part"), about
        self._begun = False

    def read(self, cases: Iterator[Case], pair: _Pair, batch: int) -> list[Row]:
        """The rows of an earlier recording, whose samples are taken from `cases`; it must be of the same models."""
        lines = self._lines() if self.path.exists() else []
        if not lines:
            return []
        self._begun, head, *rows = True, *lines
        for name, value in self._about.items():
            if head.get(name) != value and f"{name} sha256" not in self._about:  # a file may be moved
                raise self._changed(f"the {name.split()[0]} model was another")
        first: list[Case] = []
        for number, row in enumerate(rows):
            case = next(cases, None)
            known = {} if case is None else {"digest": _digest(case[0])} | pair.truth(case)
            if not known or any(row.get(name) != known.get(name) for name in ("digest", "label")):
                raise self._changed(f"sample {number} was another")
            first += [case] if case and number < batch else []
        for number, (row, again) in enumerate(zip(rows, pair.rows(first) if first else [], strict=False)):
            for role in ("local", "remote"):
                if row[role] != again[role] or abs(row["confidence"] - again["confidence"]) > _SAME:
                    raise self._changed(f"the {role} model gave another answer to sample {number}")
        return rows

    def _lines(self) -> list[Row]:
        """All lines that were written whole; a recording that was killed may have left half a line."""
        content = self.path.read_bytes()
        whole_lines = content[: content.rfind(b"\n") + 1]
        try:
            lines: list[Row] = [dict(json.loads(line)) for line in whole_lines.splitlines()]
        except (TypeError, ValueError):
            raise InvalidTrace(f"{self.path}: is no recording; remove it, or name another file") from None
        if len(whole_lines) < len(content):
            os.truncate(self.path, len(whole_lines))
        return lines

    def append(self, cases: Sequence[Case], rows: Sequence[Row]) -> None:
        lines = [row | {"digest": _digest(sample)} for (sample, _), row in zip(cases, rows, strict=True)]
        with self.path.open("a" if self._begun else "w", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in (lines if self._begun else [self._about, *lines]))
        self._begun = True

    def finish(self, trace: Trace) -> None:
        write_trace(trace, self._out)
        self.path.unlink(missing_ok=True)

    def _changed(self, what: str) -> InvalidTrace:
        return InvalidTrace(f"{self.path}: {what} when it was recorded; remove the file to start again")


def _trace(rows: Sequence[Row], **more: Any) -> Trace:
    if not rows:
        raise InvalidTrace("record: there must be at least one sample")
    found = [name for name in _COLUMNS if any(name in row for row in rows)]
    columns: dict[str, Any] = {name: [row.get(name) for row in rows] for name in found}
    return Trace.from_frame(columns, **more) if "agreed" in found else Trace(**columns, **more)


def _doubts(trace: Trace) -> Iterator[str]:
    """What can hardly be so in a recording of models and labels that fit, and what to do."""
    samples, promised = len(trace), float(trace.confidence.sum())
    agreed = float(trace.agreed.sum())
    so_sure = f"in {samples} samples, though its confidences promised {promised:.0f}"
    if hardly_any(agreed, promised):
        yield (
            f"local agrees with remote {agreed:.4g} times {so_sure}: are the classes the same on both sides, in the "
            "same order (Classification([...]), --labels), and the samples as each expects?"
        )
    elif trace.local_right is not None and hardly_any(right := float(trace.local_right.sum()), promised):
        yield f"local is right {right:.4g} times {so_sure}: are the true labels numbered, or named, as the classes are?"
    if trace.label is not None and trace.local is not None:
        labels, counts = np.unique(trace.label, return_counts=True)
        odd = (counts >= _OFTEN) & ~np.isin(labels, np.union1d(trace.local, trace.remote))
        if odd.any():
            shown = f"the label {labels[odd][0]!s:.50}, of {counts[odd][0]} samples, is"
            more = f", and so are {odd.sum() - 1} others" if odd.sum() > 1 else ""
            fitting = "are labels numbered, or named, as the classes are?"
            yield f"{shown} one that neither model ever gives{more}: {fitting}"


@contextmanager
def _located(first: int, count: int = 1) -> Iterator[None]:
    """Say of what cannot be recorded in which samples it is."""
    try:
        yield
    except (InvalidModel, InvalidTrace) as error:
        where = f"sample {first}" if count == 1 else f"in samples {first} to {first + count - 1}"
        raise type(error)(f"record: {where}: {error}") from None


def _digest(sample: Any) -> str:
    """A short name for the content of a sample.

    >>> _digest([1, 2]) == _digest(np.array([1, 2])) != _digest(np.array([1, 3]))
    True
    """
    try:
        array = np.asarray(sample)
    except ValueError:  # lists of different lengths
        array = np.empty(0, object)
    try:
        if array.dtype.hasobject:
            content = msgspec.json.encode(sample, enc_hook=lambda part: np.asarray(part).tolist(), order="sorted")
        else:
            content = array.dtype.str.encode() + array.tobytes()
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"record: with out, samples must be arrays, or like JSON, got {sample!r:.50}") from error
    return blake2b(content, digest_size=8).hexdigest()


def _about(role: str, model: Any) -> dict[str, str]:
    """What can be known of a model from outside: where it is, and the content of its file."""
    model = getattr(model, "scores", model)
    path, url = getattr(model, "path", None), getattr(model, "url", None)
    if path is not None:
        beside = [part for part in path.parent.iterdir() if part.name.startswith(path.name) and part.suffix != ".part"]
        weights = path.with_name(f"{path.stem}.bin")  # of OpenVINO's models
        files = {part for part in (*beside, weights) if part.is_file()}
        return {role: str(path), f"{role} sha256": digest_of(files)}
    if url is not None:
        return {role: url, f"{role} name": model.model}
    return {role: getattr(model, "__qualname__", type(model).__qualname__)}  # its repr may hold a token
