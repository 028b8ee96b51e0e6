"""What a simulation writes down: every figure again from the decisions, and the intervals over runs."""

from pathlib import Path

import numpy as np
import pytest

from hinge import HILCB, HILCBLite, Policy, Probation, UniformBins
from hinge.policies import AlwaysLocal, AlwaysRemote
from hinge.simulation import checkpoints, interval, lineup, simulate
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled, Synthetic
from hinge.theory import Problem
from tests.simulation.streams import policy_for, sources, trace_with_costs, whole_stream

BINS = 6
SOURCE = Synthetic(np.linspace(0.1, 0.95, BINS), BimodalPrice())
STUDENT_T975 = {  # from printed tables
    **{1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646, 8: 2.3060, 9: 2.2622},
    **{10: 2.2281, 12: 2.1788, 15: 2.1314, 19: 2.0930, 20: 2.0860, 24: 2.0639, 29: 2.0452, 30: 2.0423},
    **{40: 2.0211, 60: 2.0003, 99: 1.9842, 120: 1.9799, 1000: 1.9623},
}


@pytest.mark.parametrize("kind", ["resampled", "in order", "synthetic", "blocks", "periodic drift"])
def test_every_checkpoint_follows_from_the_decisions(kind: str) -> None:
    source, horizon = sources(BINS)[kind], 30_000  # two chunks
    policies = {name: policy_for(name, False, source, horizon) for name in ("hi-lcb", "hedge-hi")}
    results = simulate(policies, source, horizon, record_decisions=True)
    samples = whole_stream(source, horizon)
    for record in results.values():
        run, times = record.runs[0], record.times
        offload = np.asarray(run.decisions)
        paid = np.where(offload, samples.costs, 1 - samples.agreed)
        best = np.where(samples.gaps < 0, 1 - samples.agreed, samples.costs)
        wrong = offload == (samples.gaps < 0)
        for position, time in enumerate(times):
            now = slice(time)
            assert run.regret[position] == pytest.approx(np.abs(samples.gaps[now])[wrong[now]].sum(), abs=1e-8)
            assert run.cost[position] == pytest.approx(paid[now].sum(), abs=1e-8)
            assert run.oracle_cost[position] == pytest.approx(best[now].sum(), abs=1e-8)
            assert run.offloads[position] == offload[now].sum()
            assert run.matched[position] == (offload | (samples.agreed > 0))[now].sum()
        assert record.realised_regret[0] == pytest.approx(run.cost - run.oracle_cost)
        assert record.offload_fraction[0] == pytest.approx(run.offloads / times)
        assert record.cost_per_sample[0] == pytest.approx(run.cost / times)
        assert record.accuracy[0] == pytest.approx(run.matched / times)


@pytest.mark.medium
def test_a_checkpoint_is_what_a_shorter_horizon_ends_with() -> None:
    policies = [HILCB(BINS, offload_cost=0.5), HILCBLite(BINS)]
    long = simulate(policies, SOURCE, 30_000, runs=2)
    for position in (10, 30, -5):
        time = int(long["hi-lcb"].times[position])
        short = simulate(policies, SOURCE, time, runs=2)
        for name, record in short.items():
            assert record.regret[:, -1].tobytes() == long[name].regret[:, position].tobytes()


@pytest.mark.parametrize("horizon", [1, 2, 59, 1000, 16_384, 16_385, 10**6, 10**9, 10**12])
def test_checkpoints_rise_to_the_horizon(horizon: int) -> None:
    times = checkpoints(horizon)
    assert times[0] == 1
    assert times[-1] == horizon
    assert (np.diff(times) > 0).all()
    assert len(times) <= 60
    later = times[times > 100]
    assert len(later) < 3 or np.ptp(np.diff(np.log(later))) < 0.02  # evenly spread on a logarithmic scale


@pytest.mark.parametrize("name", ["hi-lcb", "hedge-hi", "always-local", "always-remote"])
def test_true_accuracy_and_cost_are_those_of_appendix_b(name: str) -> None:
    trace, horizon = trace_with_costs(), 30_000
    source = Resampled(trace, UniformBins(BINS))
    record = simulate([policy_for(name, False, source, horizon)], source, horizon, record_decisions=True)[name]

    # The rows drawn are found again by their recorded costs, which are all different.
    assert trace.cost is not None
    assert trace.label is not None
    order = np.argsort(trace.cost)
    rows = order[np.searchsorted(trace.cost[order], whole_stream(source, horizon).costs)]
    offload = np.asarray(record.runs[0].decisions)
    answer = np.where(offload, trace.remote[rows], trace.local[rows])
    wrong = answer != trace.label[rows]
    paid = wrong + np.where(offload, trace.cost[rows], 0.0)  # an offload costs Γ, and one more if the remote is wrong
    times = record.times
    assert record.true_accuracy[0] == pytest.approx(1 - np.cumsum(wrong)[times - 1] / times)
    assert record.true_cost_per_sample[0] == pytest.approx(np.cumsum(paid)[times - 1] / times)
    if name == "always-local":
        assert record.true_accuracy[0, -1] == pytest.approx(trace.local_accuracy, abs=0.015)
    if name == "always-remote":
        assert record.true_accuracy[0, -1] == pytest.approx(trace.remote_accuracy, abs=0.015)


def test_without_true_labels_there_is_no_true_accuracy() -> None:
    record = simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 1000)["hi-lcb"]
    assert np.isnan(record.true_accuracy).all()
    assert np.isnan(record.true_cost_per_sample).all()
    assert "true_accuracy" not in record.summary()


@pytest.mark.medium
@pytest.mark.parametrize("kind", ["resampled", "synthetic", "in a bad order"])
def test_wrong_decisions_by_bin_add_up_to_the_regret(kind: str) -> None:
    source, horizon = sources(BINS)[kind], 30_000
    for name in ("hi-lcb", "always-local", "always-remote", "hedge-hi"):
        policy = policy_for(name, False, source, horizon)
        run = simulate([policy], source, horizon, record_decisions=True)[name].runs[0]
        assert isinstance(source, Resampled | Synthetic)
        gaps = 1 - source.agreement - source.mean_offload_cost
        assert not run.wrong_accepts[gaps <= 0].any()
        assert not run.wrong_offloads[gaps >= 0].any()
        assert run.regret[-1] == pytest.approx(np.abs(gaps) @ (run.wrong_accepts + run.wrong_offloads))
        bins, offload = whole_stream(source, horizon).bins, np.asarray(run.decisions)
        offloads, arrivals = np.bincount(bins[offload], minlength=BINS), np.bincount(bins, minlength=BINS)
        assert run.wrong_offloads.tolist() == np.where(gaps < 0, offloads, 0).tolist()
        assert run.wrong_accepts.tolist() == np.where(gaps > 0, arrivals - offloads, 0).tolist()
        problem = Problem(source.agreement.tolist(), source.mean_offload_cost, source.weights.tolist())
        wrong = np.where(problem.licensed, offloads, arrivals - offloads)
        assert problem.gaps @ wrong == pytest.approx(run.regret[-1])


def test_decisions_are_kept_on_request_only() -> None:
    policy = HILCB(BINS, offload_cost=0.5)
    assert simulate([policy], SOURCE, 100)["hi-lcb"].runs[0].decisions is None
    kept = simulate([policy], SOURCE, 20_000, record_decisions=True)["hi-lcb"].runs[0].decisions
    assert kept is not None
    assert kept.shape == (20_000,)
    assert kept.dtype == np.bool_


def test_the_oracle_has_no_regret_and_the_extremes_have_all_of_it() -> None:
    known = lineup(["oracle"], SOURCE, offload_cost=0.5, horizon=20_000)
    extremes: dict[str, Policy] = {"local": AlwaysLocal(BINS), "remote": AlwaysRemote(BINS)}
    results = simulate({**known, **extremes}, SOURCE, 20_000, runs=3)
    assert not results["oracle"].regret.any()
    assert results["oracle"].realised_regret == pytest.approx(0, abs=1e-8)
    bins = whole_stream(SOURCE, 20_000).bins
    assert results["local"].regret[0, -1] == pytest.approx(np.maximum(SOURCE.gaps, 0)[bins].sum())
    assert results["remote"].regret[0, -1] == pytest.approx(np.maximum(-SOURCE.gaps, 0)[bins].sum())


@pytest.mark.medium
def test_realised_regret_has_the_pseudo_regret_as_its_mean() -> None:
    record = simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 20_000, runs=200)["hi-lcb"]
    mean, half = interval((record.realised_regret - record.regret)[:, -1])
    assert abs(mean) < 2 * half  # four standard errors


# -- over runs --------------------------------------------------------------------------------------------------------


def test_differences_are_paired() -> None:
    results = simulate([HILCB(BINS, offload_cost=0.5), HILCBLite(BINS, offload_cost=0.5)], SOURCE, 20_000, runs=40)
    one, other = results["hi-lcb"].regret, results["hi-lcb-lite"].regret
    difference = results.difference("hi-lcb", "hi-lcb-lite")
    assert difference.tobytes() == (one - other).tobytes()
    apart = np.sqrt(one[:, -1].var(ddof=1) + other[:, -1].var(ddof=1))
    assert difference[:, -1].std(ddof=1) < 0.95 * apart  # the same samples: the noise that both share is gone


@pytest.mark.parametrize("freedom", STUDENT_T975)
def test_intervals_are_students(freedom: int) -> None:
    values = np.random.default_rng(freedom).normal(3.0, 2.0, freedom + 1)
    mean, half = interval(values)
    assert mean == pytest.approx(values.mean())
    spread = np.sqrt(((values - values.mean()) ** 2).sum() / freedom / (freedom + 1))
    assert half / spread == pytest.approx(STUDENT_T975[freedom], abs=5e-4)


def test_intervals_cover_the_mean_as_often_as_they_say() -> None:
    chance = np.random.default_rng(8)
    trials = [interval(chance.normal(size=6)) for _ in range(4000)]
    missed = sum(abs(mean) > half for mean, half in trials)
    assert missed == pytest.approx(200, abs=4 * np.sqrt(4000 * 0.05 * 0.95))  # four standard deviations


def test_one_run_has_no_interval() -> None:
    record = simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 1000)["hi-lcb"]
    assert np.isnan(interval(record.regret[:, -1])[1])
    assert record.summary()["regret_ci95"] is None


def test_a_summary_holds_the_figures_at_the_horizon() -> None:
    source = sources(BINS)["resampled"]
    record = simulate([policy_for("hi-lcb", False, source, 5000)], source, 5000, runs=4)["hi-lcb"]
    summary = record.summary()
    assert (summary["policy"], summary["horizon"], summary["runs"]) == ("hi-lcb", 5000, 4)
    assert (summary["regret"], summary["regret_ci95"]) == interval(record.regret[:, -1])
    for key in ("realised_regret", "offload_fraction", "accuracy", "cost_per_sample", "true_accuracy"):
        assert summary[key] == pytest.approx(getattr(record, key)[:, -1].mean()), key
    assert summary["true_cost_per_sample"] == pytest.approx(record.true_cost_per_sample[:, -1].mean())


@pytest.mark.medium
def test_a_drawing_has_every_curve_with_its_interval(tmp_path: Path) -> None:
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    results = simulate([HILCB(bins=2, offload_cost=0.5), Probation(bins=2, offload_cost=0.5)], source, 200, runs=4)
    regret, cost, offloads = results.panels()
    assert [panel.y for panel in (regret, cost, offloads)] == ["regret", "cost per sample", "share offloaded"]
    for curve in regret.curves:
        means, halves = zip(*(interval(values) for values in results[curve.name].regret.T), strict=True)
        assert (curve.y, curve.half_width) == (means, halves)
        assert list(curve.x) == results[curve.name].times.tolist()
    results.plot(tmp_path / "curves.svg")
    assert (tmp_path / "curves.svg").read_text().count("<!-- share offloaded -->") == 1
    with pytest.raises(ValueError, match=r"plot: path must end in .* got 'curves.gif'"):
        results.plot(tmp_path / "curves.gif")


def test_no_more_curves_than_can_be_told_apart() -> None:
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    policies = {f"policy {alpha}": HILCB(bins=2, offload_cost=0.5, alpha=alpha) for alpha in range(1, 12)}
    results = simulate(policies, source, 100, runs=1)
    panel = results.panels()[0]
    kept = {curve.name for curve in panel.curves}
    assert len(kept) == 8
    costs = {name: record.cost_per_sample[0, -1] for name, record in results.items()}
    assert max(costs[name] for name in kept) <= min(costs[name] for name in costs.keys() - kept)
    assert panel.curves[0].half_width is None, "one run has no interval"


def test_quantiles_of_the_regret_are_those_of_the_runs() -> None:
    record = simulate([HILCB(BINS)], SOURCE, 2_000, runs=9)["hi-lcb"]
    regrets, summary = sorted(record.regret[:, -1].tolist()), record.summary()
    assert summary["regret_p50"] == regrets[4]
    assert regrets[7] < summary["regret_p99"] < regrets[8]
    assert summary["regret_p99"] == pytest.approx(regrets[7] + 0.92 * (regrets[8] - regrets[7]))
