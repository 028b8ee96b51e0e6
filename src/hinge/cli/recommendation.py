"""What `hinge evaluate` recommends: how to run it, and the file of settings that it writes."""

import json
import os
import shlex
import textwrap
from pathlib import Path

from hinge._files import write_whole
from hinge.cli import console
from hinge.cli.settings import UsageError
from hinge.simulation.trade import FEWEST, Recommendation
from hinge.traces import Log, Trace

_RECORDED = ("output", "remote_output", "input", "labels", "confidence", "token_file", "ca", "cert", "key")


def print_recommendation(advice: Recommendation, trace: Trace | Log, write: Path | None) -> None:
    """Say what to run, and on what evidence."""
    settings = advice.settings
    known = write is not None and isinstance(trace, Trace) and "local" in _models(trace, write.parent)
    samples = "SAMPLES" if known else "--local LOCAL --remote REMOTE SAMPLES"
    typed = {name: ",".join(map(str, each)) if isinstance(each, list) else each for name, each in settings.items()}
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in typed.items())
    console.say("")
    console.say(str(advice), prose=True)
    if write is not None:
        console.say(f"{write} is written, with the settings of 'hinge device --config' and 'hinge gateway --config'")
    if advice.alone is not None:
        console.say(f"To run it, no gate is needed: let the {advice.alone} model answer everything")
    elif trace.local is None:  # files of models are classifiers
        gate = f"Gate(offload_cost={settings.get('offload_cost')})"
        if advice.threshold is not None:
            gate = f"Gate(Threshold({advice.threshold}))"
        elif advice.target is not None:
            gate = f"Gate(Target({advice.target:g}))"
        console.say(f"To run it, in Python: Device(local, remote, {gate}, task=…)")
    elif write is None:
        console.say(f"To run it (--write hinge.toml writes these settings): hinge device {samples} {options}")
    else:
        console.say(f"To run it: hinge device --config {shlex.quote(str(write))} {samples}")


def check_settings(path: Path | None, trace: Trace | Log) -> None:
    """Refuse what `write_settings` could not write, before the work is done."""
    if path is None:
        return
    if path.exists():
        raise UsageError(f"--write: {path} is there already; remove it, or name another file")
    path.parent.stat()  # which raises the error of a folder that is not there
    if isinstance(trace, Log):
        raise UsageError("--write: a log of offloads alone cannot be replayed, and gives no recommendation")
    if len(trace) < FEWEST:
        raise UsageError(f"--write: a recommendation needs {FEWEST} samples, and {trace.name!r} has {len(trace)}")


def write_settings(path: Path, advice: Recommendation, trace: Trace) -> None:
    """Write the settings for `--config` of `hinge device`, with the models that `hinge record` asked, and a gateway."""
    lines = [str(advice), "'hinge device --config' and 'hinge gateway --config' read it; paths start from its folder."]
    lines = [textwrap.fill(line, 118, initial_indent="# ", subsequent_indent="# ") for line in lines]
    for section, models in (("device", _models(trace, path.parent)), ("gateway", {})):
        lines.append(f"[{section}]")
        for name, value in (models | advice.settings).items():
            line = f"{name} = {json.dumps(value, ensure_ascii=False)}"
            lines.append(textwrap.fill(line, 118, subsequent_indent="  ") if isinstance(value, list) else line)
    write_whole({path: "\n".join([*lines, ""])})


def _models(trace: Trace, folder: Path) -> dict[str, str]:
    """The models that were recorded, if they are on a server or their files still there, with the options for them."""
    places = {role: trace.about.get(role, "") for role in ("local", "remote")}
    found = {role: place for role, place in places.items() if os.path.isfile(place)}
    if "remote name" in trace.about:
        found |= {"remote": places["remote"], "model": trace.about["remote name"]}
    found |= {name: trace.about[f"--{name}"] for name in _RECORDED if f"--{name}" in trace.about}
    return {name: os.path.relpath(each, folder) if os.path.isfile(each) else each for name, each in found.items()}
