"""S5: neither a lying remote nor crafted inputs get more offloads than the budget in any window, and it is told."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hinge import Device, FixedCost, Isotonic, Policy, at_most, on_budget
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline, Reply
from tests.faults.counts import LIES

WINDOW, SHARE = 1000, 0.2
MOST = round(WINDOW * SHARE)
ALARM = "the offload budget is exhausted"
TRUTH, LIE = 0, 1


class Sure:
    """A local model that is as sure as the sample says, and always answers the same."""

    def answer(self, sample: Any) -> tuple[Any, float]:
        return TRUTH, float(sample)

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        return [self.answer(sample) for sample in samples]


class Liar:
    """A remote that disagrees with the local model as it likes."""

    def __init__(self, lies: Callable[[int], bool]) -> None:
        self.asked, self._lies, self._lock = 0, lies, Lock()

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        with self._lock:  # several threads ask
            self.asked += len(samples)
            asked = self.asked
        return Reply([LIE if self._lies(asked) else TRUTH for _ in samples])

    def close(self) -> None:
        """Nothing is kept open."""


LIARS: dict[str, Callable[[int], bool]] = {
    "always disagrees": lambda _: True,
    "alternates": lambda asked: asked % 2 == 0,
    "agrees until it is trusted": lambda asked: asked > 60,
    "agrees at random": lambda asked: random.Random(asked).random() < 0.6,
}
POLICIES: dict[str, Callable[[], Policy]] = {
    "limit": lambda: at_most(Isotonic(16, offload_cost=0.5), SHARE, WINDOW),
    "limit and price": lambda: at_most(on_budget(Isotonic(16, offload_cost=0.1), offloads=0.18), SHARE, WINDOW),
    "limit on always-remote": lambda: at_most(AlwaysRemote(16), SHARE, WINDOW),
}


def pinned(device: Device, chance: random.Random, number: int) -> float:
    """One bin at a time, for long."""
    return (number // 700 % 16 + 0.5) / 16


def scattered(device: Device, chance: random.Random, number: int) -> float:
    return chance.random()


def sought(device: Device, chance: random.Random, number: int) -> float:
    """An adversary who looks into the device, and takes a bin that would be offloaded if it finds one."""
    policy, bins = device.policy, chance.sample(range(16), 3)
    wanted = [bin for bin in bins if policy.functions.offloads(policy.table, bin, policy.time + 1)]
    return ((wanted or bins)[0] + 0.5) / 16


def quiet_then_all(device: Device, chance: random.Random, number: int) -> float:
    """Confident for a whole window, so that the budget is untouched, and then never."""
    return 0.99 if number % (2 * WINDOW) < WINDOW else 0.01


INPUTS = [pinned, scattered, sought, quiet_then_all]


def fullest(offloads: Sequence[bool]) -> int:
    """The most offloads in any window, wherever it begins."""
    inside = most = 0
    for number, offload in enumerate(offloads):
        inside += offload - (number >= WINDOW and offloads[number - WINDOW])
        most = max(most, inside)
    return most


@pytest.mark.parametrize("inputs", INPUTS, ids=lambda inputs: inputs.__name__)
@pytest.mark.parametrize("lies", LIARS)
@pytest.mark.parametrize("kept", POLICIES)
def test_s5_no_window_holds_more_than_the_budget(kept: str, lies: str, inputs: Any) -> None:
    chance, remote = random.Random(7), Liar(LIARS[lies])
    with Device(Sure(), remote, POLICIES[kept](), price=FixedCost(0.1)) as device:
        offloads = list[bool]()
        for number in range(LIES):
            offloads.append(device.infer(inputs(device, chance, number)).offloaded)
        alarms = device.status.alarms
    most = fullest(offloads)
    assert most <= MOST
    assert remote.asked == sum(offloads)
    if most == MOST:
        assert alarms.get(ALARM, 0) > 0
    if lies == "always disagrees" and kept != "limit and price":
        assert most == MOST


def test_s5_nor_with_batches_and_threads() -> None:
    remote = Liar(LIARS["always disagrees"])
    with Device(Sure(), remote, POLICIES["limit"](), batch=16) as device, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(device.infer_many, [[0.1] * 37] * (LIES // 37)))
        alarms = device.status.alarms
    times = sorted(answer.decision.time or 0 for part in parts for answer in part if answer.decision.offload)
    assert len(times) == len(set(times)) == remote.asked
    assert all(later - earlier >= WINDOW for earlier, later in zip(times, times[MOST:], strict=False))
    assert alarms[ALARM] > 0


def test_s5_nor_by_restarting_the_device(tmp_path: Path) -> None:
    offloads, alarms = list[bool](), 0
    while len(offloads) < LIES // 2:
        with Device(Sure(), Liar(LIARS["always disagrees"]), POLICIES["limit"](), state=tmp_path) as device:
            offloads += [device.infer(0.1).offloaded for _ in range(333)]
            alarms += device.status.alarms.get(ALARM, 0)
    assert fullest(offloads) == MOST
    assert alarms > 0
