"""A folder with a policy's state, from outside: looked at while a device may use it, rolled back while none does."""

import time
from contextlib import suppress
from pathlib import Path

from hinge.errors import InvalidState
from hinge.gate.storage.disk import Disk
from hinge.gate.storage.folder_lock import FolderLock
from hinge.gate.storage.recovery import Found, generations, journal_name, read_generation, recover, snapshot_name
from hinge.policies.base import Policy

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
        names = _names(disk, path)
        policy, found = recover(disk, path, names)
        if not found.notes and _names(disk, path) == names:
            break
        time.sleep(_PAUSE_S)  # what looks like damage may be a generation that begins, and another that is removed
    if policy is None:
        raise InvalidState(" ".join([f"{path}: holds no state that can be used.", *found.notes]).rstrip("."))
    return policy, found


def roll_back(folder: str | Path, disk: Disk | None = None) -> tuple[int, Found]:
    """Go back to before the present generation, as the one before it and its journal have it.

    Returns the generation that is left, whose files are set aside, and what was found of the one before it. A store
    that is open rolls back by itself (`Store.rollback`); opening one would begin a generation of its own.
    """
    path, disk = Path(folder), disk or Disk()
    _names(disk, path)  # to lock a folder that is not there would make it
    lock = FolderLock(path)
    try:
        names, found = _names(disk, path), Found()
        left = recover(disk, path, names)[1].generation
        older = [each for each in generations(names) if left is not None and each < left]
        if left is None or not older or read_generation(disk, path, older[0], found) is None:
            reason = " ".join(found.notes).rstrip(".") or "there is no previous generation"
            raise InvalidState(f"{path}: cannot roll back: {reason}")
        # The snapshot goes first: a journal without one is nothing.
        for name in (snapshot_name(left), journal_name(left)):
            with suppress(FileNotFoundError):
                disk.rename(path / name, path / f"{name}.rolled-back")
        disk.sync_folder(path)
        return left, found
    finally:
        lock.release()


def _names(disk: Disk, folder: Path) -> list[str]:
    try:
        return disk.names(folder)
    except OSError as error:
        raise InvalidState(f"{folder}: cannot be read: {error.strerror or error}") from error
