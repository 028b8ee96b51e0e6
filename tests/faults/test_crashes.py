"""R5: a device that is killed at any instant has lost nothing that it had acknowledged. R6 is in `tests/device`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.counts import KILLS


def is_corrupt(outcome: dict[str, Any]) -> bool:
    """Whether a folder holds what the device never knew."""
    ahead = outcome["held"] - outcome["told"]
    return bool(ahead > 1 or (ahead == 0 and not outcome["same"]))  # one may have been under way


def test_r5_a_killed_device_has_lost_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("dying.py")), str(tmp_path), str(KILLS)]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout.splitlines()
    assert len(lines) == KILLS
    outcomes = [json.loads(line) for line in lines]
    lost = sum(max(0, outcome["told"] - outcome["held"]) for outcome in outcomes)
    corrupt = sum(map(is_corrupt, outcomes))
    assert (lost, corrupt) == (0, 0)
