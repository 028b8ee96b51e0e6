"""What a log of offloads says: against brute force, closed forms, and the coverage of simulated logs."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from hinge.theory import Estimate
from hinge.theory.agreement import monotone

LEEWAY = math.log(40)


def log_likelihood(wrong: int, offloads: int, disagreement: float) -> float:
    """Of a bin, as printed in every textbook."""
    if disagreement in (0.0, 1.0):
        return 0.0 if wrong == offloads * disagreement else -math.inf
    return wrong * math.log(disagreement) + (offloads - wrong) * math.log1p(-disagreement)


def test_a_bin_that_always_agreed_has_the_closed_form() -> None:
    """(1 - d)^n = 1/40."""
    low, high = Estimate([500], [40], [40]).bounds
    assert low[0] == pytest.approx(40 ** (-1 / 40))
    assert high[0] == 1.0


@pytest.mark.parametrize("counts", [((6, 2), (9, 8)), ((5, 5), (8, 0)), ((3, 1), (0, 0)), ((4, 0), (12, 11))])
@pytest.mark.parametrize("accepted", [(1.0, 1.0), (0.2, 1.0), (0.0, 0.6)])
def test_ends_are_those_of_a_search_over_all_curves(
    counts: tuple[tuple[int, int], ...], accepted: tuple[float, float]
) -> None:
    samples, grid = (400_000, 600_000), np.linspace(0.0, 1.0, 1001)
    estimate = Estimate(samples, [n for n, _ in counts], [a for _, a in counts])
    losses = []
    for offloads, agreements in counts:
        best = log_likelihood(offloads - agreements, offloads, (offloads - agreements) / offloads) if offloads else 0.0
        losses.append(np.array([best - log_likelihood(offloads - agreements, offloads, d) for d in grid]))
    one, other = (w * (a * grid + (1 - a) * 0.3) for w, a in zip((0.4, 0.6), accepted, strict=True))
    possible = (one[:, None] + other)[losses[0][:, None] + losses[1] <= LEEWAY]
    assert estimate.cost(accepted, 0.3) == pytest.approx((possible.min(), possible.max()), abs=0.003)


def test_monotone_is_the_closest_curve_that_never_falls() -> None:
    """Against every pooling of neighbours: of the monotone ones, the closest."""
    chance = np.random.default_rng(3)
    for _ in range(20):
        values, weights = chance.random(6), chance.integers(1, 9, 6)
        best, least = None, math.inf
        for cuts in product((False, True), repeat=5):
            blocks = np.cumsum([0, *cuts])
            means = np.bincount(blocks, values * weights) / np.bincount(blocks, weights)
            distance = float(weights @ (values - means[blocks]) ** 2)
            if (np.diff(means) >= 0).all() and distance < least:
                best, least = means[blocks], distance
        assert monotone(values, weights) == pytest.approx(best)


def test_the_fit_is_monotone_unless_that_is_impossible() -> None:
    assert Estimate([9, 9, 9], [9, 9, 9], [3, 8, 7]).agreement == pytest.approx([1 / 3, 15 / 18, 15 / 18])
    dip = Estimate([900, 900], [900, 900], [800, 300])
    assert dip.agreement == pytest.approx([8 / 9, 1 / 3])


def test_bins_that_were_never_offloaded_may_be_anything() -> None:
    estimate = Estimate([50, 50, 0, 100], [10, 0, 0, 10], [5, 0, 0, 10])
    assert estimate.unknown == [1]
    low, high = estimate.bounds
    assert (low[1], high[1]) == (0.0, 1.0)
    known = Estimate([100, 0, 0, 100], [10, 0, 0, 10], [5, 0, 0, 10])
    cost, most = estimate.cost([0, 1, 0, 0], 0.5), known.cost([0, 0, 0, 0], 0.5)
    assert most == (0.5, 0.5)
    assert cost[0] < 0.5 - 0.25 * 0.5 + 0.01
    assert cost[1] >= 0.5 + 0.25 * 0.5


@pytest.mark.parametrize("open", [0.01, 0.05])
def test_so_many_more_audits_leave_so_much_open(open: float) -> None:
    samples, offloads, agreements = [100_000, 300_000], [20, 5], [10, 5]
    estimate = Estimate(samples, offloads, agreements)
    for bin, agreement in enumerate((0.5, 1.0)):
        audits = estimate.audits(bin, open)
        for part, small_enough in ((1.0, True), (0.9, False)):
            more = [0, 0]
            more[bin] = math.floor(part * audits)
            agreed = [a + round(agreement * n) for a, n in zip(agreements, more, strict=True)]
            asked = [a + b for a, b in zip(offloads, more, strict=True)]
            assert (Estimate(samples, asked, agreed).open(bin) <= 1.02 * open) == small_enough


def test_what_is_known_well_enough_needs_no_audit() -> None:
    assert Estimate([10, 10_000], [10, 10_000], [5, 10_000]).audits(0) == 0


@pytest.mark.medium
def test_a_fixed_number_of_offloads_has_the_coverage_of_wilks() -> None:
    """χ²₁ ≤ 2 log 40 in 99.34 % of logs; ± 3 standard errors of 1000 logs."""
    chance, agreement, samples = np.random.default_rng(5), np.array([0.3, 0.6, 0.8]), np.array([20_000, 30_000, 50_000])
    weights, held, runs = samples / samples.sum(), 0, 1000
    true = float(weights @ (1 - agreement))
    for _ in range(runs):
        arrived = chance.multinomial(samples.sum(), weights)
        low, high = Estimate(arrived, [200, 200, 200], chance.binomial(200, agreement)).cost([1, 1, 1], 0.5)
        held += low <= true <= high
    assert held / runs == pytest.approx(0.9934, abs=3 * math.sqrt(0.0066 * 0.9934 / runs))


def test_what_runs_differ_by_is_added_in_quadrature() -> None:
    """Of two runs, one accepts all of bin 0 and the other nothing: their costs differ by 0.25 |0.5 - 0.3|."""
    estimate = Estimate([10**6, 3 * 10**6], [10**6, 3 * 10**6], [5 * 10**5, 3 * 10**6])
    low, high = estimate.cost([[1.0, 0.0], [0.0, 0.0]], 0.3)
    variance = np.var([0.25 * 0.5 + 0.75 * 0.3, 0.3], ddof=1) / 2
    assert (high - low) / 2 == pytest.approx(math.sqrt(2 * LEEWAY * variance), rel=0.01)
    assert (high + low) / 2 == pytest.approx(0.125 * 0.5 + 0.875 * 0.3, abs=1e-4)


@pytest.mark.parametrize("counts", [([3], [4], [1]), ([3], [2], [3]), ([3], [0], [0])])
def test_refuses_counts_that_cannot_be(counts: tuple[list[int], ...]) -> None:
    with pytest.raises(ValueError, match="Estimate: samples ≥ offloads ≥ agreements ≥ 0"):
        Estimate(*counts)


@pytest.mark.parametrize("counts", [([3, 4], [2], [1]), ([3], [2, 2], [1]), ([[3]], [[2]], [[1]])])
def test_refuses_counts_of_other_bins(counts: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="samples, offloads and agreements must have one number per bin each"):
        Estimate(*counts)
