"""Disks that fail, and what a power loss or a crash leaves on one."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hinge import Gate
from hinge.device import async_device, device
from hinge.device.store import Store

SYNCS, WRITES = ("PRAGMA wal_checkpoint",), ("UPDATE", "INSERT", "DELETE", "COMMIT", "BEGIN IMMEDIATE")
PROBLEMS = {"full": "database or disk is full", "I/O": "disk I/O error"}


class FailingDisk:
    """Opens databases that fail in what `failing` names, and minds that no connection is used after it failed."""

    def __init__(self, problem: str) -> None:
        self.problem, self.failing = problem, set[str]()

    def __call__(self, path: Any, **options: Any) -> sqlite3.Connection:
        # Reading what is there (a URI) and the lock go well.
        if "open" in self.failing and not options.get("uri") and "state.db" in str(path):
            raise sqlite3.OperationalError("unable to open database file")
        connection: _Connection = sqlite3.connect(path, factory=_Connection, **options)
        connection.disk = self
        return connection


class _Connection(sqlite3.Connection):
    disk: FailingDisk
    failed = False

    def _try(self, sql: str) -> None:
        assert not self.failed, f"{sql} after it failed"
        failing = self.disk.failing
        if ("write" in failing and sql.startswith(WRITES)) or ("sync" in failing and sql.startswith(SYNCS)):
            self.failed = True
            raise sqlite3.OperationalError(PROBLEMS[self.disk.problem])

    def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
        self._try(sql)
        return super().execute(sql, *parameters)

    def executemany(self, sql: str, parameters: Any) -> sqlite3.Cursor:
        self._try(sql)
        return super().executemany(sql, parameters)

    def executescript(self, sql: str) -> sqlite3.Cursor:
        self._try(sql)
        return super().executescript(sql)


def stores_of_devices(patch: pytest.MonkeyPatch, **options: Any) -> list[Store]:
    """The stores of the devices that are made from now on, with these options and without a thread."""
    made = list[Store]()

    def make(folder: Path, gate: Gate, background: bool = False, local: str | None = None) -> Store:
        made.append(Store(folder, gate, seconds=None, local=local, **options))
        return made[-1]

    for module in (device, async_device):
        patch.setattr(module, "Store", make)
    return made


def image(folder: Path) -> dict[str, bytes]:
    """The files of a state, as a process that is killed now leaves them."""
    names = ("state.db", "state.db-wal")
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def lay(folder: Path, files: dict[str, bytes]) -> Path:
    """Put files into a folder, in the place of all that is there."""
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def torn(before: dict[str, bytes], after: dict[str, bytes], step: int) -> Iterator[dict[str, bytes]]:
    """What a power loss may leave of the writes between two images: the log cut, zeroed or half overwritten.

    The log grows at its end, or begins anew from its start; the database changes only while the log is whole.
    """
    old, new = before.get("state.db-wal", b""), after.get("state.db-wal", b"")
    same = next((k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    for end in {*range(same, len(new) + 1, step), same, len(new)}:
        yield {**after, "state.db-wal": new[:end]}
        yield {**after, "state.db-wal": new[:end] + bytes(len(new) - end)}
        yield {**after, "state.db-wal": new[:end] + old[end:]}
    if before["state.db"] != after["state.db"] and old:
        page = 4096
        for end in range(0, len(after["state.db"]) + 1, page // 4):
            yield {**after, "state.db-wal": old, "state.db": after["state.db"][:end] + before["state.db"][end:]}
