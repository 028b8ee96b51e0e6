"""The breaker against its rules read literally, its sentences, and what it refuses."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hinge.device.breaker import Attempt, Breaker
from tests.device.literal_breaker import LiteralBreaker, Tried

OUTCOMES = ("succeeded", "failed", "released")
REPORTS = (*OUTCOMES, "timed_out")


class SameAsLiteral(RuleBasedStateMachine):
    """Attempts, outcomes in any order, twice or never, and time, which moves by amounts that meet every edge."""

    @initialize(failures=st.integers(1, 3), interval_s=st.sampled_from([1.0, 0.3]))
    def start(self, failures: int, interval_s: float) -> None:
        self.breaker = Breaker(failures, interval_s)
        self.literal = LiteralBreaker(failures, interval_s)
        self.pairs: list[tuple[Attempt, Tried]] = []
        self.now = 0.0

    @rule(share=st.sampled_from([0.1, 0.5, 1.0, 2.5]))
    def wait(self, share: float) -> None:
        self.now += share * self.breaker.interval_s

    @rule(brief=st.booleans())
    def begin(self, brief: bool) -> None:
        attempt, tried = self.breaker.begin(self.now, brief), self.literal.begin(self.now, brief)
        assert (attempt is None) == (tried is None)
        if attempt is not None and tried is not None:
            assert attempt.probe == tried.probe
            self.pairs.append((attempt, tried))

    @precondition(lambda self: self.pairs)
    @rule(back=st.integers(0, 6), outcome=st.sampled_from((*REPORTS, "failed")))  # failures are what opens it
    def report(self, back: int, outcome: str) -> None:
        attempt, tried = self.pairs[-1 - min(back, len(self.pairs) - 1)]
        getattr(self.breaker, outcome)(attempt, self.now)
        self.literal.report(tried, outcome, self.now)

    @rule(share=st.sampled_from([0.1, 0.5]), times=st.integers(1, 3))
    def hurry(self, share: float, times: int) -> None:
        for _ in range(times):
            self.begin(brief=True)
            self.wait(share)
            if self.pairs:
                self.report(0, "timed_out")

    @invariant()
    def same(self) -> None:
        breaker, literal = self.breaker, self.literal
        assert (breaker.state, breaker.opened_at) == (literal.state, literal.opened_at)
        assert breaker.failed_in_a_row == literal.failed_in_a_row
        counts = breaker.counts
        assert counts.attempts == len(literal.attempts)
        for outcome in (*OUTCOMES, "unanswered"):
            assert getattr(counts, outcome) == literal.count(outcome)
        ends = counts.succeeded + counts.failed + counts.unanswered + counts.released + counts.under_way
        assert counts.attempts == ends
        events = [what for what, _, _ in literal.diary]
        assert (counts.refused, counts.late) == (events.count("refused"), events.count("late"))
        assert counts.opened == events.count("opened")

    @invariant()
    def one_probe_at_once(self) -> None:
        assert sum(tried.probe and tried.ended is None for _, tried in self.pairs) <= 1


SameAsLiteral.TestCase.settings = settings(max_examples=150, stateful_step_count=40)
TestSameAsLiteral = pytest.mark.medium(SameAsLiteral.TestCase)


def opened(now: float = 0.0, **parameters: Any) -> Breaker:
    """A breaker that has just opened."""
    breaker = Breaker(**parameters)
    for _ in range(breaker.failures):
        breaker.failed(begun(breaker, now), now)
    assert breaker.state == "open"
    return breaker


def begun(breaker: Breaker, now: float, brief: bool = False) -> Attempt:
    attempt = breaker.begin(now, brief)
    assert attempt is not None
    return attempt


def test_failures_count_in_a_row_only() -> None:
    breaker = Breaker()
    for _ in range(50):
        for _ in range(4):
            breaker.failed(begun(breaker, 0), 0)
        breaker.succeeded(begun(breaker, 0), 0)
    assert breaker.state == "closed"
    assert breaker.counts.failed == 200


@pytest.mark.parametrize("late", OUTCOMES)
def test_outcomes_of_attempts_from_before_it_opened_move_nothing(late: str) -> None:
    breaker = Breaker(failures=2)
    early = [begun(breaker, 0) for _ in range(9)]
    for attempt in early[:2]:
        breaker.failed(attempt, 1)

    for attempt in early[2:4]:
        getattr(breaker, late)(attempt, 2)
    assert (breaker.state, breaker.opened_at, breaker.failed_in_a_row) == ("open", 1, 2)

    probe = begun(breaker, 10)
    for attempt in early[4:6]:
        getattr(breaker, late)(attempt, 10)
    assert (breaker.state, breaker.failed_in_a_row) == ("probing", 2)

    breaker.succeeded(probe, 10)
    breaker.failed(begun(breaker, 10), 10)
    for attempt in early[6:]:
        getattr(breaker, late)(attempt, 10)
    assert (breaker.state, breaker.opened_at, breaker.failed_in_a_row) == ("closed", None, 1)


def test_the_first_outcome_is_the_one_that_counts() -> None:
    breaker = opened()
    probe = begun(breaker, 10)
    breaker.failed(probe, 10.5)
    breaker.succeeded(probe, 11)  # the answer came after the deadline
    assert (breaker.state, breaker.counts.late, breaker.counts.succeeded) == ("open", 1, 0)


def test_a_probe_without_outcome_is_given_up_after_one_interval() -> None:
    breaker = opened()
    lost = begun(breaker, 10)
    assert breaker.begin(19.9) is None
    probe = begun(breaker, 20)
    breaker.succeeded(lost, 20.1)
    assert breaker.state == "probing"
    breaker.succeeded(probe, 20.2)
    assert (breaker.state, breaker.counts.unanswered, breaker.counts.late) == ("closed", 1, 1)


def test_a_probe_that_was_not_made_leaves_its_place_to_the_next_sample() -> None:
    breaker = opened()
    breaker.released(begun(breaker, 12), 12.5)
    assert breaker.state == "open"
    assert begun(breaker, 12.5).probe


def test_attempts_without_any_outcome_open_it_too() -> None:
    breaker = Breaker()
    for _ in range(5):
        begun(breaker, 0)
    assert begun(breaker, 10).probe
    assert (breaker.state, breaker.opened_at, breaker.counts.unanswered) == ("probing", 10, 5)


def test_what_times_out_with_little_time_is_no_failure() -> None:
    breaker = Breaker()
    breaker.succeeded(begun(breaker, 0), 0)
    for tenth in range(50):
        now = 60 + tenth / 10
        breaker.timed_out(begun(breaker, now, brief=True), now + 0.1)
    assert (breaker.state, breaker.failed_in_a_row, breaker.counts.released) == ("closed", 0, 50)
    for _ in range(5):
        breaker.timed_out(begun(breaker, 66), 67)
    assert breaker.state == "open", "full attempts still open it"


def test_other_failures_of_brief_attempts_count() -> None:
    breaker = Breaker()
    for _ in range(5):
        breaker.failed(begun(breaker, 0, brief=True), 0)
    assert breaker.state == "open"


def test_brief_attempts_alone_open_it_once_nothing_was_answered_for_an_interval() -> None:
    breaker = Breaker(interval_s=10)
    began = []
    for eighth in range(960):
        now = eighth / 8
        if attempt := breaker.begin(now, brief=True):
            breaker.timed_out(attempt, now + 1 / 8)
            began.append(now)
    assert began[:85] == [eighth / 8 for eighth in range(85)]
    assert all(later - earlier >= 10 for earlier, later in pairwise(began[84:]))
    assert breaker.state == "open"


def test_an_answer_excuses_brief_attempts_anew() -> None:
    breaker = Breaker(failures=1, interval_s=10)
    breaker.timed_out(begun(breaker, 0, brief=True), 1)
    breaker.succeeded(begun(breaker, 2), 3)
    breaker.timed_out(begun(breaker, 12, brief=True), 13)
    breaker.timed_out(begun(breaker, 21, brief=True), 22.5)
    assert breaker.counts.failed == 0
    breaker.timed_out(begun(breaker, 22.5, brief=True), 23)
    assert breaker.state == "open"


def test_a_probe_that_times_out_has_failed_however_brief() -> None:
    breaker = opened(interval_s=10)
    breaker.timed_out(begun(breaker, 10, brief=True), 10.1)
    assert breaker.begin(19.9) is None
    breaker.succeeded(begun(breaker, 20), 20.1)
    assert breaker.state == "closed"


def test_once_one_has_failed_no_more_begin_than_open_it() -> None:
    breaker = Breaker(failures=3)
    early = begun(breaker, 0)
    breaker.succeeded(begun(breaker, 0), 0)
    first, *others = (begun(breaker, 0) for _ in range(4))
    breaker.failed(first, 1)
    assert breaker.begin(1) is None
    breaker.released(early, 1)  # which began before the success
    breaker.released(others[0], 1)
    assert breaker.begin(1) is None
    breaker.released(others[1], 1)
    begun(breaker, 1)
    assert breaker.begin(1) is None
    breaker.succeeded(others[2], 1)
    assert all(begun(breaker, 1) for _ in range(9))


def test_times_of_threads_may_come_out_of_order() -> None:
    breaker = Breaker(failures=1, interval_s=10)
    begun(breaker, 3)  # its outcome never comes
    breaker.failed(begun(breaker, 2.5), 3)
    assert breaker.begin(12.9) is None
    assert begun(breaker, 13).probe
    assert breaker.begin(12.9) is None
    assert breaker.begin(22.9) is None
    assert begun(breaker, 23).probe
    assert (breaker.counts.unanswered, breaker.counts.under_way) == (2, 1)


def test_another_breakers_attempt_is_ignored() -> None:
    breaker, other = opened(), Breaker()
    probe = begun(breaker, 10)
    breaker.succeeded(begun(other, 10), 10)
    assert (breaker.state, breaker.counts.late) == ("probing", 1)
    breaker.succeeded(probe, 10)
    assert breaker.state == "closed"


def test_it_explains_itself() -> None:
    breaker = Breaker()

    def told(now: float) -> str:
        return str(breaker.situation(now))

    assert told(0) == "The remote may be asked; no attempt has failed since it last answered."
    attempts = [begun(breaker, 0) for _ in range(5)]
    breaker.failed(attempts.pop(), 0)
    assert told(0) == "The remote has failed once in a row; the next sample waits for what is in flight."
    breaker.released(attempts.pop(), 0)
    assert told(0) == "The remote may be asked; it has failed once in a row and is left alone after 5."
    for attempt in [*attempts, begun(breaker, 0)]:
        breaker.failed(attempt, 1)
    assert told(6.8) == "The remote has failed 5 times; next try in 3.2 s."
    assert told(10) == "The remote has failed 5 times; the next sample tries it."
    probe = begun(breaker, 10)
    assert told(10.3) == "The remote has failed 5 times; a try is under way since 0.3 s."
    assert told(20) == "The remote has failed 5 times; the next sample tries it."
    breaker.failed(probe, 11)
    assert told(11) == "The remote has failed 6 times; next try in 9.0 s."


def test_what_is_forgotten_takes_no_memory() -> None:
    breaker = Breaker()
    for second in range(1000):
        begun(breaker, second)  # its outcome never comes
        breaker.succeeded(begun(breaker, second), second)
    assert breaker.counts.under_way == 10
    assert breaker.counts.unanswered == 990


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"failures": 0}, ValueError, "Breaker: failures must be an integer >= 1, got 0"),
        ({"failures": 2.5}, TypeError, "Breaker: failures must be an integer >= 1, got 2.5"),
        ({"failures": True}, TypeError, "Breaker: failures must be an integer >= 1, got True"),
        ({"interval_s": 0}, ValueError, "Breaker: interval_s must be > 0, got 0"),
        ({"interval_s": math.inf}, ValueError, "Breaker: interval_s must be a finite number, got inf"),
        ({"interval_s": "10"}, TypeError, "Breaker: interval_s must be a number, got '10'"),
    ],
)
def test_bad_parameters_are_named(parameters: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as raised:
        Breaker(**parameters)
    assert str(raised.value) == message


def test_an_open_breaker_refuses_at_once_until_a_probe_is_due() -> None:
    breaker = Breaker()
    assert breaker.refuse(0) is None
    breaker = opened(interval_s=10)
    refusal = breaker.refuse(4)
    assert str(refusal) == str(breaker.situation(4)) == "The remote has failed 5 times; next try in 6.0 s."
    assert breaker.counts.refused == 1
    assert breaker.refuse(10) is None, "the next sample is the probe"
    probe = begun(breaker, 10)
    assert str(breaker.refuse(11)) == "The remote has failed 5 times; a try is under way since 1.0 s."
    breaker.succeeded(probe, 11)
    assert breaker.refuse(11) is None
    assert breaker.counts.refused == 2
