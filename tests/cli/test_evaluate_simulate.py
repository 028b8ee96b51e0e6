"""The command `simulate`."""

import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from hinge import UniformBins
from hinge.cli.app import run
from hinge.simulation import lineup, simulate
from hinge.simulation.sources import ConstantPrice, Resampled
from hinge.traces import load_trace
from tests.support.commands import FIGURES, REGRET, SHORT, TRUE_FIGURES, Captured, answer, refusal

Result = TypeVar("Result")


def test_simulate_prints_the_figures_of_a_simulation(capsys: Captured) -> None:
    settings = ["--trace", "synthetic-cifar100", "--offload-cost", "0.4", "--set", "alpha=0.6", "--bins", "8"]
    figures = answer(capsys, "simulate", "--policy", "hi-lcb-lite", *settings, *SHORT, "--seed", "5")
    source = Resampled(load_trace("synthetic-cifar100"), UniformBins(8), ConstantPrice(0.4))
    policies = lineup(["hi-lcb-lite"], source, offload_cost=0.4, horizon=2000, alpha=0.6)
    expected = simulate(policies, source, 2000, runs=3, seed=5)["hi-lcb-lite"].summary()
    assert set(expected) == FIGURES | REGRET | TRUE_FIGURES
    assert {key: figures[key] for key in expected} == expected
    assert figures["trace"] == "synthetic-cifar100"
    assert (figures["alpha"], figures["bins"], figures["offload_cost"]) == (0.6, 8, 0.4)


@pytest.mark.medium
@pytest.mark.parametrize("policy", ["hi-lcb", "hedge-hi", "thompson"])
def test_the_same_seed_prints_the_same(policy: str, capsys: Captured) -> None:
    printed = []
    for seed in ("7", "7", "8"):
        assert run(["simulate", "--policy", policy, *SHORT, "--seed", seed, "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_simulate_prints_a_table_for_people(capsys: Captured) -> None:
    assert run(["simulate", *SHORT]) == 0
    out = capsys.readouterr().out
    for text in ("cifar10-vgg16, horizon 2000, 3 runs", "policy", "probation", "regret", "±"):
        assert text in out


@pytest.mark.slow
@pytest.mark.parametrize("command", [["simulate"], ["evaluate", "synthetic-cifar10", "--policies", "hi-lcb,thompson"]])
def test_the_figures_at_every_checkpoint_go_to_a_file(command: list[str], capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    data = answer(capsys, *command, *SHORT, "--out", str(path))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    final = {row["policy"]: row for row in rows if row["time"] == "2000"}
    for figures in data.get("policies", [data]):
        row = final[figures["policy"]]
        for key in ("regret", "regret_ci95", "realised_regret") if command[0] == "simulate" else ():
            assert float(row[key]) == pytest.approx(figures[key]), key
        for key in ("offload_fraction", "accuracy", "cost_per_sample"):
            assert float(row[key]) == pytest.approx(figures[key]), key
        times = [int(row["time"]) for row in rows if row["policy"] == figures["policy"]]
        assert times == sorted(set(times))
        assert times[0] == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", [["simulate"], ["evaluate", "synthetic-cifar10", "--policies", "hi-lcb,thompson"]])
def test_the_figures_are_drawn(command: list[str], capsys: Captured, tmp_path: Path) -> None:
    for suffix, begins in ((".svg", b"<?xml"), (".png", b"\x89PNG"), (".pdf", b"%PDF"), (".html", b"<!doctype html>")):
        path = tmp_path / f"figure{suffix}"
        answer(capsys, *command, "--horizon", "100", "--runs", "2", "--out", str(path))
        assert path.read_bytes().startswith(begins)
    text = (tmp_path / "figure.html").read_text(encoding="utf-8")
    assert all(words in text for words in ("regret", "share offloaded", "cost per sample"))
    assert ("What the offloads buy" in text) == (command[0] == "evaluate")


def test_a_figure_that_cannot_be_drawn_is_refused_before_the_work(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hinge.cli.simulate.simulate", None)
    told = refusal(capsys, "simulate", "--out", "figure.gif")
    assert told == "hinge: --out must end in .csv, .html, .png, .svg, .pdf, got 'figure.gif'"
    for missing, suffix, extra in (("matplotlib", ".svg", "plot"), ("plotly", ".html", "report")):
        monkeypatch.setitem(sys.modules, missing, None)
        assert f"pip install 'hinge-gate[{extra}]'" in refusal(capsys, "simulate", "--out", f"figure{suffix}")


def test_one_policy_at_a_time_is_simulated(capsys: Captured) -> None:
    assert "takes one policy" in refusal(capsys, "simulate", "--policy", "all")


@pytest.mark.parametrize("setting", ["bins", "offload-cost", "seed", "horizon"])
def test_what_has_an_option_of_its_own_is_not_set_behind_its_back(setting: str, capsys: Captured) -> None:
    said = refusal(capsys, "simulate", "--set", f"{setting}=4")
    assert said == f"hinge: --set {setting.replace('-', '_')}=…: it has an option of its own"


# -- interrupts -------------------------------------------------------------------------------------------------------


class InterruptedThreads:
    """Threads whose user presses Ctrl-C after two runs."""

    after = 2

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        for task in tasks[: self.after]:
            yield task()
        raise KeyboardInterrupt


class InterruptedAtOnce(InterruptedThreads):
    after = 0


def test_an_interrupt_prints_the_runs_that_are_done(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.simulation.engine.Threads", InterruptedThreads)
    assert run(["simulate", "--horizon", "100", "--runs", "9", "--json"]) == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out)["runs"] == 2
    assert "nterrupted" in captured.err


def test_an_interrupt_before_anything_is_done_prints_no_figures(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hinge.simulation.engine.Threads", InterruptedAtOnce)
    assert run(["simulate", "--horizon", "100", "--runs", "9", "--json"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "hinge: interrupted\n"
