"""S5: neither a lying remote nor crafted inputs get more offloads than the budget in any stretch of samples.

Of any n consecutive samples at most share · n + max(2, 20 · share) are offloaded, and of any 1 000 or more at most
share · n: in threads and event loops, over restarts and kills, whatever comes of the offloads.
"""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pytest

from hinge import Answer, AsyncDevice, Device, FixedCost, Gate
from hinge.errors import RemoteLate
from hinge.remotes import Deadline, Reply
from tests.faults.counts import KILLS, LIES
from tests.faults.setting import tireless

SHARE = 0.2
TRUTH, LIE = 0, 1


class Sure:
    """A local model that is as sure as the sample says, and always answers the same."""

    def answer(self, sample: Any) -> tuple[Any, float]:
        return TRUTH, float(sample)

    def answer_many(self, samples: Sequence[Any]) -> list[tuple[Any, float]]:
        return [self.answer(sample) for sample in samples]


class Liar:
    """A remote that disagrees with the local model as it likes, or fails."""

    def __init__(self, lies: Callable[[int], bool | None]) -> None:
        self.asked, self._lies, self._lock = 0, lies, Lock()

    def ask(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        with self._lock:  # several threads ask
            self.asked += len(samples)
            lies = self._lies(self.asked)
        if lies is None:
            raise RemoteLate("no answer in time")
        return Reply([LIE if lies else TRUTH for _ in samples])

    async def ask_async(self, samples: Sequence[Any], deadline: Deadline) -> Reply:
        await asyncio.sleep(0.001)  # all others get in flight
        return self.ask(samples, deadline)

    def close(self) -> None:
        """Nothing is kept open."""

    async def close_async(self) -> None:
        """Nothing is kept open."""


LIARS: dict[str, Callable[[int], bool | None]] = {
    "always disagrees": lambda _: True,
    "alternates": lambda asked: asked % 2 == 0,
    "agrees until it is trusted": lambda asked: asked > 60,
    "agrees at random": lambda asked: random.Random(asked).random() < 0.6,
    "always fails": lambda _: None,
}
GATES: dict[str, Callable[[float], Gate]] = {
    "default": lambda share: Gate(offload_cost=0.1, budget=share),
    "measured": lambda share: Gate(budget=share),
    "16 bins": lambda share: Gate(offload_cost=0.1, bins=16, budget=share),
    "hi-lcb": lambda share: Gate("hi-lcb", offload_cost=0.1, budget=share),
}


def pinned(device: Device, chance: random.Random, number: int) -> float:
    """One confidence at a time, for long."""
    return (number // 700 % 16 + 0.5) / 16


def scattered(device: Device, chance: random.Random, number: int) -> float:
    return chance.random()


def sought(device: Device, chance: random.Random, number: int) -> float:
    """An adversary who looks into the device, and takes what would be offloaded if it finds it."""
    found = [chance.random() for _ in range(3)]
    return max(found, key=lambda confidence: device.explain(confidence).offload_probability)


def quiet_then_all(device: Device, chance: random.Random, number: int) -> float:
    """Confident for a thousand samples, so that the bucket is full, and then never."""
    return 0.99 if number % 2000 < 1000 else 0.01


INPUTS = [pinned, scattered, sought, quiet_then_all]


def check(offloads: Sequence[bool], share: float = SHARE) -> None:
    """Hold all stretches of samples against the promise."""
    over = np.concatenate([[0.0], np.cumsum(np.asarray(offloads, float) - share)])
    least = np.minimum.accumulate(over)  # before or at each sample: where the worst stretch begins that ends there
    assert (over - least).max() <= max(2.0, 20.0 * share) + 1e-6
    assert (over[1000:] - least[:-1000]).max(initial=0.0) <= 1e-6


def by_time(answers: Sequence[Answer], samples: int) -> list[bool]:
    """Whether each sample was offloaded, in the order in which they were decided."""
    times = [answer.decision.time or 0 for answer in answers if answer.decision.offload]
    assert len(times) == len(set(times))
    offloads = [False] * samples
    for time in times:
        offloads[time - 1] = True
    return offloads


@pytest.mark.parametrize("inputs", INPUTS, ids=lambda inputs: inputs.__name__)
@pytest.mark.parametrize("lies", LIARS)
@pytest.mark.parametrize("gate", GATES)
def test_s5_no_stretch_of_samples_holds_more_than_the_budget(gate: str, lies: str, inputs: Any) -> None:
    chance, remote = random.Random(7), Liar(LIARS[lies])
    terms: dict[str, Any] = {"price": FixedCost(0.1), "breaker": tireless()}
    with Device(Sure(), remote, GATES[gate](SHARE), **terms) as device:
        offloads = [device.infer(inputs(device, chance, number)).offloaded for number in range(LIES)]
    assert remote.asked == sum(offloads)
    check(offloads)
    if lies == "always disagrees" and inputs is not quiet_then_all:
        assert sum(offloads) > 0.9 * SHARE * LIES, "what may be offloaded is"


@pytest.mark.parametrize("share", [0.003, 0.02, 0.1, 0.5, 0.9, 1.0])
def test_s5_for_every_share(share: float) -> None:
    with Device(Sure(), Liar(LIARS["always disagrees"]), Gate(offload_cost=0.0, budget=share)) as device:
        check([device.infer(0.1).offloaded for _ in range(LIES)], share)


def test_s5_with_batches_and_threads() -> None:
    remote = Liar(LIARS["always disagrees"])
    with Device(Sure(), remote, GATES["default"](SHARE), batch=16) as device, ThreadPoolExecutor(8) as pool:
        parts = list(pool.map(device.infer_many, [[0.1] * 37] * (LIES // 37)))
        offloads = by_time([answer for part in parts for answer in part], device.policy.time)
    assert remote.asked == sum(offloads) > 0.9 * SHARE * len(offloads)
    check(offloads)


@pytest.mark.parametrize("lies", ["always disagrees", "always fails"])
def test_s5_with_two_hundred_in_flight_in_an_event_loop(lies: str) -> None:
    remote, answers = Liar(LIARS[lies]), list[Answer]()

    async def main() -> int:
        terms: dict[str, Any] = {"in_flight": 200, "breaker": tireless(), "deadline_s": 5}
        async with AsyncDevice(Sure(), remote, GATES["default"](0.9), **terms) as device:
            for _ in range(LIES // 300):
                answers.extend(await asyncio.gather(*(device.infer(0.1) for _ in range(300))))
            return device.policy.time

    samples = asyncio.run(main())
    offloads = by_time(answers, samples)
    assert samples == len(answers)
    assert remote.asked == sum(offloads) > 0.8 * samples
    check(offloads, 0.9)


def test_s5_over_restarts(tmp_path: Path) -> None:
    offloads = list[bool]()
    while len(offloads) < LIES // 2:
        with Device(Sure(), Liar(LIARS["always disagrees"]), GATES["default"](SHARE), state=tmp_path) as device:
            offloads += [device.infer(0.1).offloaded for _ in range(333)]
    check(offloads)
    assert sum(offloads) > 0.9 * SHARE * len(offloads)


def test_s5_over_kills(tmp_path: Path) -> None:
    """Each life begins with what it would offload; one that forgot what was spent would spend it again."""
    command = [sys.executable, str(Path(__file__).with_name("spending.py")), str(tmp_path), str(KILLS)]
    told = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True).stdout.split()
    assert len(told) == KILLS
    check([event == "o" for life in told for event in life])
    assert "".join(told).count("o") > KILLS
