"""Generations of a policy on disk: how one is written, synced, given up and followed by the next.

A generation is a snapshot and the journal that follows it. It is made in this order, so that a crash anywhere leaves
the one before it, or it, whole: journal with its header, synced; snapshot under another name, synced; its real name.
What happens meanwhile is written to both journals.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock

from hinge._checks import whole
from hinge.device.storage.disk import Disk
from hinge.device.storage.folder_lock import FolderLock
from hinge.device.storage.forking import COPIED, watch
from hinge.device.storage.journal import DECIDED, Journal
from hinge.device.storage.past import START, remember
from hinge.device.storage.recovery import generations, highest, journal_name, names_in, recover, snapshot_name, unused
from hinge.device.storage.replay import goes_through, records_all
from hinge.device.storage.snapshot import snapshot_bytes
from hinge.errors import InvalidState
from hinge.policies.policy import Policy

LONGEST = 16_384  # records in a journal before the next snapshot is due
FARTHEST = 1_000_000  # samples that a replay may have to go through


class Keeping:
    """The part of a store that deals with the disk. `_lock` guards the policy; `_syncing` is held for long, by one."""

    policy: Policy

    def __init__(self, folder: Path, policy: Policy | None, every: int, disk: Disk) -> None:
        self._every = whole("Store", "every", every, 1)
        self.folder, self._disk = folder, disk
        self._lock, self._syncing, self._wake = Lock(), Lock(), Event()
        self._journals: tuple[Journal, ...] = ()  # where records go: two while a snapshot is written, none if it failed
        self._retired: list[Journal] = []
        self._aside: list[tuple[str, str]] = []  # files to be set aside, with their suffix
        self._failure: str | None = None
        self._written = self._synced = self._since = 0  # records in all, those on the disk, those since the snapshot
        self._closed = self._copied = False
        self._folder_lock = FolderLock(folder)
        try:
            self._open(policy)
            watch(self)
        except BaseException:
            self._folder_lock.release()
            raise

    def _open(self, given: Policy | None) -> None:
        names = names_in(self._disk, self.folder)
        restored, self.found = recover(self._disk, self.folder, names)
        policy = restored or given
        if policy is None:
            raise InvalidState(f"{self.folder}: holds no state, and no policy was given. {self.found}")
        self.generation, self._past = self.found.generation, self.found.past
        if restored and given:
            _check_same(self.folder / snapshot_name(self.generation or 0), restored, given)
        older = [each for each in generations(names) if self.generation is not None and each < self.generation]
        self.policy, self._older, self._next = policy, older[0] if older else None, highest(names) + 1
        self._start_counting()
        self._aside = [(name, ".damaged") for name in self.found.damaged]
        if self.generation is None or self.found.records or self.found.notes or self.found.began != START:
            self._renew(why=START)
        else:  # the last start was followed by nothing, and this one takes its place
            self._resume(self.generation)

    def _start_counting(self) -> None:
        """From here on records follow the present state."""
        self._all = records_all(self.policy)
        self._since, self._began, self._clock = 0, self.policy.time, self.policy.time

    def _append(
        self, kind: int, offload: bool, bin: int, time: int, agreed: float | None = None, cost: float | None = None
    ) -> None:
        self._written += 1
        self._since += 1
        self._clock = clock = time if kind == DECIDED else self.policy.time
        try:
            for journal in self._journals:
                journal.append(kind, offload, bin, time, clock, agreed, cost)
        except OSError as error:
            self._fail(error)
        if self._written - self._synced == self._every:
            self._wake.set()

    def part(self) -> None:
        """In a forked process: go on in memory, and let go of the files without a word to those who share them."""
        self._lock, self._syncing, self._wake = Lock(), Lock(), Event()  # whoever held them is not here
        self._copied, self._failure = True, COPIED
        self._retire()
        self._close_retired()
        self._folder_lock.leave()

    # -- the disk -----------------------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether a crash now costs no more than the stated window."""
        return self.reason is None

    @property
    def reason(self) -> str | None:
        """Why the store is not durable, if it is not."""
        if self._failure is None and self.unsynced > 2 * self._every:
            return f"{self.unsynced} records wait for the disk"
        return self._failure

    @property
    def unsynced(self) -> int:
        """Records that a power loss now would cost, at most."""
        return self._written - self._synced

    def sync(self) -> bool:
        """Bring what was written to the disk, or start a new generation where one is due; returns `durable`."""
        with self._syncing:
            self._close_retired()
            if self._closed or self._copied:
                return False
            far = goes_through(self.policy) and self.policy.time - self._began >= FARTHEST
            if self._failure or far or self._since >= LONGEST:
                self._renew()
            else:
                self._flush()
        return self.durable


    def _flush(self) -> None:
        with self._lock:
            journals, written = self._journals, self._written
        if written == self._synced:
            return
        try:
            for journal in journals:
                journal.sync()
            self._synced = written
        except OSError as error:
            with self._lock:
                self._fail(error)

    def _resume(self, generation: int) -> None:
        """Go on in the journal of the generation that was found, as nothing is in it yet."""
        try:
            self._disk.sync_folder(self.folder)
            self._journals = (Journal(self._disk, self.folder / journal_name(generation), generation),)
            self._tidy()
        except OSError as error:
            self._fail(error)

    def _renew(
        self,
        change: Callable[[Policy], None] | None = None,
        replacement: Policy | None = None,
        why: str | None = None,
    ) -> None:
        """Begin a new generation with the present state, or with the policy changed or replaced."""
        self._past = remember(self._past, self.generation, why)
        generation, self._next = self._next, self._next + 1
        fresh = self._begin(generation)
        with self._lock:
            if change or replacement or self._failure:
                self._retire()  # what comes now does not follow from what the old journal says
            self.policy = replacement or self.policy
            if change:
                change(self.policy)
            state = self.policy.state()
            self._start_counting()
            if fresh:
                self._journals = (*self._journals, fresh)
        if fresh:
            self._finish(generation, snapshot_bytes(generation, state, why, self._past), fresh)

    def _begin(self, generation: int) -> Journal | None:
        path, journal = self.folder / journal_name(generation), None
        if self._copied:
            return None
        try:
            journal = Journal(self._disk, path, generation)
            journal.begin(generation)
            self._disk.sync_folder(self.folder)
            return journal
        except OSError as error:
            with self._lock:
                self._fail(error)
            if journal:
                self._retired.append(journal)
            with suppress(OSError):
                self._disk.remove(path)
            return None

    def _finish(self, generation: int, snapshot: bytes, fresh: Journal) -> None:
        try:
            written = self._publish(generation, snapshot, fresh)
        except OSError as error:
            with self._lock:
                self._fail(error)
            with suppress(OSError):  # neither is of use, unless the snapshot has got its name already
                self._disk.remove(self.folder / f"{snapshot_name(generation)}.tmp")
                self._disk.remove(self.folder / journal_name(generation))
            return
        with self._lock:
            if fresh not in self._journals:
                return  # a record could not be written meanwhile
            self._retired += [journal for journal in self._journals if journal is not fresh]
            self._journals, self._failure, self._synced = (fresh,), None, written
        self._older, self.generation = self.generation, generation
        self._set_aside()
        self._tidy()

    def _publish(self, generation: int, snapshot: bytes, fresh: Journal) -> int:
        """Bring snapshot and journal to the disk, then give the snapshot its name; returns what is safe by then."""
        path = self.folder / snapshot_name(generation)
        unnamed = path.with_name(f"{path.name}.tmp")
        handle = self._disk.open(unnamed)
        try:
            self._disk.write(handle, snapshot)
            self._disk.sync(handle)
        finally:
            self._disk.close(handle)
        with self._lock:
            written = self._written
        fresh.sync()
        self._disk.rename(unnamed, path)
        self._disk.sync_folder(self.folder)
        return written

    def _fail(self, error: OSError) -> None:
        """Go on in memory: what was half written may not be trusted, whatever a second try says. Needs `_lock`."""
        self._failure = f"the disk failed: {error}"
        self._retire()

    def _retire(self) -> None:
        """Write no more to the journals. They are closed later, as another thread may be syncing them."""
        self._retired += self._journals
        self._journals = ()

    def _close_retired(self) -> None:
        while self._retired:
            with suppress(OSError):
                self._retired.pop().close()

    def _set_aside(self) -> None:
        """Rename files that are not to be used any more, and not to be lost either."""
        waiting, self._aside = self._aside, []
        for name, suffix in waiting:
            try:
                self._disk.rename(self.folder / name, self.folder / f"{name}{suffix}")
            except FileNotFoundError:
                pass
            except OSError:
                self._aside.append((name, suffix))

    def _tidy(self) -> None:
        """Remove what belongs neither to the two newest generations nor to those that may be gone back to."""
        kept = {self.generation, self._older, *(origin.generation for origin in self._past)}
        with suppress(OSError):
            for name in unused(self._disk.names(self.folder), kept):
                self._disk.remove(self.folder / name)


def _check_same(path: Path, restored: Policy, given: Policy) -> None:
    wanted = json.loads(json.dumps([given.name, given.parameters]))
    held = json.loads(json.dumps([restored.name, restored.parameters]))
    if wanted != held:
        raise InvalidState(f"{path}: holds {restored!r}, and not {given!r}; use another folder, or merge what it knows")
