"""What a gate has learned survives crashes, full disks, forks and rollbacks, exactly; and it never stops the gate."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from hinge import HILCB, Gate, InvalidState, Isotonic, Policy, QuantileBins, at_most, margin, on_budget
from hinge.device import store as stores
from hinge.device.database import read
from hinge.device.store import FORKED, GONE, MemoryStore, SqliteStore
from hinge.policies import AlwaysRemote
from hinge.policies.policy import State
from tests.device.disks import PROBLEMS, FailingDisk, image, lay
from tests.device.streams import BINS, POLICIES, knowledge, peer, play, text

HERE = Path(__file__).parent


def isotonic() -> Gate:
    return Gate(Isotonic(BINS, offload_cost=0.4))


def learn(folder: Path, offloads: int = 3, gate: Gate | None = None) -> SqliteStore:
    """A device runs for a while with a remote that disagrees, and ends."""
    with SqliteStore(folder, gate or isotonic(), seconds=None) as store:
        lied_to(store, offloads)
    return store


def lied_to(store: MemoryStore, offloads: int) -> None:
    for _ in range(offloads):
        store.learn(store.decide(0), agreed=False)


def test_a_folder_may_start_from_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    learn(Path("~/state"), 3)
    assert read(tmp_path / "state").policy.learned == read("~/state").policy.learned == 3
    assert not Path("~").exists()


def taught(folder: Path, local: str | None, offloads: int = 1) -> bool:
    """A device with that local model learns so much; returns whether it found another's state."""
    with SqliteStore(folder, isotonic(), seconds=None, local=local) as store:
        lied_to(store, offloads)
        return store.another_local


def test_the_local_model_that_taught_a_state_is_kept_with_it(tmp_path: Path) -> None:
    assert not taught(tmp_path, "one")
    assert not taught(tmp_path, "one")
    assert taught(tmp_path, "two", offloads=0)
    assert taught(tmp_path, "two")  # nothing was learned before
    assert not taught(tmp_path, "two")
    assert not taught(tmp_path, None)  # not known
    assert taught(tmp_path, "one")
    with SqliteStore(tmp_path) as store:
        store.rollback()  # to what two knew
    assert not taught(tmp_path, "two")


def test_a_state_from_before_models_were_kept_is_anybodys(tmp_path: Path) -> None:
    learn(tmp_path)
    assert not taught(tmp_path, "one")
    assert taught(tmp_path, "two")


def test_a_model_that_is_replaced_while_it_runs_begins_a_generation(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=None, local="one") as store:
        lied_to(store, 1)
        store.learns_from("one")
        store.learns_from(None)
        assert read(tmp_path).newest.local == "one"
        before = read(tmp_path).newest.number
        store.learns_from("two")
        lied_to(store, 1)
        assert (read(tmp_path).newest.local, read(tmp_path).newest.number) == ("two", before + 1)
        assert [each.learned for each in read(tmp_path).earlier] == [1]
    assert not taught(tmp_path, "two")


# -- saving -----------------------------------------------------------------------------------------------------------


@pytest.mark.medium
@pytest.mark.parametrize("make", POLICIES.values(), ids=POLICIES)
def test_a_killed_process_leaves_the_policy_bit_by_bit_as_of_its_last_feedback(
    make: Callable[[], Policy], tmp_path: Path
) -> None:
    store, state = SqliteStore(tmp_path / "run", Gate(make()), seconds=None), ""
    for learns in play(store, 300):
        state = text(store.policy.state()) if learns or store.policy.spent else state
    left = read(lay(tmp_path / "left", image(store.folder))).policy
    if learns or store.policy.spent:  # else the last was an accepted sample or an offload, which is in no row yet
        assert text(left.state()) == state
    store.close()
    with SqliteStore(tmp_path / "run", seconds=None) as again:
        assert text(again.policy.state()) == text(store.policy.state()), "a clean end loses not even the clock"
        live, copy = store.policy, again.policy
        for seed in (5, 6):  # … and it goes on as the live one would
            for _ in zip(play(live, 200, seed), play(copy, 200, seed), strict=True):
                assert live.time == copy.time
        assert text(live.state()) == text(copy.state())


def test_a_batch_is_saved_with_what_was_learned_from_it(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path, isotonic(), seconds=None)
    for decision in store.decide_many([1, 2, 3] * 30):
        store.learn(decision, agreed=True)
    assert read(tmp_path).policy.state() == store.policy.state()
    assert not store.decide(3).offload
    store.close()
    assert read(tmp_path).policy.state() == store.policy.state()
    assert store.problem == stores.CLOSED


def test_an_accepted_sample_does_not_touch_the_disk(tmp_path: Path) -> None:
    disk = FailingDisk("I/O")
    with SqliteStore(tmp_path, isotonic(), seconds=None, connect=disk) as store:
        for decision in store.decide_many([1, 2, 3] * 30):
            store.learn(decision, agreed=True)
        disk.failing = {"write", "sync", "open"}
        assert not any(store.decide(3).offload for _ in range(100))
        assert store.problem is None
        disk.failing = set()


def test_the_thread_saves_the_clock_and_syncs_by_itself(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=0.001) as store:
        for _ in play(store, 200):
            pass
        state = text(store.policy.state())
        for _ in range(1000):
            if text(read(tmp_path).policy.state()) == state:
                break
            time.sleep(0.01)
        assert text(read(tmp_path).policy.state()) == state


@pytest.mark.parametrize("how", ["background", "large"])
def test_what_is_written_behind_is_written_soon_and_at_the_end(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "large":
        monkeypatch.setattr(stores, "LARGE", 10)
    for seconds in (0.005, 3600):
        with SqliteStore(tmp_path, isotonic(), seconds=seconds, background=how == "background") as store:
            for _ in play(store, 50):
                pass
            for _ in range(1000 if how == "background" or seconds < 1 else 0):
                if read(tmp_path).policy.learned == store.policy.learned:
                    break
                time.sleep(0.01)
            else:
                assert (how, seconds) == ("large", 3600), "an hour is not over"
        assert read(tmp_path).policy.state() == store.policy.state()


def test_in_the_background_learning_does_not_wait_for_a_disk_that_hangs(tmp_path: Path) -> None:
    """What an event loop needs."""
    hang, hangs = threading.Event(), threading.Event()

    class Hanging(FailingDisk):
        def __call__(self, path: Any, **options: Any) -> Any:
            connection: Any = super().__call__(path, **options)
            execute = connection.execute

            def waits(sql: str, *parameters: Any) -> Any:
                if sql.startswith("UPDATE progress") and hang.is_set():
                    hangs.set()
                    while hang.is_set():
                        time.sleep(0.001)
                return execute(sql, *parameters)

            connection.execute = waits
            return connection

    with SqliteStore(tmp_path, isotonic(), background=True, connect=Hanging("I/O")) as store:
        hang.set()
        lied_to(store, 1)
        assert hangs.wait(20)
        lied_to(store, 50)
        store.decide(0)
        assert store.policy.learned == 51
        hang.clear()
    assert read(tmp_path).policy.learned == 51


@pytest.mark.slow
def test_kill_9_at_any_instant_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "killed.py"), str(tmp_path), "32"]
    lines = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert len(lines) == 32
    for number, line in enumerate(lines):
        name, told = line.split("\t")
        acknowledged, saved, reference = int(told), read(tmp_path / str(number)), POLICIES[name]()
        reference.id, learned, possible = saved.policy.id, 0, set[str]()
        for learns in play(reference, 3_000):
            learned += learns
            if learned > acknowledged + 1:  # the one that was under way may be there
                break
            if learned >= acknowledged:
                possible.add(text(reference.state()))
        assert acknowledged == 0 or text(saved.policy.state()) in possible, name
        assert saved.policy.learned >= acknowledged
        assert not saved.notes


# -- a disk that fails ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("what", ["write", "sync", "open"])
def test_a_failing_disk_stops_nothing_and_is_not_trusted_again(what: str, problem: str, tmp_path: Path) -> None:
    disk = FailingDisk(problem)  # minds that no connection is used again once it failed
    store = SqliteStore(tmp_path, isotonic(), seconds=None, connect=disk)
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
    store.merge(peer(store.policy, 1))
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
    saved = read(tmp_path)
    assert (text(saved.policy.state()), saved.notes) == (text(store.policy.state()), [])
    assert [each.before for each in saved.earlier] == ["merge"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup.db", "lock.db", "state.db"]


def test_a_full_disk_at_the_start_leaves_the_policy_at_work_in_memory(tmp_path: Path) -> None:
    disk = FailingDisk("full")
    disk.failing = {"write"}
    store = SqliteStore(tmp_path, isotonic(), seconds=None, connect=disk)
    list(play(store, 50))
    assert (store.policy.learned > 10, store.problem is None) == (True, False)
    disk.failing = set()
    assert store.sync()
    assert read(tmp_path).policy.learned == store.policy.learned
    store.close()


def test_a_disk_that_does_not_sync_is_not_called_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=1000) as store:
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
    store = SqliteStore(folder, isotonic(), seconds=None)
    lied_to(store, 3)
    assert store.sync()
    if what == "folder":
        folder.rename(tmp_path / "moved")
    elif what == "replaced":
        other = learn(tmp_path / "other")
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
        assert read(folder).policy.id == other.policy.id
    else:
        assert folder.exists() == (what != "folder"), "it is not made again"


# -- one process to a folder ------------------------------------------------------------------------------------------


@pytest.mark.medium
def test_one_process_to_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.device.database.BUSY_S", 0.1)
    program = f"from hinge.device.store import SqliteStore; SqliteStore({str(tmp_path)!r})"
    says = f"the state is in use by process {os.getpid()}"
    with SqliteStore(tmp_path, isotonic(), seconds=None):
        with pytest.raises(InvalidState, match=says):
            SqliteStore(tmp_path)
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (other.returncode, says in other.stderr) == (1, True)
    SqliteStore(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidState, match="cannot be opened"):
        SqliteStore(tmp_path / "file" / "state", isotonic())


@pytest.mark.medium
def test_a_store_for_which_there_is_no_thread_left_lets_go_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(RuntimeError) as refused:
            SqliteStore(tmp_path, Gate(offload_cost=0.5))
    with SqliteStore(tmp_path, Gate(offload_cost=0.5)):  # while the error is there, and all that it holds
        assert refused.value


def test_a_store_that_is_dropped_keeps_no_thread_descriptor_or_lock(tmp_path: Path) -> None:
    def drop(folder: Path) -> None:
        store = SqliteStore(folder, isotonic(), seconds=0.01)
        lied_to(store, 2)

    def open_files() -> list[str]:
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return [os.readlink(link) for link in links if os.path.exists(link) and str(tmp_path) in os.readlink(link)]

    threads = threading.active_count()
    for number in range(20):
        drop(tmp_path / str(number))
    for _ in range(500):
        gc.collect()
        if threading.active_count() <= threads and not open_files():
            break
        time.sleep(0.01)
    assert (threading.active_count(), open_files()) == (threads, [])
    for number in range(20):
        with SqliteStore(tmp_path / str(number), seconds=None) as store:
            assert store.policy.learned == 2


FORK_DURING_A_CHANGE = """
import os, sys, threading, time
from hinge import Gate, Isotonic
from hinge.device.store import MemoryStore

store, halves, going = MemoryStore(Gate(Isotonic(bins=4, offload_cost=0.5))), [0, 0], True

def change(policy):
    halves[0] += 1
    time.sleep(0.01)
    halves[1] += 1

def work():
    while going:
        store.locked(change)
        time.sleep(0.005)  # locks are not fair: without it no other thread would get a turn

thread = threading.Thread(target=work)
thread.start()
while not halves[1]:
    time.sleep(0.001)
torn = 0
for _ in range(10):
    child = os.fork()
    if child == 0:
        store.learn(store.decide(1), agreed=True)
        os._exit(halves[0] != halves[1])
    torn += os.waitpid(child, 0)[1] != 0
    time.sleep(0.003)
going = False
thread.join()
print(torn, store.learn(store.decide(1), agreed=True))
"""


@pytest.mark.medium
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_a_change_of_the_policy_to_be_whole() -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK_DURING_A_CHANGE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("0 None\n", "")


@pytest.mark.medium
@pytest.mark.parametrize("how", ["plain", "held", "alive"])
def test_after_a_fork_the_parent_goes_on_and_the_child_writes_nothing(how: str, tmp_path: Path) -> None:
    command = [sys.executable, str(HERE / "forked.py"), str(tmp_path), how]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert told["parent"] == {"learned": 41, "synced": True, "problem": None}
    child = told["child"]
    assert child["refused"].endswith(f"cannot roll back: {FORKED}")
    assert (child["synced"], child["problem"]) == (False, FORKED)
    assert child["learned"] >= 100, "it goes on in memory"
    saved = read(tmp_path)
    assert (saved.policy.learned, saved.notes) == (41, [])


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
from hinge.device.store import MemoryStore, SqliteStore
folder = tempfile.mkdtemp()
with SqliteStore(folder, Gate(offload_cost=0.5)) as store:
    store.learn(store.decide(0), agreed=False)
    assert store.sync()
    store.merge(Gate(offload_cost=0.5).state())
with SqliteStore(folder) as store:
    assert store.policy.learned == 1
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


# -- what fits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (lambda: Gate(Isotonic(BINS + 1, offload_cost=0.4)), "made with bins"),
        (lambda: Gate(Isotonic(BINS, offload_cost=0.5)), "made with isotonic's offload_cost 0.4, and this gate"),
        (lambda: Gate(HILCB(BINS, offload_cost=0.4)), "made with policy isotonic, and this gate has hi-lcb"),
        (lambda: Gate(Isotonic(BINS, offload_cost=0.4), confidence=margin), "made with confidence"),
        (lambda: Gate(Isotonic(BINS, offload_cost=0.4), bins=QuantileBins([0.1, 0.2, 0.3, 0.4, 0.5])), "with bins"),
    ],
)
def test_a_state_made_with_other_bins_measure_or_policy_is_refused(
    other: Callable[[], Gate], says: str, tmp_path: Path
) -> None:
    before = learn(tmp_path).policy.state()
    with pytest.raises(InvalidState, match=says):
        SqliteStore(tmp_path, other())
    with SqliteStore(tmp_path, isotonic()) as store:
        assert store.policy.state() == before
        if "offload_cost" not in says:  # devices may differ in what an offload costs
            with pytest.raises(InvalidState, match=r"made with|state must be of policy 'isotonic'"):
                store.merge(other().state())
        assert store.policy.state() == before


def test_the_gate_continues_from_the_folder(tmp_path: Path) -> None:
    learn(tmp_path)
    gate = isotonic()
    with SqliteStore(tmp_path, gate) as store:
        assert gate.policy is store.policy
        assert gate.policy.learned == 3
        lied_to(store, 2)
        store.rollback()
        assert gate.policy is store.policy


def test_a_merge_begins_a_generation_and_what_is_refused_or_known_does_not(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        list(play(store, 50))
        other = peer(store.policy, 1)
        store.merge(other)
        generation, state = store.generation, store.policy.state()
        store.merge(other)
        with pytest.raises(InvalidState):
            store.merge(peer(store.policy, 2), {**other, "parameters": {**other["parameters"], "bins": BINS + 1}})
        assert (store.generation, store.policy.state()) == (generation, state)
        store.merge(peer(store.policy, 2))
        assert store.generation == generation + 1
        state = store.policy.state()
    assert read(tmp_path).policy.state() == state


# -- going back -------------------------------------------------------------------------------------------------------


def roll_back(folder: Path, to: int | None = None) -> int:
    with SqliteStore(folder, seconds=None) as store:
        return store.rollback(to)


def known(folder: Path) -> Any:
    return knowledge(read(folder).policy)


def test_all_that_a_run_has_learned_is_taken_back_at_once(tmp_path: Path) -> None:
    learn(tmp_path)
    good = known(tmp_path)
    learn(tmp_path, 500)
    time = read(tmp_path).policy.time
    roll_back(tmp_path)
    assert known(tmp_path) == good
    assert read(tmp_path).policy.time == time, "the clock is not taken back"


def test_a_store_takes_back_what_it_has_learned_since_the_start_or_the_merge(tmp_path: Path) -> None:
    learn(tmp_path)
    other = learn(tmp_path / "other").policy.state()
    with SqliteStore(tmp_path, isotonic(), seconds=None) as store:
        good = knowledge(store.policy)
        store.merge(other)
        merged = knowledge(store.policy)
        lied_to(store, 100)
        store.rollback()
        assert knowledge(store.policy) == good
        lied_to(store, 100)
        store.rollback()
        assert knowledge(store.policy) == good, "a rollback is a start, too"
        assert merged != good
    assert known(tmp_path) == good


def test_a_restart_before_the_rollback_does_no_harm(tmp_path: Path) -> None:
    learn(tmp_path)
    good = known(tmp_path)
    learn(tmp_path, 500)
    bad = known(tmp_path)
    for _ in range(5):
        learn(tmp_path, 0)  # started again, and again, in the hope that it helps
    learn(tmp_path, 1)
    roll_back(tmp_path)
    assert known(tmp_path) == bad
    roll_back(tmp_path)
    assert known(tmp_path) == good
    with pytest.raises(InvalidState, match="there is no previous generation"):
        roll_back(tmp_path)
    assert known(tmp_path) == good


def test_what_is_merged_at_rest_stays_when_the_run_after_it_is_taken_back(tmp_path: Path) -> None:
    learn(tmp_path)
    before = known(tmp_path)
    with SqliteStore(tmp_path, seconds=None) as store:
        store.merge(learn(tmp_path / "other").policy.state())
    merged = known(tmp_path)
    learn(tmp_path, 500)
    roll_back(tmp_path)
    assert known(tmp_path) == merged
    roll_back(tmp_path)
    assert known(tmp_path) == before


def test_any_generation_that_is_listed_can_be_gone_back_to(tmp_path: Path) -> None:
    for _ in range(9):
        learn(tmp_path, 30)
    listed = read(tmp_path).earlier
    assert [each.learned for each in listed] == [240, 210, 180]
    assert [each.before for each in listed] == ["start"] * 3
    for each in listed:
        assert roll_back(tmp_path, each.generation) == each.generation
        assert read(tmp_path).policy.learned == each.learned
    with pytest.raises(InvalidState, match=r"cannot roll back to generation 99; there are: \d"):
        roll_back(tmp_path, 99)


def test_a_rollback_can_be_undone_until_the_next(tmp_path: Path) -> None:
    for _ in range(2):
        learn(tmp_path, 30)
    learned, present = known(tmp_path), read(tmp_path).newest.number
    roll_back(tmp_path)
    learn(tmp_path, 1)
    assert [(each.generation, each.before) for each in read(tmp_path).earlier][-2:] == [(2, "rollback"), (1, "start")]
    roll_back(tmp_path, present)
    assert known(tmp_path) == learned


def test_a_rollback_that_cannot_be_written_holds_in_memory(tmp_path: Path) -> None:
    learn(tmp_path)
    good, disk = known(tmp_path), FailingDisk("full")
    store = SqliteStore(tmp_path, isotonic(), seconds=None, connect=disk)
    lied_to(store, 5)
    bad = knowledge(store.policy)
    disk.failing = {"write"}
    store.rollback()
    assert (knowledge(store.policy), store.problem is None) == (good, False)
    assert known(tmp_path) == bad
    disk.failing = set()
    assert store.sync()
    assert known(tmp_path) == good
    store.close()


BUDGETS: dict[str, Callable[[], Policy]] = {
    "limit": lambda: at_most(AlwaysRemote(BINS), offloads=0.2, window=100),
    "price": lambda: on_budget(Isotonic(BINS, offload_cost=0.1), offloads=0.2),
    "both": lambda: at_most(on_budget(Isotonic(BINS, offload_cost=0.1), offloads=0.18), offloads=0.2, window=100),
}


@pytest.mark.medium
@pytest.mark.parametrize("name", BUDGETS)
def test_rollbacks_and_crashes_do_not_refund_a_budget(name: str, tmp_path: Path) -> None:
    folder, offloads = tmp_path / "0", list[bool]()
    store, rollbacks = SqliteStore(folder, Gate(BUDGETS[name]()), seconds=None), 0
    for number in range(3_000):
        decision = store.decide(0)
        offloads.append(decision.offload)
        if decision.offload and number % 3:
            store.learn(decision, agreed=False)
        if number % 50 == 20 and number > 50:
            with suppress(InvalidState):  # nothing to go back to
                store.rollback()
                rollbacks += 1
        if number % 210 == 0:  # killed, and started again
            folder = lay(tmp_path / str(number), image(store.folder))
            store = SqliteStore(folder, Gate(BUDGETS[name]()), seconds=None)
        if number % 70 == 0:
            store.merge(peer(store.policy, number))
    store.close()
    assert rollbacks > 20
    if name == "price":
        assert sum(offloads) <= 0.23 * len(offloads)
    else:
        assert max(sum(offloads[first : first + 100]) for first in range(len(offloads) - 100)) == 20


def state_of(folder: Path) -> State:
    return read(folder).newest.state()


def test_a_saved_state_is_that_of_the_gate(tmp_path: Path) -> None:
    store = learn(tmp_path, gate=Gate(offload_cost=0.5, confidence=margin))
    gate = Gate.restore(state_of(tmp_path))
    assert gate.confidence is margin
    assert gate.policy.state() == store.policy.state()


def test_threads_learn_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, Gate(AlwaysRemote(BINS)), seconds=0.001) as store:
        workers = [threading.Thread(target=lied_to, args=(store, 200)) for _ in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
        assert read(tmp_path).policy.learned == 1600
        assert store.problem is None


def test_a_gate_that_has_learned_elsewhere_does_not_lose_it_to_a_folder(tmp_path: Path) -> None:
    with SqliteStore(tmp_path, Gate(offload_cost=0.5)) as store:
        store.learn(store.decide(0), agreed=True)
        same = store.gate
    with SqliteStore(tmp_path, same) as store:  # its own folder is continued
        assert store.policy.learned == 1
    warm = Gate(offload_cost=0.5)
    for _ in range(3):
        warm.learn(warm.decide(confidence=0.0), agreed=False)
    with pytest.raises(InvalidState, match=r"learned from 3 offloads, and the folder holds another's state: give"):
        SqliteStore(tmp_path, warm)
    assert warm.policy.learned == 3


def test_in_memory_what_is_refused_is_not_merged_in_part() -> None:
    other, wrong = (MemoryStore(Gate(HILCB(bins=4, offload_cost=0.5))) for _ in range(2))
    other.learn(other.decide(3), agreed=True)
    store = MemoryStore(Gate(HILCB(bins=4, offload_cost=0.5)))
    good, bad = (each.locked(lambda policy: policy.state()) for each in (other, wrong))
    with pytest.raises(InvalidState):
        store.merge(good, {**bad, "parameters": {**bad["parameters"], "bins": 5}})
    assert store.locked(lambda policy: policy.state()["evidence"]["offloads"]) == [0, 0, 0, 0]
    for _ in range(2):
        store.merge(good)
    assert store.locked(lambda policy: policy.state()["evidence"]["offloads"]) == [0, 0, 0, 1]
    with pytest.raises(InvalidState, match="evidence cannot be added"):
        store.merge(Gate(HILCB(bins=4, offload_cost=0.5), confidence=margin).state())
