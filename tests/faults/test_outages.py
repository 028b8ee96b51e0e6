"""R3: the cost of an outage, with a real device and proxy; in simulated time: `device/test_breaker_outages.py`."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from hinge import Answer, Breaker, Device, FixedCost
from hinge.device.breaker import Attempt
from hinge.policies import AlwaysRemote
from tests.faults.counts import FULL, OUTAGE_S
from tests.faults.setting import each_kind, introduced, made, proxied, row
from tests.support.chaos import ChaosProxy, Fault


class Watched(Breaker):
    """A breaker that remembers the attempts it gave leave to."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.allowed: list[Attempt] = []

    def begin(self, now: float, brief: bool = False) -> Attempt | None:
        attempt = super().begin(now, brief)
        if attempt is not None:
            self.allowed.append(attempt)
        return attempt


def always() -> dict[str, Any]:
    return {"gate": AlwaysRemote(bins=16), "price": FixedCost(0.5)}


def keep_asking(device: Any, until: Callable[[Answer], bool]) -> None:
    """Infer until it is so, which must not take for ever."""
    for _ in range(5_000):
        if until(device.infer(row(0))):
            return
        time.sleep(0.002)
    raise AssertionError("waited in vain")


@each_kind
@pytest.mark.parametrize("fault", [Fault.REFUSE, Fault.STATUS_500, Fault.STALL], ids=lambda fault: fault.name)
def test_r3_five_failures_then_one_probe_per_interval(kind: Any, fault: Fault) -> None:
    interval_s, deadline_s = (0.15, 0.1) if fault is Fault.STALL else (1.0, 0.9)
    breaker = Watched(interval_s=interval_s)
    with proxied() as proxy:
        remote = introduced(proxy)
        proxy.fault = fault
        with made(kind, remote, deadline_s=deadline_s, breaker=breaker, **always()) as device:
            keep_asking(device, until=lambda _: len(breaker.allowed) == 8)
            began = [attempt.began for attempt in breaker.allowed]
            assert [attempt.probe for attempt in breaker.allowed] == [False] * 5 + [True] * 3
            assert all(later - earlier >= breaker.interval_s for earlier, later in pairwise(began[4:]))
            assert device.status.alarms == {"the breaker opened": 1}
            proxy.fault = Fault.NONE
            ended = time.monotonic()
            keep_asking(device, until=lambda answer: answer.source == "remote")
            recovering = [attempt for attempt in breaker.allowed if attempt.began >= ended]
            if fault is not Fault.STALL:  # there, a slow machine may take a probe past its short deadline
                assert len(recovering) == 1
                assert device.status.breaker == "closed"


def outage(fault: Fault, breaker: Watched, outage_s: float) -> tuple[float, float, list[tuple[float, Answer]]]:
    """Ten samples per second, come what may: before, in and after an outage. Its two ends, and answers by instant."""

    def infer(number: int) -> tuple[float, Answer]:
        time.sleep(max(0.0, start + number / 10 - time.monotonic()))
        offered = time.monotonic()
        return offered, device.infer(row(number))

    def end(proxy: ChaosProxy, at_s: float, next_fault: Fault) -> float:
        time.sleep(max(0.0, at_s - time.monotonic()))
        proxy.fault = next_fault
        return time.monotonic()

    with proxied() as proxy:
        remote = introduced(proxy)
        with made(Device, remote, deadline_s=0.2, breaker=breaker, **always()) as device:
            start = time.monotonic()
            with ThreadPoolExecutor(8) as pool:
                samples = round(10 * (1 + outage_s + breaker.interval_s + 1))
                waiting = pool.map(infer, range(samples))
                begins = end(proxy, start + 1, fault)
                ends = end(proxy, start + 1 + outage_s, Fault.NONE)
                return begins, ends, list(waiting)


def test_r3_an_outage_at_10_samples_per_second_costs_at_most_10_attempts() -> None:
    faults = [Fault.REFUSE, Fault.STALL, Fault.STATUS_500]
    breakers = [Watched(interval_s=10.0 if FULL else 0.5) for _ in faults]
    with ThreadPoolExecutor(len(faults)) as pool:  # they mostly wait
        found = list(pool.map(outage, faults, breakers, [OUTAGE_S] * len(faults)))
    for breaker, (begins, ends, answers) in zip(breakers, found, strict=True):
        cost = sum(begins <= attempt.began < ends for attempt in breaker.allowed)
        assert cost <= 10
        back = min((at for at, answer in answers if at >= ends and answer.source == "remote"), default=None)
        if FULL:
            assert back is not None
            assert back - ends <= breaker.interval_s + 0.2  # the first sample that comes an interval later
