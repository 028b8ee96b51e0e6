"""The examples run, in a process of their own: what they register stays there. The tutorial's test runs the device."""

import subprocess
import sys
from pathlib import Path

import pytest

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
