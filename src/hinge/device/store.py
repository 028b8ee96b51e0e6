"""A device's gate in a folder, which survives crashes, power losses and failing disks.

    state.db    SQLite, WAL, synchronous=NORMAL: one row with the gate's state as JSON, a format version and a CRC
    lock.db     held with an exclusive SQLite lock by the process that uses the folder

*What a crash costs.* `learn` writes before it returns, so that a killed process loses nothing that was learned; under a
budget, `decide` writes before the remote is asked. A power loss costs what was learned in the last `seconds`, plus the
time that the disk takes to sync. Accepted samples never touch the disk: the clock is written every `seconds`. A store
with `background` (for an event loop) leaves all writes to its thread. All this holds while `problem` is None.

*A disk that fails.* The gate goes on in memory, and `problem` says why. A file whose write or sync failed is not
trusted again: the next `sync` writes a whole new database in its place. If the folder or its files are deleted or
replaced, nothing is written any more. A damaged database is put aside, and the gate starts anew.

Closing any descriptor of a file drops the POSIX locks of a process on it: do not copy the files inside the process that
uses them; `hinge state export` is for that.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
import zlib
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event, RLock, Thread
from typing import Any, NamedTuple
from weakref import finalize, ref

import msgspec

from hinge._checks import positive
from hinge.confidence import NamedMeasure
from hinge.device.locked import LockedGate
from hinge.errors import HingeError, InvalidState, StateInUse, UnknownName
from hinge.gate import GATE_VERSION, Gate, restore
from hinge.policies.policy import Policy, State

FORMAT = 1  # of the row
LATE_S = 10.0  # without a sync, after which there is a problem
BUSY_S = 1.0  # how long to wait for a process that only looks at the folder
CLOSED = "the store is closed"
GONE = "was deleted or replaced while in use: nothing is saved until a restart"

Connect = Callable[..., sqlite3.Connection]
_encode = msgspec.json.Encoder().encode  # a tenth of the time of json's, and learning pays for it


class Store(LockedGate):
    """A gate that is kept in a folder. Thread-safe. One process at a time may use a folder.

    `gate` is what the folder holds, if it holds something; a state of another policy, or with other parameters, bins
    or confidence measure, is refused. Without a gate, the folder must hold a state. `problem` says why what is learned
    now may be lost, `damage` what was put aside.

    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> with Store(folder.name, Gate(offload_cost=0.5)) as store:
    ...     store.learn(store.decide(0.8), agreed=True, cost=0.5)
    >>> with Store(folder.name) as store:
    ...     print(store.explain(0.8), store.problem)
    Confidence 0.75–0.82 is offloaded: 1 of 1 agreed; too few to tell whether accepting pays. None
    >>> folder.cleanup()

    A thread syncs every `seconds`; if None, only `sync` and `close` do. `background` leaves all writes to the thread,
    for an event loop. `local` is the digest of the local model's file, which is kept with what is learned;
    `another_local` says whether the folder held another. `connect` opens databases; tests let it fail.
    """

    on_disk = True

    def __init__(
        self,
        folder: str | Path,
        gate: Gate | None = None,
        *,
        seconds: float | None = 1.0,
        background: bool = False,
        local: str | None = None,
        connect: Connect = sqlite3.connect,
    ) -> None:
        self._seconds = None if seconds is None else positive("Store", "seconds", seconds)
        self._background = background and seconds is not None
        self.folder = Path(os.path.expanduser(folder))
        # `lock` guards the gate and is never held while the disk is waited for; `_disk` guards the database,
        # `_syncing` what takes long. They are taken in the order _syncing, _disk, lock.
        self.lock, self._disk, self._syncing, self._wake = RLock(), RLock(), RLock(), Event()
        self._changes = 0
        self._written = (0, -1)  # how many of them are in the database, and the policy's time there
        self._behind: float | None = None  # since when there is something to sync
        self._failure: str | None = None
        self._files = _Files(self.folder, connect)
        self._release = finalize(self, _release, self._files, self._wake)
        self._thread: Thread | None = None
        try:
            self._files.lock()
            self._open(gate, local)
            if self._seconds is not None:
                arguments = (ref(self), self._wake, self._seconds)
                self._thread = Thread(target=_sync_regularly, args=arguments, name="hinge-store", daemon=True)
                self._thread.start()
        except BaseException:
            self._release()
            raise

    def _open(self, gate: Gate | None, local: str | None) -> None:
        saved, damage = _found(self.folder, self._files.connect, "rw")
        if saved is None and gate is None:
            raise InvalidState(f"{self.folder}: {damage or 'holds no state'}, and no gate was given")
        if damage is not None:
            then = "the gate starts anew" if saved is None else "the state in it is whole and goes on"
            self.damage = f"{self.folder}: {damage}; it is kept as state.db.damaged, and {then}"
        self._local = local
        if saved is not None:
            self._local = local or saved.local
            self.another_local = None not in (local, saved.local) and local != saved.local
            self.gate = _resumed(self.folder, gate, saved)
        elif gate is not None:
            self.gate = gate
        if saved is None or damage is not None or not self._files.whole():
            self._attempt(lambda: self._rebuild(keep_old=damage is not None))
        else:
            self._written = (0, self.policy.time)
            self._attempt(self._files.open)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _changed(self) -> int:
        if self._behind is None:
            self._behind = time.monotonic()
        self._changes += 1
        return self._changes

    def _save(self, change: int) -> None:
        if self._background:
            self._wake.set()
        else:
            self._flush(change)

    def _flush(self, change: int) -> None:
        with self._disk:
            if self._written[0] < change and self._failure is None:  # else another thread was faster
                self._attempt(lambda: self._files.write(self._content()))

    def _rebuild(self, keep_old: bool = False) -> None:
        self._files.rebuild(self._content(), keep_old)
        self._failure = None

    def _content(self) -> bytes:
        """The state as it is now, to be written. Needs `_disk`."""
        with self.lock:
            state, self._written = self.gate.state(), (self._changes, self.policy.time)
        return _encode({"gate": state, "local": self._local})

    def _attempt(self, step: Callable[[], None]) -> None:
        """Go on in memory if the disk fails. What was half written is not trusted, whatever a second try says."""
        try:
            step()
        except (OSError, sqlite3.Error) as error:
            self._failure = f"the disk failed: {error}"

    @property
    def problem(self) -> str | None:
        if self._failure is None and self._behind is not None and self._seconds is not None:
            late = time.monotonic() - self._behind
            if late > max(LATE_S, 10 * self._seconds):
                return f"the disk is slow: nothing was synced for {late:.0f} s"
        return self._failure

    def sync(self) -> bool:
        """Return once all that was learned is on the disk, or cannot be brought there; says which.

        After a failure a whole new database is written.
        """
        with self._syncing:
            if self.closed:
                return False
            with self._disk:
                if self._files.gone():
                    self._failure = f"{self.folder}: {GONE}"
                    return False
                self._behind = None
                if self._failure is not None:
                    self._attempt(self._rebuild)
                elif self._written != (self._changes, self.policy.time):
                    self._attempt(lambda: self._files.write(self._content()))
            if self._failure is None:
                self._attempt(self._files.checkpoint)  # learning goes on meanwhile
        return self.problem is None

    @property
    def closed(self) -> bool:
        return not self._release.alive

    def tick(self, due: bool) -> None:
        """What the thread does when it wakes: sync if that is due, else write what waits."""
        if due:
            self.sync()
        else:
            self._flush(self._changes)

    def close(self) -> None:
        """Write down the clock, sync, and let other processes use the folder."""
        self.sync()
        with self._syncing, self._disk:
            self._failure = self._failure or CLOSED
            self._release()
        if self._thread is not None:
            self._thread.join(10)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def learns_from(self, local: str | None) -> None:
        """Name another local model in the state from now on."""
        self._local = local or self._local

    def change(self, **settings: Any) -> None:
        """Change the offload cost or the alpha of the policy, and keep what it has learned.

        `gate` is another object afterwards. A cost that is learned or measured stays so.
        """
        with self.lock:
            state, policy = self.gate.state(), self.policy
            told = policy.takes_price and policy.offload_cost is not None and self.gate.price is None
            free = [name for name in ("offload_cost", "alpha")[not told :] if name in policy.parameters]
            for name in (name for name, value in settings.items() if name not in free or value is None):
                what = f"of {policy.name} here, {' and '.join(free) or 'nothing'} can, to another number"
                raise InvalidState(f"{self.folder}: {name} cannot be changed so: {what}")
            state["policy"]["parameters"] |= settings
            self.gate = Gate.restore(state, bins=self.gate.bins, confidence=self.gate.confidence)
            if self.policy.takes_price and self.gate.price is None:
                self.policy.reprice(self.gate.offload_price)
            change = self._changed()
        self._save(change)


def _resumed(folder: Path, gate: Gate | None, saved: Saved) -> Gate:
    try:
        if gate is not None:
            found = gate.resume(saved.gate)
        else:
            measure = saved.gate["confidence"]
            found = Gate.restore(saved.gate, confidence=NamedMeasure(measure) if "function" in measure else None)
    except InvalidState as error:
        raise InvalidState(f"{folder}: {str(error).removeprefix('Gate: ')}") from error
    if gate is not None and gate.policy.learned and gate.policy.id != found.policy.id:
        clash = f"the gate given has learned from {gate.policy.learned} offloads, and the folder holds another's state"
        raise InvalidState(f"{folder}: {clash}: give a fresh gate, and merge the other's state")
    return found


def _sync_regularly(store: ref[Store], wake: Event, seconds: float) -> None:
    """The thread of a store, which it does not keep alive."""
    due = time.monotonic() + seconds
    while True:
        wake.wait(max(0.0, due - time.monotonic()))
        wake.clear()
        kept = store()
        if kept is None or kept.closed:
            return
        kept.tick(time.monotonic() >= due)
        if time.monotonic() >= due:
            due = time.monotonic() + seconds
        del kept


def _release(files: _Files, wake: Event) -> None:
    """What is left to do once a store is closed, or was dropped without that."""
    files.close(lock=True)
    wake.set()


# -- files ------------------------------------------------------------------------------------------------------------


class _Files:
    """The files in a folder, and the connections to them."""

    _writer: sqlite3.Connection  # used by one thread at a time, as is
    _syncer: sqlite3.Connection  # which syncs what the other has written

    def __init__(self, folder: Path, connect: Connect) -> None:
        self.folder, self.connect = folder, connect
        self._database, self._lock, self._fresh = folder / "state.db", folder / "lock.db", folder / "state.db.new"
        self._locks, self._connections = list[sqlite3.Connection](), list[sqlite3.Connection]()
        self._identities: dict[Path, tuple[int, int]] = {}

    def lock(self) -> None:
        """Make the folder if need be, and keep other processes out."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._locks.append(self._connection(self._lock))
            self._locks[0].execute("PRAGMA journal_mode=MEMORY")  # nothing is ever written to it
            self._locks[0].execute("BEGIN EXCLUSIVE")
        except (OSError, sqlite3.Error) as error:
            if _code(error) == sqlite3.SQLITE_BUSY:
                raise StateInUse(f"{self.folder}: the state is in use by process {_user(self.folder)}") from error
            raise InvalidState(f"{self.folder}: cannot be opened: {error}") from error
        self._identities[self._lock] = _identity(self._lock)

    def whole(self) -> bool:
        """Whether there is a database, and no newer one that was to take its place."""
        return self._database.exists() and not self._fresh.exists()

    def open(self) -> None:
        """Connect to the database, and say which process uses it."""
        for _ in range(2):
            connection = self._connection(self._database)
            self._connections.append(connection)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA wal_autocheckpoint=0")  # the thread does it: learning waits for no sync
            connection.execute("PRAGMA synchronous=NORMAL")
        self._writer, self._syncer = self._connections
        self._identities[self._database] = _identity(self._database)
        self._writer.execute("UPDATE state SET process=?", (os.getpid(),))

    def _connection(self, path: Path) -> sqlite3.Connection:
        return self.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)

    def write(self, content: bytes) -> None:
        """Write the state, unsynced."""
        self._writer.execute("UPDATE state SET content=?, crc=?", (content, zlib.crc32(content)))

    def checkpoint(self) -> None:
        """Return once all that was written is on the disk."""
        _, in_log, done = self._syncer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if in_log != done:  # a reader still needs pages of the database as it was: the log has to do
            with open(f"{self._database}-wal", "r+b") as log:
                os.fsync(log.fileno())

    def rebuild(self, content: bytes, keep_old: bool) -> None:
        """Write a new database, synced, and put it in the place of the one that there may be."""
        self.close()  # first, as this frees the room that the log takes
        part = self.folder / "state.db.part"
        part.unlink(missing_ok=True)
        with closing(self._connection(part)) as connection:
            connection.execute("PRAGMA journal_mode=MEMORY")  # what is half written is never read
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("CREATE TABLE state (format INTEGER, process INTEGER, content BLOB, crc INTEGER)")
            row = FORMAT, os.getpid(), content, zlib.crc32(content)
            connection.execute("INSERT INTO state VALUES (?, ?, ?, ?)", row)
            connection.execute("COMMIT")
        os.replace(part, self._fresh)
        _sync_folder(self.folder)  # from now on a crash leaves the new one, whatever became of the old one and its log
        for suffix in ("-shm", "-wal", ""):
            with suppress(FileNotFoundError):
                old = f"{self._database}{suffix}"
                os.replace(old, f"{old}.damaged") if keep_old else os.unlink(old)
        os.replace(self._fresh, self._database)
        _sync_folder(self.folder)
        self.open()

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
        self._identities.pop(self._database, None)
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


# -- reading ----------------------------------------------------------------------------------------------------------


class Saved(NamedTuple):
    """What a folder holds."""

    gate: State  # as `Gate.state` has it
    policy: Policy
    local: str | None  # the digest of the local model's file, if that was known
    used_by: str | None = None  # the process that uses the folder


def read(folder: str | Path) -> Saved:
    """Read a folder, also while a device uses it. Nothing is written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder, Store(folder, Gate(offload_cost=0.5)) as store:
    ...     store.learn(store.decide(0.8), agreed=True, cost=0.5)
    ...     saved = read(folder)
    >>> saved.policy.learned, saved.used_by == str(os.getpid())
    (1, True)
    """
    path = Path(os.path.expanduser(folder))
    try:
        os.listdir(path)
    except OSError as error:
        raise InvalidState(f"{path}: cannot be read: {error.strerror or error}") from error
    saved, damage = _found(path, sqlite3.connect, "ro")
    if saved is None:
        remedy = f"{damage}; a device that is given the folder puts it aside and starts anew"
        raise InvalidState(f"{path}: {remedy if damage else 'holds no state'}")
    return saved._replace(used_by=_user(path))


def _user(folder: Path) -> str | None:
    """The process that uses a folder; "unknown" where its database does not say."""
    lock, database = folder / "lock.db", folder / "state.db"
    if not lock.exists():
        return None
    with suppress(sqlite3.Error), closing(sqlite3.connect(lock, timeout=0)) as connection:
        connection.execute("SELECT * FROM sqlite_master").fetchall()
        return None
    try:
        with closing(sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return str(connection.execute("SELECT process FROM state").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return "unknown"


def _found(folder: Path, connect: Connect, mode: str) -> tuple[Saved | None, str | None]:
    """What a folder holds, if anything whole, and what is damaged there.

    `mode` is "ro" to look at a folder that another process may be using, "rw" to recover it.
    """
    fresh, database = folder / "state.db.new", folder / "state.db"
    path = fresh if fresh.exists() else database  # which a crash has left, and which is newer
    if not path.exists():
        return None, None
    try:
        content, check = _row(path, connect, mode)
        return parse(folder, content), None if check == "ok" else f"{path.name} is damaged: {check.splitlines()[-1]}"
    except (sqlite3.Error, OverflowError, UnicodeDecodeError) as error:
        if _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise InvalidState(f"{path}: cannot be read: {error}") from error
        return None, f"{path.name} is damaged: {error}"


def _row(path: Path, connect: Connect, mode: str) -> tuple[bytes, str]:
    """The state as it was written, and what SQLite says of the database around it."""
    # Without a log nobody writes, and SQLite need not make one to read.
    option = "immutable=1" if mode == "ro" and not Path(f"{path}-wal").exists() else f"mode={mode}"
    uri = f"{path.absolute().as_uri()}?{option}"
    with closing(connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        rows = connection.execute("SELECT format, content, crc FROM state").fetchall()
        (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if len(rows) != 1 or not isinstance(rows[0][1], bytes) or zlib.crc32(rows[0][1]) != rows[0][2]:
        raise sqlite3.DatabaseError("the state does not match its CRC")
    if rows[0][0] != FORMAT:
        raise InvalidState(f"{path}: is of format {rows[0][0]}; this Hinge reads {FORMAT}, and left it alone")
    return rows[0][1], check


def policy_state(state: State) -> State:
    """The policy's part of the state of a gate; that of a policy alone is returned as it is."""
    held: State = state["policy"] if "hinge_gate" in state else state
    return held


def parse(folder: Path, content: bytes) -> Saved:
    """What was written; raises `InvalidState` if that is no state of a policy that is known here."""
    try:
        held = json.loads(content)
        gate, local = dict(held["gate"]), held["local"]
    except (TypeError, ValueError, LookupError, RecursionError) as error:
        raise InvalidState(f"{folder}: holds no state: {error}") from error
    if gate.get("hinge_gate") != GATE_VERSION:
        raise InvalidState(f"{folder}: the state must be of version {GATE_VERSION}, got {gate.get('hinge_gate')!r:.50}")
    return Saved(gate, restored(folder, gate), local)


def restored(path: Path, state: State) -> Policy:
    """The policy in a gate's or a policy's state, which was found at the path."""
    try:
        policy: Policy = restore(policy_state(state))
        return policy
    except UnknownName as error:
        remedy = "import the module that defines it first, or: hinge state --policy MODULE:CLASS"
        raise InvalidState(f"{path}: {error}; {remedy}") from error
    except (HingeError, TypeError, ValueError, LookupError, ArithmeticError, MemoryError, RecursionError) as error:
        raise InvalidState(f"{path}: the state cannot be used, and was left alone: {error}") from error
