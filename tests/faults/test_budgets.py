"""S5: neither a lying remote nor crafted inputs get more offloads than the budget in any window."""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from hinge import Device, FixedCost, Gate
from hinge.remotes import Deadline, Reply
from tests.faults.counts import LIES

WINDOW, SHARE = 1000, 0.2
MOST = round(WINDOW * SHARE)
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
GATES: dict[str, Callable[[], Gate]] = {
    "told": lambda: Gate(offload_cost=0.1, budget=SHARE),
    "measured": lambda: Gate(budget=SHARE),
    "no price": lambda: Gate(offload_cost=0.0, bins=16, budget=SHARE),
}


def pinned(device: Device, chance: random.Random, number: int) -> float:
    """One bin at a time, for long."""
    return (number // 700 % 16 + 0.5) / 16


def scattered(device: Device, chance: random.Random, number: int) -> float:
    return chance.random()


def sought(device: Device, chance: random.Random, number: int) -> float:
    """An adversary who looks into the device, and takes a sample that would be offloaded if it finds one."""
    seen = [chance.random() for _ in range(3)]
    return max(seen, key=lambda confidence: device.gate.explain(confidence).offload_probability)


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
@pytest.mark.parametrize("kept", GATES)
def test_s5_no_window_holds_more_than_the_budget(kept: str, lies: str, inputs: Any) -> None:
    chance, remote = random.Random(7), Liar(LIARS[lies])
    with Device(Sure(), remote, GATES[kept](), price=FixedCost(0.1)) as device:
        offloads = [device.infer(inputs(device, chance, number)).offloaded for number in range(LIES)]
    assert fullest(offloads) <= MOST
    assert remote.asked == sum(offloads) > 0
    if lies == "always disagrees" and inputs is not quiet_then_all:
        assert sum(offloads) > 0.8 * SHARE * LIES


def test_s5_nor_with_batches_and_threads() -> None:
    remote = Liar(LIARS["always disagrees"])
    with Device(Sure(), remote, GATES["told"](), batch=16) as device, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(device.infer_many, [[0.1] * 37] * (LIES // 37)))
    times = sorted(answer.decision.time or 0 for part in parts for answer in part if answer.decision.offload)
    assert len(times) == len(set(times)) == remote.asked
    assert all(later - earlier >= WINDOW for earlier, later in zip(times, times[MOST:], strict=False))


def test_s5_nor_by_restarting_the_device(tmp_path: Path) -> None:
    offloads = list[bool]()
    while len(offloads) < LIES // 2:
        with Device(Sure(), Liar(LIARS["always disagrees"]), GATES["told"](), state=tmp_path) as device:
            offloads += [device.infer(0.1).offloaded for _ in range(333)]
    assert 0.8 * MOST < fullest(offloads) <= MOST
