"""A device and its folder: one that is deleted is noticed, and a device that is dropped keeps nothing."""

import gc
import os
import random
import shutil
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


def test_a_folder_that_is_deleted_is_noticed(tmp_path: Path) -> None:
    folder, chance = tmp_path / "state", random.Random(1)
    with device_in(folder) as device:
        for _ in range(50):
            device.infer(chance.uniform(-3, 3))
        assert device.status.not_durable is None
        shutil.rmtree(folder)

        def noticed() -> bool:
            device.infer(chance.uniform(-3, 3))
            return device.status.not_durable is not None

        assert eventually(noticed, 10)


def test_devices_that_are_dropped_keep_nothing(tmp_path: Path) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    threads, files = held()
    for number in range(20):
        device_in(tmp_path / str(number)).infer(3.0)
    assert eventually(lambda: held()[0] <= threads and held()[1] <= files, 5)
    device_in(tmp_path / "0").close()  # its lock is free
