"""Eight threads on one breaker. Time stands still: no result depends on speed."""

import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import pytest

from hinge.device.breaker import Breaker

THREADS = 8


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work: Callable[[int], int]) -> list[int]:
    """What each of the threads returns; they start together."""
    barrier = Barrier(THREADS)

    def start(number: int) -> int:
        barrier.wait(timeout=30)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(start, range(THREADS)))


def opened(interval_s: float) -> Breaker:
    breaker = Breaker(failures=1, interval_s=interval_s)
    attempt = breaker.begin(0)
    assert attempt is not None
    breaker.failed(attempt, 0)
    return breaker


def test_one_probe_per_interval() -> None:
    breaker = opened(interval_s=10)
    for turn in range(1, 21):

        def probe(number: int, now: float = 10.0 * turn) -> int:
            made = 0
            for _ in range(20):
                attempt = breaker.begin(now)
                if attempt is not None:
                    made += 1
                    breaker.failed(attempt, now)
            return made

        assert sum(in_threads(probe)) == 1
    counts = breaker.counts
    assert (counts.attempts, counts.failed, counts.refused) == (21, 21, 20 * (THREADS * 20 - 1))


def test_no_two_probes_at_once() -> None:
    breaker, alone, together = opened(interval_s=10), Lock(), []

    def probe(number: int) -> int:
        made = 0
        for _ in range(300):
            attempt = breaker.begin(10)
            if attempt is None:
                continue
            made += 1
            if not alone.acquire(blocking=False):
                together.append(number)
                continue
            breaker.situation(10)  # gives the others time to come in
            alone.release()
            breaker.released(attempt, 10)
        return made

    made = sum(in_threads(probe))
    assert not together
    assert made >= 1
    counts = breaker.counts
    assert (counts.attempts, counts.released, counts.under_way) == (made + 1, made, 0)
    assert counts.attempts + counts.refused == THREADS * 300 + 1


def test_nothing_is_lost() -> None:
    breaker, each = Breaker(failures=10**6), 500

    def work(number: int) -> int:
        outcomes = random.Random(number).choices(["succeeded", "failed", "released"], k=each)
        for outcome in outcomes:
            getattr(breaker, outcome)(breaker.begin(0), 0)
        return outcomes.count("failed")

    failed, counts = sum(in_threads(work)), breaker.counts
    assert (counts.attempts, counts.failed, counts.under_way) == (THREADS * each, failed, 0)
    assert counts.succeeded + counts.failed + counts.released == THREADS * each
    assert (counts.refused, counts.late, counts.opened) == (0, 0, 0)
