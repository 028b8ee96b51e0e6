"""What a device is to work with: its models and its samples, found to fit each other before the first is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hinge import fashion
from hinge._checks import did_you_mean
from hinge.cli import show
from hinge.cli.device.arriving import Arrival, Fit
from hinge.cli.device.images import from_images
from hinge.cli.device.models import InProcess, Replayed, classes_of, open_local, open_remote
from hinge.cli.device.samples import Stream, from_array, from_arrays, from_fashion, from_frames, from_trace, is_trace
from hinge.cli.options import find_trace
from hinge.costs import OffloadCost
from hinge.errors import InvalidModel, UnknownName
from hinge.models.base import Recorded
from hinge.traces import Trace, trace_names

_FASHION = "fashion"
_SHOWN = 20  # classes that are named, one by one


@dataclass(frozen=True)
class Setting:
    """Models, samples, and what an offload costs where that was recorded."""

    local: Any
    remote: Any
    stream: Stream
    recorded: OffloadCost | None = None
    arrival: Arrival | None = None  # of a remote that may be away
    where: str = "in this process"  # the remote is


def set_up(samples: str, local: Path | None, url: str | None, model: str | None, token: str | None) -> Setting:
    """Open what the command line names; whatever cannot work is refused here."""
    if url is None and model is not None:
        raise ValueError("--model needs --remote")
    trace = _trace(samples)
    if trace is not None:
        return _replay(trace, local, url, model, token)
    if local is None and samples != _FASHION:
        raise ValueError("--local must name a model, as these samples come without one")
    opened = open_local(local or fashion.local_model())
    stream = _stream(samples, opened)
    classes = classes_of(opened, stream.example)
    _check_labels(samples, stream, classes, opened)
    if url is None and samples == _FASHION:
        return Setting(opened, InProcess(open_local(fashion.remote_model())), stream)
    if url is None:
        raise ValueError("--remote must name a server, as these samples come without a remote model")
    if stream.classes is not None and samples != _FASHION:
        _tell_classes(stream.classes)
    return _asking(opened, url, model or (_FASHION if samples == _FASHION else None), token, stream, classes)


def _check_labels(samples: str, stream: Stream, classes: int, local: Any) -> None:
    if stream.classes is not None and len(stream.classes) != classes:
        folders = show.counted(len(stream.classes), "folder")
        found = f"{samples}: {folders} do not fit the {classes} classes of {local.path}"
        raise InvalidModel(f"{found}; call them by the numbers of their classes")
    wrong = [truth for truth in stream.truths if truth not in range(classes)]
    if wrong:
        known = f"the classes of {local.path} are 0 to {classes - 1}"
        raise InvalidModel(f"{samples}: there is a label {str(wrong[0])[:40]!r}, but {known}")


def _tell_classes(names: Sequence[str]) -> None:
    """Folders are taken in the order of their names, which need not be the model's: who looks sees it."""
    told = [f"class {number} is {name!r}" for number, name in enumerate(names)]
    shown = told if len(told) <= _SHOWN else [*told[: _SHOWN - 1], "…", told[-1]]
    show.warn(", ".join(shown))


def _replay(trace: Trace, local: Path | None, url: str | None, model: str | None, token: str | None) -> Setting:
    if local is not None:
        raise ValueError(f"--local must not be given, as trace {trace.name!r} has the local answers")
    stream, here = from_trace(trace), Replayed(trace)
    if url is None:
        return Setting(Recorded(trace), here, stream, None if trace.cost is None else here, where="in the trace")
    return _asking(Recorded(trace), url, model, token, stream)


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
    return find_trace(samples)


def _stream(samples: str, local: Any) -> Stream:
    if samples == _FASHION:
        return from_fashion()
    if samples == "-":
        return from_frames(local.input)
    path = Path(samples)
    if path.is_dir():
        return from_images(path, local.input)
    return from_array(path) if path.suffix.lower() == ".npy" else from_arrays(path)


def _asking(
    local: Any, url: str, model: str | None, token: str | None, stream: Stream, classes: int | None = None
) -> Setting:
    """The setting with a remote on a server."""
    if model is None:
        raise ValueError("--model must name the model on the server")
    remote = open_remote(url, model, token)
    arrival = Arrival(Fit(remote, url, stream.example, classes))
    try:
        arrival.begin()
    except BaseException:
        remote.close()
        raise
    return Setting(local, remote, stream, arrival=arrival, where=f"at {url}")
