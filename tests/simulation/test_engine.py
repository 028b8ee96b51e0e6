"""The engine: common random numbers, interrupts, memory, and arguments."""

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import pytest

from hinge import HILCB, Gate, HILCBLite, Policy, Probation, Thompson, UniformBins, load_trace
from hinge.policies import AlwaysLocal, HedgeHI
from hinge.simulation import Record, Results, Run, Threads, lineup, run_seeds, simulate
from hinge.simulation.sources import (
    CHUNK,
    BimodalPrice,
    ConstantPrice,
    Drifting,
    Samples,
    Shuffled,
    Source,
    Sudden,
    Synthetic,
)
from tests.simulation.streams import sources

Result = TypeVar("Result")

BINS = 6
SOURCE = Synthetic(np.linspace(0.1, 0.95, BINS), BimodalPrice())


def several(horizon: int) -> dict[str, Policy | Gate]:
    names = ["hi-lcb", "hi-lcb-lite", "thompson", "hedge-hi", "oracle"]
    return lineup(names, SOURCE, offload_cost=0.5, horizon=horizon)


def same_bits(one: Run, other: Run) -> bool:
    values = ((np.asarray(getattr(run, field.name)) for run in (one, other)) for field in fields(Run))
    return all(left.tobytes() == right.tobytes() for left, right in values)


def same_results(one: Results, other: Results) -> bool:
    runs = [zip(one[name].runs, other[name].runs, strict=True) for name in one]
    return set(one) == set(other) and all(same_bits(*pair) for pairs in runs for pair in pairs)


# -- common random numbers --------------------------------------------------------------------------------------------


class Watched:
    """A source that writes down what it yields."""

    bins = BINS

    def __init__(self) -> None:
        self.yielded: list[bytes] = []

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        for chunk in SOURCE.stream(seed, horizon):
            self.yielded.append(b"".join(column.tobytes() for column in chunk[:4]))
            yield chunk


@pytest.mark.medium
@pytest.mark.parametrize("policy", several(20_000).values(), ids=str)
def test_the_same_seed_gives_every_policy_the_same_samples(policy: Policy | Gate) -> None:
    watched, expected = Watched(), Watched()
    simulate([policy], watched, 20_000, runs=2, seed=4, executor=Threads(1))
    simulate([AlwaysLocal(BINS)], expected, 20_000, runs=2, seed=4, executor=Threads(1))
    assert watched.yielded == expected.yielded


@pytest.mark.medium
def test_policies_played_together_decide_as_they_do_alone() -> None:
    policies = several(20_000)
    together = simulate(policies, SOURCE, 20_000, runs=2, seed=4, record_decisions=True)
    for name, policy in policies.items():
        alone = simulate([policy], SOURCE, 20_000, runs=2, seed=4, record_decisions=True)
        assert all(same_bits(*pair) for pair in zip(alone[name].runs, together[name].runs, strict=True))


@pytest.mark.medium
def test_the_first_runs_are_the_same_however_many_follow() -> None:
    few, many = (simulate(several(5000), SOURCE, 5000, runs=runs, seed=1) for runs in (2, 5))
    for name in few:
        assert all(same_bits(*pair) for pair in zip(few[name].runs, many[name].runs[:2], strict=True))
    assert not same_bits(many["hi-lcb"].runs[0], many["hi-lcb"].runs[1])


def test_other_seeds_give_other_runs() -> None:
    one, other = (simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 5000, seed=seed) for seed in (0, 1))
    assert not same_results(one, other)
    assert len(set(run_seeds(0, 1000)) | set(run_seeds(1, 1000))) == 2000


@pytest.mark.medium
def test_the_order_of_policies_and_the_number_of_threads_change_nothing() -> None:
    policies = several(20_000)
    expected = simulate(policies, SOURCE, 20_000, runs=6, seed=2, executor=Threads(1))
    backwards = dict(reversed(policies.items()))
    assert list(simulate(backwards, SOURCE, 100)) == list(backwards)
    for count in (1, 2):
        results = simulate(backwards, SOURCE, 20_000, runs=6, seed=2, executor=Threads(count))
        assert same_results(results, expected)


def test_a_prototype_that_has_learned_starts_afresh() -> None:
    used = HILCB(BINS, offload_cost=0.5)
    for _ in range(100):
        decision = used.decide(5)
        if decision.offload:
            used.learn(decision, agreed=True)
    learned = used.learned
    results = [simulate([policy], SOURCE, 2000) for policy in (used, HILCB(BINS, offload_cost=0.5))]
    assert same_results(*results)
    assert used.learned == learned


def test_two_runs_of_a_randomised_policy_have_different_coins() -> None:
    class Constant:
        bins = 1

        def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
            return Synthetic([0.5], ConstantPrice(0.5)).stream(1, horizon)

    runs = simulate([Thompson(1, offload_cost=0.5)], Constant(), 200, runs=2, record_decisions=True)["thompson"].runs
    assert not np.array_equal(np.asarray(runs[0].decisions), np.asarray(runs[1].decisions))


# -- interrupts -------------------------------------------------------------------------------------------------------


class Interrupted:
    """An executor whose user presses Ctrl-C after some runs."""

    def __init__(self, after: int) -> None:
        self.after = after

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        for task in tasks[: self.after]:
            yield task()
        raise KeyboardInterrupt


def regrets(results: Results) -> list[float]:
    record: Record = results["hi-lcb"]
    return [float(regret) for regret in record.regret[:, -1]]


def test_an_interrupt_in_the_executor_keeps_what_is_done() -> None:
    policy = HILCB(BINS, offload_cost=0.5)
    everything = simulate([policy], SOURCE, 2000, runs=5)
    results = simulate([policy], SOURCE, 2000, runs=5, executor=Interrupted(after=3))
    assert (everything.complete, results.complete) == (True, False)
    assert regrets(results) == regrets(everything)[:3]


def test_an_interrupt_while_reporting_keeps_what_is_done() -> None:
    reported = []

    def report(done: int, total: int) -> None:
        reported.append((done, total))
        if done == 2:
            raise KeyboardInterrupt

    results = simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 2000, runs=50, progress=report, executor=Threads(2))
    assert reported == [(1, 50), (2, 50)]
    assert not results.complete
    assert regrets(results) == regrets(simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 2000, runs=2))


def test_an_interrupt_before_anything_is_done_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        simulate([HILCB(BINS, offload_cost=0.5)], SOURCE, 2000, runs=5, executor=Interrupted(after=0))


def test_progress_is_reported_after_every_run() -> None:
    reported: list[tuple[int, int]] = []
    simulate([HILCB(BINS)], SOURCE, 100, runs=4, progress=lambda *figures: reported.append(figures))
    assert reported == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_leaving_early_drops_the_runs_that_have_not_begun() -> None:
    begun: list[int] = []

    def task(number: int) -> Callable[[], int]:
        return lambda: begun.append(number) or number  # type: ignore[func-returns-value]  # None, so that `or` gives it

    results = Threads(1).map([task(number) for number in range(1000)])
    assert next(results) == 0
    results.close()  # type: ignore[attr-defined]  # a generator
    assert len(begun) < 1000


# -- memory and arguments ---------------------------------------------------------------------------------------------


def peak_of(source: Source, horizon: int) -> int:
    policies = [HILCB(BINS), HILCBLite(BINS), HedgeHI(horizon, BINS)]
    tracemalloc.start()
    try:
        simulate(policies, source, horizon, executor=Threads(1), machine_code=True)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["synthetic", "shuffled", "blocks", "gradual drift"])
def test_a_long_horizon_takes_no_more_memory_than_a_short_one(kind: str) -> None:
    source = sources(BINS)[kind]
    peak_of(source, 100)  # compiles, loads
    short, long = peak_of(source, 100_000), peak_of(source, 3_000_000)
    assert long < 1.1 * short + 2 * 8 * CHUNK  # two columns of a chunk more: not all is freed at once


def test_arguments_that_make_no_sense_are_named() -> None:
    policy = HILCB(BINS)
    with pytest.raises(ValueError, match=r"horizon must be an integer .*, got 0"):
        simulate([policy], SOURCE, 0)
    with pytest.raises(ValueError, match="runs must be an integer >= 1, got 0"):
        simulate([policy], SOURCE, 10, runs=0)
    with pytest.raises(ValueError, match="seed must be an integer >= 0, got -1"):
        simulate([policy], SOURCE, 10, seed=-1)
    with pytest.raises(ValueError, match="'hi-lcb' has 4 bins, but the source has 6"):
        simulate([HILCB(4)], SOURCE, 10)
    with pytest.raises(ValueError, match="Threads: count must be an integer >= 1, got 0"):
        Threads(0)


def test_two_policies_of_one_name_are_refused_rather_than_one_of_them_lost() -> None:
    with pytest.raises(ValueError, match="hi-lcb"):
        simulate([HILCB(BINS, alpha=0.52), HILCB(BINS, alpha=1.0)], SOURCE, 10)


def test_sums_are_written_down_at_the_times_asked_for() -> None:
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    policy, everywhere = HILCB(2, offload_cost=0.5), range(1, 20_001)
    full = simulate([policy], source, 20_000, runs=2, seed=1, times=everywhere)["hi-lcb"]
    some = simulate([policy], source, 20_000, runs=2, seed=1, times=[17_000, 500, 500])["hi-lcb"]
    assert some.times.tolist() == [500, 17_000, 20_000]
    assert some.regret.tolist() == full.regret[:, some.times - 1].tolist()
    assert some.offload_fraction.tolist() == full.offload_fraction[:, some.times - 1].tolist()
    with pytest.raises(ValueError, match=r"simulate: times\[1\] must be an integer from 1 to 100, got 101"):
        simulate([policy], source, 100, times=[5, 101])


@pytest.mark.parametrize("policy", [HILCB(3, offload_cost=0.5), Gate("hi-lcb", offload_cost=0.5, bins=3), "hi-lcb"])
def test_a_single_policy_needs_no_list(policy: Any) -> None:
    source = Synthetic(agreement=[0.1, 0.6, 0.9], costs=ConstantPrice(0.5))
    one, listed = (simulate(given, source, horizon=500) for given in (policy, [policy]))
    assert list(one) == ["hi-lcb"]
    assert same_results(one, listed)


# -- prices -----------------------------------------------------------------------------------------------------------


def test_who_believes_another_price_is_named() -> None:
    source = Synthetic([0.2, 0.9], ConstantPrice(0.3))
    for wrong in (HILCB(2, offload_cost=0.5), Gate(offload_cost=0.5, bins=2)):
        with pytest.warns(UserWarning, match="decides by an offload cost of 0.5, but offloads cost 0.3 here"):
            simulate([wrong], source, 100)
    for right in ("probation", HILCB(2), Gate(bins=2), Gate(offload_cost=0.3, bins=2), AlwaysLocal(2)):
        simulate([right], source, 100)  # every warning is an error in tests


def test_a_gate_measures_the_price() -> None:
    source = Synthetic([0.2, 0.75, 0.95], BimodalPrice(0.05, 0.15))
    measured, known = Gate(bins=3), Gate(offload_cost=0.1, bins=3)
    found = simulate({"measured": measured, "known": known}, source, 20_000, runs=4)
    costs = {name: float(record.cost_per_sample[:, -1].mean()) for name, record in found.items()}
    assert costs["known"] <= costs["measured"] + 0.001
    assert costs["measured"] < 1.1 * costs["known"]


# -- bins of a gate's own ---------------------------------------------------------------------------------------------


def test_bins_that_fit_themselves_need_confidences() -> None:
    with pytest.raises(ValueError, match="bins that fit themselves need a source with confidences"):
        simulate([Gate(offload_cost=0.5)], Synthetic([0.2, 0.9], ConstantPrice(0.5)), 100)
    with pytest.raises(ValueError, match=r"a gate has UniformBins\(bins=3\), but the source has 2 bins"):
        simulate([Gate(offload_cost=0.5, bins=3)], Synthetic([0.2, 0.9], ConstantPrice(0.5)), 100)


@pytest.mark.parametrize("settings", [{}, {"budget": 0.2}, {"bins": [0.3, 0.8, 0.99]}, {"policy": "hi-lcb"}])
def test_a_gate_decides_as_in_the_simulator(settings: dict[str, Any]) -> None:
    trace, horizon = load_trace("fashion"), 6_000
    source = Shuffled(trace, UniformBins(16), ConstantPrice(0.1))
    gate = Gate(offload_cost=0.1, **settings)
    run = simulate({"gate": gate}, source, horizon, record_decisions=True, machine_code=False)["gate"].runs[0]
    rows = np.concatenate([np.asarray(chunk.rows) for chunk in source.stream(run_seeds(0, 1)[0], horizon)])
    decided = []
    for confidence, agreed in zip(trace.confidence[rows].tolist(), trace.agreed[rows].tolist(), strict=True):
        decision = gate.decide(confidence=confidence)
        decided.append(decision.offload)
        if decision.offload:
            gate.learn(decision, agreed, 0.1)
    assert run.decisions is not None
    assert np.flatnonzero(run.decisions != np.array(decided)).tolist() == []
    assert 0 < sum(decided) < horizon


# -- sources of one's own ---------------------------------------------------------------------------------------------


class Own:
    """A source that yields a chunk as it is given."""

    bins = 4

    def __init__(self, **columns: Any) -> None:
        usual = {"bins": np.array([0, 1, 2, 3, 0]), "agreed": np.ones(5), "costs": np.full(5, 0.5)}
        self.columns = {**usual, "gaps": np.full(5, -0.5), **columns}

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        yield Samples(**self.columns)


@pytest.mark.parametrize("machine_code", [False, True])
@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"bins": np.array([0, 1, 2, 3, 4])}, "Own: bins must be from 0 to 3, got 4"),
        ({"bins": np.array([0, 1, -2, 3, 0])}, "Own: bins must be from 0 to 3, got -2"),
        ({"bins": np.zeros(5)}, "Own: bins must be integers, got float64"),
        ({"bins": np.zeros((5, 1), int)}, r"Own: bins must have one number for each of 5 samples, got shape \(5, 1\)"),
        ({"agreed": np.full(5, 5.0)}, "Own: agreed must be from 0 to 1, got 5.0"),
        ({"costs": np.array([0.5, 0.5, np.nan, 0.5, 0.5])}, "Own: costs must be from 0 to 1, got nan"),
        ({"gaps": np.full(5, np.inf)}, "Own: gaps must be finite, got inf"),
        ({"agreed": np.ones(4)}, r"Own: agreed must have one number for each of 5 samples, got shape \(4,\)"),
        ({"agreed": ["yes"] * 5}, "Own: agreed must be numbers"),
        ({"local_right": np.ones(3)}, "Own: local_right must have one number for each of 5 samples"),
        ({"bins": np.zeros(7, int)}, "Own: agreed must have one number for each of 7 samples"),
        ({name: np.zeros(6, int) for name in ("bins", "agreed", "costs", "gaps")}, "Own: stream must give 5 samples"),
        ({name: np.zeros(4, int) for name in ("bins", "agreed", "costs", "gaps")}, "5 samples in all, got 4"),
    ],
)
def test_a_source_of_ones_own_is_checked(columns: dict[str, Any], problem: str, machine_code: bool) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        simulate([HILCB(4)], Own(**columns), 5, record_decisions=True, machine_code=machine_code)


def test_columns_of_other_types_are_converted() -> None:
    usual, narrow = Own(), Own(bins=np.array([0, 1, 2, 3, 0], np.uint8), agreed=[True] * 5, costs=[0.5] * 5)
    one, other = (simulate([HILCB(4)], source, 5, record_decisions=True) for source in (usual, narrow))
    assert same_results(one, other)


# -- costs that are told ----------------------------------------------------------------------------------------------


def test_who_is_told_the_cost_is_compared_with_an_oracle_that_is_told_it() -> None:
    source, horizon = Synthetic([0.3, 0.6, 0.9], BimodalPrice(0.1, 0.9)), 3_000
    policies = {"told": Probation(3, 0.5), "not told": Probation(3, 0.5)}
    found = simulate(policies, source, horizon, record_decisions=True, told_costs=["told"])
    chunk = next(iter(source.stream(run_seeds(0, 1)[0], horizon)))
    for name, record in found.items():
        run = record.runs[0]
        assert run.decisions is not None
        cost = chunk.costs if name == "told" else np.full(horizon, 0.5)
        gaps = 1 - source.agreement[chunk.bins] - cost
        wrong = run.decisions == (gaps < 0)
        assert record.regret[0, -1] == pytest.approx(np.abs(gaps)[wrong].sum())
        best = np.where(gaps < 0, 1 - chunk.agreed, chunk.costs).sum()
        assert record.realised_regret[0, -1] == pytest.approx(run.cost[-1] - best)


def test_regret_is_not_known_where_the_agreement_of_bins_is_not() -> None:
    settings = Synthetic([0.3, 0.9], BimodalPrice(0.1, 0.9)), Synthetic([0.9, 0.3], ConstantPrice(0.5))
    source, policies = Drifting(*settings, Sudden()), {"told": Probation(2, 0.5), "other": Probation(2, 0.5)}
    found = simulate(policies, source, 100, told_costs=["told"])
    assert np.isnan(found["told"].regret).all()
    assert np.isnan(found["told"].realised_regret).all()
    assert np.isfinite(found["other"].regret).all()
    assert np.isfinite(found["told"].cost_per_sample).all()
