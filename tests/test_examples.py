"""The examples run, in a process of their own: what they register stays there. The tutorial's test runs the device.

Beside them, what the scripts of recorded pairs share.
"""

import re
import resource
import runpy
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
    "voice": "would have cost 60.0.",
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


def test_the_voice_loop_goes_on_after_a_clip_that_it_cannot_read(tmp_path: Path) -> None:
    made = [str(clip) for clip in runpy.run_path(str(EXAMPLES / "voice.py"))["synthesised"](tmp_path, count=20)]
    (tmp_path / "cut.wav").write_bytes(Path(made[0]).read_bytes()[:50])
    names = "\n".join([made[0], "missing.wav", str(tmp_path / "cut.wav"), *made[1:]])
    command = [sys.executable, str(EXAMPLES / "voice.py"), "-", "--state", str(tmp_path / "state")]
    done = subprocess.run(command, input=names, capture_output=True, text=True, timeout=120, check=False)
    faults, answers = done.stderr.splitlines(), done.stdout.splitlines()
    assert ["missing.wav: " in faults[0], "cut.wav: " in faults[1], len(faults)] == [True, True, 2]
    heard = [re.fullmatch(r"\d+-(\w+)\.wav: (\w+), says (local|remote); .*", line) for line in answers[:-2]]
    assert sum(bool(found) and found[1] == found[2] for found in heard) >= 18  # of 20: the noise may drown a tone
    assert answers[-2].startswith("20 clips, ")


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
