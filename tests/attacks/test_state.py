"""Attacks on what a device has learned: its folder, its budget, and the states of others."""

import copy
import gc
import os
import random
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinge import Device, FixedCost, HingeError, Isotonic, at_most
from hinge.cli.app import run
from hinge.policies import AlwaysRemote

pytestmark = pytest.mark.server
Record = Callable[[str, object], None]  # pytest's record_property: figures for docs/attacks.md


def device_in(folder: Path, policy: Any = None) -> Device:
    price = None if policy is None else FixedCost(0.1)
    policy = policy or Isotonic(bins=16, offload_cost=0.1)
    return Device(lambda x: [0.0, x], lambda x: int(x > 0), policy, price=price, deadline_s=30, state=folder)


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> bool:
    end = time.monotonic() + within_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


def test_m9_a_folder_that_is_deleted_is_noticed(tmp_path: Path, record_property: Record) -> None:
    folder, chance = tmp_path / "state", random.Random(1)
    with device_in(folder, AlwaysRemote(16)) as device:
        for _ in range(50):
            device.infer(chance.uniform(-3, 3))
        assert device.status.not_durable is None
        shutil.rmtree(folder)

        def noticed() -> bool:
            device.infer(chance.uniform(-3, 3))
            return device.status.not_durable is not None

        found = eventually(noticed, 10)
        record_property("noticed", found)
        assert found


def learned(seed: int, samples: int = 2000) -> Isotonic:
    policy, chance = Isotonic(bins=16, offload_cost=0.3), random.Random(seed)
    for _ in range(samples):
        bin = chance.randrange(16)
        decision = policy.decide(bin)
        if decision.offload:
            policy.learn(decision, agreed=chance.random() < 0.4 + bin / 25)
    return policy


def poisoned(honest: dict[str, Any], agreed: bool) -> dict[str, Any]:
    state = copy.deepcopy(honest)
    evidence = state["evidence"]
    evidence["offloads"] = [1e9] * 16
    evidence["agreements"] = [1e9 if agreed else 0.0] * 16
    return state


@pytest.mark.parametrize("agreed", [False, True], ids=["none agreed", "all agreed"])
def test_m8_a_state_with_impossible_counts_changes_no_decision(agreed: bool, record_property: Record) -> None:
    policy = learned(1)
    before = [policy.explain(bin).offload_probability for bin in range(16)]
    refused = False
    try:
        policy.merge(poisoned(learned(2).state(), agreed))
    except HingeError:
        refused = True
    after = [policy.explain(bin).offload_probability for bin in range(16)]
    record_property("of 16 bins decided otherwise", sum(one != other for one, other in zip(before, after, strict=True)))
    assert after == before
    assert refused


def test_l8_devices_that_are_dropped_keep_nothing(tmp_path: Path, record_property: Record) -> None:
    def held() -> tuple[int, int]:
        gc.collect()
        return threading.active_count(), len(os.listdir("/proc/self/fd"))

    threads, files = held()
    for number in range(20):
        device_in(tmp_path / str(number)).infer(3.0)
    eventually(lambda: held()[0] <= threads and held()[1] <= files, 5)
    kept = held()
    record_property("threads and descriptors kept by 20", f"{kept[0] - threads}, {kept[1] - files}")
    assert kept[0] <= threads
    assert kept[1] <= files
    device_in(tmp_path / "0").close()  # its lock is free


def test_l9_a_rollback_refunds_no_budget(tmp_path: Path, record_property: Record) -> None:
    offloaded = list[bool]()
    for turn in range(9):
        with device_in(tmp_path, at_most(Isotonic(16, offload_cost=0.01), 0.2, 100)) as device:
            offloaded += [device.infer(1.0).offloaded for _ in range(25 if turn else 1)]  # then there is a way back
        if turn:
            assert run(["state", "rollback", str(tmp_path)]) in (0, 2)  # 2: nothing was learned since
    most = max(sum(offloaded[start : start + 100]) for start in range(len(offloaded) - 99))
    record_property("offloads in 100 samples, of 20 allowed", most)
    assert most <= 20
