"""Where a gate's policy lives: in memory, or in a folder that survives crashes, power losses and failing disks.

*On disk* the state is written as state, not as history: a later version of Hinge reads it and re-executes nothing. The
files are described in `hinge.device.database`.

*What a crash costs.* `learn` writes its change before it returns, so that a killed process loses nothing that was
learned. A power loss costs what was learned in the last `seconds`, plus the time that the disk takes to sync. Accepted
samples never touch the disk: the clock is written every `seconds`. Two cases write behind: a store with `background`
(for an event loop) leaves all writes to its thread, and a state of more than 64 KiB is written once in `seconds`. A
killed process then loses what was not written yet. All this holds while `problem` is None.

*A disk that fails.* The policy goes on in memory, and `problem` says why. A file whose write or sync failed is not
trusted again: the next `sync` writes a whole new database in its place. If the folder or its files are deleted or
replaced, nothing is written any more. A database that is damaged is set aside, and the backup goes on in its place.

*Fork.* A child goes on in memory, writes nothing and says so in `problem`; the parent goes on.

*Generations.* Every start, merge and rollback begins a generation. How those before it ended is kept for `rollback`:
three before a start, three before a merge. A rollback takes back what was learned, not the clock, nor what a budget has
spent. The generation that it leaves is kept until the next rollback.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize, ref

from hinge._checks import positive
from hinge._fork import lock_during_fork, renew_after_fork
from hinge.device.database import (
    MERGE,
    START,
    Connect,
    Files,
    Held,
    Past,
    Row,
    content_of,
    encode,
    newest,
    parse,
    read_rows,
)
from hinge.errors import InvalidState
from hinge.gate import Gate, policy_state, unsealed
from hinge.policies.policy import Decision, Decisions, Policy, State, restore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")
KEPT = 3  # earlier generations before a start, and before a merge, that can be gone back to
LARGE = 65_536  # bytes of what learning changes, above which it is written once in `seconds`
CHECKPOINT = 1_000  # writes, after which the thread syncs at once: keeps the log at about 4 MB
LATE_S = 10.0  # without a sync, after which the store is not durable
BACKUP_S = 600.0  # between two backups

CLOSED = "the store is closed"
FORKED = "this process is a fork of the one that opened the state: what it learns is not saved"
GONE = "was deleted or replaced while in use: nothing is saved until a restart"


class MemoryStore:
    """A gate in memory. Thread-safe; what is learned is gone with the process.

    >>> from hinge import Gate
    >>> store = MemoryStore(Gate(offload_cost=0.5))
    >>> store.learn(store.decide(12), agreed=True)
    >>> store.locked(lambda policy: policy.learned)
    1
    """

    on_disk = False

    def __init__(self, gate: Gate) -> None:
        self._lock = Lock()
        self.gate: Gate | None = gate
        self.policy: Policy = gate.policy
        renew_after_fork(self)
        lock_during_fork(self)

    @property
    def lock(self) -> Lock:
        """Guards the policy; held while the process forks, so that the child does not inherit half of a change."""
        return self._lock

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost, though it should be on disk; None: all is well."""
        return None

    def decide(self, bin: int) -> Decision:
        """Decide as the policy does."""
        with self._lock:
            return self.policy.decide(bin)

    def decide_many(self, bins: Iterable[int] | NDArray[np.integer[Any]]) -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self._lock:
            return self.policy.decide_many(bins)

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn as the policy does."""
        with self._lock:
            self.policy.learn(decision, agreed, cost)

    def forget(self, decision: Decision) -> None:
        """Expect no feedback for a decision any more."""
        with self._lock:
            self.policy.forget(decision)

    def locked(self, function: Callable[[Policy], T]) -> T:
        """What the function returns for the policy, while no other thread decides or learns."""
        with self._lock:
            return function(self.policy)

    def warnings(self) -> tuple[bool, int, str | None]:
        """Whether the policy's budget is exhausted, how many changes of the world it has found, and `problem`."""
        with self._lock:
            exhausted, changes = self.policy.exhausted, sum(self.policy.alarms.values())
        return exhausted, changes, self.problem

    def sync(self) -> bool:
        """Bring what was learned to the disk; returns whether it is there."""
        return False

    def close(self) -> None:
        """Release what the store holds."""

    def after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold still."""
        self._lock = Lock()


class SqliteStore(MemoryStore):
    """A gate whose policy is kept in a folder. Thread-safe. One process at a time may use a folder.

    The gate continues from what the folder holds, if anything: `gate.policy` is then the saved policy. A state of
    another policy, or with other parameters, bins or confidence measure, is refused. Without a gate, the folder must
    hold a state. `notes` says what was found damaged, `problem` why what is learned now may be lost.

    >>> from tempfile import TemporaryDirectory
    >>> from hinge import Gate
    >>> folder = TemporaryDirectory()
    >>> with SqliteStore(folder.name, Gate(offload_cost=0.5)) as store:
    ...     store.learn(store.decide(12), agreed=True)
    >>> with SqliteStore(folder.name) as store:
    ...     print(store.policy.explain(12), store.problem)
    Bin 12 is offloaded: local agreed in 1 of 1 offloads; too little evidence that accepting is cheaper. None
    >>> folder.cleanup()

    A thread syncs every `seconds`; if None, only `sync` and `close` do. `background` leaves all writes to the thread,
    for an event loop. `connect` opens databases; tests let it fail.
    """

    on_disk = True

    def __init__(
        self,
        folder: str | Path,
        gate: Gate | None = None,
        *,
        seconds: float | None = 1.0,
        background: bool = False,
        connect: Connect = sqlite3.connect,
    ) -> None:
        self._seconds = None if seconds is None else positive("SqliteStore", "seconds", seconds)
        self._background = background and seconds is not None
        self.folder, self.gate = Path(folder), gate
        # `_lock` guards the policy and is never held while the disk is waited for; `_disk` guards the database,
        # `_syncing` what takes long. They are taken in the order _syncing, _disk, _lock.
        self._lock, self._disk, self._syncing, self._wake = Lock(), Lock(), Lock(), Event()
        self._version = self._written = 0  # changes in memory, and how many of them are in the database
        self._clock = -1  # the policy's time in the database
        self._whole = False  # whether the present generation is new, so that all rows have to be written
        self._writes = self._size = 0  # since the last sync; bytes of the last progress row
        self._behind: float | None = None  # since when there is something to sync
        self._backed_up: tuple[float, int] = (0.0, -1)  # when, and what had been learned
        self._failure: str | None = None
        self._closed = False
        self._files = Files(self.folder, connect)
        self._finalizer = finalize(self, _release, self._files, self._wake)
        try:
            self._files.lock()
            self._open(gate)
        except BaseException:
            self._finalizer()
            raise
        renew_after_fork(self)
        lock_during_fork(self)
        self._thread: Thread | None = None
        if self._seconds is not None:
            arguments = (ref(self), self._wake, self._seconds)
            self._thread = Thread(target=_sync_regularly, args=arguments, name="hinge-store", daemon=True)
            self._thread.start()

    def _open(self, gate: Gate | None) -> None:
        rows, self.notes = read_rows(self.folder, self._files.connect, "rw")
        held = newest(self.folder, rows, self.notes)
        self.found = None if held is None else held.number
        if held is not None:
            if gate is None:
                self.policy, self._described = restore(held.policy), held.gate
            else:
                gate.policy = self.policy = _resumed(self.folder, gate, held.state())
                self._described = gate.description()
            self.generation, self._past, self._aside = held.number, held.past, held.aside
        elif gate is not None:
            self.policy, self._described = gate.policy, gate.description()
            self.generation, self._past, self._aside = 0, [], None
            if self.notes:
                self.notes.append("Nothing usable was found: the policy starts anew.")
        else:
            raise InvalidState(" ".join([f"{self.folder}: holds no state, and no gate was given.", *self.notes]))
        self._next, self._rows = max(rows, default=0) + 1, rows
        self._damaged = bool(self.notes)
        with self._disk:
            if held is None:
                self._begin(START, None)
            else:
                self._begun = False  # a start that changes nothing begins no generation
                self._content = content_of(self._described, held.policy, self._past, self._aside)
                self._start, self._clock = self._end(), self.policy.time
                self._rows = {number: row for number, row in rows.items() if number < held.number}
            sound = held is not None and not self.notes and self._files.database.exists()
            self._bring(self._files.open if sound else self._rebuild)

    def _bring(self, write: Callable[[], None]) -> None:
        """Bring a generation to the disk; if that fails, go on in memory. Needs `_disk`."""
        if self._failure is None:
            try:
                write()
                self._back_up()
            except (OSError, sqlite3.Error) as error:
                self._fail(error)

    # -- deciding and learning ----------------------------------------------------------------------------------------

    def decide(self, bin: int) -> Decision:
        """Decide as the policy does; an offload under a budget is written down before it can be made."""
        with self._lock:
            decision = self.policy.decide(bin)
            if decision.time is None:  # accepted
                return decision
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return decision

    def decide_many(self, bins: Iterable[int] | NDArray[np.integer[Any]]) -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self._lock:
            batch = self.policy.decide_many(bins)
            if not (batch.offload.any() or (batch.accepted_wait and len(batch))):
                return batch
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return batch

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn as the policy does, and write it down; `benchmarks/store.py` measures what that adds."""
        with self._lock:
            self.policy.learn(decision, agreed, cost)
            version = self._changed()
        self._save(version)

    def forget(self, decision: Decision) -> None:
        """Expect no feedback for a decision any more; written down with what comes next."""
        with self._lock:
            self.policy.forget(decision)
            self._changed()

    def _changed(self) -> int:
        if self._behind is None:
            self._behind = time.monotonic()
        self._version += 1
        return self._version

    def _save(self, version: int) -> None:
        """Write the state, unless another thread has written this version, or a later one, meanwhile."""
        if self._size > LARGE:
            return
        if self._background:
            self._wake.set()
            return
        with self._disk:
            self._flush(version)

    def _flush(self, version: int) -> None:
        """Needs `_disk`."""
        if self._written < version and self._failure is None:
            try:
                self._write()
            except (OSError, sqlite3.Error) as error:
                self._fail(error)

    def _write(self) -> None:
        """Write the present generation, unsynced: what learning changes, or all of it if it is new. Needs `_disk`."""
        if not self._begun and self._version:
            with self._lock:
                self._begin(START, self._start)
        version, clock, row = self._present()
        if self._whole:
            self._files.replace_rows({**self._rows, self.generation: row})
            self._whole = False
        else:
            self._files.update(self.generation, row.progress)
        self._written, self._clock, self._size = version, clock, len(row.progress)
        self._writes += 1
        if self._writes == CHECKPOINT:
            self._wake.set()

    def _present(self) -> tuple[int, int, Row]:
        """The version, the clock and the row of the present generation."""
        with self._lock:
            version, clock, progress = self._version, self.policy.time, self.policy.progress()
        return version, clock, Row(self._content, encode(progress))

    # -- the disk -----------------------------------------------------------------------------------------------------

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost; None: a crash costs no more than the module says."""
        if self._failure is None and self._behind is not None and self._seconds is not None:
            late = time.monotonic() - self._behind
            if late > max(LATE_S, 10 * self._seconds):
                return f"the disk is slow: nothing was synced for {late:.0f} s"
        return self._failure

    @property
    def durable(self) -> bool:
        """Whether there is no problem."""
        return self.problem is None

    def sync(self) -> bool:
        """Return once all that was learned is on the disk, or cannot be brought there; says which.

        After a failure a whole new database is written.
        """
        with self._syncing:
            if self._closed or self._failure == FORKED:
                return False
            with self._disk:
                if self._files.gone():
                    self._failure = f"{self.folder}: {GONE}"
                    return False
                self._behind, self._writes = None, 0
                try:
                    if self._failure is not None:
                        self._rebuild()
                    elif self._version != self._written or self.policy.time != self._clock:
                        self._write()
                except (OSError, sqlite3.Error) as error:
                    self._fail(error)
            try:
                if self._failure is None:
                    self._files.checkpoint()  # learning goes on meanwhile
                    if time.monotonic() - self._backed_up[0] > BACKUP_S and self._backed_up[1] != self.policy.learned:
                        self._back_up()
            except (OSError, sqlite3.Error) as error:
                with self._disk:
                    self._fail(error)
        return self.problem is None

    def tick(self, due: bool) -> bool:
        """What the thread does when it wakes: sync if that is due, else write what waits; False: no more."""
        if self._closed:
            return False
        if due or self._writes >= CHECKPOINT:
            self.sync()
        else:
            with self._disk:
                self._flush(self._version)
        return True

    def close(self) -> None:
        """Write down the clock, sync, and let other processes use the folder."""
        safe = self.sync()
        with self._syncing:
            if self._closed:
                return
            self._closed = True
            with self._disk:
                if safe:
                    with suppress(OSError):
                        self._back_up()
                if self._failure != FORKED:
                    self._failure = self._failure or CLOSED
                self._finalizer()
        if self._thread is not None and self._failure != FORKED:
            self._thread.join(10)

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child: go on in memory, and leave the parent's files alone."""
        self._lock, self._disk, self._syncing, self._wake = Lock(), Lock(), Lock(), Event()
        if not self._closed:
            self._failure = FORKED
            self._finalizer.detach()
            _INHERITED.append(self._files)  # to close SQLite's connections here would remove the parent's WAL
            self._files = Files(self.folder, self._files.connect)

    def _fail(self, error: Exception) -> None:
        """Go on in memory. What was half written is not trusted, whatever a second try says. Needs `_disk`."""
        if self._failure is None:
            self._failure = f"the disk failed: {error}"
        self._files.abandon_writer()

    def _rebuild(self) -> None:
        """Write a new database with all rows in the place of one that failed or is damaged. Needs `_disk`."""
        version, clock, row = self._present()
        self._files.rebuild({**self._rows, self.generation: row}, keep_old=self._damaged)
        self._written, self._clock, self._size = version, clock, len(row.progress)
        self._failure, self._damaged, self._whole = None, False, False

    def _back_up(self) -> None:
        if self._failure is None:
            learned = self.policy.learned
            self._files.back_up(self.generation, self._present()[2])
            self._backed_up = (time.monotonic(), learned)

    # -- generations --------------------------------------------------------------------------------------------------

    def _begin(self, why: str, end: Row | None) -> None:
        """Begin a generation with the policy as it is, in memory; `end` is how the one before it ended."""
        if end is not None:
            self._rows[self.generation] = end
            self._past = remember(self._past, self.generation, why)
        self.generation, self._next = self._next, self._next + 1
        kept = {self._aside, *(number for number, _ in self._past)}
        self._rows = {number: row for number, row in self._rows.items() if number in kept}
        self._content = content_of(self._described, self.policy.state(), self._past, self._aside)
        self._begun = self._whole = True

    def merge(self, *other_states: Mapping[str, Any]) -> None:
        """Add the evidence in other devices' states, of gates or policies; if one is refused, none is added.

        States of gates with other bins or another confidence measure are refused.
        """
        states = [self.fitting(state) for state in other_states]

        def merge_all(policy: Policy) -> None:
            for state in states:
                policy.merge(state)

        self._change(merge_all)

    def warm_start(self, state: Mapping[str, Any], weight: float) -> None:
        """Start the policy from what another knows; see `Policy.warm_start`."""
        fitting = self.fitting(state)
        self._change(lambda policy: policy.warm_start(fitting, weight))

    def fitting(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The policy's state in a gate's or policy's, if it was made with these bins and this measure, or is silent."""
        held = unsealed(state)
        if "hinge_gate" in held and self._described is not None:
            for what in ("bins", "confidence"):
                if held.get(what) != self._described[what]:
                    raise InvalidState(
                        f"the state to merge was made with {what} {held.get(what)!r:.200}, "
                        f"and this one with {self._described[what]}: evidence cannot be added"
                    )
        return policy_state(held)

    def _change(self, change: Callable[[Policy], None]) -> None:
        before = self.locked(lambda policy: policy.state())
        trial = restore(before)
        change(trial)
        if trial.state() == before:  # known already
            return
        with self._syncing, self._disk:
            with self._lock:
                end = self._end()
                change(self.policy)
                self._begin(MERGE, end)
                self._changed()
            self._bring(self._write)

    def rollback(self, to: int | None = None) -> int:
        """Go back to before the last start or merge that changed anything, or to how the generation `to` ended.

        Returns that generation. What was learned since is taken back; the clock and what a budget has spent are not.
        `policy` is another object afterwards.
        """
        with self._syncing:
            if self._failure in (FORKED, CLOSED):
                raise InvalidState(f"{self.folder}: cannot roll back: {self._failure}")
            with self._disk:
                with self._lock:
                    present = self.policy.state()
                    target = self._earlier(present, to)
                    policy = restore(_without_refund(target.policy, present, self.policy.spent))
                    self._rows[self.generation] = self._end()
                    self._past, self._aside = remember(target.past, target.number, START), self.generation
                    self.policy = policy
                    if self.gate is not None:
                        self.gate.policy = policy
                    self._begin(START, None)
                    self._changed()
                self._bring(self._write)
        return target.number

    def _end(self) -> Row:
        """How the present generation ends. Needs `_lock`."""
        return Row(self._content, encode(self.policy.progress()))

    def _earlier(self, present: State, to: int | None) -> Held:
        """The generation to go back to. A start that nothing followed is passed over: it would change nothing."""
        if to is not None:
            if to not in self._rows:
                known = ", ".join(map(str, sorted(self._rows, reverse=True))) or "none"
                raise InvalidState(f"{self.folder}: cannot roll back to generation {to}; there are: {known}")
            return parse(to, self._rows[to])
        for number, _ in self._past:
            if number in self._rows:
                held = parse(number, self._rows[number])
                if _knowledge(held.policy, self.policy.spent) != _knowledge(present, self.policy.spent):
                    return held
        differs = " that differs" if self._past else ""
        raise InvalidState(f"{self.folder}: cannot roll back: there is no previous generation{differs}")


def _release(files: Files, wake: Event) -> None:
    """What is left to do once a store is closed, or was dropped without that."""
    files.release()
    wake.set()


def _sync_regularly(store: ref[SqliteStore], wake: Event, seconds: float) -> None:
    """The thread of a store, which it does not keep alive."""
    due = time.monotonic() + seconds
    while True:
        wake.wait(max(0.0, due - time.monotonic()))
        wake.clear()
        kept = store()
        if kept is None or not kept.tick(time.monotonic() >= due):
            return
        if time.monotonic() >= due:
            due = time.monotonic() + seconds
        del kept


def remember(past: Past, number: int, why: str) -> Past:
    """The past with one more generation, without those of its kind that are not kept any longer.

    >>> remember([(4, "merge"), (3, "start"), (2, "start"), (1, "start")], 7, "start")
    [(7, 'start'), (4, 'merge'), (3, 'start'), (2, 'start')]
    """
    kept: Past = []
    for each in [(number, why), *(each for each in past if each[0] != number)]:
        if sum(other[1] == each[1] for other in kept) < KEPT:
            kept.append(each)
    return kept


def _without_refund(earlier: State, present: State, spent: tuple[str, ...]) -> State:
    """An earlier state with the clock and the spending of the present one."""
    kept = {field: present["carried"][field] for field in spent}
    return {**earlier, "time": present["time"], "carried": {**earlier["carried"], **kept}, "pending": []}


def _knowledge(state: State, spent: tuple[str, ...]) -> Any:
    """What a rollback takes back."""
    carried = {field: values for field, values in state["carried"].items() if field not in spent}
    return json.loads(encode([state["learned"], state["alarms"], state["evidence"], state["merged"], carried]))


def _resumed(folder: Path, gate: Gate, state: State) -> Policy:
    try:
        return gate.resume(state).policy
    except InvalidState as error:
        raise InvalidState(f"{folder}: {str(error).removeprefix('Gate: ')}") from error


_INHERITED: list[Files] = []  # of the parent, in a forked child
