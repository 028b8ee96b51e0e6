"""Where a gate's policy lives: in memory, or in a folder that survives crashes, power losses and failing disks.

The state is written as state, not as history: a later version of Hinge reads it and re-executes nothing. The files are
described in `hinge.device.database`.

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
three before a start, three before a merge, three before a change of settings. A rollback takes back what was learned,
not the clock, nor what a budget has spent. The generation that it leaves is kept until the next rollback.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize, ref

from hinge._checks import positive
from hinge._fork import renew_after_fork
from hinge.device.database import Connect, Files, Held, Past, Row, content_of, encode, newest, parse, read_rows
from hinge.errors import InvalidState
from hinge.gate import Gate, policy_state, unsealed
from hinge.policies.policy import Decision, Decisions, Explanation, Policy, State, restore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")

KEPT = 3  # earlier generations before a start, and before a merge or a change, that can be gone back to
START, MERGE, CHANGE = "start", "merge", "change"  # why a generation begins; a rollback is a start, too
LARGE = 65_536  # bytes of what learning changes, above which it is written once in `seconds`
CHECKPOINT = 1_000  # writes, after which the thread syncs at once: keeps the log at about 4 MB
LATE_S = 10.0  # without a sync, after which there is a problem
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

    on_disk = another_local = False

    def __init__(self, gate: Gate) -> None:
        self.lock = Lock()  # of the policy; held during a fork, so that the child inherits no half of a change
        self.gate: Gate | None = gate
        self.policy: Policy = gate.policy
        self._described: State | None = gate.description()  # of bins and confidence measure
        renew_after_fork(self)

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost, though it should be on disk; None: all is well."""
        return None

    def decide(self, bin: int, cost: float | None = None) -> Decision:
        """Decide as the policy does; an offload under a budget is written down before it can be made."""
        with self.lock:
            decision = self.policy.decide(bin) if cost is None else self.policy.decide(bin, cost)
            if decision.time is None:  # accepted
                return decision
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return decision

    def decide_many(
        self, bins: Iterable[int] | NDArray[np.integer[Any]], costs: Iterable[float | None] | None = None
    ) -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self.lock:
            batch = self.policy.decide_many(bins) if costs is None else self.policy.decide_many(bins, costs)
            if not (batch.offload.any() or (batch.accepted_wait and len(batch))):
                return batch
            version = self._changed()
        if self.policy.spent:
            self._save(version)
        return batch

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Learn as the policy does, and write it down; `benchmarks/store.py` measures what that adds."""
        self.apply(lambda policy: policy.learn(decision, agreed, cost))

    def forget(self, decision: Decision, cost: float = 0.0) -> None:
        """Expect no feedback for a decision any more; written down with what comes next."""
        with self.lock:
            self.policy.forget(decision, cost)
            self._changed()

    def _changed(self) -> int:
        """The policy was changed; returns how often it was. Needs `lock`."""
        return 0

    def _save(self, version: int) -> None:
        """Write that version of the policy, or a later one, where there is a disk."""

    def apply(self, change: Callable[[Policy], None]) -> None:
        """Change the policy by a function, and write that down as what `learn` learns is."""
        with self.lock:
            change(self.policy)
            version = self._changed()
        self._save(version)

    def locked(self, function: Callable[[Policy], T]) -> T:
        """What the function returns for the policy, while no other thread decides or learns."""
        with self.lock:
            return function(self.policy)

    def explain(self, bin: int) -> Explanation:
        """Why the next sample of a bin would be accepted or offloaded, as the policy says it."""
        with self.lock:
            return self.policy.explain(bin)

    def merge(self, *other_states: Mapping[str, Any]) -> None:
        """Add the evidence in other devices' states, of gates or policies; if one is refused, none is added.

        States of gates with other bins or another confidence measure are refused.
        """
        states = [self.fitting(state) for state in other_states]

        def merge_all(policy: Policy) -> None:
            for state in states:
                policy.merge(state)

        self._change(merge_all)

    def fitting(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The policy's state in a gate's or policy's, if it was made with these bins and this measure, or is silent."""
        held, mine = unsealed(state), self._described
        if "hinge_gate" in held and mine is not None:
            for what in ("bins", "confidence"):
                if held.get(what) != mine[what]:
                    raise InvalidState(
                        f"the state to merge was made with {what} {held.get(what)!r:.200}, "
                        f"and this one with {mine[what]}: evidence cannot be added"
                    )
        return policy_state(held)

    def _change(self, change: Callable[[Policy], None]) -> None:
        with self.lock:
            change(restore(self.policy.state()))  # what is refused changes nothing
            change(self.policy)

    def warnings(self) -> tuple[str | None, int, str | None]:
        """What the policy cannot keep, how many changes of the world it has found, and `problem`."""
        problem = self.problem
        with self.lock:
            return self.policy.warning, sum(self.policy.alarms.values()), problem

    def learns_from(self, local: str | None) -> None:
        """From now on another local model's answers are learned from, whose file has this digest; None: not known."""

    def close(self) -> None:
        """Release what the store holds."""

    def after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold still."""
        self.lock = Lock()


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
        self._seconds = None if seconds is None else positive("SqliteStore", "seconds", seconds)
        self._background = background and seconds is not None
        self.folder, self.gate = Path(os.path.expanduser(folder)), gate
        # `lock` guards the policy and is never held while the disk is waited for; `_disk` guards the database,
        # `_syncing` what takes long. They are taken in the order _syncing, _disk, lock.
        self.lock, self._disk, self._syncing, self._wake = Lock(), Lock(), Lock(), Event()
        self._version = 0  # changes in memory
        self._written = (0, -1)  # how many of them are in the database, and the policy's time there
        self._whole = False  # whether the present generation is new, so that all rows have to be written
        self._writes, self._large = 0, False  # since the last sync; whether the last progress row was large
        self._behind: float | None = None  # since when there is something to sync
        self._backed_up = (0.0, 0)  # when, and which version
        self._failure: str | None = None
        self._closed = False
        self._files = Files(self.folder, connect)
        self._finalizer = finalize(self, _release, self._files, self._wake)
        self._thread: Thread | None = None
        try:
            self._files.lock()
            self._open(gate, local)
            renew_after_fork(self)
            if self._seconds is not None:
                arguments = (ref(self), self._wake, self._seconds)
                self._thread = Thread(target=_sync_regularly, args=arguments, name="hinge-store", daemon=True)
                self._thread.start()
        except BaseException:
            self._finalizer()
            raise

    def _open(self, gate: Gate | None, local: str | None) -> None:
        rows, self.notes = read_rows(self.folder, self._files.connect, "rw")
        held = newest(self.folder, rows, self.notes)
        self._start: Row | None = None  # what was opened, until the first change begins a generation
        self._next = max(rows, default=0) + 1
        if held is None and gate is None:
            raise InvalidState(" ".join([f"{self.folder}: holds no state, and no gate was given.", *self.notes]))
        if held is not None:
            self.generation, self._past, self._aside = held.number, held.past, held.aside
            if gate is None:
                self.policy, self._described = restore(held.policy), held.gate
            else:
                gate.policy = self.policy = _resumed(self.folder, gate, held.state())
        if gate is not None:
            self.policy, self._described = gate.policy, gate.description()
        self._damaged = bool(self.notes)
        self._local = local
        if held is None:
            if self.notes:
                self.notes.append("Nothing usable was found: the policy starts anew.")
            self.generation, self._past, self._aside, self._rows = 0, [], None, {}
            self._begin(START, None)
        else:
            self.another_local = None not in (local, held.local) and local != held.local
            self._local = local or held.local
            self._content = content_of(self._described, held.policy, self._past, self._aside, held.local)
            self._start, self._written = self._end(), (0, self.policy.time)
            self._rows = self._kept(rows)
        sound = held is not None and not self.notes and self._files.database.exists()
        self._attempt(self._files.open if sound else lambda: self._write(rebuild=True), self._back_up)

    # -- the disk -----------------------------------------------------------------------------------------------------

    def _changed(self) -> int:
        if self._behind is None:
            self._behind = time.monotonic()
        self._version += 1
        return self._version

    def _save(self, version: int) -> None:
        if self._large:
            return
        if self._background:
            self._wake.set()
        else:
            self._flush(version)

    def _flush(self, version: int) -> None:
        with self._disk:
            if self._written[0] < version and self._failure is None:  # else another thread was faster
                self._attempt(self._write)

    def _write(self, rebuild: bool = False) -> None:
        """Write what learning changes, or all of a new generation; unsynced, or to a new database. Needs `_disk`."""
        with self.lock:
            if self._start is not None and self._version:
                self._begin(START, self._start)
            written, progress = (self._version, self.policy.time), self.policy.progress()
        row = Row(self._content, encode(progress))
        if rebuild:
            self._files.rebuild({**self._rows, self.generation: row}, keep_old=self._damaged)
            self._failure, self._damaged = None, False
        elif self._whole:
            self._files.replace_rows({**self._rows, self.generation: row})
        else:
            self._files.update(self.generation, row.progress)
        self._written, self._whole, self._large = written, False, len(row.progress) > LARGE
        self._writes += 1
        if self._writes == CHECKPOINT:
            self._wake.set()

    def _back_up(self) -> None:
        with self.lock:
            version, rows = self._version, {**self._rows, self.generation: self._end()}
        self._files.back_up(rows)
        self._backed_up = (time.monotonic(), version)

    def _attempt(self, *steps: Callable[[], None]) -> None:
        """Go on in memory if the disk fails. What was half written is not trusted, whatever a second try says."""
        try:
            for step in steps:
                step()
        except (OSError, sqlite3.Error) as error:
            self._failure = f"the disk failed: {error}"

    @property
    def problem(self) -> str | None:
        """Why what is learned now may be lost; None: a crash costs no more than the module says."""
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
            if self._closed or self._failure == FORKED:
                return False
            with self._disk:
                if self._files.gone():
                    self._failure = f"{self.folder}: {GONE}"
                    return False
                self._behind, self._writes = None, 0
                if self._failure is not None:
                    self._attempt(lambda: self._write(rebuild=True))
                elif self._written != (self._version, self.policy.time):
                    self._attempt(self._write)
            if self._failure is None:
                self._attempt(self._files.checkpoint)  # learning goes on meanwhile
            when, version = self._backed_up
            if self._failure is None and time.monotonic() - when > BACKUP_S and version != self._version:
                self._attempt(self._back_up)
        return self.problem is None

    def tick(self, due: bool) -> bool:
        """What the thread does when it wakes: sync if that is due, else write what waits; False: no more."""
        if self._closed:
            return False
        if due or self._writes >= CHECKPOINT:
            self.sync()
        else:
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
                    with suppress(OSError, sqlite3.Error):  # the state itself is on the disk
                        self._back_up()
                self._failure = self._failure or CLOSED
                self._finalizer()
        if self._thread is not None:
            self._thread.join(10)

    def __enter__(self) -> SqliteStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def after_fork(self) -> None:
        """In a forked child: go on in memory, and leave the parent's files alone."""
        self.lock, self._disk, self._syncing, self._wake = Lock(), Lock(), Lock(), Event()
        if not self._closed:
            self._failure, self._thread = FORKED, None
            self._finalizer.detach()
            _INHERITED.append(self._files)  # to close SQLite's connections here would remove the parent's WAL
            self._files = Files(self.folder, self._files.connect)

    def learns_from(self, local: str | None) -> None:
        """The next change begins a generation, which names the new model."""
        with self.lock:
            if local not in (None, self._local):
                self._start = self._start or self._end()
                self._local = local

    # -- generations --------------------------------------------------------------------------------------------------

    def _begin(self, why: str, end: Row | None) -> None:
        """Begin a generation with the policy as it is, in memory; `end` is how the one before it ended."""
        if end is not None:
            self._rows[self.generation] = end
            self._past = remember(self._past, self.generation, why)
        self.generation, self._next = self._next, self._next + 1
        self._rows = self._kept(self._rows)
        self._content = content_of(self._described, self.policy.state(), self._past, self._aside, self._local)
        self._start, self._whole = None, True

    def _kept(self, rows: dict[int, Row]) -> dict[int, Row]:
        kept = {self._aside, *(number for number, _ in self._past)}
        return {number: row for number, row in rows.items() if number in kept}

    def _end(self) -> Row:
        """How the present generation ends. Needs `lock`."""
        return Row(self._content, encode(self.policy.progress()))

    def _change(self, change: Callable[[Policy], None]) -> None:
        before = self.locked(lambda policy: policy.state())
        trial = restore(before)
        change(trial)
        if trial.state() != before:  # else it is known already
            self._begin_with(MERGE, lambda: change(self.policy))

    def change(self, **settings: Any) -> None:
        """Change settings of the policy, and keep what it has learned; see `Policy.changed`.

        `policy` is another object afterwards.
        """
        self._begin_with(CHANGE, lambda: self._replace(self.policy.changed(**settings)))

    def _begin_with(self, why: str, change: Callable[[], None]) -> None:
        """Begin a generation with a change of the policy, and write it down."""
        with self._syncing, self._disk:
            with self.lock:
                end = self._end()
                change()
                self._begin(why, end)
                self._changed()
            if self._failure is None:
                self._attempt(self._write, self._back_up)

    def _replace(self, policy: Policy) -> None:
        self.policy = policy
        if self.gate is not None:
            self.gate.policy = policy

    def rollback(self, to: int | None = None) -> int:
        """Go back to before the last start or merge that changed anything, or to how the generation `to` ended.

        Returns that generation. What was learned since is taken back; the clock and what a budget has spent are not.
        `policy` is another object afterwards.
        """
        with self._syncing, self._disk:
            if self._failure in (FORKED, CLOSED):
                raise InvalidState(f"{self.folder}: cannot roll back: {self._failure}")
            with self.lock:
                present = self.policy.state()
                target = self._earlier(present, to)
                spent = {field: present["carried"][field] for field in self.policy.spent}
                carried = {**target.policy["carried"], **spent}
                policy = restore({**target.policy, "time": present["time"], "carried": carried, "pending": []})
                self._rows[self.generation], self._local = self._end(), target.local
                self._past, self._aside = remember(target.past, target.number, START), self.generation
                self._replace(policy)
                self._begin(START, None)
                self._changed()
            if self._failure is None:
                self._attempt(self._write, self._back_up)
        return target.number

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
    files.close(lock=True)
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


def _knowledge(state: State, spent: tuple[str, ...]) -> Any:
    """What a rollback takes back."""
    carried = {field: values for field, values in state["carried"].items() if field not in spent}
    known = [state[field] for field in ("parameters", "learned", "alarms", "evidence", "merged")]
    return json.loads(encode([*known, carried]))


def _resumed(folder: Path, gate: Gate, state: State) -> Policy:
    try:
        policy = gate.resume(state).policy
    except InvalidState as error:
        raise InvalidState(f"{folder}: {str(error).removeprefix('Gate: ')}") from error
    if gate.policy.learned and gate.policy.id != policy.id:
        clash = f"the gate given has learned from {gate.policy.learned} offloads, and the folder holds another's state"
        raise InvalidState(f"{folder}: {clash}: give a fresh gate, and merge the other's state")
    return policy


_INHERITED: list[Files] = []  # of the parent, in a forked child
