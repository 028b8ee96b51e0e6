"""A policy's state on disk: snapshots, each with the journal of what followed it; two generations of both are kept,
and those that the last starts and merges began from, for `rollback`.

*What a crash costs.* A killed process loses nothing that `learn` or `decide` returned from: records are handed to the
operating system at once. A power loss costs at most the last 2 × `every` records (decisions that wait for feedback,
and feedback), and with the thread on no more than those of the last `seconds`, plus the time that the disk takes. That
holds while `durable` is true; it turns false, with the `reason`, when the disk fails or falls behind.

*A disk that fails.* The policy goes on in memory. A file whose write or sync failed is not written or synced again: the
next `sync` tries a whole new generation, in new files, and only that makes the store durable again.

*A process that forks* goes on unharmed; its child goes on in memory, and writes nothing.

*Threads.* Any thread may decide and learn. One at a time syncs or changes generation, and neither keeps the others
waiting for the disk: while a snapshot is written, records go to the old journal and to the new one.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from hinge._checks import positive
from hinge.device.storage.disk import Disk
from hinge.device.storage.forking import COPIED
from hinge.device.storage.journal import CLOCK, DECIDED, FORGOTTEN, LEARNED
from hinge.device.storage.keeping import Keeping
from hinge.device.storage.past import MERGE, START
from hinge.device.storage.recovery import Found, journal_name, snapshot_name
from hinge.device.storage.rollback import SUFFIX, find_earlier, set_aside
from hinge.errors import InvalidState
from hinge.policies.policy import Decision, Decisions, Policy, restore

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")
CLOSED = "the store is closed"  # why one is not durable that was to the end


class Store(Keeping):
    """Keeps a policy in a folder: decide, learn and merge through the store, and read `store.policy` as you like.

    The policy given is the one to start with; what the folder holds, of the same policy with the same parameters, goes
    before it. `found` says what was found there, and `durable` whether what is learned now will survive.

    >>> from tempfile import TemporaryDirectory
    >>> from hinge import Isotonic
    >>> folder = TemporaryDirectory()
    >>> with Store(folder.name, Isotonic(bins=16, offload_cost=0.5)) as store:
    ...     store.learn(store.decide(12), agreed=True)
    >>> with Store(folder.name) as store:
    ...     print(store.found)
    ...     print(store.policy.explain(12), store.durable)
    Generation 1 was found, and 2 records after it.
    Bin 12 is offloaded: local agreed in 1 of 1 offloads; too little evidence that accepting is cheaper. True
    >>> folder.cleanup()
    """

    on_disk = True

    def __init__(
        self,
        folder: str | Path,
        policy: Policy | None = None,
        *,
        every: int = 64,
        seconds: float | None = 1.0,
        disk: Disk | None = None,
    ) -> None:
        self._seconds = None if seconds is None else positive("Store", "seconds", seconds)
        super().__init__(Path(folder), policy, every, disk or Disk())
        self._thread = Thread(target=self._keep_syncing, name="hinge-store", daemon=True) if seconds else None
        if self._thread:
            self._thread.start()

    # -- deciding and learning ----------------------------------------------------------------------------------------

    def decide(self, bin: int) -> Decision:
        """Decide as the policy does, and remember it if feedback may come."""
        with self._lock:
            decision = self.policy.decide(bin)
            if decision.time is not None or self._all:
                self._append(DECIDED, decision.offload, bin, self.policy.time)
        return decision

    def decide_many(self, bins: "Iterable[int] | NDArray[np.integer[Any]]") -> Decisions:
        """Decide for a batch at once, as the policy does."""
        with self._lock:
            batch = self.policy.decide_many(bins)
            everyone = self._all or batch.accepted_wait
            for position in range(len(batch)) if everyone else batch.offload.nonzero()[0].tolist():
                offload, bin = bool(batch.offload[position]), int(batch.bins[position])
                self._append(DECIDED, offload, bin, batch.first_time + position)
        return batch

    def learn(self, decision: Decision, agreed: float | None = None, cost: float | None = None) -> None:
        """Let the policy learn, and write it down, unsynced: a few microseconds."""
        with self._lock:
            self.policy.learn(decision, agreed, cost)
            self._append(LEARNED, decision.offload, decision.bin or 0, decision.time or 0, agreed, cost)

    def forget(self, decision: Decision) -> None:
        """Wait no longer for the feedback of a decision."""
        with self._lock:
            self.policy.forget(decision)
            self._append(FORGOTTEN, decision.offload, decision.bin or 0, decision.time or 0)

    def look(self, function: Callable[[Policy], T]) -> T:
        """What the function finds out about the policy, while nobody changes it."""
        with self._lock:
            return function(self.policy)

    # -- what others know ---------------------------------------------------------------------------------------------

    def merge(self, *other_states: Mapping[str, Any]) -> None:
        """Merge other devices' states, and take a snapshot; if one of them is refused, none changes anything."""

        def merge_all(policy: Policy) -> None:
            for state in other_states:
                policy.merge(state)

        self._change(merge_all)

    def warm_start(self, state: Mapping[str, Any], weight: float) -> None:
        """Start the policy from what another knows, and take a snapshot."""
        self._change(lambda policy: policy.warm_start(state, weight))

    def _change(self, change: Callable[[Policy], None]) -> None:
        with self._syncing:
            with self._lock:
                before = self.policy.state()
            trial = restore(before)
            change(trial)
            if trial.state() != before:  # what is known already needs no new generation
                self._renew(change, why=MERGE)

    def rollback(self, to: int | None = None) -> Found:
        """Go back to before the last start or merge that changed anything, however much was learned since.

        With `to`, go back to that generation, as its snapshot and its journal have it. `policy` is another object
        afterwards. The files of the generations that are left are set aside.
        """
        with self._syncing:
            if self._copied:
                raise InvalidState(f"{self.folder}: cannot roll back: {COPIED}")
            left = self.generation
            present = self.look(lambda policy: policy.state())
            policy, found = find_earlier(self._disk, self.folder, left, self._past, present, to)
            with self._lock:
                self._retire()
            try:
                set_aside(self._disk, self.folder, found.generation or 0, left or 0)
            except OSError:  # it goes on to count, until there is a newer one
                self._aside += [(name(left or 0), SUFFIX) for name in (snapshot_name, journal_name)]
            self.generation, self._past = found.generation, found.past
            self._renew(None, policy, START)
            return found

    def close(self) -> None:
        """Write down the clock, sync, and let others open the folder."""
        self._wake.set()
        with self._syncing:
            if self._closed:
                return
            with self._lock:
                if self.policy.time != self._clock:
                    self._append(CLOCK, False, 0, self.policy.time)
            if self._failure and not self._copied:
                self._renew()
            else:
                self._flush()
            self._closed, self._failure = True, self._failure or CLOSED
            with self._lock:
                self._retire()
            self._close_retired()
            self._folder_lock.release()
        self._wake.set()
        if self._thread:
            self._thread.join(10)

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep_syncing(self) -> None:
        while not self._closed:
            if self.unsynced < self._every or self._failure:
                self._wake.wait(self._seconds)
            self._wake.clear()
            self.sync()
