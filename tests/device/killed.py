"""A process whose children keep a store each until they are killed. Prints how much each had learned.

python killed.py FOLDER TIMES
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import Gate
from hinge.device.store import SqliteStore
from tests.device.streams import POLICIES, play


def keep(folder: Path, name: str, pipe: int) -> None:
    store = SqliteStore(folder, Gate(POLICIES[name]()), seconds=0.001)
    learned = 0
    os.write(pipe, learned.to_bytes(4, "little"))
    for learns in play(store, 3_000):
        if learns:
            learned += 1
            os.write(pipe, learned.to_bytes(4, "little"))
    time.sleep(60)


def kill_one(folder: Path, name: str, wait_s: float) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            keep(folder, name, writing)
        finally:
            os._exit(1)
    os.close(writing)
    first = os.read(reading, 4)  # it is under way
    time.sleep(wait_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    rest = b"".join(iter(lambda: os.read(reading, 65_536), b""))
    os.close(reading)
    written = first + rest
    return int.from_bytes(written[len(written) - 4 :], "little")


def main() -> None:
    instants = random.Random(1)
    for number in range(int(sys.argv[2])):
        name = list(POLICIES)[number % len(POLICIES)]
        print(name, kill_one(Path(sys.argv[1]) / str(number), name, instants.uniform(0.0, 0.06)), sep="\t", flush=True)


if __name__ == "__main__":
    main()
