"""The files of a saved gate: what is in them, how they are written, and `read`, which looks at them.

    state.db    SQLite, WAL, synchronous=NORMAL. Each generation has a row that stays the same (gate, parameters, merged
                evidence, which may be large, and the digest of the local model) and one that learning changes: JSON
                with a format version and a CRC
    backup.db   a copy, read where state.db is damaged: as of the last start, merge, rollback or end, or ten minutes old
    lock.db     held with an exclusive SQLite lock by the process that uses the folder

Closing any descriptor of a file drops the POSIX locks of a process on it: do not copy `state.db` or `lock.db` inside
the process that uses them; `hinge state export` is for that.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from hinge.device.journal import NewerVersion, old_files, read_old
from hinge.errors import HingeError, InvalidState, StateInUse, UnknownName
from hinge.gate import GATE_VERSION
from hinge.policies.policy import STATE_VERSION, Policy, State, restore

FORMAT = 1  # of the rows
BUSY_S = 1.0  # how long to wait for a process that only looks at the folder

Connect = Callable[..., sqlite3.Connection]
Past = list[tuple[int, str]]  # generations, newest first, and why the next one began
_SCHEMA = """
CREATE TABLE generation (number INTEGER PRIMARY KEY, format INTEGER, content BLOB, crc INTEGER);
CREATE TABLE progress (number INTEGER PRIMARY KEY, format INTEGER, content BLOB, crc INTEGER);
CREATE TABLE owner (process INTEGER);
"""
encode = msgspec.json.Encoder().encode  # a tenth of the time of json's, and learning pays for it


class Files:
    """The files in a folder, and the connections to them."""

    _writer: sqlite3.Connection  # used by one thread at a time, as is
    _syncer: sqlite3.Connection  # which syncs what the other has written

    def __init__(self, folder: Path, connect: Connect) -> None:
        self.folder, self.connect, self.database = folder, connect, folder / "state.db"
        self._locks, self._connections = list[sqlite3.Connection](), list[sqlite3.Connection]()
        self._identities: dict[Path, tuple[int, int]] = {}

    def lock(self) -> None:
        """Make the folder if need be, and keep other processes out."""
        path = self.folder / "lock.db"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._locks.append(self._connection(path))
            self._locks[0].execute("PRAGMA journal_mode=MEMORY")  # nothing is ever written to it
            self._locks[0].execute("BEGIN EXCLUSIVE")
        except (OSError, sqlite3.Error) as error:
            if _code(error) == sqlite3.SQLITE_BUSY:
                raise StateInUse(f"{self.folder}: the state is in use by process {_user(self.folder)}") from error
            raise InvalidState(f"{self.folder}: cannot be opened: {error}") from error
        self._identities[path] = _identity(path)

    def open(self) -> None:
        """Connect to the database, and say which process uses it."""
        for _ in range(2):
            connection = self._connection(self.database)
            self._connections.append(connection)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")  # the thread does it: learning waits for no sync
            connection.execute("PRAGMA synchronous=NORMAL")
        self._writer, self._syncer = self._connections
        self._identities[self.database] = _identity(self.database)
        self._writer.execute("UPDATE owner SET process=?", (os.getpid(),))

    def _connection(self, path: Path) -> sqlite3.Connection:
        return self.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    def update(self, number: int, progress: bytes) -> None:
        row = (progress, _crc(number, progress), number)
        self._writer.execute("UPDATE progress SET content=?, crc=? WHERE number=?", row)

    def replace_rows(self, rows: Mapping[int, Row]) -> None:
        """Write all rows, in the place of those that there are, in one transaction."""
        self._writer.execute("BEGIN IMMEDIATE")
        _fill(self._writer, rows)
        self._writer.execute("COMMIT")

    def checkpoint(self) -> None:
        """Return once all that was written is on the disk."""
        _, in_log, done = self._syncer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if in_log != done:  # a reader still needs pages of the database as it was: the log has to do
            with open(f"{self.database}-wal", "r+b") as log:
                os.fsync(log.fileno())

    def _fresh(self, name: str, rows: Mapping[int, Row]) -> Path:
        """A new database beside the others, synced."""
        path = self.folder / f"{name}.new"
        path.unlink(missing_ok=True)
        with closing(self._connection(path)) as connection:
            connection.execute("PRAGMA journal_mode=MEMORY")  # what is half written is never read
            connection.executescript(f"BEGIN; {_SCHEMA}")
            connection.execute("INSERT INTO owner VALUES (?)", (os.getpid(),))
            _fill(connection, rows)
            connection.execute("COMMIT")
        return path

    def rebuild(self, rows: Mapping[int, Row], *, keep_old: bool) -> None:
        self.close()  # first, as this frees the room that the log takes
        fresh = self._fresh("state.db", rows)
        for suffix in ("-shm", "-wal", ""):  # a log without its database is nothing, and must not meet another one
            path = Path(f"{self.database}{suffix}")
            if path.exists():
                os.replace(path, f"{path}.damaged") if keep_old else path.unlink()
        os.replace(fresh, self.database)
        _sync_folder(self.folder)
        for path in old_files(self.folder):
            os.replace(path, path.with_name(f"{path.name}.converted"))
        self.open()

    def back_up(self, rows: Mapping[int, Row]) -> None:
        os.replace(self._fresh("backup.db", rows), self.folder / "backup.db")

    def gone(self) -> bool:
        """Whether the database or the lock is another file than was opened, or none."""
        for path, identity in self._identities.items():
            try:
                if _identity(path) != identity:
                    return True
            except FileNotFoundError:
                return True
            except OSError:
                continue  # a disk that fails shows in other ways
        return False

    def close(self, *, lock: bool = False) -> None:
        """Close the database, and release the lock if asked for."""
        self._identities.pop(self.database, None)
        for connections in (self._connections, self._locks) if lock else (self._connections,):
            while connections:
                with suppress(sqlite3.Error):
                    connections.pop(0).close()


def _sync_folder(folder: Path) -> None:
    """Return once names in the folder are on the disk, where the system can do that: Windows cannot, nor need it."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _code(error: Exception) -> int:
    """SQLite's primary result code; 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


# -- rows -------------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """A generation as the database has it: JSON that stays the same, and JSON that learning changes."""

    content: bytes
    progress: bytes


class Held(NamedTuple):
    """A generation that was read."""

    number: int
    gate: State | None  # bins and confidence measure; None: from a version that did not save them
    policy: State
    past: Past  # the generations to go back to, newest first, and why the next one began
    aside: int | None  # the generation that the last rollback left
    local: str | None = None  # the digest of the local model's file, if that was known

    def state(self) -> State:
        """The gate's state, or the policy's where bins and measure are not known."""
        return self.policy if self.gate is None else {**self.gate, "policy": self.policy}


def _crc(number: int, body: bytes, version: object = FORMAT) -> int:
    return zlib.crc32(body, zlib.crc32(f"{number} {version}".encode()))


def _fill(connection: sqlite3.Connection, rows: Mapping[int, Row]) -> None:
    for table, column in (("generation", 0), ("progress", 1)):
        connection.execute(f"DELETE FROM {table}")
        bodies = ((number, FORMAT, row[column], _crc(number, row[column])) for number, row in rows.items())
        connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", bodies)


def content_of(gate: State | None, state: State, past: Past, aside: int | None, local: str | None = None) -> bytes:
    """The row of a generation that stays the same; see `Held` for its parts."""
    changing = {"time", "learned", "as_of", "alarms", "evidence", "carried", "pending", "owed"}
    fixed = {key: value for key, value in state.items() if key not in changing}
    known = {} if local is None else {"local": local}  # versions that do not know it pass it over
    return encode({"gate": gate, "policy": fixed, "past": past, "aside": aside, **known})


def parse(number: int, row: Row) -> Held:
    """A generation from its row; raises `ValueError` or `LookupError` where it makes no sense."""
    content, progress = json.loads(row.content), json.loads(row.progress)
    gate, fixed, aside, local = content["gate"], content["policy"], content["aside"], content.get("local")
    right = isinstance(gate, dict | None) and isinstance(fixed, dict) and isinstance(progress, dict)
    if not right or not isinstance(aside, int | None) or not isinstance(local, str | None):
        raise ValueError("no state")
    past = [(int(earlier), str(why)) for earlier, why in content["past"]]
    return Held(number, gate, {**fixed, **progress}, past, aside, local)


# -- reading ----------------------------------------------------------------------------------------------------------


def read_rows(folder: Path, connect: Connect, mode: str) -> tuple[dict[int, Row], list[str]]:
    """The generations in a folder that are whole, and a sentence for everything that is not as it should be.

    `mode` is "ro" to look at a folder that another process may be using, "rw" to recover it.
    """
    database, backup = folder / "state.db", folder / "backup.db"
    if not database.exists() and not backup.exists():
        state, notes = read_old(folder)
        return {} if state is None else {1: Row(content_of(None, state, [], None), encode(state))}, notes
    rows, notes = _read_database(database, connect, mode)
    if notes and backup.exists():
        older, more = _read_database(backup, connect, "ro")
        return {**older, **rows}, [*notes, *more]
    return rows, notes


def _read_database(path: Path, connect: Connect, mode: str) -> tuple[dict[int, Row], list[str]]:
    if not path.exists():
        return {}, [f"{path.name} is missing."]
    contents, bodies, notes = dict[int, bytes](), dict[int, bytes](), list[str]()
    # Without a log nobody writes, and SQLite need not make one to read.
    option = "immutable=1" if mode == "ro" and not Path(f"{path}-wal").exists() else f"mode={mode}"
    uri = f"{path.absolute().as_uri()}?{option}"
    try:
        with closing(connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
            connection.execute("BEGIN")
            for table, found in (("generation", contents), ("progress", bodies)):
                for number, version, body, crc in connection.execute(f"SELECT * FROM {table}"):
                    if not isinstance(body, bytes) or crc != _crc(number, body, version):
                        notes.append(f"{path.name} is damaged: {table} {number} does not match its CRC.")
                    elif version > FORMAT:
                        raise NewerVersion(f"{path}: is of format {version}; this Hinge reads up to {FORMAT}")
                    else:
                        found[number] = body
            (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if check != "ok":
                notes.append(f"{path.name} is damaged: {check}.")
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise InvalidState(f"{path}: cannot be read: {error}") from error
        notes.append(f"{path.name} is damaged: {error}.")
    return {number: Row(contents[number], bodies[number]) for number in contents.keys() & bodies.keys()}, notes


def newest(folder: Path, rows: dict[int, Row], notes: list[str]) -> Held | None:
    """The newest generation that is a state."""
    for number in sorted(rows, reverse=True):
        try:
            held = parse(number, rows[number])
            if held.policy["hinge_state"] > STATE_VERSION or (held.gate or {}).get("hinge_gate", 0) > GATE_VERSION:
                raise NewerVersion(f"{folder}: the state is newer than this Hinge reads; it was left alone")
            restore(held.policy)
            return held
        except UnknownName as error:
            remedy = "import the module that defines it first, or: hinge state --policy MODULE:CLASS"
            raise InvalidState(f"{folder}: {error}; {remedy}") from error
        except NewerVersion:
            raise
        except (HingeError, TypeError, ValueError, LookupError, ArithmeticError, RecursionError) as error:
            notes.append(f"Generation {number} holds a state that cannot be: {error}.")
    return None


class Earlier(NamedTuple):
    """A generation that can be gone back to, as it ended."""

    generation: int
    before: str  # what began after it: a start or a merge; "rollback": it was left by the last rollback
    time: int
    learned: int
    parameters: State  # of the policy
    merged: int  # other devices whose evidence it has


class Saved(NamedTuple):
    """What a folder holds."""

    newest: Held
    earlier: list[Earlier]  # newest first
    notes: list[str]  # a sentence for everything that is not as it should be
    used_by: str | None  # the process that uses the folder

    @property
    def policy(self) -> Policy:
        return restore(self.newest.policy)


def read(folder: str | Path) -> Saved:
    """Read a folder, also while a device uses it. Nothing is written.

    >>> from tempfile import TemporaryDirectory
    >>> from hinge import Gate
    >>> from hinge.device.store import SqliteStore
    >>> with TemporaryDirectory() as folder, SqliteStore(folder, Gate(offload_cost=0.5)) as store:
    ...     store.learn(store.decide(12), agreed=True)
    ...     saved = read(folder)
    >>> saved.newest.number, saved.policy.learned, saved.used_by == str(os.getpid())
    (1, 1, True)
    """
    path = Path(os.path.expanduser(folder))
    try:
        os.listdir(path)
    except OSError as error:
        raise InvalidState(f"{path}: cannot be read: {error.strerror or error}") from error
    rows, notes = read_rows(path, sqlite3.connect, "ro")
    held = newest(path, rows, notes)
    if held is None:
        raise InvalidState(" ".join([f"{path}: holds no state that can be used.", *notes]).rstrip("."))
    before = {**dict(held.past), **({held.aside: "rollback"} if held.aside is not None else {})}
    earlier = list[Earlier]()
    for number in sorted(before.keys() & rows.keys(), reverse=True):
        with suppress(ValueError, LookupError, TypeError):
            state = parse(number, rows[number]).policy
            parts = (state["time"], state["learned"], state["parameters"], len(state["merged"]))
            earlier.append(Earlier(number, before[number], *parts))
    return Saved(held, earlier, notes, _user(path))


def _user(folder: Path) -> str | None:
    """The process that uses a folder; "unknown" where its database does not say."""
    lock, database = folder / "lock.db", folder / "state.db"
    if not lock.exists():
        return None
    with suppress(sqlite3.Error), closing(sqlite3.connect(lock, timeout=0)) as connection:
        connection.execute("SELECT * FROM sqlite_master").fetchall()
        return None
    try:
        uri = f"{database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
            return str(connection.execute("SELECT process FROM owner").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return "unknown"
