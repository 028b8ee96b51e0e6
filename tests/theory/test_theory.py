"""The paper's quantities against arithmetic by hand, loops straight from the LaTeX, and what must hold between them."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hinge import theory
from hinge.theory import Problem
from hinge.theory.bounds import divergence

# Three bins, γ = ½: accepting costs ¾, ¼, ⅛, so Δ = ¼, ¼, ⅜, Φ_L = {0}, Φ_H = {1, 2}.
AGREEMENT, COST, WEIGHTS = (0.25, 0.75, 0.875), 0.5, (0.5, 0.125, 0.375)
KNOWN = Problem(AGREEMENT, COST, WEIGHTS)
LEARNED = Problem(AGREEMENT, COST, WEIGHTS, known_cost=False)
T = 1000
LOG = 6.907755278982137  # log 1000


# --- the brute force: exact fractions, the paper's sets and sums, one loop per symbol ---


class Paper:
    """Sections II and IV word by word, over the bins that arrive, in exact arithmetic up to the logarithm."""

    def __init__(self, agreement: list[Fraction], cost: Fraction, weights: list[Fraction], known: bool) -> None:
        kept = [i for i, w in enumerate(weights) if w > 0]
        self.f, self.gamma = [agreement[i] for i in kept], cost
        self.w, self.known = [weights[i] for i in kept], known
        self.delta = [abs(1 - f - cost) for f in self.f]
        self.high = [i for i, f in enumerate(self.f) if 1 - f < cost]
        self.low = [i for i, f in enumerate(self.f) if not 1 - f < cost]

    def below(self, i: int) -> list[int]:
        return [j for j in self.high if j <= i]

    def constant_low(self, alpha: Fraction) -> Fraction:
        if not self.low:
            return Fraction(0)
        count = len(self.low) + (0 if self.known else 1)
        return max(2 * alpha * self.delta[j] * count / (2 * alpha - 1) for j in self.low)

    def theorem_1(self, horizon: int, alpha: Fraction) -> Fraction:
        total = Fraction(0)
        for i in self.high:
            total += (4 if self.known else 16) * alpha / self.delta[i] * Fraction(math.log(horizon))
            total += (2 if self.known else 4) * alpha * self.delta[i] / (2 * alpha - 1)
        return total + self.constant_low(alpha)

    def theorem_2(self, horizon: int, alpha: Fraction) -> Fraction:
        total = Fraction(0)
        for i in self.high:
            rate, start = (4, 2) if self.known else (16, 4)
            slopes = [
                rate * alpha * self.w[i] * self.delta[i] / (self.w[j] * self.delta[j] ** 2) for j in self.below(i)
            ]
            total += min(slopes) * Fraction(math.log(horizon))
            total += start * alpha * self.delta[i] / (2 * alpha - 1) * min(self.w[i] / self.w[j] for j in self.below(i))
        return total + self.constant_low(alpha)

    def theorem_2_from_lemmas(self, horizon: int, alpha: Fraction) -> Fraction:
        total = Fraction(0)
        for i in self.high:
            rate, start = (4, 2) if self.known else (16, 4)
            total += (
                self.delta[i]
                * self.w[i]
                * min(
                    rate * alpha * Fraction(math.log(horizon)) / (self.delta[j] ** 2 * self.w[j])
                    + start * alpha / ((2 * alpha - 1) * self.w[j])
                    for j in self.below(i)
                )
            )
        return total + self.constant_low(alpha)


Case = tuple[Problem, Paper]


@st.composite
def cases(draw: st.DrawFn, monotone: bool = False) -> Case:
    """A problem and its paper twin. Values on a grid of twentieths, so that ties 1 − f = γ are frequent."""
    twentieths = st.integers(0, 20).map(lambda n: Fraction(n, 20))
    agreement = draw(st.lists(twentieths, min_size=1, max_size=6))
    agreement = sorted(agreement) if monotone else agreement
    cost, known = draw(twentieths), draw(st.booleans())
    arrivals = draw(st.lists(st.integers(0, 9), min_size=len(agreement), max_size=len(agreement)))
    assume(sum(arrivals) > 0)
    weights = [Fraction(n, sum(arrivals)) for n in arrivals]
    problem = Problem([float(f) for f in agreement], float(cost), [float(w) for w in weights], known)
    return problem, Paper(agreement, cost, weights, known)


horizons = st.integers(1, 10**7)
alphas = st.integers(51, 500).map(lambda n: Fraction(n, 100))


# --- the problem ---


def test_gaps_and_sets_by_hand() -> None:
    assert KNOWN.bins == 3
    assert KNOWN.gaps.tolist() == [0.25, 0.25, 0.375]
    assert KNOWN.licensed.tolist() == [False, True, True]
    assert KNOWN.oracle_offloads.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("agreement", "cost"), [(0.9, 0.1), (0.7, 0.3), (0.5, 0.5), (0.0, 1.0), (1.0, 0.0), (0.8, 0.2)]
)
def test_a_tie_is_offloaded_and_has_no_gap_despite_rounding(agreement: float, cost: float) -> None:
    problem = Problem([agreement], cost)  # 1 − 0.9 = 0.0999…98 < 0.1 in floating point
    assert not problem.licensed[0]
    assert problem.gaps[0] == 0


@given(cases())
def test_sets_equal_exact_arithmetic(case: Case) -> None:
    problem, paper = case
    arriving = problem.arriving
    assert np.flatnonzero(problem.licensed[arriving]).tolist() == paper.high
    assert np.flatnonzero(problem.oracle_offloads[arriving]).tolist() == paper.low
    assert problem.gaps[arriving] == pytest.approx([float(gap) for gap in paper.delta], abs=1e-15)


def test_dips_are_below_some_lower_bin_that_arrives() -> None:
    problem = Problem([0.2, 0.6, 0.5, 0.6, 0.55], 0.5)
    assert problem.dips.tolist() == [False, False, True, False, True]
    assert not problem.monotone
    absent = Problem([0.2, 0.6, 0.5, 0.55], 0.5, weights=[0.5, 0, 0.25, 0.25])
    assert absent.monotone  # without bin 1: 0.2, 0.5, 0.55


@pytest.mark.parametrize(
    ("agreement", "weights", "threshold"),
    [
        ([0.1, 0.6, 0.9], None, True),
        ([0.3, 0.1, 0.9, 0.7], None, True),  # dips, but each on its side of ½
        ([0.6, 0.1, 0.9], None, False),
        ([0.6, 0.1, 0.9], [0, 0.5, 0.5], True),  # the offender never arrives
        ([0.6, 0.5], None, False),  # a tie counts as Φ_L
    ],
)
def test_oracle_is_threshold(agreement: list[float], weights: list[float] | None, threshold: bool) -> None:
    assert Problem(agreement, 0.5, weights).oracle_is_threshold is threshold


def test_problem_is_a_plain_frozen_record() -> None:
    assert Problem([np.float64(0.5), 1], np.float64(0.5)) == Problem([0.5, 1.0], 0.5)
    assert hash(KNOWN) == hash(Problem(AGREEMENT, COST, WEIGHTS))
    with pytest.raises(FrozenInstanceError):
        KNOWN.known_cost = False  # type: ignore[misc]  # wrong on purpose


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"agreement": []}, ValueError, "Problem: agreement must have at least one bin, got none"),
        ({"agreement": 0.5}, TypeError, "Problem: agreement must be a sequence of numbers, got 0.5"),
        ({"agreement": [0.5, -0.1]}, ValueError, "Problem: agreement[1] must be from 0 to 1, got -0.1"),
        ({"agreement": [math.nan]}, ValueError, "Problem: agreement[0] must be from 0 to 1, got nan"),
        ({"mean_offload_cost": 1.5}, ValueError, "Problem: mean_offload_cost must be from 0 to 1, got 1.5"),
        ({"weights": [1.0]}, ValueError, "Problem: weights must have one entry per bin (2), got 1"),
        ({"weights": [0.5, 0.4]}, ValueError, "Problem: weights must sum to 1, got 0.9"),
        ({"known_cost": 1}, TypeError, "Problem: known_cost must be True or False, got 1"),
    ],
)
def test_bad_problems_name_the_argument(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        Problem(**{"agreement": [0.2, 0.8], "mean_offload_cost": 0.5, **arguments})
    assert str(caught.value) == message


def empirical(bins: list[int], agreed: list[bool], count: int) -> Problem:
    """The problem of recorded samples; a bin that was never seen has weight 0, and any agreement."""
    seen = np.bincount(bins, minlength=count)
    agreement = np.bincount(bins, weights=agreed, minlength=count) / np.maximum(seen, 1)
    return Problem(agreement.tolist(), 0.4, (seen / len(bins)).tolist())


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=40))
def test_bins_never_seen_change_nothing(samples: list[tuple[int, bool]]) -> None:
    bins, agreed = [b for b, _ in samples], [a for _, a in samples]
    problem = empirical(bins, agreed, 6)
    renumbered = {b: i for i, b in enumerate(sorted(set(bins)))}
    compact = empirical([renumbered[b] for b in bins], agreed, len(renumbered))
    assert problem.dips.sum() == compact.dips.sum()
    assert problem.oracle_is_threshold == compact.oracle_is_threshold
    assert theory.oracle_cost(problem) == pytest.approx(theory.oracle_cost(compact))
    for bound in (theory.adversarial_bound, theory.stochastic_bound, theory.stochastic_bound_printed):
        assert bound(problem, horizon=T, alpha=0.6) == pytest.approx(bound(compact, horizon=T, alpha=0.6))
    for quantity in (theory.structured_lower_bound, theory.unstructured_lower_bound, theory.forced_offload_regret):
        assert quantity(problem, horizon=T) == pytest.approx(quantity(compact, horizon=T))


# --- what knowing policies cost ---


def test_static_costs_by_hand() -> None:
    # accept everything: ½·¾ + ⅛·¼ + ⅜·⅛ = 0.375 + 0.03125 + 0.046875
    # k = 1: ½·½ + 0.03125 + 0.046875; k = 2: ⅝·½ + 0.046875; k = 3: ½
    assert theory.threshold_costs(KNOWN) == pytest.approx([0.453125, 0.328125, 0.359375, 0.5], abs=1e-15)
    assert theory.oracle_cost(KNOWN) == pytest.approx(0.328125, abs=1e-15)
    assert theory.best_threshold(KNOWN) == 1


def test_a_dip_costs_a_threshold_what_the_oracle_saves() -> None:
    # errors 0.9, 0.2, 0.6, 0.1 at γ = ½, even weights: π* = ¼(0.5 + 0.2 + 0.5 + 0.1) = 0.325.
    # k = 1: ¼(0.5 + 0.2 + 0.6 + 0.1) = 0.35; k = 3: ¼(1.5 + 0.1) = 0.4; k = 0: 0.45; k = 2: 0.425; k = 4: 0.5
    problem = Problem([0.1, 0.8, 0.4, 0.9], 0.5, [0.25] * 4)
    assert theory.oracle_cost(problem) == pytest.approx(0.325)
    assert theory.threshold_costs(problem) == pytest.approx([0.45, 0.35, 0.425, 0.4, 0.5])
    assert theory.best_threshold(problem) == 1


def test_of_equal_thresholds_the_highest() -> None:
    assert theory.best_threshold(Problem([0.5, 0.5, 0.5], 0.5, [0.25, 0.25, 0.5])) == 3
    assert theory.best_threshold(Problem([0.2, 0.5, 0.9, 0.9], 0.5, [0.4, 0.1, 0, 0.5])) == 3  # tie, then unseen


@given(cases())
def test_best_threshold_equals_brute_force(case: Case) -> None:
    problem, _ = case
    errors = [1 - f for f in problem.agreement]
    costs = []
    for k in range(problem.bins + 1):
        pairs = enumerate(zip(problem.weights or (), errors, strict=True))
        costs.append(sum(w * (problem.offload_costs[i] if i < k else error) for i, (w, error) in pairs))
    assert theory.threshold_costs(problem) == pytest.approx(costs)
    best = theory.best_threshold(problem)
    assert costs[best] == pytest.approx(min(costs))
    assert all(cost > costs[best] + 1e-13 for cost in costs[best + 1 :])
    assert theory.oracle_cost(problem) <= costs[best] + 1e-12


@given(cases(monotone=True))
def test_on_monotone_agreement_the_best_threshold_is_the_oracle(case: Case) -> None:
    problem, _ = case
    assert problem.monotone
    assert problem.oracle_is_threshold
    best = theory.best_threshold(problem)
    assert theory.threshold_costs(problem)[best] == pytest.approx(theory.oracle_cost(problem))
    decisions = np.arange(problem.bins) < best
    assert (decisions == problem.oracle_offloads)[problem.arriving].all()


# --- the upper bounds ---


def test_theorem_1_by_hand() -> None:
    # α = 1: 2α/(2α−1) = 2. Known: 4·log T·(1/¼ + 1/⅜) + 2·(¼ + ⅜ + 1·¼) = 4·LOG·(4 + 8/3) + 1.75
    assert theory.adversarial_bound(KNOWN, horizon=T, alpha=1) == pytest.approx(80 / 3 * LOG + 1.75)
    # Learned: 16·LOG·(20/3) + 4·(¼ + ⅜) + 2·¼·2 = 320/3·LOG + 3.5
    assert theory.adversarial_bound(LEARNED, horizon=T, alpha=1) == pytest.approx(320 / 3 * LOG + 3.5)


def test_theorem_1_at_the_papers_alpha() -> None:
    # α = 0.52: 2α/(2α−1) = 1.04/0.04 = 26. Known: 2.08·LOG·20/3 + 26·0.875
    assert theory.adversarial_bound(KNOWN, horizon=T, alpha=0.52) == pytest.approx(2.08 * LOG * 20 / 3 + 22.75)


def test_theorem_2_by_hand() -> None:
    # Bin 1 (w ⅛, Δ ¼) has only itself: 4/¼ = 16, constant 2·¼ = ½. Bin 2 (w ⅜, Δ ⅜) may use bin 1 or itself:
    #   slopes 4·⅜·⅜/(⅛·1/16) = 72 against 4/⅜ = 32/3; constants 2·⅜·3 = 2¼ against 2·⅜ = ¾; itself wins both.
    # Φ_L: 2·¼ = ½. Here lending does not help, so printed, repaired and Theorem 1 agree.
    expected = (16 + 32 / 3) * LOG + 1.75
    for bound in (theory.stochastic_bound, theory.stochastic_bound_printed, theory.adversarial_bound):
        assert bound(KNOWN, horizon=T, alpha=1) == pytest.approx(expected)


def test_theorem_2_where_a_lower_bin_lends() -> None:
    # γ = ½, f = ¾, ¾, so Δ = ¼ twice, w = ¾, ¼, nothing in Φ_L; bin 1 uses bin 0: w_1/w_0 = ⅓ of everything.
    # Learned, α = 1: (16·4·LOG + 4·¼)(1 + ⅓) = 256/3·LOG + 4/3
    problem = Problem([0.75, 0.75], 0.5, [0.75, 0.25], known_cost=False)
    for bound in (theory.stochastic_bound, theory.stochastic_bound_printed):
        assert bound(problem, horizon=T, alpha=1) == pytest.approx(256 / 3 * LOG + 4 / 3)
    assert theory.adversarial_bound(problem, horizon=T, alpha=1) == pytest.approx(128 * LOG + 2)


def test_the_printed_theorem_2_is_smaller_where_the_two_minima_differ() -> None:
    # γ = 1, f = ½, 1, so Δ = ½, 1; w = ⅗, ⅖. Known, α = 1. Bin 0: 4/½·LOG + 2·½ = 8·LOG + 1.
    # Bin 1, Δ_1 w_1 = ⅖: growth 4/(Δ² w) = 80/3 from bin 0, 10 from itself: 10; constant 2/w = 10/3 or 5: 10/3.
    # printed: ⅖·(10·LOG + 10/3); from the lemmas: ⅖·min(80/3·LOG + 10/3, 10·LOG + 5) = ⅖·(10·LOG + 5)
    problem = Problem([0.5, 1.0], 1.0, [0.6, 0.4])
    assert theory.stochastic_bound_printed(problem, horizon=T, alpha=1) == pytest.approx(12 * LOG + 1 + 4 / 3)
    assert theory.stochastic_bound(problem, horizon=T, alpha=1) == pytest.approx(12 * LOG + 3)


def test_wrong_decisions_by_hand() -> None:
    # α = 1, known: 4·LOG·16 + 2 = 64·LOG + 2 and 4·LOG·64/9 + 2; learned: 256·LOG + 4 and 1024/9·LOG + 4
    offloads = theory.adversarial_wrong_offloads(KNOWN, horizon=T, alpha=1)
    assert offloads == pytest.approx([0, 64 * LOG + 2, 256 / 9 * LOG + 2])
    offloads = theory.adversarial_wrong_offloads(LEARNED, horizon=T, alpha=1)
    assert offloads == pytest.approx([0, 256 * LOG + 4, 1024 / 9 * LOG + 4])
    lending = Problem([0.75, 0.75], 0.5, [0.75, 0.25])  # w_1/w_0 = ⅓
    offloads = theory.stochastic_wrong_offloads(lending, horizon=T, alpha=1)
    assert offloads == pytest.approx([64 * LOG + 2, (64 * LOG + 2) / 3])
    assert (theory.wrong_accepts(KNOWN, alpha=1), theory.wrong_accepts(LEARNED, alpha=1)) == (2, 4)
    assert theory.wrong_accepts(KNOWN, alpha=0.52) == pytest.approx(26)


@given(cases(), horizons, alphas)
def test_upper_bounds_equal_the_latex(case: Case, horizon: int, alpha: Fraction) -> None:
    problem, paper = case
    at: dict[str, Any] = {"horizon": horizon, "alpha": float(alpha)}
    assert theory.adversarial_bound(problem, **at) == pytest.approx(float(paper.theorem_1(horizon, alpha)))
    assert theory.stochastic_bound_printed(problem, **at) == pytest.approx(float(paper.theorem_2(horizon, alpha)))
    expected = float(paper.theorem_2_from_lemmas(horizon, alpha))
    assert theory.stochastic_bound(problem, **at) == pytest.approx(expected)


@given(cases(), horizons, alphas)
def test_printed_below_repaired_below_adversarial(case: Case, horizon: int, alpha: Fraction) -> None:
    # A sum of minima is at most the minimum of a sum, and j = i is always allowed: for any weights whatever.
    problem, _ = case
    at: dict[str, Any] = {"horizon": horizon, "alpha": float(alpha)}
    printed, repaired = theory.stochastic_bound_printed(problem, **at), theory.stochastic_bound(problem, **at)
    assert printed <= repaired * (1 + 1e-12)
    assert repaired <= theory.adversarial_bound(problem, **at) * (1 + 1e-12)


class UpperBound(Protocol):
    __name__: str

    def __call__(self, problem: Problem, *, horizon: int, alpha: float) -> float: ...


BOUNDS: tuple[UpperBound, ...] = (theory.adversarial_bound, theory.stochastic_bound, theory.stochastic_bound_printed)


@given(cases(), horizons, horizons, alphas)
def test_bounds_grow_with_the_horizon(case: Case, one: int, other: int, alpha: Fraction) -> None:
    problem, _ = case
    for bound in BOUNDS:
        first, last = (bound(problem, horizon=t, alpha=float(alpha)) for t in sorted((one, other)))
        assert first <= last * (1 + 1e-12)


@pytest.mark.medium
@given(cases(), st.integers(2, 10**7), st.lists(st.floats(1, 50), min_size=2, max_size=2).map(sorted))
def test_without_wrong_accepts_bounds_grow_with_alpha_from_1(case: Case, horizon: int, alphas: list[float]) -> None:
    # d/dα of 16α log T/Δ + 4αΔ/(2α−1) is 16 log T/Δ − 4Δ/(2α−1)² > 0 for Δ ≤ 1 ≤ α, T ≥ 2; so too with 4 and 2.
    problem, paper = case
    assume(not paper.low)
    for bound in BOUNDS:
        lower, upper = (bound(problem, horizon=horizon, alpha=alpha) for alpha in alphas)
        assert lower <= upper * (1 + 1e-12)


def test_with_wrong_accepts_alone_bounds_fall_with_alpha() -> None:
    problem = Problem([0.25], 0.5, [1.0])  # Φ_H empty: 2α/(2α−1) · ¼, falling towards ¼
    for bound in BOUNDS:
        values = [bound(problem, horizon=T, alpha=alpha) for alpha in (0.52, 1, 2, 1000)]
        assert values == pytest.approx([6.5, 0.5, 1 / 3, 2000 / 1999 / 4])


@given(cases(), horizons, alphas)
def test_knowing_the_cost_tightens_every_bound(case: Case, horizon: int, alpha: Fraction) -> None:
    problem, _ = case
    known, learned = (Problem(problem.agreement, problem.mean_offload_cost, problem.weights, k) for k in (True, False))
    for bound in BOUNDS:
        at: dict[str, Any] = {"horizon": horizon, "alpha": float(alpha)}
        assert bound(known, **at) <= bound(learned, **at)


def test_a_bin_on_the_line_brings_no_infinite_term() -> None:
    # γ = ½, f = ½, 1: Δ = 0, ½. Known, α = 1: 4/½·LOG + 2·(½ + 1·0)
    problem = Problem([0.5, 1.0], 0.5, [0.5, 0.5])
    for bound in BOUNDS:
        assert bound(problem, horizon=T, alpha=1) == pytest.approx(8 * LOG + 1)
    every_bin = Problem([0.9, 0.9], 0.1, [0.5, 0.5], known_cost=False)
    for bound in BOUNDS:
        assert bound(every_bin, horizon=T, alpha=1) == 0


def test_a_bin_that_never_arrives_is_no_witness_and_no_member() -> None:
    # Without bins 0 and 1 this is one bin, f = 1, γ = ½: known, α = 1: 8·LOG + 1
    problem = Problem([0.0, 0.9, 1.0], 0.5, [0, 0, 1])
    for bound in BOUNDS:
        assert bound(problem, horizon=T, alpha=1) == pytest.approx(8 * LOG + 1)
    # An adversary may send them: Δ = ½, 0.4, ½: 4·LOG·(2.5 + 2) + 2·(0.4 + ½ + ½)
    adversary = Problem([0.0, 0.9, 1.0], 0.5)
    assert theory.adversarial_bound(adversary, horizon=T, alpha=1) == pytest.approx(18 * LOG + 2.8)


def test_no_offload_is_wrong_when_offloading_is_free() -> None:
    problem = Problem([0.5, 1.0], 0.0, [0.5, 0.5])  # Φ_H empty, Δ = ½, 0: 2·2·½
    for bound in BOUNDS:
        assert bound(problem, horizon=T, alpha=1) == pytest.approx(2.0)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("alpha", [0.5, 0.1, -1])
def test_alpha_must_exceed_a_half(bound: UpperBound, alpha: float) -> None:
    with pytest.raises(
        ValueError, match=rf"^{bound.__name__}: alpha must be > 0.5 for the theorems to hold, got {alpha}$"
    ):
        bound(KNOWN, horizon=T, alpha=alpha)


def test_wrong_accepts_needs_alpha_above_a_half_too() -> None:
    with pytest.raises(ValueError, match=r"^wrong_accepts: alpha must be > 0\.5"):
        theory.wrong_accepts(KNOWN, alpha=0.5)


@pytest.mark.parametrize("bound", BOUNDS)
def test_horizon_must_be_a_positive_integer(bound: UpperBound) -> None:
    with pytest.raises(ValueError, match=rf"^{bound.__name__}: horizon must be an integer >= 1, got 0$"):
        bound(KNOWN, horizon=0, alpha=1)


@pytest.mark.parametrize(
    "ask",
    [
        lambda s: theory.stochastic_bound(s, horizon=T, alpha=1),
        lambda s: theory.stochastic_bound_printed(s, horizon=T, alpha=1),
        lambda s: theory.stochastic_wrong_offloads(s, horizon=T, alpha=1),
        lambda s: theory.forced_offload_regret(s, horizon=T),
        theory.oracle_cost,
        theory.threshold_costs,
        theory.best_threshold,
    ],
)
def test_stochastic_quantities_need_weights(ask: Callable[[Problem], object]) -> None:
    with pytest.raises(ValueError, match="problem must have weights"):
        ask(Problem(AGREEMENT, COST))


def test_forced_offloads_break_theorem_2_for_the_paper_algorithm() -> None:
    # 256 bins, f = 1, γ = 1, so Δ = 1 and every offload is wrong; w = ½, then 255 equal. Known, α = 1, T = 10⁵:
    # Theorem 2 (c): 4·(1 + 255·w/½)·log T + 2·(1 + 1) = 8·11.5129… + 4 = 96.1…
    # Algorithm 1 offloads each bin at its first arrival, and 1 − (1 − 1/510)^100000 is 1 to 80 digits: 256.
    problem = Problem([1.0] * 256, 1.0, [0.5] + [0.5 / 255] * 255)
    assert theory.stochastic_bound(problem, horizon=10**5, alpha=1) == pytest.approx(8 * math.log(10**5) + 4)
    assert theory.forced_offload_regret(problem, horizon=10**5) == pytest.approx(256)


# --- the lower bounds ---


def exact_kl(p: float, q: float) -> float:
    """The formula as written, in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        a, b = Decimal(p), Decimal(q)
        return float(a * (a / b).ln() + (1 - a) * ((1 - a) / (1 - b)).ln())


@given(st.floats(0, 1), st.floats(0, 1))
def test_kl_is_at_least_twice_the_squared_distance(p: float, q: float) -> None:
    assert divergence(p, q) >= 2 * (p - q) ** 2 * (1 - 1e-9)  # Pinsker


def test_theorem_3_by_hand() -> None:
    # f = ¾, γ = ½: Δ = ¼. Learned: kl(½, ¼) = ½ log 2 + ½ log(2/3) = log 2 − ½ log 3 = 0.143841…
    problem = Problem([0.75], 0.5, known_cost=False)
    assert theory.single_bin_lower_bound(problem, horizon=T) == pytest.approx(0.25 * LOG / 0.14384103622589045)
    # Known: kl(¾, ½) = ¾ log 3 − log 2 = 0.130812…
    problem = Problem([0.75], 0.5)
    assert theory.single_bin_lower_bound(problem, horizon=T) == pytest.approx(0.25 * LOG / 0.13081203594113694)


@pytest.mark.parametrize(
    ("agreement", "cost", "known", "constant"),
    [
        (0.25, 0.5, True, 0),  # Φ_H empty: the oracle offloads, and offloading teaches for free
        (0.25, 0.5, False, 0),
        (0.5, 0.5, True, 0),  # a tie: no decision is wrong
        (1.0, 0.0, True, 0),  # γ = 0
        (1.0, 0.5, False, 0),  # kl(½, 0) = ∞: the first cost of 1 proves γ > 0 = 1 − f
        (1.0, 0.5, True, 0.5 / math.log(2)),  # kl(1, ½) = log 2
        (0.75, 1.0, True, 0),  # kl(¾, 0) = ∞: the first agreement proves f > 0 = 1 − γ
        (0.75, 1.0, False, 0.75 / math.log(4)),  # kl(1, ¼) = log 4
        (1.0, 1.0, True, 0),
        (1.0, 1.0, False, 0),
    ],
)
def test_theorem_3_at_the_edges(agreement: float, cost: float, known: bool, constant: float) -> None:
    problem = Problem([agreement], cost, known_cost=known)
    assert theory.single_bin_lower_bound(problem, horizon=T) == pytest.approx(constant * LOG)


def test_theorem_3_is_for_one_bin() -> None:
    with pytest.raises(ValueError, match=r"^single_bin_lower_bound: problem must have one bin, got 3$"):
        theory.single_bin_lower_bound(KNOWN, horizon=T)


def test_lower_bounds_over_bins_by_hand() -> None:
    # f = ¾: Δ = ¼, kl = 0.130812…; f = ⅞: Δ = ⅜, kl = ⅞ log(7/4) + ⅛ log(1/4) = 0.489664… − 0.173286… = 0.316377…
    kl = 0.875 * math.log(1.75) - 0.125 * math.log(4)
    lowest = 0.25 / 0.13081203594113694
    for problem in (KNOWN, LEARNED):  # a cost to learn changes neither
        assert theory.structured_lower_bound(problem, horizon=T) == pytest.approx(lowest * LOG)
        assert theory.unstructured_lower_bound(problem, horizon=T) == pytest.approx((lowest + 0.375 / kl) * LOG)


def test_the_lowest_licensed_bin_must_arrive() -> None:
    kl = 0.875 * math.log(1.75) - 0.125 * math.log(4)
    problem = Problem(AGREEMENT, COST, [0.5, 0, 0.5])
    assert theory.structured_lower_bound(problem, horizon=T) == pytest.approx(0.375 / kl * LOG)
    assert theory.unstructured_lower_bound(problem, horizon=T) == pytest.approx(0.375 / kl * LOG)


@pytest.mark.parametrize("problem", [Problem([0.1, 0.2], 0.5), Problem([0.5, 1.0], 0.0), Problem([0.2, 0.9], 1.0)])
def test_lower_bounds_vanish_where_nothing_is_learned_at_a_price(problem: Problem) -> None:
    assert theory.structured_lower_bound(problem, horizon=T) == 0
    assert theory.unstructured_lower_bound(problem, horizon=T) == 0


@given(cases(), horizons, alphas)
def test_lower_bounds_stay_below_upper_bounds(case: Case, horizon: int, alpha: Fraction) -> None:
    # kl ≥ 2Δ² (Pinsker), so Δ/kl ≤ 1/(2Δ) < 4α/Δ; and the lowest licensed bin can only use itself in Theorem 2.
    problem, _ = case
    structured = theory.structured_lower_bound(problem, horizon=horizon)
    unstructured = theory.unstructured_lower_bound(problem, horizon=horizon)
    at: dict[str, Any] = {"horizon": horizon, "alpha": float(alpha)}
    assert structured <= unstructured * (1 + 1e-12)
    assert structured <= theory.stochastic_bound_printed(problem, **at)
    assert unstructured <= theory.adversarial_bound(problem, **at)


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
def test_lower_bounds_of_one_bin_agree(cost: float, agreement: float) -> None:
    problem = Problem([agreement], cost)
    values = {
        f(problem, horizon=T)
        for f in (theory.single_bin_lower_bound, theory.structured_lower_bound, theory.unstructured_lower_bound)
    }
    assert len(values) == 1


# --- a run's regret ---


def test_regret_of_a_simulated_lite_run_obeys_lemma_6() -> None:
    # An independent check of meaning: HI-LCB-lite run paperly, one bin, f = 0.8, γ = ½ known, α = 1, T = 2000.
    # Lemma 10: E[O] ≤ 4·log 2000/0.09 + 2 = 339.8…; and at least one offload, the first.
    problem, draws = Problem([0.8], 0.5), np.random.default_rng(7)
    offloads = agreements = 0
    for time in range(1, 2001):
        bound = agreements / offloads - math.sqrt(math.log(time) / offloads) if offloads else -math.inf
        if 1 - bound >= 0.5:
            offloads += 1
            agreements += draws.random() < 0.8
    limit = theory.adversarial_wrong_offloads(problem, horizon=2000, alpha=1)[0]
    assert limit == pytest.approx(4 * math.log(2000) / 0.09 + 2)
    assert 1 <= offloads <= limit
    assert problem.gaps[0] * offloads <= theory.adversarial_bound(problem, horizon=2000, alpha=1)
