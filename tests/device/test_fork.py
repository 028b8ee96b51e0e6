"""A process that forks keeps its folder, and its child leaves the folder alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hinge.device.storage.at_rest import look
from hinge.device.storage.forking import COPIED


@pytest.mark.parametrize("how", ["plain", "held", "alive"])
def test_the_parent_goes_on_and_the_child_writes_nothing(how: str, tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("forked.py")), str(tmp_path), how]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert told["parent"] == {"learned": 41, "synced": True, "durable": True, "reason": None}
    child = told["child"]
    assert child["refused"].endswith(f"cannot roll back: {COPIED}")
    assert (child["synced"], child["durable"], child["reason"]) == (False, False, COPIED)
    assert child["learned"] >= 100, "it goes on in memory"
    policy, found = look(tmp_path)
    assert policy.learned == 41
    assert not found.notes
    assert not found.damaged
