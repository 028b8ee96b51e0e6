"""What a device is to work with: its models and its samples, found to fit each other before the first is answered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hinge import fashion
from hinge.cli.device.images import from_images
from hinge.cli.device.models import InProcess, Replayed, check_remote, classes_of, open_local, open_remote
from hinge.cli.device.samples import Stream, from_arrays, from_fashion, from_frames, from_trace, is_trace
from hinge.cli.options import find_trace
from hinge.costs import OffloadCost
from hinge.errors import InvalidModel, UnknownName
from hinge.gate.local.recorded import Recorded
from hinge.names import did_you_mean
from hinge.traces import Trace, trace_names

_FASHION = "fashion"


@dataclass(frozen=True)
class Setting:
    """Models, samples, and what an offload costs where that was recorded."""

    local: Any
    remote: Any
    stream: Stream
    recorded: OffloadCost | None = None


def set_up(samples: str, local: Path | None, url: str | None, model: str | None, token: str | None) -> Setting:
    """Open what the command line names; whatever cannot work is refused here."""
    trace = _trace(samples)
    if trace is not None:
        return _replay(trace, local, url, model, token)
    if local is None and samples != _FASHION:
        raise ValueError("--local must name a model, as these samples come without one")
    opened = open_local(local or fashion.local_model())
    stream = _stream(samples, opened)
    classes = classes_of(opened, stream.example)
    if stream.classes is not None and len(stream.classes) != classes:
        found = f"{samples}: {len(stream.classes)} folders do not fit the {classes} classes of {opened.path}"
        raise InvalidModel(f"{found}; call them by the numbers of their classes")
    if url is None and samples == _FASHION:
        return Setting(opened, InProcess(open_local(fashion.remote_model())), stream)
    if url is None:
        raise ValueError("--remote must name a server, as these samples come without a remote model")
    return Setting(opened, _checked(url, model or (_FASHION if samples == _FASHION else None), token, stream), stream)


def _replay(trace: Trace, local: Path | None, url: str | None, model: str | None, token: str | None) -> Setting:
    if local is not None:
        raise ValueError(f"--local must not be given, as trace {trace.name!r} has the local answers")
    stream, here = from_trace(trace), Replayed(trace)
    if url is None:
        return Setting(Recorded(trace), here, stream, None if trace.cost is None else here)
    return Setting(Recorded(trace), _checked(url, model, token, stream), stream)


def _trace(samples: str) -> Trace | None:
    """The trace that these samples are, if they are one."""
    path = Path(samples)
    if samples in ("-", _FASHION) or path.is_dir():
        return None
    if path.suffix.lower() == ".npz" and not is_trace(path):
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
    return from_images(Path(samples), local.input) if Path(samples).is_dir() else from_arrays(Path(samples))


def _checked(url: str, model: str | None, token: str | None, stream: Stream) -> Any:
    if model is None:
        raise ValueError("--model must name the model on the server")
    remote = open_remote(url, model, token)
    try:
        check_remote(remote, url, stream.example)
    except BaseException:
        remote.close()
        raise
    return remote
