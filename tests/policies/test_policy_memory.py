"""Deciding leaves nothing behind: memory is what the table takes, however long the run."""

import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from hinge import HILCB, Gate, HILCBLite, Policy, Probation, Thompson
from hinge.policies import HILF, AlwaysLocal, AlwaysRemote, Discounted, HedgeHI, Need
from hinge.policies.policy import MAX_PENDING

pytestmark = pytest.mark.usefixtures("frozen")

ALLOWANCE = 2_000  # bytes: the clock's integers and whatever the interpreter caches meanwhile
LICENSED: dict[str, Callable[[], Policy]] = {
    "hi-lcb": lambda: HILCB(2, 0.001, 0.5),
    "hi-lcb learned": lambda: HILCB(2, 0.001),
    "lite": lambda: HILCBLite(2, 0.001, 0.5),
    "lite learned": lambda: HILCBLite(2, 0.001),
    "always-local": lambda: AlwaysLocal(2),
}
RANDOMISED: dict[str, Callable[[], Policy]] = {
    "thompson": lambda: Thompson(2, 0.5),
    "probation": lambda: Probation(2, 0.5),
    "discounted": lambda: Discounted(2, 0.52, 0.5, 200),
    "hedge-hi": lambda: HedgeHI(10**6, 2, 0.5),
    "hedge-hi told": lambda: HedgeHI(10**6, 2),
    "hil-f": lambda: HILF(10**6, 2, 0.5),
}


def drive(policy: Policy, samples: int) -> int:
    """Decide and, where there is something to learn, learn; returns the number of offloads."""
    offloads, full, told = 0, Need.AGREEMENT in policy.needs, Need.COST in policy.needs
    for sample in range(samples):
        decision = policy.decide(sample & 1)
        if decision.offload or full:
            policy.learn(decision, sample % 3 > 0, 0.5)
            offloads += decision.offload
        elif told:
            policy.learn(decision, cost=0.5)
    return offloads


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """No other thread of the process runs, and allocates, while a test counts blocks: nothing here waits."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    time.sleep(0.05)  # whoever waited for a turn by the old interval takes it now
    yield
    sys.setswitchinterval(interval)


def kept(run: Callable[[int], object], samples: int) -> tuple[int, int]:
    """Blocks of memory that nine tenths of a run leave allocated, and bytes that the traced rest does."""
    gc.collect()
    before = sys.getallocatedblocks()
    run(samples * 9 // 10)
    gc.collect()
    blocks = sys.getallocatedblocks() - before
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    run(samples // 10)
    gc.collect()
    bytes = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return bytes, blocks


@pytest.mark.parametrize("make", LICENSED.values(), ids=LICENSED)
def test_a_million_accepted_samples_leave_nothing(make: Callable[[], Policy]) -> None:
    policy = make()
    for sample in range(200):
        decision = policy.decide(sample & 1)
        if decision.offload:
            policy.learn(decision, agreed=True, cost=0.5)

    def accept(samples: int) -> None:
        for sample in range(samples):
            if policy.decide(sample & 1).offload:
                raise AssertionError(policy.explain(sample & 1))

    bytes, blocks = kept(accept, 10**6)
    assert bytes < ALLOWANCE
    assert blocks < 100
    assert policy.time == 1_000_200


@pytest.mark.parametrize("make", [*LICENSED.values(), *RANDOMISED.values()], ids=[*LICENSED, *RANDOMISED])
def test_offloads_that_are_learned_leave_nothing(make: Callable[[], Policy]) -> None:
    policy = make()
    drive(policy, 1_000)
    bytes, blocks = kept(partial(drive, policy), 5_000)
    assert bytes < ALLOWANCE
    assert blocks < 100
    assert not policy.state()["pending"]


def test_a_gate_that_forms_its_bins_leaves_nothing() -> None:
    gate = Gate(budget=0.5)

    def run(samples: int) -> None:
        for sample in range(samples):
            decision = gate.decide(confidence=sample % 64 / 64)
            if decision.offload:
                gate.learn(decision, sample % 64 > 31, cost=0.3)

    run(5_000)
    bytes, blocks = kept(run, 20_000)
    assert bytes < 2 * ALLOWANCE
    assert blocks < 100


def test_feedback_that_never_comes_is_given_up_in_the_end() -> None:
    policy = AlwaysRemote(2)
    first = policy.decide(0)
    for _ in range(MAX_PENDING - 1):
        policy.decide(1)
    policy.learn(first, agreed=True, cost=0.5)  # still waiting
    second = policy.decide(0)
    for _ in range(MAX_PENDING):
        policy.decide(1)

    def decide(samples: int) -> None:
        for _ in range(samples):
            policy.decide(1)

    bytes, blocks = kept(decide, 20_000)  # two objects and a record for each, that replace as many
    assert blocks < 100
    assert bytes < 1_000_000  # tracing sees the new ones only, and the dictionary now and then grows
    assert len(policy.state()["pending"]) == MAX_PENDING
    with pytest.raises(ValueError, match="waiting for feedback"):
        policy.learn(second, agreed=True, cost=0.5)
