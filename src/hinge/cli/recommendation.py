"""The recommendation with which `hinge evaluate` ends, and the file of settings that it writes."""

import json
import os
import shlex
import textwrap
from pathlib import Path

from hinge._files import write_whole
from hinge.cli import console
from hinge.cli.options import UsageError
from hinge.simulation.recommendation import FEWEST, Recommendation
from hinge.traces import Log, Trace

_RECORDED = ("output", "remote_output", "input", "labels", "confidence", "token_file", "ca", "cert", "key")


def print_recommendation(advice: Recommendation, trace: Trace | Log, write: Path | None) -> None:
    """Say what to run, and on what evidence."""
    known = write is not None and isinstance(trace, Trace) and "local" in _models(trace, write.parent)
    samples = "SAMPLES" if known else "--local FILE --remote FILE|URL SAMPLES"
    options = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in advice.settings.items())
    console.say("")
    console.say(str(advice), prose=True)
    if write is None and trace.local is None and advice.target is None:  # files of models are classifiers
        policy = f"build({advice.policy!r}, bins={advice.bins}, offload_cost={advice.offload_cost:g})"
        console.say(f"To run it, in Python: Device(local, remote, {policy}, task=…).")
    elif write is None:
        console.say(f"To run it: hinge device {options} {samples}; --write hinge.toml writes these settings.")
    else:
        console.say(f"{write} is written; try: hinge device --config {shlex.quote(str(write))} {samples}")


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
    """Write the settings for `hinge device --config`, with the models that `hinge record` asked."""
    reason = textwrap.fill(str(advice), 118, initial_indent="# ", subsequent_indent="# ")
    settings = {**_models(trace, path.parent), **advice.settings}
    lines = [reason, "# 'hinge device --config' reads it; paths start from its folder.", "[device]"]
    lines += (f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in settings.items())
    write_whole({path: "\n".join([*lines, ""])})


def _models(trace: Trace, folder: Path) -> dict[str, str]:
    """The models that were recorded, if they are on a server or their files still there, with the options for them."""
    places = {role: trace.about.get(role, "") for role in ("local", "remote")}
    found = {role: place for role, place in places.items() if os.path.isfile(place)}
    if "remote name" in trace.about:
        found |= {"remote": places["remote"], "model": trace.about["remote name"]}
    found |= {name: trace.about[f"--{name}"] for name in _RECORDED if f"--{name}" in trace.about}
    return {name: os.path.relpath(each, folder) if os.path.isfile(each) else each for name, each in found.items()}
