"""A process that opens a store and forks; both go on. Prints what each knows, and whether it is durable.

    python forked.py FOLDER HOW
"""

import json
import os
import sys
from pathlib import Path
from threading import Event, Thread

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import InvalidState, Isotonic
from hinge.device.storage.store import Store


def learn(store: Store, offloads: int) -> None:
    for _ in range(offloads):
        store.learn(store.decide(0), agreed=False)


def child(store: Store, pipe: int) -> None:
    """Do all that would write."""
    learn(store, 100)
    synced = store.sync()
    store.merge(other())
    try:
        store.rollback()
        refused = ""
    except InvalidState as error:
        refused = str(error)
    told = {"learned": store.policy.learned, "synced": synced, "durable": store.durable, "reason": store.reason}
    store.close()
    os.write(pipe, json.dumps({**told, "refused": refused}).encode())


def other() -> dict[str, object]:
    policy = Isotonic(bins=16, offload_cost=0.5)
    policy.learn(policy.decide(1), agreed=True)
    return policy.state()


def fork(store: Store, pipe: int) -> int:
    number = os.fork()
    if number == 0:
        try:
            child(store, pipe)
        finally:
            os._exit(0)
    return number


def forked_while_held(store: Store, pipe: int) -> int:
    """Fork while another thread holds the store's locks."""
    held, done = Event(), Event()

    def hold() -> None:
        with store._syncing, store._lock:
            held.set()
            done.wait(20)

    thread = Thread(target=hold)
    thread.start()
    held.wait(20)
    number = fork(store, pipe)
    done.set()
    thread.join(20)
    return number


def main() -> None:
    reading, writing = os.pipe()
    store = Store(sys.argv[1], Isotonic(bins=16, offload_cost=0.5), seconds=0.001, every=4)
    learn(store, 1)
    number = (forked_while_held if sys.argv[2] == "held" else fork)(store, writing)
    learn(store, 20)
    os.waitpid(number, 0)
    learn(store, 20)
    told = {"learned": store.policy.learned, "synced": store.sync(), "durable": store.durable, "reason": store.reason}
    waiting = fork_and_wait() if sys.argv[2] == "alive" else None
    store.close()
    Store(sys.argv[1]).close()  # a child that is alive does not keep the folder
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
