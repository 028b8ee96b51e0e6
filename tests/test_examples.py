"""The examples run, in a process of their own: what they register stays there. The tutorial's test runs the device.

Beside them, what the scripts of recorded pairs share.
"""

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from training import recording

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "own_policy": "regret",
    "own_models": "of the other half right",
    "workers": "2 workers gave ",
}
ELSEWHERE = {"device", "chat"}  # want models and servers: tests/docs/test_tutorial.py, tests/interop/test_gateway.py


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.server] if name == "workers" else []) for name in SAYS]
)
def test_an_example_runs(name: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert SAYS[name] in done.stdout


def test_every_example_is_run_somewhere() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAYS.keys() | ELSEWHERE


def test_a_recording_loses_nothing_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "CACHE", tmp_path)
    kept = tmp_path / "recordings" / "pair.jsonl"
    kept.parent.mkdir()
    kept.write_text('"a"\n"b"\n"cut')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            recording.record("pair", ["a", "b", "c"], lambda: str)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert kept.read_text() == '"a"\n"b"\n'
    recording.record("pair", ["a", "b", "c"], lambda: str)
    assert kept.read_text() == '"a"\n"b"\n"c"\n'
