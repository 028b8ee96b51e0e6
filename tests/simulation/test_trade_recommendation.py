"""Recommendations: the choice is that of the rule, and the figures are those of the half that had no part in it."""

from bisect import bisect
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge import HILCB, Bins, Sentinel, Trace, UniformBins, load_trace
from hinge.bins import EdgeBins
from hinge.policies import Policy
from hinge.simulation import run_seeds
from hinge.simulation.evaluate import fitted_cost, halves
from hinge.simulation.sources import generators
from hinge.simulation.trade import FEWEST, OFFLOAD_COSTS, fitted_bins, recommend, trade
from hinge.theory import best_thresholds

pytestmark = pytest.mark.slow


def in_orders(trace: Trace, policy: Policy, cost: float, bins: Bins, runs: int = 10) -> tuple[float, ...]:
    """The same on average over shuffled orders; 10 of them where there are 5000 samples."""
    found = []
    for seed in run_seeds(0, runs):
        rows = generators(seed)[0].permutation(len(trace))
        shuffled = Trace.from_frame({name: column[rows] for name, column in trace.columns.items()})
        found.append(by_hand(shuffled, policy.fresh(), cost, bins))
    return tuple(fmean(each) for each in zip(*found, strict=True))


def by_hand(trace: Trace, policy: Policy, cost: float, bins: Bins) -> tuple[float, float, float]:
    """Cost per sample, share of offloads and share of right answers, one sample after another."""
    assert trace.label is not None
    paid, offloads, right = 0.0, 0, 0
    rows = zip(trace.confidence.tolist(), trace.local, trace.remote, trace.label, strict=True)
    for confidence, local, remote, label in rows:
        decision = policy.decide(bins.bin(confidence))
        if decision.offload:
            policy.learn(decision, bool(local == remote), cost)
        offloads += decision.offload
        paid += cost if decision.offload else float(local != remote)
        right += int((remote if decision.offload else local) == label)
    return paid / len(trace), offloads / len(trace), right / len(trace)


def test_the_figures_are_those_of_the_other_half() -> None:
    trace = load_trace("fashion")
    found = recommend(trace)
    assert found is not None
    price, edges = found.offload_cost, list(fitted_bins(trace).edges)
    assert found.settings == {"policy": "sentinel", "bins": edges, "offload_cost": price}
    half, other = halves(trace, 0)
    bins = fitted_bins(half)
    cost, offloaded, right = in_orders(other, Sentinel(bins=bins.bins, offload_cost=price), price, bins)
    assert found.samples == len(other)
    assert found.measured.cost_per_sample == pytest.approx(cost)
    assert found.measured.offload_fraction == pytest.approx(offloaded)
    assert found.measured.true_accuracy == pytest.approx(right)
    assert found.local.cost_per_sample == pytest.approx(1 - other.agreement)
    assert (found.remote.cost_per_sample, found.remote.offload_fraction) == pytest.approx((price, 1.0))


def test_a_price_that_is_known_is_shifted_by_the_labels_of_the_half_that_is_not_measured() -> None:
    trace = load_trace("fashion")
    found = recommend(trace, ["sentinel"], 0.1)
    assert found is not None
    assert found.shifted_cost == pytest.approx(fitted_cost(trace, 0.1), rel=0.005)
    assert found.settings["offload_cost"] == found.shifted_cost
    half, other = halves(trace, 0)
    bins, told = fitted_bins(half), float(f"{fitted_cost(half, 0.1):.3g}")
    for price, said in ((told, "at a cost of {:.4f} by the true labels"), (0.1, "(if told 0.1: {:.4f})")):
        _, offloaded, right = in_orders(other, Sentinel(bins=bins.bins, offload_cost=price), 0.1, bins)
        assert said.format(0.1 * offloaded + 1 - right) in str(found)
        if price == told:
            assert found.measured.cost_per_sample == pytest.approx(0.1 * offloaded + 1 - right)
    assert (found.local.cost_per_sample, found.remote.cost_per_sample) == pytest.approx(
        (1 - (other.local_accuracy or 0.0), 0.1 + 1 - (other.remote_accuracy or 0.0))
    )


def test_labels_of_the_measured_half_do_not_shift_its_cost() -> None:
    """The remote is right in the half that is not measured: what that teaches is wrong in the other."""
    rows = 400
    one, _ = halves(Trace(np.full(rows, 0.5), np.arange(rows), np.arange(rows)), seed=0)
    trusted = np.isin(np.arange(rows), one.local)
    trace = Trace(np.full(rows, 0.5), np.zeros(rows, int), np.ones(rows, int), label=np.where(trusted, 1, 0))
    found = recommend(trace, ["isotonic"], 0.4)
    assert found is not None
    assert found.gate.cost_per_sample == pytest.approx(0.4 + 1.0)  # all offloaded, wrongly
    assert (found.alone, found.measured.cost_per_sample) == ("local", 0.0)
    assert "; isotonic costs more than local alone, which costs nothing: at this price nothing is" in str(found)


def test_a_shift_that_the_measured_half_speaks_against_is_not_recommended() -> None:
    """The remote is right in the half that is measured only: by the other's labels nothing would be offloaded."""
    rows = 400
    one, _ = halves(Trace(np.full(rows, 0.5), np.arange(rows), np.arange(rows)), seed=0)
    trusted = ~np.isin(np.arange(rows), one.local)
    trace = Trace(np.full(rows, 0.5), np.zeros(rows, int), np.ones(rows, int), label=np.where(trusted, 1, 0))
    found = recommend(trace, ["isotonic"], 0.4)
    assert found is not None
    assert found.told == found.settings["offload_cost"] == found.shifted_cost == 0.4
    assert found.gate.cost_per_sample == found.measured.cost_per_sample == pytest.approx(0.4)
    assert found.alone == "remote"
    assert "told" not in str(found)
    assert "at a cost of 0.4000 by the true labels; isotonic costs as much as remote alone: at this" in str(found)


def test_where_local_always_agrees_no_gate_is_recommended() -> None:
    trace = load_trace("fashion")
    found = recommend(Trace(trace.confidence, trace.remote, trace.remote), offload_cost=0.2)
    assert found is not None
    assert found.alone == "local"
    assert str(found).startswith("Recommended: no gate, but local alone, at an offload cost of 0.2. ")
    assert found.trade.policy == "sentinel"  # which says at which prices a gate pays
    usual = recommend(trace, ["sentinel"], 0.2)
    assert usual is not None
    assert usual.alone is None


def test_without_labels_or_a_known_price_nothing_is_shifted() -> None:
    trace = load_trace("fashion")
    unlabelled = Trace(trace.confidence, trace.local, trace.remote)
    for found in (recommend(unlabelled, ["sentinel"], 0.1), recommend(trace, ["sentinel"])):
        assert found is not None
        assert found.shifted_cost is None
        assert "true labels" not in str(found)


def test_bins_are_cut_where_thresholds_are_best_and_those_given_are_kept() -> None:
    trace = load_trace("cifar100-resnet50")
    fitted, given = (recommend(trace, ["sentinel"], 0.1, bins=bins) for bins in (8, EdgeBins([0.98])))
    assert fitted is not None
    assert given is not None
    assert isinstance(fitted.binning, EdgeBins)
    assert set(fitted.binning.edges) >= set(best_thresholds(trace.confidence, trace.agreed))
    assert f"sentinel, {fitted.bins} fitted bins, " in str(fitted)
    assert (fitted.as_dict()["bins"], fitted.as_dict()["settings"]["bins"]) == (fitted.bins, [*fitted.binning.edges])
    assert given.binning == EdgeBins([0.98])
    assert "sentinel, 2 bins, at an offload cost of 0.1, " in str(given)
    assert "The policy is chosen on a random half" in str(given)
    _, other = halves(trace, 0)
    uniform = by_hand(other, Sentinel(bins=16, offload_cost=0.1), 0.1, UniformBins(16))[0]
    assert fitted.trade.at(0.1)[0].cost_per_sample < 0.95 * uniform  # where confidences bunch


def test_a_policy_is_chosen_among_those_named() -> None:
    known = load_trace("fashion")
    trace = Trace(known.confidence, known.local, known.remote)
    found = recommend(trace, ["always-remote", "hi-lcb", "oracle", "offline", "hedge-hi"], 0.1)
    assert found is not None
    assert recommend(trace, "always-remote, hi-lcb", 0.1) == found
    assert found.policy == "hi-lcb"  # the three behind it must be told what no device knows


def test_where_a_gate_costs_clearly_more_none_is_recommended() -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 10, 20_000)
    found = recommend(Trace(rng.random(20_000), (label + 1) % 10, label), offload_cost=0.05)  # local is always wrong
    assert found is not None
    assert found.measured.cost_per_sample == pytest.approx(0.05)
    assert (found.alone, found.trade.policy) == ("remote", "sentinel")
    assert "sentinel costs as much as remote alone: at this price nothing is gained" in str(found)


def test_the_price_is_given_recorded_or_found() -> None:
    trace = load_trace("fashion")
    given, found = recommend(trace, offload_cost=0.25), recommend(trace)
    assert given is not None
    assert found is not None
    assert (given.offload_cost, given.price) == (0.25, "given")
    assert found.price == "found"
    assert "(none was given; this one keeps 90 % of what the remote adds" in str(found)
    assert "(none was given; this one keeps 90 %" in str(recommend(trace, bins=EdgeBins([0.5, 0.9])))
    assert found.measured.quality >= found.local.quality + 0.8 * (found.remote.quality - found.local.quality)
    costs = np.linspace(0.1, 0.3, len(trace))
    recorded = recommend(Trace(trace.confidence, trace.local, trace.remote, cost=costs))
    assert recorded is not None
    assert (recorded.offload_cost, recorded.price) == (0.2, "recorded")
    assert "the mean of those in the log" in str(recorded)
    assert "agree with the remote" in str(recorded)


def test_a_gate_that_local_alone_beats_by_the_true_labels_is_said_to_be() -> None:
    rng = np.random.default_rng(0)
    confidence, label = rng.random(4000), rng.integers(0, 10, 4000)
    wrong = rng.random((2, 4000)) < np.stack([1 - confidence, np.full(4000, 0.4)])  # both are right in about half
    trace = Trace(confidence, np.where(wrong[0], label + 1, label), np.where(wrong[1], label + 2, label), label)
    found = recommend(trace, ["sentinel"], offload_cost=0.3)
    assert found is not None
    assert found.measured.true_accuracy is not None
    assert found.local.true_accuracy is not None
    assert fitted_cost(trace, 0.3) == found.told == 1.0
    assert (found.alone, found.shifted_cost) == ("local", 0.3)
    assert found.gate.cost_per_sample == pytest.approx(1 - found.local.true_accuracy)  # nothing is offloaded
    plain = found.trade.at(0.3)[0].by_truth(0.3).cost_per_sample
    assert plain > found.local.cost_per_sample
    assert "; sentinel, told as 1, costs as much as local alone: at this price nothing is gained" in str(found)
    assert "nothing is gained" not in str(recommend("fashion", ["sentinel"], offload_cost=0.1))


@pytest.mark.parametrize(("cost", "alone"), [(0.0, "remote"), (0.3, "local"), (1.0, "local")])
def test_a_gate_that_saves_nothing_where_it_is_measured_is_not_recommended(cost: float, alone: str) -> None:
    """Where both disagree the remote is right a little more often: by the labels few offloads are worth 0.3."""
    rng = np.random.default_rng(2)
    confidence, label = 0.5 + 0.5 * rng.random(4000), rng.integers(0, 10, 4000)
    wrong = rng.random((2, 4000)) < np.stack([1.0 - confidence, np.full(4000, 0.2)])
    trace = Trace(confidence, np.where(wrong[0], label + 1, label), np.where(wrong[1], label + 2, label), label)
    found = recommend(trace, ["sentinel", "always-local", "always-remote"], cost)
    assert found is not None
    assert found.alone == alone
    assert found.settings["policy"] == f"always-{alone}"
    assert found.measured == (found.local if alone == "local" else found.remote)
    assert found.gate.cost_per_sample >= found.measured.cost_per_sample
    assert found.trade.policy == "sentinel"
    assert "; sentinel" in str(found)
    assert str(found).endswith(": at this price nothing is gained.")


def test_without_a_price_something_is_gained_where_it_can_be() -> None:
    rng = np.random.default_rng(0)
    confidence, label = rng.random(3000), rng.integers(0, 10, 3000)
    local = np.where(rng.random(3000) < 0.1 + 0.5 * confidence, label, (label + 1) % 10)
    log = Trace(confidence, local, np.where(rng.random(3000) < 0.97, label, (label + 2) % 10), label=label)
    found = recommend(log, ["sentinel"])
    assert found is not None
    assert (found.offload_cost, found.price) == found.trade.price
    assert found.trade.saving(found.offload_cost)[0] > 0.01
    assert "nothing is gained" not in str(found)


def test_a_remote_that_adds_nothing_is_not_said_to_be_kept() -> None:
    trace = load_trace("fashion")
    found = recommend(Trace(trace.confidence, trace.remote, trace.local, label=trace.remote), ["sentinel"])
    assert found is not None
    assert (found.offload_cost, found.price) == (0.5, "usual")
    assert "at none a gate keeps 90 % of what the remote adds, if anything" in str(found)


def test_a_number_of_bins_may_be_numpys_and_a_wrong_cost_is_named() -> None:
    numbers: list[Any] = [np.int64(8), 8]
    found, usual = (recommend("synthetic-cifar10", "isotonic", 0.5, bins=number) for number in numbers)
    assert found is not None
    assert found == usual
    with pytest.raises(ValueError, match="recommend: offload_cost must be from 0 to 1, got 2"):
        recommend("synthetic-cifar10", offload_cost=2)


def test_policies_that_no_device_can_run_are_not_recommended() -> None:
    assert recommend("fashion", ["oracle", "hedge-hi"], 0.3) is None
    assert recommend("fashion", ["oracle"], target=0.9) is not None


def test_a_target_takes_the_place_of_a_price() -> None:
    found = recommend("fashion", target=0.97)
    assert found is not None
    assert found.settings == {"target": 0.97, "bins": 16}
    assert found.measured.agreement >= 0.97
    assert "to hold an agreement of 0.97" in str(found)
    assert "no call" not in str(found)
    assert found.local.agreement == pytest.approx(0.93, abs=0.005)
    assert "There local alone agrees so often, too, and needs no call" in str(recommend("fashion", target=0.9))
    assert found.as_dict()["settings"] == found.settings


def test_too_few_samples() -> None:
    trace = load_trace("fashion")
    few = {name: column[: FEWEST - 1] for name, column in trace.columns.items()}
    assert recommend(Trace.from_frame(few)) is None


@given(
    confidences=st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=1, max_size=60),
    count=st.integers(2, 12),
    data=st.data(),
)
def test_uniform_edges_leave_the_root_of_the_samples_to_every_bin(
    confidences: list[float], count: int, data: st.DataObject
) -> None:
    agreed = data.draw(st.lists(st.booleans(), min_size=len(confidences), max_size=len(confidences)))
    best = set(best_thresholds(confidences, agreed))
    edges = fitted_bins(Trace(confidences, agreed=agreed), count).edges
    assert best <= set(edges)
    fewest = len(confidences) ** 0.5

    def between(low: float, high: float) -> int:
        return sum(low <= confidence < high for confidence in confidences)

    bounds = [-1.0, *edges, 2.0]
    for below, edge, above in zip(bounds, bounds[1:], bounds[2:], strict=False):
        if edge not in best:
            assert min(between(below, edge), between(edge, above)) >= fewest
    for edge in {round(step / count, 6) for step in range(1, count)} - set(edges):  # what was left out had a reason
        place = bisect(bounds, edge)
        assert min(between(bounds[place - 1], edge), between(edge, bounds[place])) < fewest


def test_a_price_that_is_found_is_that_of_the_trade() -> None:
    for name in ("fashion", "cifar10-vgg16", "imagenet-mobilenetv2"):
        half, other = halves(load_trace(name), 0)
        gain, found = trade(other, bins=fitted_bins(half)), recommend(name, ["sentinel"])
        assert gain.headline is not None
        assert found is not None
        assert found.trade == gain  # the same gate: what was chosen on a half is measured on the other
        assert (found.offload_cost, found.price, found.measured) == (gain.headline.offload_cost, "found", gain.headline)


def test_the_trade_is_that_of_the_policy_that_is_recommended_with_its_alpha_and_horizon() -> None:
    half, other = halves(load_trace("fashion"), 0)
    found = recommend("fashion", ["hi-lcb"], 0.12, alpha=0.05, horizon=3000)
    assert found is not None
    assert found.shifted_cost is not None
    told = float(f"{fitted_cost(half, 0.12):.3g}")
    costs = (*OFFLOAD_COSTS, 0.12, told)
    assert found.trade == trade(other, "hi-lcb", bins=fitted_bins(half), alpha=0.05, offload_costs=costs, horizon=3000)


def test_alpha_is_that_of_the_policies_that_have_it() -> None:
    trace = load_trace("fashion")
    found = recommend(Trace(trace.confidence, trace.local, trace.remote), ["hi-lcb"], 0.1, alpha=0.05)
    assert found is not None
    edges = list(fitted_bins(trace).edges)
    assert found.settings == {"policy": "hi-lcb", "bins": edges, "offload_cost": 0.1, "alpha": 0.05}
    half, other = halves(trace, 0)
    bins = fitted_bins(half)
    cost, *_ = in_orders(other, HILCB(bins=bins.bins, alpha=0.05, offload_cost=0.1), 0.1, bins)
    assert found.measured.cost_per_sample == pytest.approx(cost)
    usual = recommend(trace, ["sentinel"], 0.1, alpha=0.05)
    assert usual is not None
    assert "alpha" not in usual.settings
