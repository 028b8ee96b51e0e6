"""A state folder from outside: it can be looked at whatever a device does, and rolled back through any crash."""

from pathlib import Path
from threading import Event, Thread

import pytest

from hinge import InvalidState, Isotonic, Store
from hinge.gate.storage.at_rest import look, roll_back
from hinge.gate.storage.disk import Disk
from tests.gate.disks import QuickDisk


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
    """Fails at the second file that is to be renamed."""

    renamed = 0

    def rename(self, old: Path, new: Path) -> None:
        self.renamed += 1
        if self.renamed == 2:
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
