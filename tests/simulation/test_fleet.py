from collections.abc import Iterator
from types import FunctionType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.fleet import pool
from hinge.policies import Sentinel
from hinge.simulation import simulate
from hinge.simulation.engine import run_seeds
from hinge.simulation.fleet import (
    Lie,
    Pooling,
    SimulatedFleet,
    filtered,
    median_of_means,
    pool_into,
    round_player,
    rounds_until,
    simulate_fleet,
    tell,
)
from hinge.simulation.kernel import digest
from hinge.simulation.sources import ConstantPrice, Samples, Synthetic

CURVE = Synthetic([0.05, 0.2, 0.4, 0.7, 0.9, 0.98], ConstantPrice(0.5), weights=[1, 2, 2, 2, 3, 5])


def regret(fleet: SimulatedFleet, pooling: Pooling = Pooling.ROBUST, horizon: int = 600, runs: int = 4) -> float:
    return float(
        np.mean([run.regret[-1].mean() for run in simulate_fleet(fleet, 0.5, pooling, horizon=horizon, runs=runs)])
    )


def test_a_device_alone_has_the_regret_that_simulate_finds() -> None:
    run = simulate_fleet(SimulatedFleet([CURVE] * 2), 0.5, Pooling.ALONE, horizon=400, seed=3, machine_code=False)[0]
    for device, seed in enumerate(run_seeds(run_seeds(3, 1)[0], 2)):

        class Fixed:
            """The stream of that device, whatever the seed."""

            bins = CURVE.bins

            def stream(self, _seed: int, horizon: int, own: int = seed) -> Iterator[Samples]:
                return CURVE.stream(own, horizon)

        alone = simulate([Sentinel(CURVE.bins, 0.5)], Fixed(), 400, machine_code=False)["sentinel"].regret[0, -1]
        assert run.regret[-1, device] == pytest.approx(alone)


def test_loops_for_other_numbers_of_bins_are_kept_apart() -> None:
    # They are compiled each: one that is on the disk for other bins would be taken for one that is ready.
    one, other = (round_player(Sentinel(5, 0.5).functions, bins) for bins in (5, 6))
    assert isinstance(one, FunctionType)
    assert isinstance(other, FunctionType)
    assert digest([one]) != digest([other])


@pytest.mark.slow  # compiles
def test_machine_code_gives_the_same_bits() -> None:
    pytest.importorskip("numba")
    brokers = [0, 0, 0, 1, 1, -1]
    fleet = SimulatedFleet([CURVE] * 6, [Lie.SLY], brokers=lambda rounds: np.tile(brokers, (len(rounds), 1)))
    for pooling in Pooling:
        one, other = (simulate_fleet(fleet, 0.5, pooling, horizon=300, machine_code=code)[0] for code in (False, True))
        assert np.array_equal(one.regret, other.regret)
        assert np.array_equal(one.messages, other.messages)


@pytest.mark.slow  # compiles
def test_sharing_saves_and_liars_do_not_spoil_it() -> None:
    honest, lying = SimulatedFleet([CURVE] * 12), SimulatedFleet([CURVE] * 12, [Lie.OVER] * 2)
    assert regret(honest) < 0.6 * regret(honest, Pooling.ALONE)
    assert regret(lying) < 0.8 * regret(lying, Pooling.ALONE) < regret(lying, Pooling.MERGE)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("lie", [lie for lie in Lie if lie != Lie.HONEST])
def test_a_sixth_of_liars_changes_little_and_most_of_them_less_than_being_alone_costs(lie: Lie) -> None:
    """S6, on one curve; `benchmarks/results/regret-fleet.md` says where it holds on the traces, and where not."""
    pytest.importorskip("numba")
    honest, few, most = (SimulatedFleet([CURVE] * 12, [lie] * liars) for liars in (0, 2, 10))
    assert regret(few, runs=8) < 1.3 * regret(honest, runs=8)
    assert regret(most, runs=8) < 1.25 * regret(honest, Pooling.ALONE, runs=8)


@pytest.mark.medium
def test_who_is_away_is_alone_and_tells_nothing() -> None:
    away = SimulatedFleet([CURVE] * 5, brokers=lambda rounds: np.full((len(rounds), 5), -1))
    shared, alone = (simulate_fleet(away, 0.5, p, horizon=300)[0] for p in (Pooling.ROBUST, Pooling.ALONE))
    assert np.array_equal(shared.regret, alone.regret)
    assert shared.messages.sum() == 0


@pytest.mark.medium
def test_messages_grow_like_the_logarithm_of_what_was_seen() -> None:
    messages = simulate_fleet(SimulatedFleet([CURVE] * 3), 0.5, horizon=2000)[0].messages
    assert messages.max() < 40


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        (Lie.HONEST, ([4, 8], [1, 8])),
        (Lie.OVER, ([4, 8], [4, 8])),
        (Lie.UNDER, ([4, 8], [0, 0])),
        (Lie.FLIPPED, ([4, 8], [3, 0])),
        (Lie.SLY, ([4, 8], [2, 8])),
        (Lie.HUGE, ([1e6, 1e6], [1e6, 1e6])),
        (Lie.COLLUSION, ([200, 8], [200, 8])),
        (Lie.EDGE, ([4, 8], [0.72 * 4, 0.72 * 8])),
        (Lie.DENIAL, ([4, 8], [1, 0])),
    ],
)
def test_what_liars_tell(lie: Lie, told: tuple[list[float], list[float]]) -> None:
    said = np.zeros((2, 2))
    tell(lie, 0, 0.6, np.array([4.0, 8.0]), np.array([1.0, 8.0]), said[0], said[1])
    assert said.tolist() == [*map(list, told)]


bins_seen = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=3, max_size=3)


@given(bins_seen, st.lists(bins_seen, max_size=14), st.integers(-1, 13))
def test_the_simulator_pools_as_a_device_does(
    own: list[tuple[int, int]], said: list[list[tuple[int, int]]], me: int
) -> None:
    mine, *others = (([float(n) for n, _ in bins], [float(min(n, a)) for n, a in bins]) for bins in (own, *said))
    n, a = ([pair[k] for pair in others] for k in (0, 1))
    verdicts, lent_n, lent_a = [0] * len(others), [0.0] * 3, [0.0] * 3
    pool_into(*mine, me, n, a, verdicts, lent_n, lent_a)
    told = {str(k): pair for k, pair in enumerate(others) if k != me}
    pooled = pool(mine, told)
    assert [verdicts[int(k)] for k in told] == list(pooled.verdicts.values())
    assert [lent_n, lent_a] == [pytest.approx(pooled.offloads), pytest.approx(pooled.agreements)]


def test_the_baselines_by_hand() -> None:
    n, a = np.full((5, 1), 10.0), np.array([[0.0], [8.0], [9.0], [7.0], [10.0]])
    lent = np.zeros((2, 1))
    median_of_means(0, n, a, lent[0], lent[1])
    assert lent.ravel().tolist() == pytest.approx([40.0, 40.0 * 0.8])  # the median of 0, 0.8, 0.9, 0.7 and 1
    filtered(1, n, a, lent[0], lent[1])
    assert lent.ravel().tolist() == [20.0, 16.0]  # without the lowest, the highest and oneself


def test_rounds_end_at_the_times_asked_for() -> None:
    rounds = rounds_until(5000, [1234])
    assert rounds[0] == 1
    assert rounds[-1] == 5000
    assert 1234 in rounds
    assert (np.diff(rounds) > 0).all()
