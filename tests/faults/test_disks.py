"""R7: a disk that is full or fails stops nothing, and is not trusted again; a broken file is put aside, and said."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hinge import Device
from hinge.device.store import read
from tests.device.disks import PROBLEMS, FailingDisk, stores_of_devices
from tests.device.worlds import LOCAL, Scripted, policy, true_label
from tests.faults.counts import FAILURES
from tests.faults.setting import each_kind


def text(state: Any) -> str:
    return json.dumps(state, sort_keys=True)


def infer(device: Any, first: int, samples: int) -> int:
    """How many were answered, each as it should be."""
    answered = 0
    for sample in range(first, first + samples):
        answer = device.infer(sample)
        assert answer.fault is None
        assert answer.label == (true_label(sample) if answer.source == "remote" else LOCAL.answer(sample)[0])
        answered += 1
    return answered


@each_kind
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("what", ["write", "sync"])
def test_r7_a_device_answers_and_learns_on_while_its_disk_fails(
    kind: Any, what: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk(problem)  # which minds that no connection is used again once it failed
    stores = stores_of_devices(monkeypatch, connect=disk)
    with kind(LOCAL, Scripted(), policy(offload_cost=0.1), state=tmp_path) as device:
        (store,) = stores
        infer(device, 0, FAILURES)
        assert store.sync()
        database, learned = (tmp_path / "state.db").stat().st_ino, device.policy.learned
        disk.failing = {what}
        answered = 0
        for part in range(5):
            answered += infer(device, FAILURES * (1 + part), FAILURES)
            assert not store.sync()
            disk.failing = {what, "write"}  # the next try is a whole new database, and fails too
        status = device.status
        assert str(status.not_durable).startswith("the disk failed: ")
        assert status.alarms["what is learned is not durable"] == 1
        assert device.policy.learned > learned
        disk.failing = set()
        assert store.sync()
        assert device.status.not_durable is None
        assert (tmp_path / "state.db").stat().st_ino != database
        infer(device, 0, FAILURES)
        state = text(device.policy.state())
    assert text(read(tmp_path).policy.state()) == state


@pytest.mark.parametrize("limit", [40_000, 0], ids=["after a while", "from the start"])
def test_r7_files_that_may_not_grow(limit: int, tmp_path: Path) -> None:
    """The same with a real file system, in a process that may not write more."""
    (tmp_path / "kept").mkdir()
    script = Path(__file__).with_name("filling.py")
    command = [sys.executable, str(script), str(tmp_path / "kept"), str(FAILURES * 5), str(limit)]
    seen = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert (seen["answered"], seen["answered_after"]) == (True, True)
    assert seen["not_durable"].startswith("the disk failed: ")
    assert seen["alarms"]["what is learned is not durable"] >= 1
    assert seen["durable_after"] is None
    assert text(read(tmp_path / "kept").policy.state()) == text(seen["state"])


@pytest.mark.parametrize("damage", ["cut short", "one bit", "emptied", "no database"])
def test_a_broken_state_file_is_put_aside_with_an_alarm_and_the_device_starts_anew(damage: str, tmp_path: Path) -> None:
    with Device(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        infer(device, 0, 200)
    file = tmp_path / "state.db"
    data = file.read_bytes()
    place = data.index(b'"learned":')  # of the row: what it says is not what was written
    flipped = bytes([*data[:place], data[place] ^ 1, *data[place + 1 :]])
    broken = {"cut short": data[:6000], "one bit": flipped, "emptied": b""}.get(damage, b"not a database\n")
    file.write_bytes(broken)
    with Device(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        assert "state.db is damaged" in device.status.alarm_reasons["the state was damaged"]
        assert device.policy.learned == 0
        infer(device, 0, 50)
        assert device.status.not_durable is None
    assert file.with_name("state.db.damaged").read_bytes() == broken
