"""A process whose children are devices with a budget, which keep their state in a folder, until they are killed.

    python spending.py FOLDER KILLS

Prints a line for each child: an `o` for each sample as it reaches the remote, an `a` for each that was accepted.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import Breaker, Device, Gate
from hinge.errors import RemoteLate
from hinge.remotes import Deadline, Reply

SAMPLES = 40  # in a life, until it waits to be killed


class Telling:
    """A remote that tells that it was asked, and fails: nothing is learned, which would be written down."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        os.write(self._pipe, b"o" * len(samples))
        raise RemoteLate("no answer in time")

    def close(self) -> None:
        """Nothing is kept open."""


def live(folder: Path, pipe: int) -> None:
    gate, breaker = Gate(offload_cost=0.1, budget=0.2), Breaker(failures=10**9, interval_s=3600)
    device = Device(lambda sample: [0.0, sample], Telling(pipe), gate, breaker=breaker, state=folder)
    os.write(pipe, b"\n")
    for _ in range(SAMPLES):
        if not device.infer(0.1).decision.offload:
            os.write(pipe, b"a")
    time.sleep(60)


def killed(folder: Path, wait_s: float) -> str:
    """Let a child live for a while; what it told."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live(folder, writing)
        finally:
            os._exit(1)
    os.close(writing)
    os.read(reading, 1)  # it is under way
    time.sleep(wait_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = b"".join(iter(lambda: os.read(reading, 65_536), b""))
    os.close(reading)
    return told.decode()


def main() -> None:
    instants = random.Random(5)
    for _ in range(int(sys.argv[2])):
        print(killed(Path(sys.argv[1]), instants.uniform(0.0, 0.02)) or "-", flush=True)


if __name__ == "__main__":
    main()
