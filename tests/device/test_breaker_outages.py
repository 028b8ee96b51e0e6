"""What an outage costs (R3), in simulated time: a stream of samples, and a remote that fails slowly or fast."""

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinge.device.breaker import Attempt, Breaker

repeatable = settings(max_examples=150)
NEVER = 1e9
ANSWER_S = 0.05  # how long the remote takes when it answers


@dataclass(frozen=True)
class Seen:
    """One attempt, as the remote sees it."""

    began: float
    answered: bool


def play(
    breaker: Breaker,
    samples: Iterable[float],
    up: Callable[[float], bool],
    failure_s: Callable[[], float],
    in_flight: int = 5,
) -> list[Seen]:
    """Offer each sample to the breaker, as a device with so many slots; it succeeds if the remote is up then."""
    seen: list[Seen] = []
    replies: list[tuple[float, int, bool, Attempt]] = []
    order = count()
    for now in samples:
        while replies and replies[0][0] <= now:
            then, _, answered, attempt = heapq.heappop(replies)
            (breaker.succeeded if answered else breaker.failed)(attempt, then)
        under_way = sum(now < attempt.began + breaker.interval_s for *_, attempt in replies)
        begun = breaker.begin(now) if under_way < in_flight else None
        if begun is not None:
            answered = up(now)
            seen.append(Seen(now, answered))
            heapq.heappush(replies, (now + (ANSWER_S if answered else failure_s()), next(order), answered, begun))
    return seen


def tenths(seconds: float, offset: float = 0.0) -> list[float]:
    """10 samples/s."""
    return [offset + i / 10 for i in range(round(10 * seconds))]


def down(start: float, end: float) -> Callable[[float], bool]:
    return lambda now: not start <= now < end


def failed(seen: list[Seen]) -> list[float]:
    return [attempt.began for attempt in seen if not attempt.answered]


def recovered(seen: list[Seen], end: float) -> float:
    """How long after its return the remote answers again."""
    return next(attempt.began for attempt in seen if attempt.began >= end) - end


@pytest.mark.parametrize("failure_s", [0.0, 0.2, 1.0, 5.0, 9.9, 10.0, 25.0, NEVER])
def test_an_outage_of_60_s_at_10_samples_per_second_costs_10_attempts(failure_s: float) -> None:
    breaker = Breaker()
    seen = play(breaker, tenths(200), down(30, 90), lambda: failure_s)
    lost = failed(seen)
    assert len(lost) <= 10
    assert lost[4] - lost[0] <= 0.5  # five to notice …
    assert all(later - earlier >= 10 for earlier, later in pairwise(lost[4:]))  # … then the probes
    assert recovered(seen, 90) <= 10
    assert breaker.state == "closed"
    after = [attempt for attempt in seen if attempt.began >= 90]
    assert len(after) >= 10 * (200 - 90 - 10) - 1  # from then on every sample is offloaded, but for the probe's wait


def test_failures_of_a_fifth_of_a_second_cost_no_more_than_five_before_it_opens() -> None:
    breaker = Breaker()
    lost = failed(play(breaker, tenths(5), down(1, 100), lambda: 0.2))
    assert lost == [1.0, 1.1, 1.2, 1.3, 1.4]
    assert breaker.state == "open"
    assert breaker.opened_at == pytest.approx(1.6)
    assert (breaker.counts.failed, breaker.counts.opened) == (5, 1)


@pytest.mark.slow
@given(
    start=st.floats(20, 40),
    length=st.floats(1, 60),
    gaps=st.lists(st.floats(0.001, 0.5), min_size=20, max_size=50),
    delays=st.lists(st.sampled_from([0.0, 0.01, 0.2, 1.0, 3.0, 9.99, 10.0, 30.0, NEVER]), min_size=1, max_size=12),
)
@repeatable
def test_whatever_the_delays_and_samples(start: float, length: float, gaps: list[float], delays: list[float]) -> None:
    samples, now, turn = [], 0.0, 0
    while now < start + length + 25:
        now, turn = now + gaps[turn % len(gaps)], turn + 1
        if not start - ANSWER_S <= now < start:  # the last answer has come when the outage begins
            samples.append(now)
    next_delay = (delays[i % len(delays)] for i in count())
    seen = play(Breaker(), samples, down(start, start + length), lambda: next(next_delay))
    lost = failed(seen)
    assert len(lost) <= 10
    assert sum(began < start + length for began in lost[5:]) <= length / 10  # one probe per interval
    first = next(now for now in samples if now >= start + length + 10)
    assert recovered(seen, start + length) <= first - (start + length)


@pytest.mark.parametrize("failure_s", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("phase_s", [1.3, 3.0, 7.0, 12.0])  # one that divides the interval may hide from every probe
def test_a_flapping_remote_costs_five_attempts_per_interval(phase_s: float, failure_s: float) -> None:
    breaker = Breaker()
    seen = play(breaker, tenths(600), lambda now: now % (2 * phase_s) < phase_s, lambda: failure_s)
    lost = failed(seen)
    assert all(later - earlier >= 10 - 1e-9 for earlier, later in zip(lost, lost[5:], strict=False))
    assert sum(attempt.answered for attempt in seen) > 100
    assert breaker.counts.opened >= 10


def test_many_at_the_same_instant_cost_no_more_than_are_in_flight() -> None:
    batches = [float(second) for second in range(90) for _ in range(32)]
    for in_flight in (5, 8, 32):
        lost = failed(play(Breaker(), batches, down(20, 80), lambda: 2.5, in_flight))
        assert len(lost) == in_flight + 5
    seen = play(Breaker(), batches, down(100, 200), lambda: 2.5, in_flight=32)
    assert len(seen) == len(batches)


def test_with_failures_that_come_at_once_every_attempt_is_made_until_the_fifth_fails() -> None:
    seen = play(Breaker(), tenths(60, offset=0.03), down(0, 60.03), lambda: 0.0)
    assert len(seen) == 10
    assert [round(attempt.began, 2) for attempt in seen[:6]] == [0.03, 0.13, 0.23, 0.33, 0.43, 10.43]
