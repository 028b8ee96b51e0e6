"""The command `evaluate`."""

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import UniformBins
from hinge.cli.app import run
from hinge.policies import policy_names
from hinge.simulation import Results, simulate
from tests.cli.test_evaluate_simulate import InterruptedThreads
from tests.support.commands import FIGURES, ROWS, SHORT, TRUE_FIGURES, Captured, answer, refusal, shown, write_log

Log = Callable[..., str]


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Writes a user's log, and returns its path."""
    return lambda *columns, **settings: write_log(tmp_path / "log.csv", *columns, **settings)


EXTREMES = ["--policies", "always-local,always-remote", "--bins", "2", "--runs", "5"]


@pytest.mark.medium
def test_evaluate_says_what_a_log_would_have_cost(log: Log, capsys: Captured) -> None:
    path = log("confidence", "local", "remote")
    data = answer(capsys, "evaluate", path, "--offload-cost", "0.4", *EXTREMES)
    assert (data["trace"], data["samples"], data["bins"], data["offload_cost"]) == (path, 4, 2, 0.4)
    local, remote = data["policies"]
    assert set(local) == FIGURES | {"over_threshold", "shuffled_cost_per_sample", "shuffled_spread"}
    assert (local["policy"], local["horizon"], local["runs"]) == ("always-local", 4, 1)
    assert (local["offload_fraction"], local["accuracy"], local["cost_per_sample"]) == (0, 0.75, 0.25)
    assert (remote["offload_fraction"], remote["accuracy"]) == (1, 1)
    assert remote["cost_per_sample"] == pytest.approx(0.4)
    # The best threshold offloads both samples of low confidence, one of them in vain; or accepts all, one wrongly.
    assert data["best_threshold"]["cost_per_sample"] == pytest.approx(0.8 / 4)
    assert local["over_threshold"] == pytest.approx(0.25 / 0.2)
    assert remote["over_threshold"] == pytest.approx(0.4 / 0.2)
    assert local["shuffled_cost_per_sample"] == pytest.approx(0.25)
    assert local["shuffled_spread"] == pytest.approx(0)


def test_evaluate_knows_the_truth_where_the_log_does(log: Log, capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label")
    local, remote = answer(capsys, "evaluate", path, "--offload-cost", "0.4", *EXTREMES)["policies"]
    assert (local["true_accuracy"], remote["true_accuracy"]) == (0.5, 0.75)
    assert local["true_cost_per_sample"] == pytest.approx(0.5)
    assert remote["true_cost_per_sample"] == pytest.approx(0.25 + 0.4)  # Appendix B: what is paid, and wrong answers


def test_evaluate_takes_recorded_costs_where_they_are_to_be_learned(log: Log, capsys: Captured) -> None:
    path = log("cost", "remote", "local", "confidence")  # in any order
    data = answer(capsys, "evaluate", path, "--offload-cost", "learned", *EXTREMES)
    assert data["offload_cost"] is None
    assert data["policies"][1]["cost_per_sample"] == pytest.approx(0.4)
    without = answer(capsys, "evaluate", path, "--offload-cost", "0.3", *EXTREMES)
    assert without["policies"][1]["cost_per_sample"] == pytest.approx(0.3)


def free_policies() -> list[str]:
    """Those that `all` stands for: a target has to be given."""
    return [name for name in policy_names() if name != "target"]


@pytest.mark.slow
def test_evaluate_all_means_every_policy(log: Log, capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label", rows=ROWS * 50)
    data = answer(capsys, "evaluate", path, "--policies", "all", "--runs", "2", "--bins", "2", "--offload-cost", "0.4")
    assert [figures["policy"] for figures in data["policies"]] == free_policies()
    assert all(set(figures) >= FIGURES | TRUE_FIGURES for figures in data["policies"])
    costs = {figures["policy"]: figures["cost_per_sample"] for figures in data["policies"]}
    assert costs["oracle"] == costs["offline"] == pytest.approx(0.2)
    assert costs["oracle"] < costs["always-local"] < costs["always-remote"]


@pytest.mark.medium
def test_evaluate_with_a_horizon_draws_with_replacement(log: Log, capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label", rows=ROWS * 50)
    chosen = ["--policies", " hi-lcb , hedge-hi", "--seed", "3", *SHORT]
    data = answer(capsys, "evaluate", path, *chosen)
    assert [figures["policy"] for figures in data["policies"]] == ["hi-lcb", "hedge-hi"]
    for figures in data["policies"]:
        assert set(figures) == FIGURES | TRUE_FIGURES | {"over_threshold"}
        assert (figures["horizon"], figures["runs"]) == (2000, 3)
    assert data == answer(capsys, "evaluate", path, *chosen)


def test_evaluate_prints_a_table_with_the_cheapest_first(log: Log, capsys: Captured) -> None:
    path = log("confidence", "local", "remote", rows=ROWS * 50)
    settings = ["--runs", "2", "--bins", "2", "--offload-cost", "0.4"]
    assert run(["evaluate", path, "--policies", "always-remote,oracle,always-local", *settings]) == 0
    out = capsys.readouterr().out
    assert "200 samples, in order" in out.replace("\n", "")
    names = [line.split()[0] for line in out.splitlines() if line.strip().startswith(("always", "oracle"))]
    assert names == ["oracle", "always-local", "always-remote"]


@pytest.mark.medium
def test_recorded_costs_are_used_unless_another_is_given(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = [f"0.{i % 9 + 1},{i % 2},1,0.9" for i in range(200)]
    path.write_text("confidence,local,remote,cost\n" + "\n".join(lines) + "\n")
    for given, cost in (([], 0.9), (["--offload-cost", "learned"], 0.9), (["--offload-cost", "0.25"], 0.25)):
        found = answer(capsys, "evaluate", str(path), "--policies", "always-remote", "--runs", "2", *given)
        assert found["policies"][0]["cost_per_sample"] == pytest.approx(cost)
    said = shown(capsys, "evaluate", str(path), "--policies", "always-remote", "--offload-cost", "0.25")
    assert "an offload costs 0.25 (as given; in the log 0.9 on average, which is not used)" in said


@pytest.mark.medium
@pytest.mark.parametrize("done", [0, 1])
def test_an_interrupt_among_the_shuffled_orders_keeps_the_order_that_is_done(
    done: int, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def interrupted(*arguments: Any, **keywords: Any) -> Results:
        calls.append(1)
        if len(calls) == 2:
            monkeypatch.setattr("hinge.simulation.engine.Threads", type("Few", (InterruptedThreads,), {"after": done}))
        return simulate(*arguments, **keywords)

    monkeypatch.setattr(sys.modules["hinge.simulation.evaluate"], "simulate", interrupted)
    assert run(["evaluate", "synthetic-cifar10", "--policies", "hi-lcb", "--runs", "9", "--json"]) == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out)["policies"][0]["horizon"] == 10_000


@pytest.mark.medium
def test_a_target_is_evaluated_beside_the_policies(capsys: Captured) -> None:
    data = answer(capsys, "evaluate", "cifar100-resnet50", "--target", "0.8", "--policies", "probation", "--runs", "2")
    probation, target = data["policies"]
    assert (probation["policy"], target["policy"]) == ("probation", "target")
    assert target["accuracy"] >= 0.8
    assert target["offload_fraction"] < 0.7


@pytest.mark.medium
def test_evaluate_shows_the_trade_at_every_price_and_at_the_given_one(capsys: Captured) -> None:
    chosen = ["evaluate", "fashion", "--policies", "probation", "--runs", "1", "--offload-cost", "0.55"]
    data = answer(capsys, *chosen)
    (here,) = [point for point in data["trade"]["gate"] if point["offload_cost"] == 0.55]
    assert here["cost_per_sample"] == pytest.approx(0.55 * here["offload_fraction"] + 1 - here["agreement"])
    said = " ".join(shown(capsys, *chosen).split())
    assert data["trade"]["sentence"] in said
    assert "At 0.55 probation, taking the remote's answers as right, costs" in said
    assert "more than local alone" in said
    (cheap,) = [point for point in data["trade"]["gate"] if point["offload_cost"] == 0.1]
    said = " ".join(shown(capsys, *chosen[:-1], "0.1").split())
    assert f"(if told 0.1: {0.1 * cheap['offload_fraction'] + 1 - cheap['true_accuracy']:.4f})" in said  # the same gate


@pytest.mark.medium
def test_evaluate_says_what_true_labels_are_worth(log: Log, capsys: Captured) -> None:
    chosen = ["evaluate", "imagenet-mobilenetv2", "--policies", "probation", "--runs", "2", "--offload-cost"]
    found = answer(capsys, *chosen, "0.1")["recommendation"]
    told = found["shifted_cost"]
    assert (found["offload_cost"], found["settings"]["offload_cost"]) == (0.1, told)
    said = " ".join(shown(capsys, *chosen, "0.1").split())
    assert f"at an offload cost of 0.1, told as {told:g}, since by the true labels the remote errs too" in said
    assert f"at a cost of {found['measured']['cost_per_sample']:.4f} by the true labels (if told 0.1: " in said
    assert said.endswith(f" SAMPLES --offload-cost {told}")
    dear = " ".join(shown(capsys, *chosen, "0.5").split())
    assert "Recommended: no gate, but local alone, at an offload cost of 0.5." in dear
    assert "; probation, told as 1, costs 1.0 % more than local alone: at this price nothing is gained" in dear
    unlabelled = log("confidence", "local", "remote")
    assert "true labels" not in shown(capsys, "evaluate", unlabelled, *EXTREMES)


@pytest.mark.medium
def test_evaluate_says_how_many_samples_have_a_true_label(tmp_path: Path, capsys: Captured) -> None:
    rows = np.random.default_rng(1).random((400, 3))
    local, label = (rows[:, 1] < 0.3).astype(int), (rows[:, 2] < 0.2).astype(int)
    known = [str(each) if row % 4 else "" for row, each in enumerate(label)]
    lines = zip(rows[:, 0], local, known, strict=True)
    path = tmp_path / "log.csv"
    path.write_text("confidence,local,remote,label\n" + "".join(f"{c},{one},0,{true}\n" for c, one, true in lines))
    choice = ["evaluate", str(path), "--policies", "always-local", "--runs", "1", "--offload-cost", "0.5"]
    found = answer(capsys, *choice)
    labelled = np.arange(400) % 4 > 0
    assert found["labelled"] == 300
    assert found["policies"][0]["true_accuracy"] == pytest.approx((local == label)[labelled].mean())
    assert "true acc.: by the 300 of 400 samples whose true label is known" in shown(capsys, *choice)


def production_log(path: Path, rows: int = 40) -> str:
    """A log as `hinge device --json` prints it: bin 0 was offloaded, bin 1 sometimes, bin 2 never."""
    lines = []
    for row in range(rows):
        asked = row % 4 == 0 or (row % 4 == 1 and row % 8 == 1)
        confidence = (0.1, 0.3, 0.6, 0.3)[row % 4]
        answer = {"score": confidence, "local": 1, "remote": row % 8 // 4 if asked else None, "audit": row % 4 == 1}
        lines.append(json.dumps(answer))
    path.write_text("\n".join([*lines, json.dumps({"summary": {}})]))
    return str(path)


LOGGED = ["--columns", "confidence=score", "--bins", "4", "--runs", "2", "--policies", "always-local,always-remote"]


def test_evaluate_gives_intervals_for_a_log_of_offloads_alone(tmp_path: Path, capsys: Captured) -> None:
    data = answer(capsys, "evaluate", production_log(tmp_path / "log.jsonl"), "--offload-cost", "0.4", *LOGGED)
    local, remote = data["policies"]
    assert data["samples"] == 40
    assert local["cost_low"] < local["cost_per_sample"] < local["cost_high"]
    assert (remote["cost_low"], remote["cost_high"]) == (pytest.approx(0.4), pytest.approx(0.4))
    bins = {row["bin"]: row for row in data["agreement"]}
    counts = {bin: (row["samples"], row["offloads"], row["agreements"]) for bin, row in bins.items()}
    assert counts == {0: (10, 10, 5), 1: (20, 5, 0), 2: (10, 0, 0)}
    assert bins[0]["agreement"] == bins[1]["agreement"] == pytest.approx(5 / 15)  # monotone, so pooled
    assert (bins[2]["agreement_low"], bins[2]["agreement_high"]) == (0, 1)
    assert data["recommendation"] is None


def test_evaluate_names_what_is_not_known_and_what_an_audit_costs(tmp_path: Path, capsys: Captured) -> None:
    path = production_log(tmp_path / "log.jsonl", rows=8000)
    assert run(["evaluate", path, "--offload-cost", "0.4", *LOGGED]) == 0
    out = capsys.readouterr().out
    assert "8000 samples, 3000 of them offloaded, 1000 audits among them" in out.replace("\n", "")
    (unknown,) = (line for line in out.splitlines() if line.startswith("Nothing is known of"))
    start = "Nothing is known of bin 2 (confidence 0.5 to 0.75): 2000 samples, none offloaded. About "
    assert unknown.startswith(start)
    offloads = int(unknown.removeprefix(start).split()[0])
    assert f"({offloads * 0.4:.4g} at 0.4 each) would leave 0.01 of a cost per sample open." in unknown
    assert "Least is known of bin " in out


@pytest.mark.parametrize("text", ["confidence", "=score", "confidence=score,"])
def test_columns_are_pairs(text: str, tmp_path: Path, capsys: Captured) -> None:
    said = refusal(capsys, "evaluate", production_log(tmp_path / "log.jsonl"), "--columns", text)
    assert said == f"hinge: --columns must be like confidence=score,local=prediction, got {text!r}"


def test_what_a_log_or_a_trace_by_name_cannot_have_is_refused(tmp_path: Path, capsys: Captured) -> None:
    said = refusal(capsys, "evaluate", "fashion", "--columns", "local=prediction")
    assert said.startswith("hinge: --columns is for files, and not for <Trace 'fashion'")
    said = refusal(capsys, "evaluate", production_log(tmp_path / "log.jsonl"), *LOGGED, "--offload-cost", "learned")
    assert said == "hinge: --offload-cost must be known for a log of offloads alone, got 'learned'"


def test_a_log_of_offloads_alone_gives_no_settings(tmp_path: Path, capsys: Captured) -> None:
    path, settings = production_log(tmp_path / "log.jsonl"), tmp_path / "hinge.toml"
    assert run(["evaluate", path, "--write", str(settings), *LOGGED]) == 2
    assert "cannot be replayed, and gives no recommendation" in capsys.readouterr().err
    assert not settings.exists()


def test_answers_that_never_agree_are_said_to_be_called_otherwise(tmp_path: Path, capsys: Captured) -> None:
    rows = [(0.9, 1, "cat"), (0.4, 0, "dog"), (0.5, 0, "")]
    for some in (rows[:2], rows):
        path = write_log(tmp_path / "log.csv", "confidence", "local", "remote", rows=some)
        assert run(["evaluate", path, *EXTREMES]) == 0
        said = capsys.readouterr().err
        assert "local and remote agree on no sample: local says 1, remote cat in the first" in said


def test_an_answer_that_says_none_is_warned_of(tmp_path: Path, capsys: Captured) -> None:
    rows = [f"0.{5 + k % 5},{k % 2},{'NA' if k % 3 else k % 2}" for k in range(200)]
    (tmp_path / "log.csv").write_text("\n".join(["confidence,local,remote", *rows]))
    assert run(["evaluate", str(tmp_path / "log.csv"), "--policies", "probation"]) == 0
    assert "remote is 'NA' in some rows, as no local answer is, and counts as a class" in capsys.readouterr().err
    (tmp_path / "log.csv").write_text("\n".join(["confidence,local,remote", *rows]).replace("NA", "2"))
    assert run(["evaluate", str(tmp_path / "log.csv"), "--policies", "probation"]) == 0
    assert "counts as a class" not in capsys.readouterr().err


@pytest.mark.parametrize(("shift", "warns"), [(1, True), (0, False)])
def test_classes_that_are_numbered_otherwise_are_warned_of(
    shift: int, warns: bool, tmp_path: Path, capsys: Captured
) -> None:
    chance = np.random.default_rng(1)
    remote, right = chance.integers(0, 20, 400), chance.random(400) < 0.4  # a weak model, that is sure of itself
    local = np.where(right, remote, chance.integers(0, 20, 400))
    rows = [(0.9, one, (other + shift) % 20) for one, other in zip(local.tolist(), remote.tolist(), strict=True)]
    agreed = sum(one == other for _, one, other in rows)
    assert agreed
    path = write_log(tmp_path / "log.csv", "confidence", "local", "remote", rows=rows)
    assert run(["evaluate", path, *EXTREMES]) == 0
    said = f"local and remote agree in {agreed} of 400 samples, though the confidences promise 360: local says "
    assert (said in capsys.readouterr().err) == warns
    logged = [(c, one, other if k % 2 else "") for k, (c, one, other) in enumerate(rows)]  # asked where it is wrong?
    path = write_log(tmp_path / "log.csv", "confidence", "local", "remote", rows=logged)
    assert run(["evaluate", path, *EXTREMES]) == 0
    assert "Are classes called alike" not in capsys.readouterr().err


def test_what_to_do_with_other_names_of_columns_or_of_a_file_is_said(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "log.csv").write_text("score,local,remote\n0.5,1,1\n")
    said = refusal(capsys, "evaluate", str(tmp_path / "log.csv"))
    assert said.endswith("name them by --columns, as confidence=score")
    np.savez(tmp_path / "samples.npz", samples=np.zeros((2, 3)), labels=np.zeros(2))
    said = refusal(capsys, "evaluate", str(tmp_path / "samples.npz"))
    assert said.endswith("; 'hinge record' makes a log of samples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.csv").rename("log")
    assert "log: no format of traces ends in ''; there are .csv" in refusal(capsys, "evaluate", "log")


def test_of_few_samples_it_says_that_they_tell_little(tmp_path: Path, capsys: Captured) -> None:
    log = write_log(tmp_path / "few.csv", "confidence", "local", "remote")
    told = "So few samples say next to nothing about a policy: record 100 or more."
    assert told in shown(capsys, "evaluate", log, "--policies", "probation", "--runs", "2")


def test_bins_are_those_of_the_log_of_a_device(tmp_path: Path, capsys: Captured) -> None:
    device, rng = UniformBins(38), np.random.default_rng(0)
    rows = []
    for confidence in rng.uniform(0.3, 1.0, 400).tolist():
        if device.bin(confidence) != 20:  # no sample falls into that one
            agreed = int(rng.random() < confidence) if rng.random() < 0.5 else None
            rows.append({"confidence": confidence, "agreed": agreed, "bin": device.bin(confidence)})
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    found = answer(capsys, "evaluate", str(path), "--policies", "always-local", "--offload-cost", "0.4", "--runs", "1")
    assert found["bins"] == 38
    counts = Counter(row["bin"] for row in rows)
    assert {row["bin"]: row["samples"] for row in found["agreement"]} == counts
