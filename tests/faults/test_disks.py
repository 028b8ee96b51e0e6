"""R7: a disk that is full or fails stops nothing, and is not trusted again. R10: a broken file leaves the old one."""

import errno
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hinge import Device, Store
from hinge.device import device as core
from hinge.device.storage.at_rest import look
from tests.device.disks import FailingDisk
from tests.device.worlds import LOCAL, Scripted, policy, true_label
from tests.faults.counts import FAILURES
from tests.faults.figures import note
from tests.faults.setting import NAMES, each_kind


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
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("what", ["write", "sync"])
def test_r7_a_device_answers_and_learns_on_while_its_disk_fails(
    kind: Any, what: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FailingDisk(code)  # which minds that no file is written or synced again once that failed
    monkeypatch.setattr(core, "Store", partial(Store, every=10**6, seconds=None, disk=disk))
    with kind(LOCAL, Scripted(), policy(offload_cost=0.1), state=tmp_path) as device:
        store = device._store
        infer(device, 0, FAILURES)
        assert store.sync()
        generation, learned = store.generation, device.policy.learned
        disk.failing = {what}
        answered = 0
        for part in range(5):
            answered += infer(device, FAILURES * (1 + part), FAILURES)
            assert not store.sync()  # the next try is a whole new generation, and fails too
        status = device.status
        assert str(status.not_durable).startswith("the disk failed: ")
        assert status.alarms["what is learned is not durable"] == 1
        assert device.policy.learned > learned
        assert store.generation == generation
        disk.failing = set()
        assert store.sync()
        assert device.status.not_durable is None
        assert store.generation > generation
        infer(device, 0, FAILURES)
        state = text(device.policy.state())
    assert text(look(tmp_path)[0].state()) == state
    note("R7", f"{what} fails, {errno.errorcode[code]}, {NAMES[kind]}", answered=answered)


@pytest.mark.parametrize("limit", [4_000, 0], ids=["after a while", "from the start"])
def test_r7_files_that_may_not_grow(limit: int, tmp_path: Path) -> None:
    """The same with a real file system, in a process that may not write more."""
    (tmp_path / "kept").mkdir()
    script = Path(__file__).with_name("filling.py")
    command = [sys.executable, str(script), str(tmp_path / "kept"), str(FAILURES * 5), str(limit)]
    seen = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)
    assert (seen["answered"], seen["answered_after"], seen["synced"]) == (True, True, True)
    assert "File too large" in seen["not_durable"] or "No space left" in seen["not_durable"]
    assert seen["alarms"]["what is learned is not durable"] >= 1
    assert seen["durable_after"] is None
    assert seen["generation"] > (seen["full_generation"] or 0)
    assert text(look(tmp_path / "kept")[0].state()) == text(seen["state"])
    note("R7", f"files end at {limit} bytes", answered=seen["while_limited"])


@pytest.mark.parametrize("damage", ["cut short", "one bit", "emptied", "no JSON"])
def test_r10_a_broken_state_file_leaves_the_one_before_it_serving(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the thread, a generation begins when a device does, and at no other time.
    monkeypatch.setattr(core, "Store", partial(Store, every=10**6, seconds=None))
    with Device(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        infer(device, 0, 200)
        older = text({**device.policy.state(), "pending": []})
    with Device(LOCAL, Scripted(), policy(), state=tmp_path) as device:  # begins a new generation
        assert text(device.policy.state()) == older
        infer(device, 200, 200)
    newest = max(tmp_path.glob("snapshot-*.json"))
    data = newest.read_bytes()
    broken = {"cut short": data[:-40], "one bit": bytes([*data[:50], data[50] ^ 1, *data[51:]]), "emptied": b""}
    newest.write_bytes(broken.get(damage, b"not a snapshot\n"))
    with Device(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        store = device._store
        assert isinstance(store, Store)
        assert newest.name in str(store.found)
        assert text(device.policy.state()) == older
        infer(device, 0, 50)
        assert device.status.not_durable is None
    assert newest.with_name(f"{newest.name}.damaged").exists()
    note("R10", damage, restarted_from_the_older_generation=True)
