"""The models of `hinge device` and `hinge record`, found to fit each other and the samples before the first answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
from cyclopts import Parameter

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.cli import console
from hinge.cli.device_samples import Stream, from_trace, is_trace, open_samples
from hinge.cli.options import Certificates, Output, class_names, option
from hinge.cli.settings import NAMES, PLACE, UsageError
from hinge.confidence import ConfidenceMeasure, restore_measure
from hinge.costs import FixedCost, OffloadPrice
from hinge.device.status import Status
from hinge.errors import (
    InvalidModel,
    InvalidTrace,
    RemoteFailed,
    RemoteInvalid,
    RemoteLate,
    RemoteRefused,
    RemoteUnreachable,
    UnknownName,
)
from hinge.models import RecordedModel
from hinge.remotes import Deadline, Reply
from hinge.remotes.address import read_token, without_password
from hinge.simulation.evaluate import as_trace
from hinge.traces import Trace, trace_names

_SYSTEM = Certificates()
_FASHION = "fashion"
_MAX_NAMED, _FEW_CLASSES = 20, 4  # that are named, one by one, in a warning and in an error

# Imported when they are needed, as each needs an extra of its own.
_FORMATS = {
    ".onnx": ("hinge.models.onnx", "OnnxModel"),
    ".tflite": ("hinge.models.litert", "LiteRTModel"),
    ".xml": ("hinge.models.openvino", "OpenVINOModel"),
}


@dataclass(frozen=True)
class Setup:
    """Models, samples, and what an offload costs on average where that was recorded."""

    local: Any
    remote: Any
    stream: Stream
    recorded: OffloadPrice | None = None
    fit: "Fit | None" = None  # of a remote on a server
    where: str = "in this process"  # the remote is

    def close(self) -> None:
        """Close the remote, if it is one that is kept open."""
        if hasattr(self.remote, "close"):
            self.remote.close()


@Parameter(name="*", group="The models")
@dataclass(frozen=True)
class ModelOptions:
    """The two models, and what is meant of models and samples that have several parts."""

    local: Annotated[Path | None, option("The local model: .onnx, .tflite or .xml (OpenVINO).")] = None
    remote: Annotated[str | None, option("The remote model: such a file, or its server.", metavar=PLACE)] = None
    model: Annotated[str | None, option("The name of the remote model on its server.")] = None
    output: Output = None
    remote_output: Annotated[str | None, option("The remote output that has labels or scores; else the first.")] = None
    input: Annotated[str | None, option("The array of an .npz file that has the samples; else by its name.")] = None
    labels: Annotated[str | None, option("The classes in the models' order: a list, or a file.", metavar=NAMES)] = None
    confidence: Annotated[
        Literal["max_softmax", "margin", "entropy", "max_probability"] | None,
        option("How scores become a confidence; without it, by the largest softmax."),
    ] = None
    token_file: Annotated[Path | None, option("A file with the server's token; or set HINGE_TOKEN.")] = None

    @property
    def measure(self) -> ConfidenceMeasure | None:
        return None if self.confidence is None else restore_measure({"name": self.confidence})

    @property
    def file(self) -> Path | None:
        """The file of the remote model, if it is in one."""
        is_file = self.remote and Path(self.remote).suffix.lower() in _FORMATS and "://" not in self.remote
        return Path(str(self.remote)) if is_file else None

    @property
    def url(self) -> str | None:
        """The address of the server that has the remote model, if it is on one."""
        return None if self.file else self.remote


def set_up(samples: str, given: ModelOptions, certificates: Certificates) -> Setup:
    """Open what the command line names, and refuse what cannot work."""
    if given.url is None and given.model is not None:
        raise UsageError("--model needs --remote to be a server")
    if given.token_file is not None:  # refused also where no server is asked
        given.token_file.open("rb").close()
    try:
        trace = _trace(samples)
    except InvalidTrace as error:
        if given.local is None or Path(samples).suffix.lower() == ".npz":
            raise
        raise UsageError(f"{error}; samples for --local are in a folder of images or an .npz or .npy file") from None
    if trace is not None:
        return _of_trace(trace, given, certificates)
    if given.local is None and samples != _FASHION:
        raise UsageError("--local must name a model, as these samples come without one")
    if given.input is not None and Path(samples).suffix.lower() != ".npz":
        raise UsageError("--input needs samples in an .npz file")
    local = open_model("--local", given.local or fashion.local_model(), given.output)
    stream = open_samples(samples, local.input, given.input)
    classes = _class_count(local, stream.example, real=samples != "-")
    stream = _labelled(samples, stream, local, classes, class_names(given.labels))
    file = given.file
    if given.remote is None and samples == _FASHION:
        file = fashion.remote_model()
    if file is not None:
        return Setup(local, _remote_file(file, local, stream, classes, given.remote_output), stream)
    given = given if given.model or samples != _FASHION else replace(given, model=_FASHION)
    label = None if stream.classes is not None else _own_label(local, stream.example)  # else a number is a name, too
    return _with_server(local, stream, given, certificates, label, classes)


def _of_trace(trace: Trace, given: ModelOptions, certificates: Certificates) -> Setup:
    """Return the recorded answers of both models, or of the local one beside a server."""
    if given.file is not None:
        raise UsageError(f"--remote must be a server, as trace {trace.name!r} has no samples for a file to answer")
    if given.labels or given.input or given.output:
        raise UsageError(f"--labels, --input and --output are for models, and {trace.name!r} is a trace")
    if given.local is not None:
        raise UsageError(f"--local must not be given, as trace {trace.name!r} has the local answers")
    if given.url is not None:
        return _with_server(RecordedModel(trace), from_trace(trace), given, certificates, trace.answers[0][0].item())
    mean = None if trace.cost is None else FixedCost(float(trace.cost.mean()))  # each reply knows its own
    return Setup(RecordedModel(trace), Replayed(trace), from_trace(trace), mean, where="in the trace")


def _with_server(
    local: Any, stream: Stream, given: ModelOptions, certificates: Certificates, label: Any, classes: int | None = None
) -> Setup:
    """Return the local model beside a remote one on a server."""
    if given.url is None:
        raise UsageError("--remote must name a server or a file, as these samples come without a remote model")
    if given.model is None:
        raise UsageError("--model must name the model on the server")
    remote = open_remote(given.url, given.model, read_token(given.token_file), certificates, given.remote_output)
    fit = Fit(remote, given.url, stream.example, classes, label, given.remote_output)
    return Setup(local, remote, stream, fit=fit, where=f"at {given.url}")


def _trace(samples: str) -> Trace | None:
    """The trace that these samples are, if they are one."""
    path = Path(samples)
    if samples in ("-", _FASHION) or path.is_dir():
        return None
    suffix = path.suffix.lower()
    if suffix == ".npy" or (suffix == ".npz" and not is_trace(path)):
        return None
    if not path.suffix and samples not in trace_names():
        known = did_you_mean(samples, ["-", *trace_names()])
        raise UnknownName(f"there is no folder and no trace {samples!r}{known}")
    try:
        return as_trace(samples)
    except UnknownName:
        kinds = "a folder of images, an .npz or .npy file, '-' for frames on standard input, or a trace"
        ends = "by name or in a .csv, .tsv, .jsonl, .npz or .parquet file"
        raise UnknownName(f"{samples}: samples are {kinds}, {ends}") from None


# -- models in files --------------------------------------------------------------------------------------------------


def open_model(option: str, path: Path, output: str | None = None) -> Any:
    """The model in a file, by the end of its name."""
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise UnknownName(f"{option} {path}: no format of models ends in {suffix!r}{did_you_mean(suffix, _FORMATS)}")
    module, kind = _FORMATS[suffix]
    return getattr(import_module(module), kind)(path, output=output)


def _class_count(model: Any, example: Any, real: bool = True) -> int:
    """How many classes a model has; raises `InvalidModel` unless it takes such samples, and scores them."""
    model.check(example)
    scores = model(example)
    if real and not np.isfinite(scores).all():
        found = "the scores of the first sample are not all finite numbers"
        raise InvalidModel(f"{model.path}: {found}: is the sample such as the model was trained on?")
    return len(scores)


def _remote_file(path: Path, local: Any, stream: Stream, classes: int, output: str | None) -> Any:
    """The remote model in a file, if it takes such samples and has as many classes as the local one."""
    remote = open_model("--remote", path, output)
    found = _class_count(remote, stream.example)
    if found != classes:
        raise InvalidModel(f"{path}: the model has {found} classes, the local model {classes}")
    if stream.classes is not None:  # which number the classes, whatever the model itself calls them
        remote.labelled = None
        return remote
    ours, theirs = (_own_label(model, stream.example) for model in (local, remote))
    if isinstance(ours, str) != isinstance(theirs, str):
        both = f"{path}: the model answers as in {theirs!r}, {local.path} as in {ours!r}"
        raise InvalidModel(f"{both}; --labels names the classes of both")
    return remote


def _own_label(model: Any, example: Any) -> Any:
    """What the model itself calls the class of a sample: a number, unless it has names for them."""
    return 0 if model.labelled is None else model.labelled([example])[0][0]


def _labelled(samples: str, stream: Stream, local: Any, classes: int, names: Sequence[str] | None) -> Stream:
    """The samples, with the names of the classes, if they have some, and true labels in the words of the answers."""
    own = _own_label(local, stream.example)
    if names is None and (isinstance(own, str) or (local.labelled is not None and stream.classes is None)):
        truths = (*stream.truths, *(stream.classes or ()))
        odd = next((truth for truth in truths if type(truth) is not type(own)), None)
        if odd is not None:
            found = f"{samples}: there is a label {str(odd)[:40]!r}, and {local.path} answers as in {own!r}"
            raise InvalidModel(f"{found}; --labels names its classes in its order")
        known = None if local.classes is None else set(local.classes)
        for truth in truths:
            if truth not in known if known is not None else isinstance(truth, int) and truth < 0:
                but = "" if known is None else f", but the classes of {local.path} are {_listed(local.classes)}"
                raise InvalidModel(f"{samples}: there is a label {str(truth)[:40]!r}{but}{_without(truth)}")
        return replace(stream, classes=None)
    _check_labels(samples, stream, classes, local, names)
    if names is None:
        if stream.classes is not None and samples != _FASHION:
            # Folders are numbered in the order of their names, which need not be the model's: the user can check it.
            named = [f"class {number} is {name!r}" for number, name in enumerate(stream.classes)]
            shown = named if len(named) <= _MAX_NAMED else [*named[: _MAX_NAMED - 1], "…", named[-1]]
            console.warn(f"{', '.join(shown)}, by the alphabet; --labels names them in another order")
        return stream
    numbered = ((case, names[case.truth] if isinstance(case.truth, int) else case.truth) for case in stream.cases)
    return replace(stream, cases=(case._replace(truth=truth) for case, truth in numbered), classes=names)


def _check_labels(samples: str, stream: Stream, classes: int, local: Any, names: Sequence[str] | None) -> None:
    known = f"the classes of {local.path} are 0 to {classes - 1}"
    if names is not None and len(names) != classes:
        raise InvalidModel(f"--labels: {len(names)} names do not fit the {classes} classes of {local.path}")
    if stream.classes is not None and names is None and len(stream.classes) != classes:
        folders = console.counted(len(stream.classes), "folder")
        found = f"{samples}: {folders} do not fit the {classes} classes of {local.path}"
        raise InvalidModel(f"{found}; call them by the numbers of their classes, or name all of these with --labels")
    truths = [*stream.truths, *((stream.classes or ()) if names else ())]
    wrong = [truth for truth in truths if truth not in (range(classes) if isinstance(truth, int) else names or ())]
    if wrong:
        named = known if names is None or isinstance(wrong[0], int) else "--labels has no such name"
        raise InvalidModel(f"{samples}: there is a label {str(wrong[0])[:40]!r}, but {named}{_without(wrong[0])}")


def _without(label: Any) -> str:
    """What to do about a label that stands for none."""
    return ": leave out samples without a label" if isinstance(label, int) and label < 0 else ""


def _listed(classes: Sequence[Any]) -> str:
    """Classes as they are told.

    >>> _listed([1, 2, 3, 4]), _listed(["cat", "dog"]), _listed(range(0, 200, 10))
    ('1 to 4', "'cat', 'dog'", '0, 10, 20, …, 190')
    """
    first, last = classes[0], classes[-1]
    if isinstance(first, int) and list(classes) == list(range(first, last + 1)):
        return f"{first} to {last}"
    shown = [repr(each)[:40] for each in classes]
    return ", ".join(shown if len(shown) <= _FEW_CLASSES else [*shown[: _FEW_CLASSES - 1], "…", shown[-1]])


# -- remotes ----------------------------------------------------------------------------------------------------------


def open_remote(
    url: str, model: str, token: str | None, certificates: Certificates = _SYSTEM, output: str | None = None
) -> Any:
    """The model of that name on the server at a URL."""
    if not url.startswith(("http://", "https://")):
        ends = f"or be a file that ends in {', '.join(_FORMATS)}"
        raise UnknownName(f"--remote {without_password(url)}: must start with http:// or https://, {ends}")
    from hinge.remotes.open_inference import OpenInference

    tls = certificates.context()
    if tls is not None and url.startswith("http://"):
        raise UsageError(f"--ca, --cert and --key are for https://, got --remote {without_password(url)}")
    return OpenInference(url, model, output=output, token=token, tls=tls)


class Replayed:
    """The remote of a trace: its recorded labels, at the recorded costs if there are some."""

    keeps_deadline = True

    def __init__(self, trace: Trace) -> None:
        self._labels, self._costs = trace.answers[1].tolist(), trace.cost

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        """What the remote said of these rows, and what they cost on average."""
        rows = [int(sample.item()) for sample in samples]
        cost = None if self._costs is None else float(self._costs[rows].mean())
        return Reply([self._labels[row] for row in rows], cost=cost)

    def close(self) -> None:
        """Nothing is kept open."""


_HINTS = (  # what a failure to connect may mean, by how the URL begins
    ("https://", "closed the connection without a response", "does it want a certificate (--cert, --key)?"),
    ("https://", "Connection reset by peer", "does it want a certificate (--cert, --key)?"),
    ("https://", "WRONG_VERSION_NUMBER", "does it speak http:// instead?"),
    ("http://", "closed the connection without a response", "does it speak https:// instead?"),
)


class Fit:
    """Whether a remote on a server has the model, takes such samples, and answers with the classes of the local one.

    These are so many `classes`, called as in `label`, by numbers or by texts; None: not known, or as it may be. A
    remote that could never answer is refused. One that is away at the start may come later, and is checked then.
    """

    def __init__(
        self,
        remote: Any,
        url: str,
        example: Any,
        classes: int | None,
        label: Any = None,
        output: str | None = None,
    ) -> None:
        self._remote, self._url, self._example, self._classes = remote, url, example, classes
        self._label, self._output = label, output
        self._replies = 0  # that the last check had seen
        self.checked = False  # and found to fit

    def check_at_start(self) -> None:
        """Raise `RemoteFailed` unless the remote fits; one that is away is only mentioned."""
        try:
            self.check()
        except (RemoteUnreachable, RemoteLate) as error:
            hints = [hint for scheme, sign, hint in _HINTS if self._url.startswith(scheme) and sign in str(error)]
            console.warn(f"{error}{'; '.join(['', *hints])}; using local answers until it is reachable")

    def check_again(self, status: Status) -> None:
        """Check a remote that was away, if it has replied since the last check."""
        misfits = sum(status.fell_back.get(kind.kind, 0) for kind in (RemoteInvalid, RemoteRefused))
        replies = status.answered_by_remote + misfits
        if self.checked or replies == self._replies:
            return
        self._replies = replies
        try:
            self.check()
        except RemoteFailed as error:
            if isinstance(error, RemoteInvalid):
                raise  # any other may be about to start

    def check(self) -> None:
        """Raise `RemoteFailed` unless the remote fits."""
        try:
            classes = self._remote.check(self._example)
            if None not in (classes, self._classes) and classes != self._classes:
                found = f"model {self._remote.model!r} has {classes} classes, the local model {self._classes}"
                raise RemoteInvalid(found)
            if self._label is not None:
                self._check_label()
        except RemoteFailed as error:
            named = str(error).startswith((self._url.rstrip("/"), urlsplit(self._url).netloc))
            raise type(error)(str(error) if named else f"{self._url}: {error}") from error
        self.checked = True

    def _check_label(self) -> None:
        """Raise `RemoteInvalid` where one model answers with numbers and the other with texts, which never agree."""
        _, model = self._remote.metadata()
        output = next((spec for spec in model.outputs if self._output in (None, spec.name)), None)
        if output is None:  # the server does not say
            return
        texts, ours = output.datatype == "BYTES", isinstance(self._label, str)
        if texts != ours:
            kinds, which = ("numbers", "texts"), f"output {output.name!r}: {output.datatype}"
            theirs = f"model {self._remote.model!r} answers in {kinds[texts]} ({which})"
            named = "" if self._classes is None else "--labels names the classes of both, "
            remedy = f"{named}--remote-output another output of the remote"
            raise RemoteInvalid(f"{theirs}, the local model in {kinds[ours]}, as in {self._label!r:.50}; {remedy}")
