"""What a policy has learned survives crashes, power losses, full disks and damaged files, exactly."""

import errno
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from hinge import InvalidState, Isotonic, Policy
from hinge.device.storage import keeping
from hinge.device.storage.journal import HEADER_SIZE, RECORD_SIZE
from hinge.device.storage.store import Store
from hinge.policies.policy import State
from tests.device.disks import FailingDisk, Machine, QuickDisk, RecordingDisk, Step
from tests.device.streams import BINS, POLICIES, play

EVERY = 4


def reopened(folder: Path) -> Store:
    return Store(folder, seconds=None, disk=QuickDisk())


def crash(store: Store) -> None:
    """As if the process had ended: nothing more is written, files are closed, and the lock is let go."""
    for journal in (*store._journals, *store._retired):
        journal.close()
    store._journals, store._retired = (), []
    store._folder_lock.release()


def text(state: State) -> str:
    return json.dumps(state, sort_keys=True)  # floats are written in full, so that equal texts are equal bits


def peer(policy: Policy, seed: int) -> State:
    other = policy.fresh()
    list(play(other, 40, seed))
    return other.state()


# -- exact replay -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
def test_snapshot_and_journal_give_the_policy_bit_by_bit(make: Callable[[], Policy], tmp_path: Path) -> None:
    store = Store(tmp_path, make(), seconds=None, disk=QuickDisk())
    state: State = {}
    for number, _ in enumerate(play(store, 500)):
        state = store.policy.state()
        if number == 200:
            store._renew()
    crash(store)
    again = reopened(tmp_path)
    assert text(again.policy.state()) == text(state)
    assert again.found.records > 100
    assert not again.found.notes
    live, copy = type(again.policy).restore(state), again.policy
    for seed in (5, 6):  # … and goes on as the live one would
        for _ in zip(play(live, 200, seed), play(copy, 200, seed), strict=True):
            assert live.time == copy.time
    assert text(live.state()) == text(copy.state())


def test_a_batch_is_replayed_and_a_clean_end_loses_not_even_the_clock(tmp_path: Path) -> None:
    with Store(tmp_path, Isotonic(BINS, offload_cost=0.4), seconds=None) as store:
        for decision in store.decide_many([1, 2, 3] * 30):
            store.learn(decision, agreed=True)
        assert not store.decide(3).offload
        state = store.policy.state()
    assert not store.durable
    with reopened(tmp_path) as again:
        assert again.policy.state() == state


def test_a_merge_takes_a_snapshot_and_what_is_refused_or_known_takes_none(tmp_path: Path) -> None:
    store = Store(tmp_path, Isotonic(BINS, offload_cost=0.4), seconds=None, disk=QuickDisk())
    list(play(store, 50))
    other = peer(store.policy, 1)
    store.merge(other)
    generation, state = store.generation, store.policy.state()
    store.merge(other)
    with pytest.raises(InvalidState):
        store.merge({**other, "parameters": {**other["parameters"], "bins": BINS + 1}})
    assert (store.generation, store.policy.state()) == (generation, state)
    store.warm_start(peer(store.policy, 2), weight=0.5)
    state = store.policy.state()
    crash(store)
    with reopened(tmp_path) as again:
        assert again.policy.state() == state


def test_a_long_journal_gives_way_to_a_snapshot_and_two_generations_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "LONGEST", 20)
    store = Store(tmp_path, Isotonic(BINS), every=EVERY, seconds=None, disk=QuickDisk())
    for _ in play(store, 300):
        assert store.sync()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 5
    assert store.generation is not None
    assert store.generation > 5
    assert (tmp_path / f"journal-{store.generation:08d}.log").stat().st_size <= HEADER_SIZE + 21 * RECORD_SIZE


# -- power loss, kill -9 ----------------------------------------------------------------------------------------------


def recorded_run(folder: Path, make: Callable[[], Policy]) -> tuple[list[Step], list[str]]:
    """All that a run did to the disk, with marks at what was written and what was said to be safe; and every state."""
    disk = RecordingDisk()
    store = Store(folder, make(), every=EVERY, seconds=None, disk=disk)
    states = [text(store.policy.state())]
    disk.steps.append(Step("safe", mark=0))
    run = play(store, 30)

    def note(what: str) -> None:
        if text(store.policy.state()) != states[-1]:
            states.append(text(store.policy.state()))
        disk.steps.append(Step(what, mark=len(states) - 1))

    def meanwhile() -> None:
        note("changed")
        for _ in islice(run, 2):
            note("written")

    disk.meanwhile = meanwhile
    for number, _ in enumerate(run, 1):
        note("written")
        if number in (11, 19):
            store.merge(peer(store.policy, number))
        elif number == 27:
            store._renew()
        elif number % EVERY == 0:
            assert store.sync()
        if store.unsynced == 0:
            note("safe")
    crash(store)
    return disk.steps, states


@pytest.mark.parametrize("name", ["isotonic learned", "budget"])
def test_after_a_power_loss_at_any_write_no_more_is_lost_than_stated(name: str, tmp_path: Path) -> None:
    steps, states = recorded_run(tmp_path / "run", POLICIES[name])
    machine, safe, written, crashes = Machine(), -1, 0, 0
    for step in steps:
        machine.do(step)
        safe = step.mark if step.what == "safe" else safe
        written = max(written, step.mark)
        for files in machine.leftovers(step):
            crashes += 1
            folder = tmp_path / str(crashes)
            folder.mkdir()
            for file, data in files.items():
                (folder / file).write_bytes(data)
            again = Store(folder, POLICIES[name]() if safe < 0 else None, seconds=None, disk=QuickDisk())
            crash(again)
            if safe >= 0:
                at = states.index(text(again.policy.state()))
                assert safe <= at <= written + 1, (step, again.found)
                assert written - at <= 2 * EVERY
                with reopened(folder) as third:
                    assert third.policy.state() == again.policy.state()
    assert crashes > 500


def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, str(Path(__file__).with_name("killed.py")), str(tmp_path), "32"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert len(lines) == 32
    for number, line in enumerate(lines):
        name, acknowledged = line.split("\t")
        store = reopened(tmp_path / str(number))
        reference = POLICIES[name]()
        reference.id = store.policy.id
        run = play(reference, 3_000)
        assert len(list(islice(run, int(acknowledged)))) == int(acknowledged)
        states = [text(reference.state())]
        states += [text(reference.state()) for _ in islice(run, 1)]  # the one that was under way
        assert text(store.policy.state()) in states, (name, store.found)
        assert not store.found.damaged or "no snapshot" in str(store.found)
        crash(store)


# -- a disk that fails ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("what", ["write", "sync", "open", "rename", "sync_folder"])
def test_a_failing_disk_stops_nothing_and_is_not_trusted_again(what: str, code: int, tmp_path: Path) -> None:
    disk = FailingDisk(code)
    store = Store(tmp_path, Isotonic(BINS), every=EVERY, seconds=None, disk=disk)
    run, twin = play(store, 400), Isotonic(BINS)
    twin.id = store.policy.id
    list(islice(run, 30))
    assert store.sync()
    disk.failing = {what}
    list(islice(run, 30))
    if what in ("write", "sync"):
        assert not store.sync()
    store.merge(peer(twin, 1))  # needs a new generation, whatever fails
    assert not store.durable
    assert "disk failed" in str(store.reason)
    for _ in range(3):
        list(islice(run, 10))
        assert not store.sync()
    disk.failing = set()
    assert store.sync()
    assert store.durable
    list(islice(run, 20))
    state = store.policy.state()
    crash(store)
    again = reopened(tmp_path)
    assert again.policy.state() == state
    assert not again.found.notes
    assert len(list(tmp_path.iterdir())) == 7  # with what the merge and the start before it began from


def test_a_full_disk_at_the_start_leaves_the_policy_at_work_in_memory(tmp_path: Path) -> None:
    disk = FailingDisk(errno.ENOSPC)
    disk.failing = {"write"}
    store = Store(tmp_path, Isotonic(BINS), seconds=None, disk=disk)
    list(play(store, 50))
    assert (store.policy.learned > 10, store.durable) == (True, False)
    disk.failing = set()
    assert store.sync()


def test_a_disk_that_falls_behind_is_not_called_durable(tmp_path: Path) -> None:
    store = Store(tmp_path, Isotonic(BINS), every=EVERY, seconds=None, disk=QuickDisk())
    list(islice(play(store, 50), 2 * EVERY))
    assert store.durable
    store.decide(0)
    assert (store.durable, store.reason) == (False, "9 records wait for the disk")
    assert store.sync()


def test_the_thread_syncs_by_itself(tmp_path: Path) -> None:
    with Store(tmp_path, Isotonic(BINS), every=EVERY, seconds=0.001) as store:
        list(play(store, 200))
        for _ in range(1000):
            if store.unsynced == 0:
                break
            time.sleep(0.01)
        assert store.unsynced == 0
        state = store.policy.state()
    with reopened(tmp_path) as again:
        assert again.policy.state() == state
