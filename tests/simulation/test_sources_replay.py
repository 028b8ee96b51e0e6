"""Samples from a trace: which rows come, and what is said about them."""

from typing import Any

import numpy as np
import pytest

from hinge import UniformBins, simulate
from hinge.policies import AlwaysLocal, AlwaysRemote
from hinge.simulation.sources import (
    BimodalPrice,
    ConstantPrice,
    InOrder,
    LognormalPrice,
    RecordedPrice,
    Replay,
    Resampled,
    Shuffled,
)
from hinge.traces import Trace, load_trace
from tests.simulation.laws import agreement_follows, arrivals_follow, whole

KINDS: tuple[type[Replay], ...] = (Resampled, InOrder, Shuffled)
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
BINNING = UniformBins(8)


def numbered(rows: int, with_truth: bool = True) -> Trace:
    """A trace whose recorded costs tell its rows apart."""
    chance = np.random.default_rng(rows)
    answers: Any = chance.integers(0, 3, (3, rows))
    label = answers[2] if with_truth else None
    return Trace(chance.random(rows), answers[0], answers[1], label, np.arange(rows) / rows)


def rows_of(source: Replay, horizon: int, seed: int = 1) -> np.ndarray:
    """Which rows came: those whose costs were drawn."""
    return np.round(whole(source, horizon, seed).costs * len(source.trace)).astype(int)


@every_kind
def test_every_column_is_that_of_the_row(kind: type[Replay]) -> None:
    trace = numbered(1000)
    source, horizon = kind(trace, BINNING), 20_000
    rows = rows_of(source, horizon)
    chunks = list(source.stream(1, horizon))
    samples = whole(source, horizon)
    assert samples.bins.tolist() == np.minimum(8 * trace.confidence, 7).astype(int)[rows].tolist()
    assert samples.agreed.tolist() == (trace.local == trace.remote)[rows].tolist()
    assert trace.label is not None
    local, remote = (np.concatenate([np.asarray(chunk[i]) for chunk in chunks]) for i in (4, 5))
    assert local.tolist() == (trace.local == trace.label)[rows].tolist()
    assert remote.tolist() == (trace.remote == trace.label)[rows].tolist()


@every_kind
def test_agreement_weights_and_gaps_are_the_trace_s_own(kind: type[Replay]) -> None:
    trace = load_trace("synthetic-cifar10")
    source = kind(trace, BINNING, LognormalPrice(0.4))
    bins = trace.bins_by(BINNING)
    for bin in range(8):
        inside = trace.agreed[bins == bin]
        assert source.weights[bin] == pytest.approx(len(inside) / len(trace))
        assert source.agreement[bin] == pytest.approx(inside.mean() if len(inside) else 0)
    samples = whole(source, 20_000)
    assert samples.gaps == pytest.approx(1 - source.agreement[samples.bins] - source.mean_offload_cost)
    assert source.mean_offload_cost == LognormalPrice(0.4).mean


def test_a_bin_without_rows_never_comes() -> None:
    trace = Trace([0.1, 0.9, 0.95], [1, 1, 2], [1, 1, 1])
    source = Resampled(trace, UniformBins(4), ConstantPrice(0.5))
    assert source.weights.tolist() == pytest.approx([1 / 3, 0, 0, 2 / 3])
    assert source.agreement[[0, 3]].tolist() == [1.0, 0.5]
    assert set(whole(source, 1000).bins.tolist()) == {0, 3}


def test_resampled_rows_come_alike_and_by_chance() -> None:
    source = Resampled(numbered(50), BINNING)
    rows = rows_of(source, 200_000)
    counts = np.bincount(rows, minlength=50)
    assert ((counts - 4000) ** 2 / 4000).sum() < 49 + 5 * np.sqrt(2 * 49)  # χ² with 49 degrees, five sigmas
    assert abs(np.corrcoef(rows[1:], rows[:-1])[0, 1]) < 5 / np.sqrt(200_000)


def test_resampled_streams_follow_the_trace() -> None:
    source = Resampled(load_trace("synthetic-cifar10"), BINNING, ConstantPrice(0.5))
    samples = whole(source, 300_000)
    assert arrivals_follow(samples, source.weights)
    assert agreement_follows(samples, source.agreement)


def test_in_order_replays_exactly_and_begins_again() -> None:
    source = InOrder(numbered(7000), BINNING)
    assert rows_of(source, 20_000).tolist() == (list(range(7000)) * 3)[:20_000]
    assert rows_of(source, 20_000, seed=2).tolist() == rows_of(source, 20_000).tolist()
    assert rows_of(source, 10).tolist() == list(range(10))


@pytest.mark.medium
@pytest.mark.parametrize("rows", [1, 3, 1000, 16_384, 20_000])
def test_shuffled_uses_every_row_once_in_each_pass(rows: int) -> None:
    came = rows_of(Shuffled(numbered(rows), BINNING), 50_000)
    for start in range(0, 50_000, rows):
        one_pass = came[start : start + rows]
        assert len(set(one_pass.tolist())) == len(one_pass)


def test_shuffled_passes_differ_from_each_other_and_from_the_record() -> None:
    source = Shuffled(numbered(1000), BINNING)
    came = rows_of(source, 2000)
    orders = [came[:1000].tolist(), came[1000:].tolist(), list(range(1000)), rows_of(source, 1000, seed=2).tolist()]
    assert len({tuple(order) for order in orders}) == 4
    displacement = np.abs(came[:1000] - np.arange(1000)).mean()
    assert displacement == pytest.approx(1000 / 3, abs=50)  # of a random permutation


@every_kind
def test_costs_leave_the_rows_as_they_are(kind: type[Replay]) -> None:
    trace = load_trace("synthetic-cifar100")
    fixed, chancy = (whole(kind(trace, BINNING, costs), 30_000) for costs in (ConstantPrice(0.5), BimodalPrice()))
    assert fixed.bins.tobytes() == chancy.bins.tobytes()
    assert fixed.agreed.tobytes() == chancy.agreed.tobytes()


def test_without_costs_the_recorded_ones_are_paid() -> None:
    source = Resampled(numbered(100), BINNING)
    assert isinstance(source.costs, RecordedPrice)
    assert source.mean_offload_cost == pytest.approx(0.495)


def test_without_any_costs_the_source_is_refused() -> None:
    with pytest.raises(ValueError, match="Shuffled: costs must be given, as trace 'synthetic-cifar10' recorded none"):
        Shuffled(load_trace("synthetic-cifar10"), BINNING)


def test_recorded_costs_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match="costs"):
        Resampled(numbered(100), BINNING, RecordedPrice(np.array([0.5, 0.4])))


def test_without_labels_nothing_is_said_about_the_truth() -> None:
    chunk = next(Resampled(numbered(100, with_truth=False), BINNING).stream(1, 10))
    assert chunk.local_right is None
    assert chunk.remote_right is None


def test_the_rows_are_told_to_who_fits_on_them() -> None:
    trace = load_trace("synthetic-cifar10")
    bins, agreed = Resampled(trace, BINNING, ConstantPrice(0.5)).history()
    assert bins == trace.bins_by(BINNING).tolist()
    assert agreed == trace.agreed.tolist()


def test_labels_of_some_rows_stand_for_the_others() -> None:
    trace = Trace([0.9, 0.2, 0.9, 0.2], [1, 1, 1, 1], [1, 2, 1, 2], label=[1, None, 2, 2])
    source = InOrder(trace, UniformBins(2), ConstantPrice(0.5))
    assert source.right is not None
    local, remote = source.right
    assert (local.mean(), remote.mean()) == pytest.approx((trace.local_accuracy, trace.remote_accuracy))
    found = simulate([AlwaysLocal(2), AlwaysRemote(2)], source, len(trace))
    accuracies = [float(record.true_accuracy[0, -1]) for record in found.values()]
    assert accuracies == pytest.approx([1 / 3, 2 / 3])
