"""What a gate has learned survives crashes, power losses and full disks, exactly; and it never stops the gate."""

import os
import random
import re
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hinge import HILCB, Gate, InvalidState, margin
from hinge.device import store as stores
from hinge.device.locked import LockedGate
from hinge.device.store import GONE, Store, read
from hinge.policies import AlwaysRemote
from tests.device.disks import PROBLEMS, FailingDisk, image, lay, torn
from tests.device.streams import BINS, GATES, peer, play, text


def usual() -> Gate:
    return Gate(offload_cost=0.4, bins=BINS)


def learn(folder: Path, offloads: int = 3, gate: Gate | None = None) -> Store:
    """A device runs for a while with a remote that disagrees, and ends."""
    with Store(folder, gate or usual(), seconds=None) as store:
        lied_to(store, offloads)
    return store


def lied_to(store: LockedGate, offloads: int) -> None:
    for _ in range(offloads):
        store.learn(store.decide(0.0), agreed=False, cost=0.4)


def test_a_folder_may_start_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    learn(Path("~/state"), 3)
    assert read(tmp_path / "state").policy.learned == read("~/state").policy.learned == 3
    assert not Path("~").exists()


def taught(folder: Path, local: str | None, offloads: int = 1) -> bool:
    """A device with that local model learns so much; returns whether it found another's state."""
    with Store(folder, usual(), seconds=None, local=local) as store:
        lied_to(store, offloads)
        return store.another_local


def test_the_local_model_that_taught_a_state_is_kept_with_it(tmp_path: Path) -> None:
    assert not taught(tmp_path, None)
    assert not taught(tmp_path, "one")
    assert not taught(tmp_path, "one")
    assert taught(tmp_path, "two", offloads=0)
    assert taught(tmp_path, "two")  # nothing was learned before
    assert not taught(tmp_path, "two")
    assert not taught(tmp_path, None)  # not known
    assert taught(tmp_path, "one")


def test_a_model_that_is_replaced_while_it_runs_is_named_by_what_is_learned_next(tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=None, local="one") as store:
        lied_to(store, 1)
        store.learns_from(None)
        assert read(tmp_path).local == "one"
        store.learns_from("two")
        lied_to(store, 1)
        assert read(tmp_path).local == "two"


# -- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("make", GATES.values(), ids=GATES)
def test_a_killed_process_leaves_the_gate_bit_by_bit_as_of_its_last_feedback(
    make: Callable[[], Gate], tmp_path: Path
) -> None:
    store, state = Store(tmp_path / "run", make(), seconds=None), ""
    for learns in play(store, 300):
        state = text(store.gate.state()) if learns else state
    left = read(lay(tmp_path / "left", image(store.folder))).gate
    if learns:  # else the last was an accepted sample or an offload, which is in no row yet
        assert text(left) == state
    store.close()
    with Store(tmp_path / "run", seconds=None) as again:
        assert text(again.gate.state()) == text(store.gate.state()), "a clean end loses not even the clock"
        live, copy = store.gate, again.gate
        for seed in (5, 6):  # … and it goes on as the live one would
            for _ in zip(play(live, 200, seed), play(copy, 200, seed), strict=True):
                assert live.policy.time == copy.policy.time
        assert text(live.state()) == text(copy.state())


def test_a_batch_is_saved_with_what_was_learned_from_it(tmp_path: Path) -> None:
    store = Store(tmp_path, usual(), seconds=None)
    for decision in store.decide_many([0.2, 0.4, 0.6] * 30):
        store.learn(decision, agreed=True, cost=0.4)
    assert read(tmp_path).policy.state() == store.policy.state()
    assert not store.decide(0.6).offload
    store.close()
    assert read(tmp_path).policy.state() == store.policy.state()
    assert store.problem == stores.CLOSED


def test_an_accepted_sample_does_not_touch_the_disk(tmp_path: Path) -> None:
    disk = FailingDisk("I/O")
    with Store(tmp_path, usual(), seconds=None, connect=disk) as store:
        for decision in store.decide_many([0.2, 0.4, 0.6] * 30):
            store.learn(decision, agreed=True, cost=0.4)
        disk.failing = {"write", "sync", "open"}
        assert not any(store.decide(0.6).offload for _ in range(100))
        assert store.problem is None
        disk.failing = set()


def test_the_thread_saves_the_clock_and_syncs_by_itself(tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=0.001) as store:
        for _ in play(store, 200):
            pass
        state = text(store.policy.state())
        for _ in range(1000):
            if text(read(tmp_path).policy.state()) == state:
                break
            time.sleep(0.01)
        assert text(read(tmp_path).policy.state()) == state


def test_what_is_written_in_the_background_is_written_soon_and_at_the_end(tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=3600, background=True) as store:
        for _ in play(store, 50):
            pass
        for _ in range(1000):
            if read(tmp_path).policy.learned == store.policy.learned:
                break
            time.sleep(0.01)
        else:
            raise AssertionError
    assert read(tmp_path).policy.state() == store.policy.state()


def test_in_the_background_learning_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """What an event loop needs."""
    hang, hangs = threading.Event(), threading.Event()

    class Hanging(FailingDisk):
        def __call__(self, path: Any, **options: Any) -> Any:
            connection: Any = super().__call__(path, **options)
            execute = connection.execute

            def waits(sql: str, *parameters: Any) -> Any:
                if sql.startswith("UPDATE") and hang.is_set():
                    hangs.set()
                    while hang.is_set():
                        time.sleep(0.001)
                return execute(sql, *parameters)

            connection.execute = waits
            return connection

    with Store(tmp_path, usual(), background=True, connect=Hanging("I/O")) as store:
        hang.set()
        lied_to(store, 1)
        assert hangs.wait(20)
        lied_to(store, 50)
        store.decide(0.0)
        assert store.policy.learned == 51
        hang.clear()
    assert read(tmp_path).policy.learned == 51


# -- a disk that fails ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("what", ["write", "sync", "open"])
def test_a_failing_disk_stops_nothing_and_is_not_trusted_again(what: str, problem: str, tmp_path: Path) -> None:
    disk = FailingDisk(problem)  # minds that no connection is used again once it failed
    store = Store(tmp_path, usual(), seconds=None, connect=disk)
    run = play(store, 400)
    list(islice(run, 60))
    assert store.sync()
    first = (tmp_path / "state.db").stat().st_ino
    disk.failing = {"sync", "open"} if what == "open" else {what}
    list(islice(run, 60))
    assert not store.sync()
    assert str(store.problem).startswith("the disk failed: ")
    learned = store.policy.learned
    disk.failing = {what, "open"}  # what was half written cannot be written anew either
    store.merge(peer(store.gate, 1))
    for _ in range(3):
        list(islice(run, 20))
        assert not store.sync()
    assert store.policy.learned > learned
    disk.failing = set()
    assert store.sync()
    assert store.problem is None
    assert (tmp_path / "state.db").stat().st_ino != first, "a new database"
    list(islice(run, 40))
    store.close()
    assert text(read(tmp_path).policy.state()) == text(store.policy.state())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock.db", "state.db"]


def test_a_full_disk_at_the_start_leaves_the_policy_at_work_in_memory(tmp_path: Path) -> None:
    disk = FailingDisk("full")
    disk.failing = {"write"}
    store = Store(tmp_path, usual(), seconds=None, connect=disk)
    list(play(store, 50))
    assert (store.policy.learned > 10, store.problem is None) == (True, False)
    disk.failing = set()
    assert store.sync()
    assert read(tmp_path).policy.learned == store.policy.learned
    store.close()


def test_a_disk_that_does_not_sync_is_not_called_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path, usual(), seconds=1000) as store:
        assert store.sync()
        lied_to(store, 1)
        assert store.problem is None
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 20_000)
        assert store.problem == "the disk is slow: nothing was synced for 20000 s"
        monkeypatch.undo()
        assert store.sync()
        assert store.problem is None


@pytest.mark.parametrize("what", ["folder", "database", "lock", "replaced"])
def test_files_that_vanish_are_noticed_at_the_next_sync_and_not_written_to(what: str, tmp_path: Path) -> None:
    folder = tmp_path / "state"
    store = Store(folder, usual(), seconds=None)
    lied_to(store, 3)
    assert store.sync()
    if what == "folder":
        folder.rename(tmp_path / "moved")
    elif what == "replaced":
        learn(tmp_path / "other")
        replaced = (tmp_path / "other" / "state.db").read_bytes()
        os.replace(tmp_path / "other" / "state.db", folder / "state.db")
    else:
        (folder / {"database": "state.db", "lock": "lock.db"}[what]).unlink()
    lied_to(store, 3)
    for _ in range(2):
        assert not store.sync()
        assert str(store.problem).endswith(GONE)
    lied_to(store, 3)
    assert store.policy.learned == 9
    store.close()
    if what == "replaced":
        assert (folder / "state.db").read_bytes() == replaced
    else:
        assert folder.exists() == (what != "folder"), "it is not made again"


# -- one process to a folder ------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_one_process_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "BUSY_S", 0.1)
    program = f"from hinge.device.store import Store; Store({str(tmp_path)!r})"
    says = f"the state is in use by process {os.getpid()}"
    with Store(tmp_path, usual(), seconds=None):
        with pytest.raises(InvalidState, match=says):
            Store(tmp_path)
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (other.returncode, says in other.stderr) == (1, True)
    Store(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidState, match="cannot be opened"):
        Store(tmp_path / "file" / "state", usual())


@pytest.mark.medium
def test_a_store_for_which_there_is_no_thread_left_lets_go_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError) as refused:
            Store(tmp_path, Gate(offload_cost=0.5))
    with Store(tmp_path, Gate(offload_cost=0.5)):  # while the error is there, and all that it holds
        assert refused.value


@pytest.mark.medium
def test_it_runs_without_what_only_some_systems_have() -> None:
    """Windows has no fcntl, macOS no fdatasync, neither has everything in select and os."""
    program = """
import os, select, sys, tempfile
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules[name] = None
for module, names in ((os, ("fdatasync", "register_at_fork", "fork", "O_DIRECTORY")), (select, ("poll", "epoll"))):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
from hinge import Gate
from hinge.device.store import Store
folder = tempfile.mkdtemp()
with Store(folder, Gate(offload_cost=0.5)) as store:
    store.learn(store.decide(0.0), agreed=False, cost=0.4)
    assert store.sync()
    store.merge(Gate(offload_cost=0.5).state())
with Store(folder) as store:
    assert store.policy.learned == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_a_reader_sees_whole_states_while_a_device_writes_and_syncs(tmp_path: Path) -> None:
    ended = threading.Event()
    with Store(tmp_path, usual(), seconds=None) as store:

        def work() -> None:
            while not ended.is_set():
                store.learn(store.decide(0.0), agreed=False, cost=0.4)
                store.sync()
                ended.wait(0.002)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            seen = [read(tmp_path) for _ in range(100)]
        finally:
            ended.set()
            worker.join(10)
        assert store.problem is None
    learned = [saved.policy.learned for saved in seen]
    assert learned == sorted(learned)
    assert learned[-1] > learned[0]


def test_reading_writes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=None) as store:
        store.learn(store.decide(0.0), agreed=False, cost=0.4)
        before = image(tmp_path)
        assert read(tmp_path).policy.learned == 1
        assert image(tmp_path) == before
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert read(tmp_path).policy.learned == 1
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_without_a_state_is_refused_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(InvalidState, match="nowhere: cannot be read: No such file"):
        read(tmp_path / "nowhere")
    with pytest.raises(InvalidState, match="holds no state"):
        read(tmp_path)
    assert not list(tmp_path.iterdir())


# -- power loss -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["measured", "budget"])
def test_after_a_power_loss_at_any_write_no_more_is_lost_than_was_not_synced(name: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "run", GATES[name](), seconds=None)
    assert store.sync()
    states, safe, losses = [text(store.gate.state())], 0, 0
    before = image(store.folder)
    for number, _ in enumerate(play(store, 40), 1):
        states.append(text(store.gate.state()))
        if number in (31, 57):
            store.merge(peer(store.gate, number))
            states.append(text(store.gate.state()))
        synced = number % 9 == 0 and store.sync()
        after = image(store.folder)
        for files in torn(before, after, step=509):
            losses += 1
            saved = read(lay(tmp_path / "laid", files))
            assert states.index(text(saved.gate)) >= safe, (number, losses)
        safe, before = (len(states) - 1, after) if synced else (safe, after)
    store.close()
    assert losses > 500


# -- damage -----------------------------------------------------------------------------------------------------------


def damages(data: bytes) -> Iterator[bytes]:
    chance = random.Random(5)
    for position in chance.sample(range(len(data)), min(len(data), 1_500)):
        yield data[:position] + bytes([data[position] ^ (1 << position % 8)]) + data[position + 1 :]
    for length in range(0, len(data), 53):
        yield data[:length]
        yield data[:length] + bytes(len(data) - length)
    yield data + b"more"
    yield data[:-100] + data[:100]


@pytest.mark.slow
def test_damage_anywhere_in_the_database_is_harmless_or_said_and_the_file_is_kept(tmp_path: Path) -> None:
    state, lost = text(learn(tmp_path / "run").policy.state()), 0
    for number, damaged in enumerate(damages((tmp_path / "run" / "state.db").read_bytes())):
        folder = lay(tmp_path / "laid", {"state.db": damaged})
        problem = ""
        try:
            assert text(read(folder).policy.state()) == state
        except InvalidState as error:
            problem = str(error)
        assert not problem or re.search(r"state.db is damaged: .*; a device that is given the folder puts", problem)
        lost += bool(problem)
        if number % 20 == 0:
            with Store(folder, usual(), seconds=None) as store:
                assert store.policy.learned == (0 if problem else 3)
                assert store.problem is None
                assert store.damage or not problem
            assert not store.damage or (folder / "state.db.damaged").read_bytes() == damaged
            assert read(folder).policy.learned == store.policy.learned
    assert lost > 100


@pytest.mark.slow
def test_damage_anywhere_in_the_log_costs_what_follows_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "run", usual(), seconds=None)
    assert store.sync()
    states = [text(store.policy.state())]
    for _ in play(store, 12):
        states.append(text(store.policy.state()))
    files, lost = image(store.folder), 0
    for damaged in damages(files["state.db-wal"]):
        saved = read(lay(tmp_path / "laid", {**files, "state.db-wal": damaged}))
        lost += states.index(text(saved.policy.state())) < len(states) - 1
    store.close()
    assert lost > 100


def test_a_damaged_database_is_put_aside_and_without_a_gate_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").write_bytes(b"not a database" * 100)
    with pytest.raises(InvalidState, match=r"state.db is damaged: file is not a database, and no gate was given"):
        Store(tmp_path)
    with Store(tmp_path, usual(), seconds=None) as store:
        assert str(store.damage).endswith("is kept as state.db.damaged, and the gate starts anew")
        assert (store.policy.learned, store.problem) == (0, None)
    assert (tmp_path / "state.db.damaged").read_bytes() == b"not a database" * 100


def test_a_crash_while_a_new_database_takes_the_place_of_the_old_one_loses_nothing(tmp_path: Path) -> None:
    """The new one is complete before the old one and its log go, in whatever order."""
    old, new = learn(tmp_path / "old", 2), learn(tmp_path / "new", 5)
    database, fresh = ((store.folder / "state.db").read_bytes() for store in (old, new))
    for left in ({}, {"state.db": database}, {"state.db": database[:5000]}, {"state.db-wal": b"of another" * 99}):
        folder = lay(tmp_path / "laid", {**left, "state.db.new": fresh})
        assert read(folder).policy.state() == new.policy.state()
        with Store(folder, usual(), seconds=None) as store:
            assert (store.policy.state(), store.damage) == (new.policy.state(), None)
        assert read(folder).policy.state() == new.policy.state()
        assert {path.name for path in folder.iterdir()} == {"lock.db", "state.db"}


@pytest.mark.parametrize(
    ("old", "new", "version", "says"),
    [
        (b"", b"", 2, "is of format 2; this Hinge reads 1"),
        (b'"hinge_gate":1', b'"hinge_gate":2', 1, "state must be of version 1, got 2"),
        (b'"hinge_state":1', b'"hinge_state":9', 1, "state must be of version 1, got 9"),
        (b'"probation"', b'"unheard-of"', 1, "no policy is called 'unheard-of'"),
        (b'"time":0', b'"time":-1', 1, "the state cannot be used, and was left alone"),
    ],
)
def test_what_another_version_wrote_is_refused_and_left_alone(
    old: bytes, new: bytes, version: int, says: str, tmp_path: Path
) -> None:
    with Store(tmp_path, Gate(offload_cost=0.5), seconds=None):
        pass
    connection = sqlite3.connect(tmp_path / "state.db")
    body = connection.execute("SELECT content FROM state").fetchone()[0].replace(old, new)
    connection.execute("UPDATE state SET format=?, content=?, crc=?", (version, body, zlib.crc32(body)))
    connection.commit()
    connection.close()
    before = (tmp_path / "state.db").read_bytes()
    for opened in (Store, read, lambda folder: Store(folder, Gate(offload_cost=0.5))):
        with pytest.raises(InvalidState, match=says):
            opened(tmp_path)
    assert (tmp_path / "state.db").read_bytes() == before


# -- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: Gate(offload_cost=0.4, bins=BINS + 1), "made with bins"),
        (lambda: Gate(offload_cost=0.4), "made with bins"),
        (lambda: Gate(offload_cost=0.4, bins=[0.1, 0.2, 0.3, 0.4, 0.5]), "with bins"),
        (lambda: Gate(offload_cost=0.5, bins=BINS), "made with probation's offload_cost 0.4, and this gate"),
        (lambda: Gate(HILCB(BINS, offload_cost=0.4)), "made with policy probation, and this gate has hi-lcb"),
        (lambda: Gate(offload_cost=0.4, bins=BINS, confidence=margin), "made with confidence"),
        (lambda: Gate(bins=BINS), "made with measured price"),
        (lambda: Gate(offload_cost=0.4, bins=BINS, budget=0.2), "made with budget"),
    ],
)
def test_a_state_made_with_other_bins_measure_or_policy_is_refused(
    other: Callable[[], Gate], says: str, tmp_path: Path
) -> None:
    before = learn(tmp_path).policy.state()
    with pytest.raises(InvalidState, match=says):
        Store(tmp_path, other())
    with Store(tmp_path, usual()) as store:
        assert store.policy.state() == before
        with pytest.raises(InvalidState, match="made with"):
            store.merge(other().state())
        assert store.policy.state() == before


def test_the_gate_continues_from_the_folder(tmp_path: Path) -> None:
    learn(tmp_path)
    with Store(tmp_path, usual()) as store:
        assert store.policy.learned == 3
        lied_to(store, 2)
        store.change(offload_cost=0.3)
        assert (store.policy.learned, store.gate.offload_price) == (5, 0.3)
        assert read(tmp_path).gate == store.gate.state()


def test_a_merge_is_written_and_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    with Store(tmp_path, usual(), seconds=None) as store:
        list(play(store, 50))
        other = peer(store.gate, 1)
        store.merge(other)
        state = store.gate.state()
        store.merge(other)
        with pytest.raises(InvalidState):
            store.merge(peer(store.gate, 2), Gate(offload_cost=0.4, bins=BINS + 1).state())
        assert read(tmp_path).gate == store.gate.state() == state


@pytest.mark.medium
@pytest.mark.parametrize("measured", [False, True])
def test_crashes_do_not_refund_a_budget(measured: bool, tmp_path: Path) -> None:
    def make() -> Gate:
        return Gate(offload_cost=None if measured else 0.1, bins=BINS, budget=0.2)

    folder, offloads = tmp_path / "0", list[bool]()
    store = Store(folder, make(), seconds=None)
    for number in range(3_000):
        decision = store.decide(0.0)
        offloads.append(decision.offload)
        if decision.offload and number % 3:
            store.learn(decision, agreed=False, cost=0.1)
        if number % 70 == 0:
            store.merge(peer(store.gate, number))
        if number % 70 == 35 or (decision.offload and number % 9 == 0):  # killed, and started again
            folder = lay(tmp_path / str(number), image(store.folder))
            store = Store(folder, make(), seconds=None)
    store.close()
    assert sum(offloads) > 100
    assert max(sum(offloads[first : first + 1000]) for first in range(len(offloads) - 1000)) <= 200


def test_a_saved_state_is_that_of_the_gate(tmp_path: Path) -> None:
    store = learn(tmp_path, gate=Gate(offload_cost=0.5, confidence=margin))
    gate = Gate.restore(read(tmp_path).gate)
    assert gate.confidence is margin
    assert gate.policy.state() == store.policy.state()


def test_threads_learn_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    with Store(tmp_path, Gate(AlwaysRemote(BINS)), seconds=0.001) as store:
        workers = [threading.Thread(target=lied_to, args=(store, 200)) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert read(tmp_path).policy.learned == 1600
        assert store.problem is None


def test_a_gate_that_has_learned_elsewhere_does_not_lose_it_to_a_folder(tmp_path: Path) -> None:
    with Store(tmp_path, Gate(offload_cost=0.5)) as store:
        store.learn(store.decide(0.0), agreed=True, cost=0.4)
        same = store.gate
    with Store(tmp_path, same) as store:  # its own folder is continued
        assert store.policy.learned == 1
    warm = Gate(offload_cost=0.5)
    for _ in range(3):
        warm.learn(warm.decide(confidence=0.0), agreed=False)
    with pytest.raises(InvalidState, match=r"learned from 3 offloads, and the folder holds another's state: give"):
        Store(tmp_path, warm)
    assert warm.policy.learned == 3


def test_in_memory_what_is_refused_is_not_merged_in_part() -> None:
    other = LockedGate(Gate(HILCB(bins=4, offload_cost=0.5)))
    other.learn(other.decide(0.9), agreed=True, cost=0.5)
    store, good = LockedGate(Gate(HILCB(bins=4, offload_cost=0.5))), other.gate.state()
    for wrong in (Gate(HILCB(bins=5, offload_cost=0.5)), Gate(HILCB(bins=4, offload_cost=0.5), confidence=margin)):
        with pytest.raises(InvalidState):
            store.merge(good, wrong.state())
    assert store.explain(0.9).offloads == 0
    for _ in range(2):
        store.merge(good)
    assert store.explain(0.9).offloads == 1
