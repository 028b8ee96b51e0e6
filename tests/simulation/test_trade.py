"""The trade: exact where it can be computed by hand, as simulated elsewhere, and honest where nothing is gained."""

import json
from dataclasses import astuple, replace
from statistics import stdev
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import Gate, Trace, UniformBins, load_trace, simulate
from hinge.simulation import Trade, recommend, trade
from hinge.simulation.evaluate import fitted_cost, halves
from hinge.simulation.sources import ConstantPrice, InOrder, Resampled, Synthetic
from hinge.simulation.trade import FEWEST, OFFLOAD_COSTS, Point, Recommendation
from hinge.theory import fit_threshold

FEW = (0.05, 0.3, 0.9)
SHORT = 10  # runs of 500 samples


@pytest.fixture(scope="module")
def fashion() -> Trade:
    return trade("fashion", machine_code=False)


def test_where_the_remote_was_taken_for_the_truth_nothing_is_called_right() -> None:
    found = trade("objects-yolox", offload_costs=(0.1,), machine_code=False)
    assert f"probation agrees with the remote in {100 * found.gate[0].agreement:.1f} %" in found.sentence
    assert "right" not in found.sentence
    assert [*next(found.rows())][-1] == "agrees"


@pytest.mark.parametrize("bins", [None, 5])
def test_every_rule_costs_what_it_pays_on_the_log(bins: int | None) -> None:
    trace = load_trace("cifar100-resnet18-calibrated")
    found = trade(trace, bins=bins, offload_costs=FEW, machine_code=False)
    right, sure, agreed = trace.local_right, trace.confidence, trace.agreed
    assert right is not None
    for place, cost in enumerate(FEW):
        source = InOrder(trace, UniformBins(16), ConstantPrice(cost))
        figures = simulate([Gate(offload_cost=cost, bins=bins)], source, len(trace))["probation"].summary()
        point = found.gate[place]
        assert (point.cost_per_sample, point.agreement) == (figures["cost_per_sample"], figures["accuracy"])
        assert point.true_accuracy == figures["true_accuracy"]
        assert found.local[place].cost_per_sample == pytest.approx(1.0 - agreed.mean())
        assert found.local[place].true_accuracy == pytest.approx(right.mean())
        assert found.remote[place].cost_per_sample == pytest.approx(cost)
        asked = sure < fit_threshold(sure, agreed, cost)[0]
        best = found.threshold[place]
        assert best.cost_per_sample == pytest.approx(np.where(asked, cost, 1.0 - agreed).mean())
        assert best.cost_per_sample <= min(point.cost_per_sample, 1.0 - agreed.mean(), cost) + 1e-12
        assert best.offload_fraction == pytest.approx(asked.mean())


def test_on_bins_the_best_threshold_is_the_best_of_all() -> None:
    weights, agreement = np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.7, 0.95])
    found = trade(Synthetic(agreement, ConstantPrice(0.5), weights), offload_costs=FEW, machine_code=False)
    for point in found.threshold:
        rules = np.indices((2, 2, 2)).reshape(3, -1).T
        costs = [weights @ np.where(rule, point.offload_cost, 1 - agreement) for rule in rules]
        assert point.cost_per_sample == pytest.approx(min(costs))
        assert point.true_accuracy is None


@pytest.mark.medium
def test_the_break_evens_of_a_rule_that_need_not_learn_are_the_extreme_bins() -> None:
    source = Synthetic([0.4, 0.7, 0.9], ConstantPrice(0.5), [0.2, 0.3, 0.5])
    costs = (0.05, 0.1, 0.15, 0.55, 0.6, 0.65)  # remote alone is best up to 1 − 0.9, local alone from 1 − 0.4 on
    found = trade(source, "oracle", offload_costs=costs, horizon=100_000, machine_code=False)
    assert found.remote_until == pytest.approx(0.1, abs=0.005)
    assert found.local_from == pytest.approx(0.6, abs=0.005)


def test_a_break_even_lies_where_straight_lines_cross() -> None:
    def points(*costs: float) -> tuple[Point, ...]:
        return tuple(Point(price, cost, 0.5, 0.9, None) for price, cost in zip((0.1, 0.3, 0.5), costs, strict=True))

    found = Trade("probation", points(0.1, 0.2, 0.4), points(0.3, 0.3, 0.3), points(0.1, 0.3, 0.5), points(0, 0, 0))
    assert found.remote_until == 0.1
    assert found.local_from == pytest.approx(0.4)
    assert [round(found.saving(price)[0], 9) for price in (0.3, 0.5)] == [round(1 / 3, 9), round(-1 / 3, 9)]
    assert found.saving(0.3)[1] == "local"
    assert found.compared(0.5) == "33 % more than local alone"


def test_beside_local_alone_that_costs_nothing_every_offload_is_more() -> None:
    free, paid = Point(0.1, 0.0, 0.0, 1.0, None), Point(0.1, 0.02, 0.2, 1.0, None)
    found = Trade("probation", (paid,), (free,), (Point(0.1, 0.1, 1.0, 1.0, None),), (free,))
    assert found.compared(0.1) == "more than local alone, which costs nothing"
    assert next(found.rows())["saves"] == "nothing"
    assert Trade("probation", (free,), (free,), (paid,), (free,)).compared(0.1) == "as much as local alone"


@pytest.mark.medium
def test_the_headline_is_the_highest_price_that_keeps_nine_tenths_of_what_the_remote_adds(fashion: Trade) -> None:
    local, remote = fashion.local[0].true_accuracy, fashion.remote[0].true_accuracy
    best = fashion.headline
    assert local is not None
    assert remote is not None
    assert best is not None
    assert (round(local, 9), round(remote, 9)) == (0.9106, 0.952)
    kept = {point.offload_cost: (point.quality - local) / (remote - local) for point in fashion.gate}
    assert kept[best.offload_cost] >= 0.9
    assert all(share < 0.9 for cost, share in kept.items() if cost > best.offload_cost)
    assert f"At an offload cost of {best.offload_cost:g}, probation is right in {100 * best.quality:.1f} %" in str(
        fashion
    )


def by_hand(*gate: tuple[float, float, float]) -> Trade:
    """A policy by price, cost and agreement, beside a local model that agrees in 60 %."""
    prices = [price for price, _, _ in gate]
    local = tuple(Point(price, 0.4, 0.0, 0.6, None) for price in prices)
    remote = tuple(Point(price, price, 1.0, 1.0, None) for price in prices)
    return Trade("probation", tuple(Point(p, cost, 0.5, agrees, None) for p, cost, agrees in gate), local, remote, ())


def test_the_headline_is_at_a_price_at_which_something_is_gained() -> None:
    found = by_hand((0.1, 0.09, 0.99), (0.2, 0.15, 0.97), (0.3, 0.306, 0.97), (0.35, 0.349, 0.97), (0.5, 0.3, 0.7))
    assert found.headline == found.gate[1]  # at 0.3 it costs more, at 0.35 as good as as much, and at 0.5 it keeps less
    assert found.price == (0.2, "found")
    assert found.sentences()[-1].endswith("that the remote adds to local and saves at least 1 %.")


def test_where_no_price_keeps_enough_and_saves_it_is_the_one_that_saves_most() -> None:
    found = by_hand((0.1, 0.1, 1.0), (0.3, 0.27, 0.9), (0.5, 0.3, 0.7), (0.7, 0.42, 0.6))
    assert found.headline is None
    assert found.price == (0.5, "cheapest")
    assert "keeps 90 % of what the remote adds and saves at least 1 % (" in found.sentence
    assert "; it saves most at 0.5, 25 % less than local alone" in found.sentence


def test_a_price_at_which_nothing_is_gained_is_not_the_headline() -> None:
    found = by_hand((0.1, 0.1, 1.0), (0.3, 0.31, 0.97), (0.5, 0.41, 0.7))
    assert (found.headline, found.price) == (None, (0.5, "usual"))
    assert found.sentences() == [found.sentence]  # and not that a price keeps something
    assert "Nothing is gained" in found.sentence
    little = by_hand((0.1, 0.1, 1.0), (0.3, 0.299, 0.97), (0.5, 0.41, 0.7))  # 0.3 % less than remote alone
    assert (little.headline, little.price) == (None, (0.3, "cheapest"))
    assert "At no price probation keeps 90 % of what the remote adds and saves at least 1 % (" in little.sentence


def test_what_costs_less_than_one_of_both_alone_is_not_said_to_cost_more() -> None:
    found = by_hand((0.1, 0.11, 1.0), (0.7, 0.41, 0.7))  # less than remote alone, but more than local alone
    assert found.gate[1].cost_per_sample < found.remote[1].cost_per_sample
    none = "at no offload cost from 0.1 to 0.7 does probation cost less than the cheaper of local and remote alone"
    assert none in found.sentence


@pytest.mark.medium
def test_the_sentence_says_where_nothing_is_gained(fashion: Trade) -> None:
    limit = fashion.local_from
    assert limit is not None
    assert fashion.sentence.endswith(f"above {limit:.2g} local alone is cheaper.")
    for gate, local in zip(fashion.gate, fashion.local, strict=True):
        assert (gate.cost_per_sample < local.cost_per_sample) == (gate.offload_cost < limit)
    same = trade(Trace([0.9, 0.4] * 50, [1, 2] * 50, [1, 2] * 50), offload_costs=FEW, machine_code=False)
    assert same.sentence.startswith("Nothing is gained: at no offload cost from 0.05 to 0.9 does probation cost less")


def test_a_remote_that_is_no_better_adds_nothing() -> None:
    rows = np.random.default_rng(1).random(400)
    local, remote = (rows < 0.7).astype(int), (rows > 0.3).astype(int)
    found = trade(Trace(rows, local, remote, label=np.ones(400, int)), offload_costs=FEW, machine_code=False)
    assert found.headline is None
    assert "no more often than local" in found.sentence or "Nothing is gained" in found.sentence


@pytest.mark.medium
def test_without_labels_agreement_is_what_is_spoken_of(fashion: Trade) -> None:
    log = load_trace("fashion")
    found = trade(Trace(log.confidence, log.local, log.remote), machine_code=False)
    assert [point.cost_per_sample for point in found.gate] == [point.cost_per_sample for point in fashion.gate]
    assert "agrees with the remote in" in found.sentence
    assert "(remote alone 100.0 %, local alone 93.0 %)" in found.sentence
    assert "true acc." not in str(found)


def test_programs_get_all_of_it(fashion: Trade) -> None:
    found = json.loads(json.dumps(fashion.as_dict()))
    assert [point["offload_cost"] for point in found["gate"]] == list(OFFLOAD_COSTS)
    assert (found["policy"], found["sentence"]) == ("probation", fashion.sentence)
    assert found["headline"] in found["gate"]
    assert found["remote_until"] == fashion.remote_until
    assert found["local_from"] == fashion.local_from


@pytest.mark.medium
def test_the_figure_has_both_panels_with_every_rule_and_the_break_even(fashion: Trade) -> None:
    drawn, best = fashion.figure(), fashion.headline
    assert best is not None
    assert sorted(curve.name for curve in drawn.data) == sorted(
        2 * ["best threshold", "local only", "probation", "remote only"]
    )
    assert [shape.x0 for shape in drawn.layout.shapes] == [fashion.local_from, best.offload_fraction]


@pytest.mark.parametrize("rule", ["always-local", "always-remote", "probation"])
def test_chance_in_the_draws_makes_no_policy_cheaper_than_it_is(rule: str) -> None:
    source = Synthetic([0.4, 0.9, 0.97], ConstantPrice(0.5), [0.1, 0.2, 0.7])
    by_rule = {"always-local": "local", "always-remote": "remote"}
    for seed in range(5):
        found = trade(source, rule, offload_costs=FEW, horizon=300, seed=seed, machine_code=False)
        for gate, best in zip(found.gate, found.threshold, strict=True):
            assert gate.cost_per_sample >= best.cost_per_sample - 1e-12
            paid = gate.offload_cost * gate.offload_fraction + 1 - gate.agreement
            assert gate.cost_per_sample == pytest.approx(paid)
        if rule in by_rule:
            for gate, alone in zip(found.gate, getattr(found, by_rule[rule]), strict=True):
                assert gate.cost_ci95 == pytest.approx(0.0)
                assert astuple(replace(gate, cost_ci95=None)) == pytest.approx(astuple(alone))


def test_samples_are_drawn_if_a_horizon_is_given_and_progress_is_told() -> None:
    told: list[tuple[int, int]] = []

    def tell(done: int, total: int) -> None:
        told.append((done, total))

    found = trade("fashion", offload_costs=FEW, horizon=500, progress=tell, machine_code=False)
    for point in found.gate:
        source = Resampled(load_trace("fashion"), UniformBins(16), ConstantPrice(point.offload_cost))
        played = simulate([Gate(offload_cost=point.offload_cost)], source, 500, SHORT)
        costs = played["probation"].cost_per_sample[:, -1]
        assert point.cost_per_sample == pytest.approx(costs.mean())
        assert point.cost_ci95 == pytest.approx(2.2622 * stdev(costs) / SHORT**0.5, rel=1e-3)  # t with 9 degrees
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_prices_must_be_prices() -> None:
    with pytest.raises(ValueError, match=r"trade: offload_costs\[1\] must be from 0 to 1, got 2"):
        hinge.trade("fashion", offload_costs=[0.5, 2])
    with pytest.raises(ValueError, match="at least one price"):
        hinge.trade("fashion", offload_costs=[])


@pytest.mark.slow
@pytest.mark.parametrize("drawn", [True, False])
def test_what_a_short_log_says_hangs_little_on_the_seed(drawn: bool) -> None:
    """Single runs differ by ten times as much."""
    rows = np.random.default_rng(0).permutation(10_000)[:2000]
    log = load_trace("cifar100-resnet18-calibrated")
    short = Trace(log.confidence[rows], log.local[rows], log.remote[rows])
    length = 2000 if drawn else None
    found = [trade(short, offload_costs=(0.15,), horizon=length, seed=seed, machine_code=False) for seed in range(6)]
    saved = [each.saving(0.15)[0] for each in found]
    assert max(saved) - min(saved) < 0.03
    for each in found:
        (point,) = each.gate
        assert point.cost_ci95 is not None
        assert 0 < point.cost_ci95 < 0.05 * point.cost_per_sample
        assert next(each.rows())["± 95 %"] == f"{point.cost_ci95:.4f}"


def test_a_long_log_is_replayed_once_and_has_no_interval(fashion: Trade) -> None:
    assert all(point.cost_ci95 is None for point in fashion.gate)
    assert "±" not in str(fashion)


# -- a recommendation -------------------------------------------------------------------------------------------------


def advised(*arguments: Any, **settings: Any) -> Recommendation:
    found = recommend(*arguments, **settings)
    assert found is not None
    return found


def unlabelled(name: str) -> Trace:
    trace = load_trace(name)
    return Trace(trace.confidence, trace.local, trace.remote)


def test_what_is_recommended_was_measured_on_the_other_half() -> None:
    trace = unlabelled("imagenet-mobilenet")
    found = advised(trace, 0.2)
    half, other = halves(trace, 0)
    assert (found.policy, found.settings, found.samples) == ("probation", {"offload_cost": 0.2}, len(other))
    assert found.measured == found.gate == trade(other, offload_costs=(0.2,)).gate[0]
    assert found.local.cost_per_sample == pytest.approx(1 - other.agreement)
    assert (found.remote.cost_per_sample, found.remote.offload_fraction) == pytest.approx((0.2, 1.0))
    assert str(found).startswith("Recommended: probation, at an offload cost of 0.2. ")
    assert len(half) + len(other) == len(trace)


def test_a_price_that_is_known_is_shifted_by_the_labels_of_the_half_that_is_not_measured() -> None:
    trace = load_trace("fashion")
    found = advised(trace, 0.1)
    assert found.shifted_cost == pytest.approx(fitted_cost(trace, 0.1), rel=0.005)
    assert found.settings == {"offload_cost": found.shifted_cost}
    half, other = halves(trace, 0)
    assert found.told == float(f"{fitted_cost(half, 0.1):.3g}")
    for price, said in ((found.told, "at a cost of {:.4f} by the true labels"), (0.1, "(if told 0.1: {:.4f})")):
        point = trade(other, offload_costs=(price,)).gate[0]
        assert point.true_accuracy is not None
        paid = 0.1 * point.offload_fraction + 1 - point.true_accuracy
        assert said.format(paid) in str(found)
        if price == found.told:
            assert found.measured.cost_per_sample == pytest.approx(paid)


def right_in(measured: bool) -> Trace:
    """The remote is right in one half only: in that which is measured, or in the other."""
    rows = 400
    one, _ = halves(Trace(np.full(rows, 0.5), np.arange(rows), np.arange(rows)), seed=0)
    trusted = np.isin(np.arange(rows), one.local) != measured
    return Trace(np.full(rows, 0.5), np.zeros(rows, int), np.ones(rows, int), label=np.where(trusted, 1, 0))


def test_labels_of_the_measured_half_do_not_shift_its_cost() -> None:
    found = advised(right_in(measured=False), 0.4)
    assert found.gate.cost_per_sample == pytest.approx(0.4 + 1.0)  # all offloaded, wrongly
    assert (found.alone, found.measured.cost_per_sample) == ("local", 0.0)
    assert "; probation costs more than local alone, which costs nothing: at this price nothing is" in str(found)


def test_a_shift_that_the_measured_half_speaks_against_is_not_recommended() -> None:
    found = advised(right_in(measured=True), 0.4)
    assert found.told == found.shifted_cost == 0.4
    assert found.alone == "remote"
    assert "told" not in str(found)


def test_where_local_always_agrees_no_gate_is_recommended() -> None:
    trace = load_trace("fashion")
    found = advised(Trace(trace.confidence, trace.remote, trace.remote), 0.2)
    assert (found.alone, found.settings) == ("local", {"policy": "always-local"})
    assert str(found).startswith("Recommended: no gate, but local alone, at an offload cost of 0.2. ")
    assert advised(trace, 0.2).alone is None


def test_where_local_is_always_wrong_the_remote_answers_all() -> None:
    rng = np.random.default_rng(1)
    label = rng.integers(0, 10, 5_000)
    found = advised(Trace(rng.random(5_000), (label + 1) % 10, label), 0.05)
    assert found.alone == "remote"
    assert found.measured.cost_per_sample == pytest.approx(0.05)
    assert "at this price nothing is gained" in str(found)


def test_where_a_threshold_is_clearly_cheaper_it_is_recommended() -> None:
    """Neighbouring confidences are taken together by any bins, and differ."""
    rows = 4000
    sure = np.where(np.arange(rows) % 2 == 0, 0.5, 0.5001)
    agreed = np.arange(rows) % 2 == 1
    found = advised(Trace(sure, agreed=agreed), 0.2)
    assert (found.policy, found.threshold) == ("threshold", 0.5001)
    assert found.settings == {"policy": "threshold", "set": ["threshold=0.5001"]}
    assert found.measured.cost_per_sample == pytest.approx(0.1, abs=0.01)
    assert "a fixed threshold of 0.5001, which is cheaper while nothing changes" in str(found)


def test_the_price_is_given_recorded_or_found() -> None:
    trace = load_trace("fashion")
    given, found = advised(trace, 0.25), advised(trace)
    assert (given.offload_cost, given.price) == (0.25, "given")
    assert (found.offload_cost, found.price) == found.trade.price
    assert found.shifted_cost is None
    assert "(none was given; this one keeps 90 % of what the remote adds" in str(found)
    costs = np.linspace(0.1, 0.3, len(trace))
    recorded = advised(Trace(trace.confidence, trace.local, trace.remote, cost=costs))
    assert (recorded.offload_cost, recorded.price, recorded.shifted_cost) == (0.2, "recorded", None)
    assert "the mean of those in the log" in str(recorded)
    with pytest.raises(ValueError, match="recommend: offload_cost must be from 0 to 1, got 2"):
        recommend("synthetic-cifar10", offload_cost=2)


def test_a_remote_that_adds_nothing_is_not_said_to_be_kept() -> None:
    trace = load_trace("fashion")
    found = advised(Trace(trace.confidence, trace.remote, trace.local, label=trace.remote))
    assert (found.offload_cost, found.price) == (0.5, "usual")
    assert "at none a gate keeps 90 % of what the remote adds, if anything" in str(found)


def test_a_target_takes_the_place_of_a_price() -> None:
    found = advised("fashion", target=0.97)
    assert found.settings == found.as_dict()["settings"] == {"target": 0.97}
    assert found.measured.agreement >= 0.97
    assert "to hold an agreement of 0.97" in str(found)
    assert "no call" not in str(found)
    assert "There local alone agrees so often, too, and needs no call" in str(recommend("fashion", target=0.9))


def test_too_few_samples() -> None:
    trace = load_trace("fashion")
    few = {name: column[: FEWEST - 1] for name, column in trace.columns.items()}
    assert recommend(Trace.from_frame(few)) is None
