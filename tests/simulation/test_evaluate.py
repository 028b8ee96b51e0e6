"""`hinge.evaluate`: what the command prints, for every kind of log and of policy."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hinge
from hinge import HILCB, EdgeBins, Gate, Probation, Threshold, Trace, UniformBins, load_trace, write_trace
from hinge.cli.app import run
from hinge.errors import UnknownName
from hinge.simulation import Evaluation, simulate
from hinge.simulation.evaluate import fitted_cost, halves
from hinge.simulation.sources import ConstantPrice, InOrder, Resampled
from hinge.theory import fit_threshold

NAMES = ["probation", "hi-lcb", "oracle", "hedge-hi"]


def uneven(rows: int = 3000) -> Trace:
    """A log whose offloads cost 0.2 below confidence 0.6 and 0.8 above."""
    chance = np.random.default_rng(7)
    confidence = chance.random(rows)
    agreed = chance.random(rows) < 0.3 + 0.6 * confidence
    return Trace(confidence, agreed.astype(int), np.ones(rows, int), cost=np.where(confidence < 0.6, 0.2, 0.8))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    capsys.readouterr()
    assert run(["evaluate", *arguments, "--json"]) == 0
    figures: dict[str, Any] = json.loads(capsys.readouterr().out)
    return figures


@pytest.mark.medium
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ([], {}),
        (["--offload-cost", "0.3", "--bins", "8"], {"offload_cost": 0.3, "bins": 8}),
        (["--offload-cost", "learned", "--seed", "5"], {"offload_cost": "learned", "seed": 5}),
        (["--horizon", "3000"], {"horizon": 3000}),
    ],
    ids=["in order", "cost", "learned", "drawn"],
)
def test_the_function_gives_what_the_command_prints(
    options: list[str], settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    command = printed(capsys, "synthetic-cifar10", "--policies", ",".join(NAMES), "--runs", "3", *options)
    results = hinge.evaluate("synthetic-cifar10", NAMES, runs=3, **settings)
    assert results.figures() == command["policies"]
    assert (len(results.trace), results.offload_cost) == (command["samples"], command["offload_cost"])
    assert results.complete


@pytest.mark.medium
def test_a_log_with_costs_is_learned_by_the_policies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_trace(uneven(), tmp_path / "log.csv")
    results = hinge.evaluate(tmp_path / "log.csv", ["probation"], runs=2)
    assert results.offload_cost is None
    command = printed(capsys, str(tmp_path / "log.csv"), "--policies", "probation", "--runs", "2")
    assert results.figures() == command["policies"]


@pytest.mark.parametrize("kind", ["trace", "name", "file", "dict", "pandas", "polars"])
def test_every_kind_of_log_gives_the_same(kind: str, tmp_path: Path) -> None:
    trace = load_trace("synthetic-cifar10")
    logs: dict[str, Any] = {"trace": trace, "name": "synthetic-cifar10", "dict": trace.columns}
    if kind == "file":
        write_trace(trace, tmp_path / "log.npz")
        logs["file"] = str(tmp_path / "log.npz")
    elif kind in ("pandas", "polars"):
        logs[kind] = pytest.importorskip(kind).DataFrame(trace.columns)
    results = hinge.evaluate(logs[kind], ["hi-lcb"], runs=1)
    assert results.figures() == hinge.evaluate(trace, ["hi-lcb"], runs=1).figures()


def test_scores_are_measured_as_asked() -> None:
    scores = np.random.default_rng(3).normal(size=(300, 4))
    frame = {"local_logits": scores, "remote_logits": scores[::-1]}
    results = hinge.evaluate(frame, ["hi-lcb"], confidence=hinge.margin, runs=1)
    assert results.trace.confidence.tolist() == hinge.margin(scores).tolist()
    with pytest.raises(TypeError, match="confidence is for frames with scores"):
        hinge.evaluate("synthetic-cifar10", ["hi-lcb"], confidence=hinge.margin)


def test_policies_by_name_and_object_and_gate_give_the_same() -> None:
    kinds: list[Any] = ["probation", Gate(offload_cost=0.4)]
    figures = [hinge.evaluate("synthetic-cifar10", [kind], 0.4, runs=2).figures() for kind in kinds]
    assert figures[0] == figures[1]
    policy = HILCB(bins=8, offload_cost=0.4)
    kinds = ["hi-lcb", policy, Gate(policy.fresh())]
    figures = [hinge.evaluate("synthetic-cifar10", [kind], 0.4, bins=8, runs=2).figures() for kind in kinds]
    assert figures[0] == figures[1] == figures[2]


def test_policies_and_gates_have_bins_of_their_own() -> None:
    several: dict[str, Any] = {
        "five": HILCB(bins=5, offload_cost=0.5),
        "edges": Gate(Probation(3, 0.5), bins=EdgeBins([0.5, 0.9])),
        "fixed": Threshold(0.7),
        "oracle": "oracle",
    }
    found = hinge.evaluate("synthetic-cifar10", several, 0.5, runs=1)
    for name, policy in several.items():
        alone = hinge.evaluate("synthetic-cifar10", {name: policy}, 0.5, runs=1)
        assert alone[name].cost_per_sample.tolist() == found[name].cost_per_sample.tolist()
    trace = load_trace("synthetic-cifar10")
    fixed = np.where(trace.confidence < 0.7, 0.5, 1.0 - trace.agreed)
    assert found["fixed"].cost_per_sample[0, -1] == pytest.approx(fixed.mean())
    assert found.bins == UniformBins(16)


def test_the_lineup_is_beside_the_best_threshold() -> None:
    found = hinge.evaluate("fashion", offload_cost=0.1, runs=1)
    names = ["probation", "probation-16", "hi-lcb", "threshold", "always-local", "always-remote", "oracle"]
    assert list(found) == names
    assert found.best is not None
    threshold, least = found.best
    trace = found.trace
    assert isinstance(trace, Trace)
    assert least == pytest.approx(np.where(trace.confidence < threshold, 0.1, 1.0 - trace.agreed).mean())
    for row in found.figures():
        assert row["over_threshold"] == pytest.approx(row["cost_per_sample"] / least)
        assert "regret" not in row
    costs = {row["policy"]: row["over_threshold"] for row in found.figures()}
    assert 1.0 <= costs["threshold"] < 1.03  # fitted on the other half
    assert costs["threshold"] < costs["probation"] < 1.1
    assert found.to_frame().column("policy").to_pylist() == names


def test_a_threshold_is_tried_on_the_half_that_it_was_not_fitted_on() -> None:
    """A log in which each half speaks for another threshold."""
    trace = load_trace("synthetic-cifar10")
    whole = hinge.evaluate(trace, ["threshold"], 0.3, runs=1)
    costs = []
    one, other = halves(trace, 0)
    for fitted, tried in ((one, other), (other, one)):
        threshold, _ = fit_threshold(fitted.confidence, fitted.agreed, 0.3)
        costs.append(np.where(tried.confidence < threshold, 0.3, 1.0 - tried.agreed))
    assert whole["threshold"].cost_per_sample[0, -1] == pytest.approx(np.concatenate(costs).mean())


def test_a_budget_is_kept_and_a_target_is_held() -> None:
    found = hinge.evaluate("cifar10-vgg16", ["probation", "hi-lcb-lite"], 0.05, budget=0.2, target=0.9, runs=1)
    assert found["probation"].offload_fraction[0, -1] <= 0.2
    assert found["target"].accuracy[0, -1] >= 0.9


def test_the_verdict_is_what_is_recommended() -> None:
    found = hinge.evaluate("fashion", ["always-local"], 0.15, runs=1)
    assert found.recommendation is not None
    assert found.verdict == str(found.recommendation)
    few = Trace([0.9, 0.2] * 10, [1, 1] * 10, [1, 2] * 10)
    assert hinge.evaluate(few, ["always-local"], 0.15, runs=1).verdict.startswith("Nothing is recommended")


def test_a_dict_names_policies_apart() -> None:
    pair: dict[str, Any] = {"careful": HILCB(offload_cost=0.5, alpha=1.0), "bold": "hi-lcb"}
    assert list(hinge.evaluate("synthetic-cifar10", pair, 0.5, runs=1)) == ["careful", "bold"]
    with pytest.raises(ValueError, match="need a dict that names them apart, got \\['hi-lcb', 'hi-lcb'\\]"):
        hinge.evaluate("synthetic-cifar10", ["hi-lcb", HILCB(offload_cost=0.5)], 0.5)


@pytest.mark.slow
def test_all_are_all_and_the_table_has_a_line_for_each() -> None:
    results = hinge.evaluate("synthetic-cifar10", "all", offload_cost=0.5, runs=1, horizon=500)
    assert {"probation", "hi-lcb", "oracle", "threshold", "always-local"} <= {*results}
    lines = str(results).splitlines()
    assert {line.split()[0] for line in lines} == {"policy", *results}
    costs = [float(line.split()[1]) for line in lines[1:]]
    assert costs == sorted(costs)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("synthetic-cifar10", ["hi-lbc"]), UnknownName, "did you mean 'hi-lcb'"),
        (("synthetic-cifra10",), UnknownName, "did you mean 'synthetic-cifar10'"),
        ((3,), TypeError, "trace must be a Trace, a Log, a file, a name or a frame, got 3"),
        (("synthetic-cifar10", ["hi-lcb"], 1.5), ValueError, "offload_cost must be from 0 to 1, got 1.5"),
        (("synthetic-cifar10", [3]), TypeError, "objects with decide and learn"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        hinge.evaluate(*arguments)


def test_an_interrupt_while_shuffling_keeps_the_order_as_recorded() -> None:
    def stop(done: int, of: int) -> None:
        if of == 4:
            raise KeyboardInterrupt

    results = hinge.evaluate("synthetic-cifar10", ["hi-lcb"], runs=4, progress=stop)
    assert isinstance(results, Evaluation)
    assert not results.complete
    assert results["hi-lcb"].times[-1] == len(results.trace)


@pytest.mark.medium
@pytest.mark.parametrize("runs_done", [2, 3])
def test_what_is_interrupted_is_marked(runs_done: int) -> None:
    """One run in order, and three shuffled."""
    reports = list[int]()

    def stop(done: int, of: int) -> None:
        reports.append(done)
        if len(reports) == runs_done:
            raise KeyboardInterrupt

    results = hinge.evaluate("synthetic-cifar10", ["probation"], 0.3, runs=3, progress=stop)
    assert not results.complete
    assert results.shuffled is not None
    assert not results.shuffled.complete
    assert len(reports) == runs_done  # nothing is begun after it


# -- costs that vary with confidence ----------------------------------------------------------------------------------


def cheapest(trace: Trace, bins: UniformBins) -> float:
    """The least that any fixed decision for each bin pays on the log: every combination is tried."""
    assert trace.cost is not None
    index = trace.bins_by(bins)
    totals = []
    for offloads in product((False, True), repeat=bins.bins):
        offloaded = np.array(offloads)[index]
        totals.append(float(np.where(offloaded, trace.cost, ~trace.agreed).sum()))
    return min(totals)


def test_the_oracle_knows_the_cost_of_every_bin() -> None:
    trace, bins = uneven(), UniformBins(5)
    results = hinge.evaluate(trace, ["oracle", "hi-lcb", "probation", "always-local"], bins=bins, runs=1)
    least = cheapest(trace, bins)
    for record in results.values():
        paid = float(record.cost_per_sample[0, -1]) * len(trace)
        assert record.realised_regret[0, -1] == pytest.approx(paid - least)
        assert record.realised_regret[0, -1] >= -1e-9  # nothing beats the best decision for each bin
    assert results["oracle"].regret[0, -1] == 0.0
    assert results["oracle"].realised_regret[0, -1] == pytest.approx(0.0, abs=1e-9)


def test_regret_is_that_of_the_decisions_in_each_bin() -> None:
    trace, bins = uneven(), UniformBins(5)
    source = InOrder(trace, bins)
    run = simulate([HILCB(5)], source, len(trace), record_decisions=True)["hi-lcb"].runs[0]
    assert trace.cost is not None
    assert run.decisions is not None
    expected, index = 0.0, trace.bins_by(bins)
    for bin in range(5):
        rows = index == bin
        gap = float((~trace.agreed[rows]).mean() - trace.cost[rows].mean())
        mistakes = run.decisions[rows] if gap < 0 else ~run.decisions[rows]
        expected += abs(gap) * int(mistakes.sum())
    assert run.regret[-1] == pytest.approx(expected)


def test_regret_and_realised_regret_agree_where_the_cost_varies() -> None:
    results = simulate([HILCB(16)], Resampled(uneven(), UniformBins(16)), 20_000, runs=10)["hi-lcb"]
    pseudo, realised = results.regret[:, -1], results.realised_regret[:, -1]
    error = float(np.std(pseudo - realised, ddof=1)) / np.sqrt(10)
    assert abs(float((pseudo - realised).mean())) <= 5 * error


def test_one_cost_for_all_rows_is_a_cost_for_each_bin() -> None:
    trace = uneven()
    same = Trace(trace.confidence, trace.local, trace.remote, cost=np.full(len(trace), 0.5))
    recorded, fixed = InOrder(same, UniformBins(8)), InOrder(same, UniformBins(8), ConstantPrice(0.5))
    assert recorded.offload_costs == pytest.approx(fixed.offload_costs)
    assert recorded.offload_costs.tolist() == [0.5] * 8


def test_a_bin_without_rows_has_the_mean_cost_of_the_log() -> None:
    source = InOrder(Trace([0.1, 0.9], [1, 1], [1, 1], cost=[0.2, 0.6]), UniformBins(4))
    assert source.offload_costs.tolist() == pytest.approx([0.2, 0.4, 0.4, 0.6])


def test_a_cost_is_shifted_by_labels_alone() -> None:
    assert fitted_cost(load_trace("imagenet-mobilenetv2"), 0.5) == 1.0  # κ is 0.3
    with pytest.raises(ValueError, match="must have true labels"):
        fitted_cost(uneven(), 0.3)


def test_the_shifted_cost_is_by_the_rows_that_have_a_label() -> None:
    trace = load_trace("fashion")
    assert trace.label is not None
    known = np.random.default_rng(1).random(len(trace)) < 0.5
    label = [each if one else None for each, one in zip(trace.label.tolist(), known, strict=True)]
    rows = {name: values[known] for name, values in trace.columns.items()}
    some = Trace(trace.confidence, trace.local, trace.remote, label=label)
    assert fitted_cost(some, 0.2) == fitted_cost(Trace.from_frame(rows), 0.2)
