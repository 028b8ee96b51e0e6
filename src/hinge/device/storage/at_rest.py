"""A folder with a policy's state, from outside: looked at while a device may use it, rolled back while none does."""

import time
from pathlib import Path
from typing import NamedTuple

from hinge.device.storage.disk import Disk
from hinge.device.storage.folder_lock import FolderLock
from hinge.device.storage.journal import LEARNED
from hinge.device.storage.recovery import Found, generations, names_in, read_records, recover, snapshot_name
from hinge.device.storage.rollback import find_earlier, set_aside
from hinge.device.storage.snapshot import Damaged, read_snapshot
from hinge.errors import InvalidState
from hinge.policies.policy import Policy

_LOOKS, _PAUSE_S = 10, 0.01  # a device takes less to begin a new generation, and does so every few thousand offloads


def look(folder: str | Path, disk: Disk | None = None) -> tuple[Policy, Found]:
    """The policy that a folder holds, as of its last record, and what was found there. Nothing is written.

    >>> from tempfile import TemporaryDirectory
    >>> from hinge import Isotonic, Store
    >>> with TemporaryDirectory() as folder, Store(folder, Isotonic(bins=16, offload_cost=0.5)) as store:
    ...     store.learn(store.decide(12), agreed=True)
    ...     policy, found = look(folder)
    >>> print(policy.learned, found)
    1 Generation 1 was found, and 2 records after it.
    """
    path, disk = Path(folder), disk or Disk()
    for _ in range(_LOOKS):
        names = names_in(disk, path)
        policy, found = recover(disk, path, names)
        if not found.notes and names_in(disk, path) == names:
            break
        time.sleep(_PAUSE_S)  # what looks like damage may be a generation that begins, and another that is removed
    if policy is None:
        raise InvalidState(" ".join([f"{path}: holds no state that can be used.", *found.notes]).rstrip("."))
    return policy, found


def roll_back(folder: str | Path, disk: Disk | None = None, *, to: int | None = None) -> tuple[int, Found]:
    """Go back to before the last start or merge that changed anything, or to how the generation `to` ended.

    Returns the generation that is left, whose files are set aside, and what was found of the one gone back to. A store
    that is open rolls back by itself (`Store.rollback`); opening one would begin a generation of its own.
    """
    path, disk = Path(folder), disk or Disk()
    names_in(disk, path)  # to lock a folder that is not there would make it
    lock = FolderLock(path)
    try:
        policy, present = recover(disk, path, names_in(disk, path))
        left = present.generation
        if policy is None or left is None:
            raise InvalidState(f"{path}: cannot roll back: there is no previous generation")
        _, found = find_earlier(disk, path, left, present.past, policy.state(), to)
        set_aside(disk, path, found.generation or 0, left)
        return left, found
    finally:
        lock.release()


class Earlier(NamedTuple):
    """A generation that can be gone back to, as its journal ends."""

    generation: int
    before: str | None  # what began from it: a start or a merge; None: the journal had become long
    time: int
    learned: int


def earlier(folder: str | Path, present: Found, disk: Disk | None = None) -> list[Earlier]:
    """The generations before the present one that can be gone back to, newest first. Nothing is written."""
    path, disk, held = Path(folder), disk or Disk(), list[Earlier]()
    before = {origin.generation: origin.why for origin in present.past}
    for generation in generations(names_in(disk, path)):
        if present.generation is None or generation >= present.generation:
            continue
        try:
            state = read_snapshot("", disk.read(path / snapshot_name(generation)), generation).state
            records = read_records(disk, path, generation).records
            learned = state["learned"] + sum(record.kind == LEARNED for record in records)
            time = records[-1].clock if records else state["time"]
        except (Damaged, InvalidState, OSError, LookupError):  # one that is damaged cannot be gone back to
            continue
        held.append(Earlier(generation, before.get(generation), time, learned))
    return held
