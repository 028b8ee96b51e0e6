"""`hinge.evaluate` on production logs: intervals that hold, and nothing made up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import Probation, Trace, UniformBins, load_trace, simulate
from hinge.bins import Bins, EdgeBins
from hinge.errors import InvalidTrace
from hinge.simulation.engine import run_seeds
from hinge.simulation.evaluate import accepted_shares, as_trace, estimated, likely
from hinge.simulation.sources import ConstantPrice, InOrder, Synthetic
from hinge.theory import Estimate
from hinge.traces import Log

NAMES = ["probation", "hi-lcb", "always-local", "always-remote", "oracle"]


USUAL = UniformBins(16)


def logged(name: str, offload_cost: float, bins: Bins = USUAL) -> tuple[Trace, Log]:
    """A trace, and the log that the default policy leaves of it."""
    trace = load_trace(name)
    source = InOrder(trace, bins, ConstantPrice(offload_cost))
    policy = Probation(bins.bins, offload_cost)
    (run,) = simulate([policy], source, len(trace), 1, record_decisions=True)["probation"].runs
    remote = trace.remote.astype(object)
    remote[~np.asarray(run.decisions)] = None
    return trace, Log(trace.confidence, trace.local, remote, bin=trace.bins_by(bins))


@pytest.mark.medium
@pytest.mark.parametrize(("name", "offload_cost"), [("fashion", 0.1), ("imagenet-mobilenetv2", 0.3)])
def test_the_interval_holds_what_the_whole_trace_says(name: str, offload_cost: float) -> None:
    trace, log = logged(name, offload_cost)
    found = hinge.evaluate(log, NAMES, offload_cost, runs=3)
    whole = hinge.evaluate(trace, NAMES, offload_cost, runs=3)
    for guess, true in zip(found.figures(), whole.figures(), strict=True):
        assert guess["cost_low"] <= true["shuffled_cost_per_sample"] + 1e-9
        assert guess["cost_high"] >= true["shuffled_cost_per_sample"] - 1e-9
        assert guess["cost_low"] - 1e-9 <= guess["cost_per_sample"] <= guess["cost_high"] + 1e-9
    remote = found.figures()[NAMES.index("always-remote")]
    assert (remote["cost_low"], remote["cost_high"]) == pytest.approx((offload_cost, offload_cost))
    assert found.complete
    assert (found.trace, found.shuffled, found.offload_cost) == (log, None, offload_cost)


def test_the_bins_are_those_of_the_device_that_decided() -> None:
    """Of the highest of 16 bins it asks about some parts more than about others."""
    device = EdgeBins([*UniformBins(16).edges, 0.97, 0.99, 0.995, 0.999])
    trace, log = logged("fashion", 0.1, device)
    assert log.mixed(UniformBins(16)) == [15]
    assert log.bin is not None
    found = hinge.evaluate(log, ["always-local"], 0.1, runs=1)
    assert np.array_equal(log.bins_by(found.bins), log.bin)
    (row,) = found.figures()
    assert row["cost_low"] <= 1.0 - trace.agreement <= row["cost_high"]
    assert hinge.evaluate(log, ["always-local"], 0.1, runs=1, bins=device).bins == device
    several = "decided on the samples of bin 15 in several bins of its own: give those; or, if"
    with pytest.raises(InvalidTrace, match=several):
        hinge.evaluate(log, ["always-local"], 0.1, runs=1, bins=16)


def test_usual_bins_that_part_samples_as_finely_stay() -> None:
    _, log = logged("fashion", 0.1, UniformBins(8))
    assert hinge.evaluate(log, ["always-local"], 0.1, runs=1).bins == UniformBins(16)


def test_counts_are_those_of_the_log() -> None:
    log = Log([0.1, 0.1, 0.6, 0.9, 0.9], [1, 1, 1, 1, 1], [1, 0, None, None, 1])
    estimate = estimated(log, UniformBins(2))
    assert (estimate.samples.tolist(), estimate.offloads.tolist()) == ([2, 3], [2, 1])
    assert estimate.agreements.tolist() == [1, 1]


def test_shares_are_those_of_what_was_accepted() -> None:
    """In bin 0 accepting is wrong, in bin 1 it is right; a static threshold decides by bin alone."""
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5), [1, 3])

    class OffloadsBinZero:
        def decide(self, bin: int) -> bool:
            return bin == 0

        def learn(self, decision: Any, agreed: Any, cost: float) -> None:
            pass

    class EveryOther:
        seen = 0

        def decide(self, bin: int) -> bool:
            self.seen += 1
            return self.seen % 2 == 0

        def learn(self, decision: Any, agreed: Any, cost: float) -> None:
            pass

    results = simulate([OffloadsBinZero, EveryOther], source, 2000, 2, seed=3)
    shares = accepted_shares(results, source, run_seeds(3, 2))
    assert shares["OffloadsBinZero"].tolist() == [[0.0, 1.0]] * 2
    assert shares["EveryOther"] == pytest.approx(np.full((2, 2), 0.5), abs=0.06)


def test_costs_are_the_mean_of_those_of_offloads_unless_given() -> None:
    rows = 200
    remote: list[int | None] = [1, None] * (rows // 2)
    log = Log([0.5] * rows, [1] * rows, remote, cost=[0.2, 0.0] * (rows // 2))
    assert hinge.evaluate(log, ["always-remote"], runs=1).offload_cost == 0.2
    assert hinge.evaluate(log, ["always-remote"], 0.4, runs=1).offload_cost == 0.4
    without = Log([0.5] * rows, [1] * rows, remote)
    assert hinge.evaluate(without, ["always-remote"], runs=1).offload_cost == 0.5
    with pytest.raises(ValueError, match="offload_cost must be known for a log of offloads alone, got 'learned'"):
        hinge.evaluate(log, ["always-remote"], "learned")


def test_files_and_frames_with_gaps_are_logs_under_any_name(tmp_path: Path) -> None:
    frame = {"score": [0.5, 0.9] * 50, "local": ["a", "b"] * 50, "remote": ["a", None] * 50}
    path = tmp_path / "log.csv"
    lines = [f"{score};{local};{remote or ''}" for score, local, remote in zip(*frame.values(), strict=True)]
    path.write_text("\n".join(["score;Local;Remote", *lines]))
    columns = {"confidence": "score"}
    found = [hinge.evaluate(each, ["probation"], 0.5, columns=columns, runs=1) for each in (frame, path)]
    assert found[0].figures() == found[1].figures()
    assert found[0].estimate is not None
    assert found[0].estimate.unknown == [14]
    with pytest.raises(InvalidTrace, match="cannot be replayed, as the remote did not answer all; evaluate"):
        as_trace(found[0].trace)


def test_what_a_log_makes_likely_can_be_simulated() -> None:
    estimate = Estimate([100, 300], [50, 30], [25, 30])
    source = likely(estimate, 0.3)
    assert source.weights.tolist() == [0.25, 0.75]
    assert source.agreement.tolist() == [0.5, 1.0]
    log = Log([0.1] * 10 + [0.9] * 10, [1] * 20, [0] * 10 + [1] * 5 + [None] * 5)
    evaluated = hinge.evaluate(log, ["probation"], 0.3, bins=2, runs=1)
    assert isinstance(evaluated.source, Synthetic)
    assert evaluated.source.agreement.tolist() == [0.0, 1.0]
    trace = load_trace("synthetic-cifar10")
    assert hinge.evaluate(trace, ["always-local"], 0.3, runs=1).source is trace
