"""A process that opens a store and forks; both go on. Prints what each knows, and whether it is durable.

python forked.py FOLDER HOW
"""

import json
import os
import sys
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import Gate, InvalidState, Isotonic
from hinge.device.store import MemoryStore, SqliteStore
from hinge.policies.policy import State


def gate() -> Gate:
    return Gate(Isotonic(bins=16, offload_cost=0.5))


def learn(store: MemoryStore, offloads: int) -> None:
    for _ in range(offloads):
        store.learn(store.decide(0), agreed=False)


def child(store: SqliteStore, memory: MemoryStore, pipe: int) -> None:
    """Do all that would write."""
    learn(memory, 10)
    learn(store, 100)
    synced = store.sync()
    store.merge(other())
    try:
        store.rollback()
        refused = ""
    except InvalidState as error:
        refused = str(error)
    told = {"learned": store.policy.learned, "synced": synced, "problem": store.problem}
    store.close()
    os.write(pipe, json.dumps({**told, "refused": refused}).encode())


def other() -> State:
    policy = Isotonic(bins=16, offload_cost=0.5)
    policy.learn(policy.decide(1), agreed=True)
    return policy.state()


def fork(store: SqliteStore, memory: MemoryStore, pipe: int) -> int:
    number = os.fork()
    if number == 0:
        try:
            child(store, memory, pipe)
        finally:
            os._exit(0)
    return number


def forked_while_held(store: SqliteStore, memory: MemoryStore, pipe: int) -> int:
    """Fork while other threads hold the stores' locks."""
    held, done = Event(), Event()

    def hold() -> None:
        def wait(_: object) -> None:
            held.set()
            done.wait(20)

        store.locked(lambda _: memory.locked(wait))

    thread = Thread(target=hold)
    thread.start()
    held.wait(20)
    number = fork(store, memory, pipe)
    done.set()
    thread.join(20)
    return number


def main() -> None:
    reading, writing = os.pipe()
    store, memory = SqliteStore(sys.argv[1], gate(), seconds=0.001), MemoryStore(gate())
    learn(store, 1)
    number = (forked_while_held if sys.argv[2] == "held" else fork)(store, memory, writing)
    learn(store, 20)
    os.waitpid(number, 0)
    learn(store, 20)
    told = {"learned": store.policy.learned, "synced": store.sync(), "problem": store.problem}
    waiting = fork_and_wait() if sys.argv[2] == "alive" else None
    store.close()
    SqliteStore(sys.argv[1]).close()  # a child that is alive does not keep the folder
    if waiting is not None:
        os.kill(waiting, 9)
    os.close(writing)
    print(json.dumps({"parent": told, "child": json.loads(os.read(reading, 65_536))}))


def fork_and_wait() -> int:
    number = os.fork()
    if number == 0:
        Event().wait(60)
        os._exit(0)
    return number


if __name__ == "__main__":
    main()
