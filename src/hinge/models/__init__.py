"""Local models: what a device asks, a function of yours as one, a recorded one, and what files of every format share.

A local model gives `(label, confidence)` for a sample. `Classifier` makes one of a function from sample to scores: the
label is the class that scores highest, the confidence comes from all scores (`hinge.confidence`). Models from files are
such functions: the sample goes in as the model's one input, the scores come out. `TaskModel` makes one of a function
from sample to the output of any other task (`hinge.tasks`).

Many models end in a softmax of their own. Outputs that are probabilities, no number below 0 and their sum 1, in every
one of the first samples, are taken for what they are: their scores are the logarithms. One row that is not ends that.
"""

from __future__ import annotations

import logging
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import file_digest, sha256
from math import exp
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hinge import confidence as measures
from hinge._checks import share
from hinge.confidence import ConfidenceMeasure, max_softmax
from hinge.errors import InvalidModel, InvalidValue, TaskFailed, printable
from hinge.oip.tensors import cast
from hinge.tasks import Classification, Task
from hinge.tasks.task import checked_answer, kind_of
from hinge.traces import Trace

MAX_FILE_BYTES = 2**31 - 1  # Protocol Buffers end there, and so do flat buffers

NO_ZIPMAP = "zipmap=False (skl2onnx: options={'zipmap': False})"

WATCHED = 64  # samples in which outputs have to be probabilities, to be taken for them ever after

log = logging.getLogger("hinge")

_NAMED = 3  # outputs, where there are many
_FEW = 64  # classes up to which Python's numbers are quicker than numpy's arrays
_MANY = 1024  # classes up to which a sum of float32 has an error below 1e-6, however few sums BLAS has at once
_EXP_LIMIT = 690.0  # exp of this or of its negative, and the sum of a million of it, is a normal float
_FLOAT32 = np.dtype(np.float32)
_EXP_LIMIT_32 = 80.0  # the same for a float32, and the sum of `_MANY` of it


@runtime_checkable
class LocalModel(Protocol):
    """A local model that reports its own confidence; `Classifier` makes one of a function from sample to scores."""

    def answer(self, sample: Any) -> tuple[Any, float]:
        """The label of a sample, a number or a text as the remote's are, and the confidence in it, from 0 to 1."""

    def answer_many(self, samples: Sequence[Any]) -> Sequence[tuple[Any, float]]:
        """The same for each of many samples, in their order."""


class Classifier:
    """A function from sample to scores as a local model; labels are class indices, or the names given.

    A function with a method `many`, from samples to an array of scores with a row for each, is asked for batches. One
    with a method `labelled` gives labels of its own beside these.

    >>> Classifier(lambda sample: [0.0, sample], labels=["cat", "dog"]).answer(2.0)
    ('dog', 0.8807970779778824)
    >>> Classifier(lambda sample: [0.25, 0.75]).answer(None)  # probabilities
    (1, 0.75)
    """

    def __init__(
        self,
        scores: Callable[[Any], Any],
        confidence: ConfidenceMeasure = max_softmax,
        labels: Sequence[Any] | None = None,
    ) -> None:
        self.scores, self._measure, self._labels = scores, confidence, labels
        self._many = getattr(scores, "many", None)
        self._labelled = getattr(scores, "labelled", None) if labels is None else None
        self._temperature = measures.softmax_temperature(confidence)  # None: another measure, which is slower
        self._probabilities = measures.takes_scores(confidence)  # the outputs are, as far as is known
        self._watched, self._said = 0, False  # samples whose outputs were; whether that was said

    def answer(self, sample: Any) -> tuple[Any, float]:
        """The label and confidence of one sample."""
        if self._labelled is not None:
            return self.answer_many([sample])[0]
        return self._judged(self.scores(sample))

    def answer_many(self, samples: Sequence[Any]) -> Sequence[tuple[Any, float]]:
        """The labels and confidences of many samples, each as `answer` gives it."""
        if len(samples) == 0:  # which a model of batches may refuse
            return []
        if self._labelled is not None:
            labels, rows = self._labelled(samples)
            return [(label, self._judged(row)[1]) for label, row in zip(labels, rows, strict=True)]
        if self._many is None:
            return [self.answer(sample) for sample in samples]
        scores: NDArray[Any] = self._many(samples)
        if len(scores) != len(samples):
            wanted = f"scores must have a row for each of {len(samples)} samples"
            raise ValueError(f"Classifier: {wanted}, got {len(scores)}")
        return [self._judged(row) for row in scores]

    def _judged(self, scores: Any) -> tuple[Any, float]:
        if not isinstance(scores, (np.ndarray, list)):
            scores = np.asarray(scores)
        if self._probabilities:
            scores = self._logarithms(scores)
        best, few = -1, isinstance(scores, list) or (scores.ndim == 1 and len(scores) <= _FEW)
        if self._temperature is not None and few:
            plain = scores if isinstance(scores, list) else scores.tolist()
            best, confidence = _top_of_few(plain, self._temperature)
        elif self._temperature is not None:
            best, confidence = _top_of_many(scores, self._temperature)
        if best < 0:
            _check_row(scores)
            try:
                confidence = float(self._measure(scores))  # refuses scores that are no finite numbers, and says why
            except InvalidValue as error:
                cause = "" if np.isfinite(scores).all() else ": is a number of the sample NaN, or too large?"
                raise InvalidModel(f"{self!r}: {error}{cause}") from None
            best = int(np.argmax(scores))
        return (best if self._labels is None else self._named(best, len(scores))), confidence

    def _logarithms(self, outputs: Any) -> Any:
        """The logarithms of outputs that are probabilities, as all before were; else the outputs."""
        _check_row(outputs)
        if self._watched < WATCHED:
            if not np.isfinite(outputs).all():
                return outputs  # which the measure refuses; the next sample's may be probabilities again
            if not measures.are_probabilities(outputs):
                self._probabilities = False  # and never True again, whatever other threads have seen
                if self._said:
                    log.warning("%r: its outputs are taken for scores from now on: they no longer sum to 1", self)
                return outputs
            if not self._said and np.max(outputs) < 1:  # 0 and 1 alone may be anything
                log.warning("%r: its outputs are probabilities, so that no softmax is taken of them", self)
                self._said = True
            self._watched += 1
        return measures.log_probabilities(outputs)

    def label_problem(self, label: Any) -> str | None:
        """What is wrong with a true label that no class can have, where the answers are numbers of classes.

        >>> Classifier(lambda sample: [0.0, sample]).label_problem(-1)
        'must be the number of a class, got -1: leave out samples without a label'
        """
        if isinstance(label, str) or self._labels is not None:
            return None
        own = self.scores.classes if self._labelled is not None and isinstance(self.scores, FileModel) else None
        if (label >= 0 and label == int(label)) or (own is not None and label in own):
            return None
        remedy = ": leave out samples without a label" if label < 0 else ""
        return f"must be the number of a class, got {label!r:.50}{remedy}"

    def __repr__(self) -> str:
        return str(self.scores.path) if isinstance(self.scores, FileModel) else "the local model"

    def _named(self, best: int, classes: int) -> Any:
        labels = self._labels or ()
        if len(labels) != classes:
            raise ValueError(f"Device: labels must name {classes} classes, as the local model has, got {len(labels)}")
        return labels[best]


class TaskModel:
    """A function from sample to output as a local model; one with a method `many` is asked for batches.

    >>> from hinge.tasks import Classification
    >>> TaskModel(lambda sample: [sample, 0.0], Classification(["cat", "dog"])).answer(0.0)
    ('cat', 0.5)
    """

    def __init__(self, outputs: Callable[[Any], Any], task: Task) -> None:
        self.outputs, self._task, self._many = outputs, task, getattr(outputs, "many", None)

    def answer(self, sample: Any) -> tuple[Any, float]:
        """The answer to one sample, and the confidence in it."""
        return self._judged(self.outputs(sample))

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        if len(samples) == 0:  # which a model of batches may refuse
            return []
        outputs = map(self.outputs, samples) if self._many is None else self._many(samples)
        return [self._judged(output) for output in outputs]

    def _judged(self, output: Any) -> tuple[Any, float]:
        try:
            confidence = share(type(self._task).__name__, "confidence", self._task.confidence(output))
            return checked_answer(self._task, output), confidence
        except (TypeError, ValueError, TaskFailed) as error:
            raise InvalidModel(f"the local model: {error}") from error


class OwnModel:
    """A local model of the user's, whose answers are checked: what is no answer would be learned as disagreement.

    >>> class Unsure:
    ...     def answer(self, sample):
    ...         return None, 0.5
    ...     def answer_many(self, samples):
    ...         return [self.answer(sample) for sample in samples]
    >>> OwnModel(Unsure(), Classification()).answer("a sample")
    Traceback (most recent call last):
    hinge.errors.InvalidModel: Unsure.answer: no label, but None (NoneType): a label is a text or a number
    """

    def __init__(self, model: LocalModel, task: Task) -> None:
        self.model, self._answer, self._task = model, model.answer, task
        self._any_label = isinstance(task, Classification) and task.labels is None

    def answer(self, sample: Any) -> tuple[Any, float]:
        """What the model answers."""
        found = self._answer(sample)
        if type(found) is tuple and len(found) == 2 and self._any_label and type(found[0]) in (int, str):
            return found
        return self._checked("answer", found)

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        found = self.model.answer_many(samples)
        if not isinstance(found, Iterable):
            wanted = "must return a list of (label, confidence)"
            raise InvalidModel(f"{type(self.model).__name__}.answer_many {wanted}, got {kind_of(found)}")
        return [self._checked("answer_many", each) for each in found]

    def _checked(self, method: str, found: Any) -> tuple[Any, float]:
        whose = f"{type(self.model).__name__}.{method}"
        try:
            label, confidence = found
        except (TypeError, ValueError):
            wanted = "must return (label, confidence)" + " of each sample" * (method != "answer")
            raise InvalidModel(f"{whose} {wanted}, got {kind_of(found)}") from None
        try:
            if isinstance(self._task, Classification) and isinstance(label, list | np.ndarray):
                raise ValueError(f"no label, but {kind_of(label)}: a label is a text or a number")
            return checked_answer(self._task, label), confidence
        except (TypeError, ValueError, TaskFailed) as error:
            raise InvalidModel(f"{whose}: {error}") from error


def as_local(owner: str, model: Any, task: Task) -> LocalModel:
    """A local model, or a function from sample to output as one."""
    if isinstance(model, Classifier | TaskModel | RecordedModel | OwnModel):
        return model
    if isinstance(model, LocalModel):
        return OwnModel(model, task)
    if not callable(model):
        raise TypeError(f"{owner}: local must be a model or a function from sample to scores, got {model!r}")
    if isinstance(task, Classification):  # which finds label and confidence at once, and so quicker
        return Classifier(model, task.confidence, task.labels)
    return TaskModel(model, task)


def refused_among(local: LocalModel, samples: Iterable[Any]) -> tuple[int, InvalidModel] | None:
    """The place of the first sample that a local model refuses, and why; a batch does not say which it was.

    >>> refused_among(Classifier(lambda sample: [0.0, sample]), [1.0, float("nan")])
    (1, InvalidModel('the local model: max_softmax: scores must be finite, got nan in class 1: is a number of the ...'))
    """
    for place, sample in enumerate(samples):
        try:
            local.answer(sample)
        except InvalidModel as error:
            return place, error
    return None


def _check_row(scores: Any) -> None:
    """Refuse what are not the scores of one sample, and say what to do.

    >>> _check_row(np.array([[0.2, 0.8]]))
    Traceback (most recent call last):
    ValueError: Device: local must return a score for each class, of one sample, got shape [1, 2]: return row 0
    >>> _check_row(np.array(None))
    Traceback (most recent call last):
    ValueError: Device: local must return a score for each class, of one sample, got None
    """
    array = np.asarray(scores)
    if array.ndim == 1 and len(array) > 1 and array.dtype.kind in "fiu":
        return
    found = f"shape {list(array.shape)}" if array.ndim > 1 else f"{array.tolist()!r:.80}"
    if array.ndim == 2 and len(array) == 1:
        found += ": return row 0"
    elif array.ndim < 2 and array.dtype.kind in "fiu":
        found += ": of two classes return both, [1 - p, p]; a regression has none"
    raise ValueError(f"Device: local must return a score for each class, of one sample, got {found}")


def _top_of_few(scores: list[Any], temperature: float = 1.0) -> tuple[int, float]:
    """The best class and its softmax `exp(max s) / sum_k exp(s_k)`.

    The class is -1 where a score is no finite number, or too large or small for that formula, which takes 0.7 µs for 10
    classes; to subtract the largest score first takes 1.0 µs.

    >>> _top_of_few([0.0, 1.0])
    (1, 0.7310585786300049)
    >>> _top_of_few([0.0, float("nan")])[0], _top_of_few([0.0, float("-inf")])[0], _top_of_few([[1.0], [2.0]])[0]
    (-1, -1, -1)
    """
    try:
        if temperature != 1.0:
            scores = [score / temperature for score in scores]
        high = max(scores)
        if not -_EXP_LIMIT < min(scores) <= high < _EXP_LIMIT or len(scores) < 2:
            return -1, 0.0
        top, total = exp(high), sum(map(exp, scores))
    except (TypeError, ValueError):  # no numbers, or none at all
        return -1, 0.0
    return (scores.index(high), top / total) if total >= top else (-1, 0.0)  # not so where one is NaN


def _top_of_many(scores: NDArray[Any], temperature: float = 1.0) -> tuple[int, float]:
    """The same for arrays; scores of float32 have it in float32, to 1e-6.

    Four calls of numpy, 2.6 µs for 1 000 classes of float32 and 3.7 µs of float64. To subtract the largest score first,
    and to use `min` and `sum` instead of `argmin` and `dot`, takes twice as long.

    >>> _top_of_many(np.array([0.0, 1.0]))
    (1, 0.7310585786300049)
    >>> _top_of_many(np.array([0.0, np.nan]))[0], _top_of_many(np.array([0.0, -np.inf]))[0]
    (-1, -1)
    """
    if scores.ndim != 1 or scores.dtype.kind != "f":
        return -1, 0.0
    if temperature != 1.0:
        scores = np.divide(scores, temperature, dtype=np.float64)
    single = scores.dtype is _FLOAT32 and len(scores) <= _MANY
    limit = _EXP_LIMIT_32 if single else _EXP_LIMIT
    best = int(scores.argmax())
    if not -limit < scores.item(scores.argmin()) <= scores.item(best) < limit:  # also false where one is NaN
        return -1, 0.0
    weights = np.exp(scores) if single else np.exp(scores, dtype=np.float64)
    return best, weights.item(best) / weights.dot(_ones(len(weights), single)).item()


@lru_cache(maxsize=4)
def _ones(count: int, single: bool) -> NDArray[Any]:
    return np.ones(count, np.float32 if single else np.float64)


class RecordedModel:
    """Answers as the local model did whose answers a trace holds: a sample is the number of a row, modulo their count.

    >>> from hinge import load_trace
    >>> RecordedModel(load_trace("fashion")).answer(0)
    (9, 0.9842391368790809)
    """

    def __init__(self, trace: Trace) -> None:
        self._labels, self._confidences = trace.answers[0].tolist(), trace.confidence.tolist()

    def answer(self, sample: Any) -> tuple[Any, float]:
        """What the local model said of that row; its number may be an array of one, as a server wants it."""
        row = (sample if isinstance(sample, int) else int(sample.item())) % len(self._labels)
        return self._labels[row], self._confidences[row]

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        return [self.answer(sample) for sample in samples]


# -- models from files ------------------------------------------------------------------------------------------------


class OneInput:
    """The input of a model, and how samples become it.

    `shape` is that of the model, its first axis for samples; -1 stands for any size.

    >>> OneInput("local.onnx", (-1, 2), np.dtype(np.float32)).one([1, 2])
    array([[1., 2.]], dtype=float32)
    """

    def __init__(self, owner: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if len(shape) < 1 or shape[0] not in (-1, 1):
            found = f"the first axis of the input must be for samples, its shape is {list(shape)}"
            raise InvalidModel(f"{owner}: {found}: export it with a dynamic batch axis, or with 1")
        self._owner, self.dtype, self.sample_shape = owner, dtype, shape[1:]
        self.batches = shape[0] == -1

    def one(self, sample: Any) -> NDArray[Any]:
        """One sample as the input, with a first axis of its own; raises `ValueError` if it does not fit."""
        array = sample if isinstance(sample, np.ndarray) else np.asarray(sample)
        if array.dtype != self.dtype:
            array = self._cast(array)
        if array.shape != self.sample_shape:
            wanted, found = list(self.sample_shape), list(array.shape)
            if len(wanted) != len(found) or any(a not in (-1, b) for a, b in zip(wanted, found, strict=True)):
                raise ValueError(f"{self._owner}: the model takes samples of shape {wanted}, the sample has {found}")
        return array[None]

    def many(self, samples: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        return np.concatenate([self.one(sample) for sample in samples])

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        try:
            self.one(sample)
        except ValueError as error:
            raise InvalidModel(str(error)) from error

    def _cast(self, array: NDArray[Any]) -> NDArray[Any]:
        return cast(self._owner, array, self.dtype)


class Output(NamedTuple):
    """An output of a model: its name, what its numbers are as numpy's `kind` has it ("O": text), its shape."""

    name: str
    kind: str
    shape: Sequence[int]  # -1 stands for any size

    @property
    def is_label(self) -> bool:
        """Whether it may be a label for each sample, as a number or text."""
        return self.kind in "iuO" and all(size in (-1, 1) for size in self.shape) and len(self.shape) <= 2

    @property
    def is_one_number(self) -> bool:
        """Whether it has one real number for each sample."""
        return self.kind == "f" and (len(self.shape) == 1 or (len(self.shape) == 2 and self.shape[1] == 1))


def choose_outputs(path: str | Path, outputs: Sequence[Output], wanted: str | None) -> tuple[Output, Output | None]:
    """The output with the scores, the one that is named or else the first of real numbers; and one with labels, if any.

    >>> label, scores = Output("label", "i", [-1]), Output("probabilities", "f", [-1, 3])
    >>> choose_outputs("m.onnx", [label, scores], None) == (scores, label)
    True
    >>> choose_outputs("m.onnx", [label], None)
    Traceback (most recent call last):
    hinge.errors.InvalidModel: m.onnx: a local model must give scores, and this one gives none, but 'label'
    """
    names = ", ".join(repr(output.name) for output in outputs) or "nothing"
    if wanted is not None and wanted not in [output.name for output in outputs]:
        raise InvalidModel(f"{path}: the model has no output {wanted!r}; it has {names}")
    found = [output for output in outputs if wanted in (None, output.name) and output.kind in ("f", "i", "u")]
    # The order stays as it is among equals: the first of real numbers, or else of whole ones.
    ranked = sorted((output for output in found if not output.is_label), key=lambda output: output.kind != "f")
    if not ranked:
        given = repr(wanted) if wanted else names
        raise InvalidModel(f"{path}: a local model must give scores, and this one gives none, but {given}")
    label = next((output for output in outputs if output.is_label), None)
    columns = [repr(output.name) for output in ranked if output.is_one_number]
    if label is not None and wanted is None and ranked[0].is_one_number and len(columns) > 1:
        shown = ", ".join(columns if len(columns) <= _NAMED else [*columns[:_NAMED], "…"])
        problem = f"scores are in {len(columns)} outputs of one number for a sample, {shown}"
        raise InvalidModel(f"{path}: {problem}: export it with {NO_ZIPMAP}, or name the output (--output)")
    return ranked[0], label


class FileModel(ABC):
    """A model from a file, as a function from sample to scores; a subclass for each format runs it.

    Scores are a number for each class, whatever axes of size 1 are around them; of one number, the probability p of
    the second of two classes, they are 1 - p and p.
    """

    labelled: Callable[[Sequence[Any]], tuple[list[Any], NDArray[Any]]] | None = None  # where it gives labels, too
    classes: Sequence[Any] | None = None  # the labels that it may give, where its file says so

    def __init__(self, path: str | Path, input: OneInput, files: Sequence[Path] = ()) -> None:
        self.path, self.input = Path(path), input
        self.files = tuple(files) or (self.path,)  # that it comes from: it may have data beside it

    def __call__(self, sample: Any) -> NDArray[Any]:
        """The scores of one sample."""
        scores = self._scores(self.input.one(sample))
        row: NDArray[Any] = scores[0] if scores.ndim == 2 and scores.shape[1] > 1 else self._rows(scores, 1)[0]
        return row

    def many(self, samples: Sequence[Any] | NDArray[Any]) -> NDArray[Any]:
        """The scores of many samples, a row for each."""
        if not self.input.batches:
            return np.stack([self(sample) for sample in samples])
        return self._rows(self._scores(self.input.many(samples)), len(samples))

    def check(self, sample: Any) -> None:
        """Raise `InvalidModel` unless the model takes such samples."""
        self.input.check(sample)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @abstractmethod
    def _scores(self, input: NDArray[Any]) -> NDArray[Any]: ...

    def _rows(self, outputs: NDArray[Any], samples: int) -> NDArray[Any]:
        try:
            return measures.class_scores(outputs, samples)
        except ValueError as error:
            raise InvalidModel(f"{self.path}: {error}") from None


@contextmanager
def loading(path: str | Path, problem: Callable[[Exception], str]) -> Iterator[None]:
    """Turn whatever a runtime raises while it loads a file into `InvalidModel`: such errors have no common base.

    `problem` finds in an error what is wrong. A package that is not installed stays an `ImportError`.
    """
    try:
        yield
    except (InvalidModel, ImportError):
        raise
    except Exception as error:
        found = printable(problem(error) or type(error).__name__)
        raise InvalidModel(f"{path}: the model cannot be run: {found}") from None


def read_file(path: Path) -> bytes:
    """The content of a model's file.

    >>> read_file(Path("missing.tflite"))
    Traceback (most recent call last):
    hinge.errors.InvalidModel: missing.tflite: there is no such file
    """
    try:
        found = path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_FILE_BYTES:  # reading a pipe would never end
            return path.read_bytes()
    except FileNotFoundError:
        raise InvalidModel(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        problem = error.strerror if isinstance(error, OSError) else error
        raise InvalidModel(f"{path}: {problem}") from None
    too_large = f"a model may have {MAX_FILE_BYTES} bytes, got {found.st_size}"
    raise InvalidModel(f"{path}: {too_large if stat.S_ISREG(found.st_mode) else 'not a file'}")


def digest_of(files: Iterable[Path]) -> str:
    """A digest of what is in some files, in the order of their names."""
    digest = sha256()
    for path in sorted(files):
        with path.open("rb") as file:
            digest.update(file_digest(file, "sha256").digest())
    return digest.hexdigest()


def digest_of_local(local: LocalModel) -> str | None:
    """A digest of the files that a local model comes from; None where it comes from none, or they are gone."""
    model = local.scores if isinstance(local, Classifier) else getattr(local, "outputs", None)
    try:
        return digest_of(model.files) if isinstance(model, FileModel) else None
    except OSError:
        return None


def check_inputs(path: str | Path, names: Sequence[str]) -> None:
    """Refuse a model that does not take one tensor."""
    if len(names) != 1:
        found = ", ".join(map(repr, names)) or "none"
        raise InvalidModel(f"{path}: a local model must have one input, this one has {len(names)}: {found}")


def first_line(error: Exception) -> str:
    """The first line of what a runtime says is wrong."""
    return next(iter(str(error).strip().splitlines()), "")
