"""A state folder from outside: it can be looked at whatever a device does, and rolled back through any crash."""

from pathlib import Path
from threading import Event, Thread

import pytest

from hinge import InvalidState, Isotonic, Store
from hinge.device.storage import keeping
from hinge.device.storage.at_rest import earlier, look, roll_back
from hinge.device.storage.disk import Disk
from hinge.device.storage.journal import header
from hinge.device.storage.recovery import journal_name, snapshot_name
from hinge.device.storage.snapshot import snapshot_bytes
from tests.device.disks import QuickDisk


def isotonic() -> Isotonic:
    return Isotonic(bins=16, offload_cost=0.5)


def learn(folder: Path, offloads: int = 3) -> Store:
    with Store(folder, isotonic(), seconds=None, disk=QuickDisk()) as store:
        for _ in range(offloads):
            store.learn(store.decide(0), agreed=False)
    return store


def test_a_look_sees_a_whole_state_while_generations_come_and_go(tmp_path: Path) -> None:
    ended = Event()
    with Store(tmp_path, isotonic(), seconds=None, disk=QuickDisk()) as store:

        def work() -> None:
            while not ended.is_set():
                store.learn(store.decide(0), agreed=False)
                store._renew()
                ended.wait(0.002)

        worker = Thread(target=work)
        worker.start()
        try:
            seen = [look(tmp_path) for _ in range(100)]
        finally:
            ended.set()
            worker.join(10)
    for _, found in seen:
        assert not found.damaged, found
    learned = [policy.learned for policy, _ in seen]
    assert learned == sorted(learned)
    assert learned[-1] > learned[0]


class Crashing(Disk):
    """Fails at the second file that is to be renamed, or at another."""

    def __init__(self, at: int = 2) -> None:
        self.renamed, self.at = 0, at

    def rename(self, old: Path, new: Path) -> None:
        self.renamed += 1
        if self.renamed == self.at:
            raise OSError("crash")
        super().rename(old, new)


def test_a_rollback_that_is_cut_short_has_happened(tmp_path: Path) -> None:
    learn(tmp_path)
    good, _ = look(tmp_path)
    learn(tmp_path)
    with pytest.raises(OSError, match="crash"):
        roll_back(tmp_path, Crashing())
    assert look(tmp_path)[0].state() == good.state()
    assert learn(tmp_path, offloads=0).policy.state() == good.state()


def test_a_damaged_past_is_not_gone_back_to(tmp_path: Path) -> None:
    learn(tmp_path)
    learn(tmp_path)
    present = look(tmp_path)[0].state()
    (tmp_path / "snapshot-00000001.json").write_bytes(b"")
    with pytest.raises(InvalidState, match=r"cannot roll back: snapshot-00000001\.json does not match its CRC"):
        roll_back(tmp_path)
    assert look(tmp_path)[0].state() == present


# -- however much was learned since -----------------------------------------------------------------------------------


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Generations give way after few records."""
    monkeypatch.setattr(keeping, "LONGEST", 20)


def be_lied_to(folder: Path, offloads: int = 500) -> Store:
    """A device runs for a while with a remote that lies, through many generations."""
    with Store(folder, isotonic(), seconds=None, disk=QuickDisk()) as store:
        for _ in range(offloads):
            store.learn(store.decide(0), agreed=False)
            store.sync()
    return store


@pytest.mark.usefixtures("short")
def test_all_that_a_run_has_learned_is_taken_back_at_once(tmp_path: Path) -> None:
    learn(tmp_path)
    good = look(tmp_path)[0].state()
    assert (be_lied_to(tmp_path).generation or 0) > 20
    assert len(list(tmp_path.iterdir())) == 7, "two generations, the one that the run began from, and the lock"
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == good


@pytest.mark.usefixtures("short")
def test_a_store_takes_back_what_it_has_learned_since_the_start_or_the_merge(tmp_path: Path) -> None:
    learn(tmp_path)
    other = learn(tmp_path / "other").policy.state()
    with Store(tmp_path, isotonic(), seconds=None, disk=QuickDisk()) as store:
        good, run = store.policy.state(), range(100)
        store.merge(other)
        for _ in run:
            store.learn(store.decide(0), agreed=False)
            store.sync()
        store.rollback()
        assert store.policy.state() == good
        for _ in run:
            store.learn(store.decide(0), agreed=False)
            store.sync()
        store.rollback()
        assert store.policy.state() == good, "a rollback is a start, too"
    assert look(tmp_path)[0].state() == good


@pytest.mark.usefixtures("short")
def test_a_restart_before_the_rollback_does_no_harm(tmp_path: Path) -> None:
    learn(tmp_path)
    good = look(tmp_path)[0].state()
    be_lied_to(tmp_path)
    bad = look(tmp_path)[0].state()
    for _ in range(5):
        learn(tmp_path, offloads=0)  # started again, and again, in the hope that it helps
    learn(tmp_path, offloads=1)
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == bad
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == good
    with pytest.raises(InvalidState, match="there is no previous generation"):
        roll_back(tmp_path)


@pytest.mark.usefixtures("short")
def test_what_is_merged_at_rest_stays_when_the_run_after_it_is_taken_back(tmp_path: Path) -> None:
    learn(tmp_path)
    before = look(tmp_path)[0].state()
    with Store(tmp_path, seconds=None, disk=QuickDisk()) as store:
        store.merge(learn(tmp_path / "other").policy.state())
    merged = look(tmp_path)[0].state()
    be_lied_to(tmp_path)
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == merged
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == before


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("at", range(1, 8))
def test_a_rollback_over_many_generations_has_happened_or_has_not(at: int, tmp_path: Path) -> None:
    learn(tmp_path)
    good = look(tmp_path)[0].state()
    be_lied_to(tmp_path, offloads=50)
    bad = look(tmp_path)[0].state()
    try:
        roll_back(tmp_path, Crashing(at))
    except OSError:
        assert look(tmp_path)[0].state() == (bad if at < 4 else good)
    else:
        assert at > 4
        assert look(tmp_path)[0].state() == good
    roll_back(tmp_path) if at < 4 else None
    assert learn(tmp_path, offloads=0).policy.state() == good


@pytest.mark.usefixtures("short")
def test_any_generation_that_is_listed_can_be_gone_back_to(tmp_path: Path) -> None:
    for _ in range(9):
        be_lied_to(tmp_path, offloads=30)
    policy, found = look(tmp_path)
    listed = earlier(tmp_path, found)
    assert [each.learned for each in listed] == sorted({each.learned for each in listed}, reverse=True)
    assert [each.before for each in listed] == [None, "start", "start", "start"]
    assert all(each.learned <= policy.learned for each in listed)
    for each in listed:
        roll_back(tmp_path, to=each.generation)
        policy, found = look(tmp_path)
        assert (found.generation, policy.time, policy.learned) == (each.generation, each.time, each.learned)
    with pytest.raises(InvalidState, match=r"cannot roll back to generation 99; those before the present one: none"):
        roll_back(tmp_path, to=99)


def test_a_folder_from_before_there_was_a_past_is_used_and_rolled_back(tmp_path: Path) -> None:
    for generation, offloads in ((1, 2), (2, 3)):
        policy = isotonic()
        for _ in range(offloads):
            policy.learn(policy.decide(0), agreed=False)
        (tmp_path / snapshot_name(generation)).write_bytes(snapshot_bytes(generation, policy.state()))
        (tmp_path / journal_name(generation)).write_bytes(header(generation))
    assert look(tmp_path)[0].learned == 3
    learn(tmp_path, offloads=1)
    assert look(tmp_path)[0].learned == 4
    roll_back(tmp_path)
    assert look(tmp_path)[0].learned == 3


def test_two_generations_without_a_past_are_rolled_back_from_one_to_the_other(tmp_path: Path) -> None:
    with Store(tmp_path, isotonic(), seconds=None, disk=QuickDisk()) as store:
        store.learn(store.decide(0), agreed=False)
        good = store.policy.state()
        store._renew()
        store.learn(store.decide(0), agreed=False)
    roll_back(tmp_path)
    assert look(tmp_path)[0].state() == good
