"""A device that is dropped keeps no thread, no descriptor and no lock."""

import gc
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hinge import Device, FixedCost
from hinge.policies import AlwaysRemote


def device_in(folder: Path) -> Device:
    policy = AlwaysRemote(bins=16)
    return Device(lambda x: [0.0, x], lambda x: int(x > 0), policy, price=FixedCost(0.1), deadline_s=30, state=folder)


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_devices_that_are_dropped_keep_nothing(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    threads, files = held()
    for number in range(20):
        device_in(tmp_path / str(number)).infer(3.0)
    assert eventually(lambda: held()[0] <= threads and held()[1] <= files, 5)
    device_in(tmp_path / "0").close()  # its lock is free
