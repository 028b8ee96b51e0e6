"""A process whose children are devices that keep their state in a folder, until they are killed.

    python dying.py FOLDER KILLS

A child tells, after every answer of the remote, how much it has learned and a CRC of what it knows. Prints for each
kill what the child last told, and what its folder holds.
"""

import json
import os
import random
import signal
import struct
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import Device, Policy
from hinge.device.store import read
from tests.device.worlds import LOCAL, Scripted, policy
from tests.faults.counts import LIVES

TOLD = struct.Struct("<II")


def known(policy: Policy) -> int:
    """A CRC of what was learned; the clock goes on between two things that are learned."""
    state = policy.state()
    table = {key: state["table"][key] for key in policy.evidence}
    kept = [table, *(state[key] for key in ("learned", "elsewhere", "merged", "parameters", "id"))]
    return zlib.crc32(json.dumps(kept, sort_keys=True).encode())


def live(folder: Path, pipe: int) -> None:
    device = Device(LOCAL, Scripted(), policy(offload_cost=0.1), state=folder)
    os.write(pipe, TOLD.pack(device.policy.learned, known(device.policy)))
    for sample in range(device.policy.time, device.policy.time + 20_000):
        if device.infer(sample).source == "remote":
            os.write(pipe, TOLD.pack(device.policy.learned, known(device.policy)))


def killed(folder: Path, wait_s: float) -> tuple[int, int]:
    """Let a child live for a while; what it told last."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            live(folder, writing)
        finally:
            os._exit(1)
    os.close(writing)
    told = os.read(reading, TOLD.size)  # it is under way
    time.sleep(wait_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told += b"".join(iter(lambda: os.read(reading, 65_536), b""))
    os.close(reading)
    learned, crc = TOLD.unpack(told[-TOLD.size :])
    return learned, crc


def main() -> None:
    instants = random.Random(5)
    for number in range(int(sys.argv[2])):
        folder = Path(sys.argv[1]) / str(number // LIVES)
        learned, crc = killed(folder, instants.uniform(0.0, 0.05))
        policy = read(folder).policy
        print(json.dumps({"told": learned, "held": policy.learned, "same": known(policy) == crc}), flush=True)


if __name__ == "__main__":
    main()
