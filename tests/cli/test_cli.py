"""The command line: what it prints, what it writes, and how it refuses."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from hinge import UniformBins, __version__, policy_names
from hinge.cli.app import run
from hinge.simulation import Results, lineup, simulate
from hinge.simulation.sources import FixedCosts, Resampled
from hinge.traces import Trace, load_trace, trace_names, write_trace

Result = TypeVar("Result")
Captured = pytest.CaptureFixture[str]

FIGURES = {
    *("policy", "horizon", "runs", "regret", "regret_ci95", "realised_regret", "offload_fraction", "accuracy"),
    "cost_per_sample",
}
TRUE_FIGURES = {"true_accuracy", "true_cost_per_sample"}
SHORT = ["--horizon", "2000", "--runs", "3"]
ROWS = [  # confidence, local, remote, label, cost
    (0.95, "cat", "cat", "cat", 0.2),
    (0.90, "cat", "cat", "dog", 0.4),
    (0.15, "dog", "cat", "cat", 0.6),
    (0.10, "dog", "dog", "dog", 0.4),
]


def answer(capsys: Captured, *arguments: str) -> Any:
    """The JSON that a command prints; it must succeed and say nothing else."""
    assert run([*arguments, "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return json.loads(captured.out)


def refusal(capsys: Captured, *arguments: str) -> str:
    """The one line with which a command fails, leaving standard output empty."""
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("hinge: ")
    return captured.err.strip()


@pytest.fixture
def log(tmp_path: Path) -> Callable[..., str]:
    """Writes a user's log with some of the columns, and returns its path."""

    def write(*columns: str, rows: Sequence[tuple[Any, ...]] = ROWS, name: str = "log.csv") -> str:
        names = ("confidence", "local", "remote", "label", "cost")
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(columns)
            writer.writerows([row[names.index(column)] for column in columns] for row in rows)
        return str(tmp_path / name)

    return write


# -- simulate ---------------------------------------------------------------------------------------------------------


def test_simulate_prints_the_figures_of_a_simulation(capsys: Captured) -> None:
    settings = ["--trace", "synthetic-cifar100", "--offload-cost", "0.4", "--alpha", "0.6", "--bins", "8"]
    figures = answer(capsys, "simulate", "--policy", "hi-lcb-lite", *settings, *SHORT, "--seed", "5")
    source = Resampled(load_trace("synthetic-cifar100"), UniformBins(8), FixedCosts(0.4))
    policies = lineup(["hi-lcb-lite"], source, offload_cost=0.4, horizon=2000, alpha=0.6)
    expected = simulate(policies, source, 2000, runs=3, seed=5)["hi-lcb-lite"].summary()
    assert set(expected) == FIGURES | TRUE_FIGURES
    assert {key: figures[key] for key in expected} == expected
    assert figures["trace"] == "synthetic-cifar100"
    assert (figures["alpha"], figures["bins"], figures["offload_cost"]) == (0.6, 8, 0.4)


@pytest.mark.parametrize("policy", policy_names())
def test_simulate_runs_every_policy(policy: str, capsys: Captured) -> None:
    for cost in ("0.5", "learned"):
        figures = answer(capsys, "simulate", "--policy", policy, "--offload-cost", cost, *SHORT)
        assert set(figures) >= FIGURES | TRUE_FIGURES
        assert (figures["policy"], figures["horizon"], figures["runs"]) == (policy, 2000, 3)
        assert figures["regret"] >= 0
        assert 0 <= figures["offload_fraction"] <= 1


@pytest.mark.parametrize("policy", ["hi-lcb", "hedge-hi", "thompson"])
def test_the_same_seed_prints_the_same(policy: str, capsys: Captured) -> None:
    printed = []
    for seed in ("7", "7", "8"):
        assert run(["simulate", "--policy", policy, *SHORT, "--seed", seed, "--json"]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


def test_one_run_has_no_interval(capsys: Captured) -> None:
    assert answer(capsys, "simulate", "--horizon", "100", "--runs", "1")["regret_ci95"] is None


def test_simulate_prints_a_table_for_people(capsys: Captured) -> None:
    assert run(["simulate", *SHORT]) == 0
    out = capsys.readouterr().out
    for text in ("cifar10-vgg16, horizon 2000, 3 runs", "policy", "isotonic", "regret", "±"):
        assert text in out


@pytest.mark.parametrize("command", [["simulate"], ["evaluate", "synthetic-cifar10", "--policies", "hi-lcb,kl"]])
def test_the_figures_at_every_checkpoint_go_to_a_file(command: list[str], capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "curves.csv"
    data = answer(capsys, *command, *SHORT, "--out", str(path))
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    final = {row["policy"]: row for row in rows if row["time"] == "2000"}
    for figures in data.get("policies", [data]):
        row = final[figures["policy"]]
        for key in ("regret", "regret_ci95", "realised_regret", "offload_fraction", "accuracy", "cost_per_sample"):
            assert float(row[key]) == pytest.approx(figures[key]), key
        times = [int(row["time"]) for row in rows if row["policy"] == figures["policy"]]
        assert times == sorted(set(times))
        assert times[0] == 1


def test_simulate_takes_a_file_for_a_trace(capsys: Captured, tmp_path: Path) -> None:
    for suffix in ("csv", "npz", "parquet"):
        path = tmp_path / f"copy.{suffix}"
        write_trace(load_trace("synthetic-cifar10"), path)
        figures = answer(capsys, "simulate", "--trace", str(path), *SHORT)
        by_name = answer(capsys, "simulate", "--trace", "synthetic-cifar10", *SHORT)
        assert figures["regret"] == by_name["regret"]


# -- evaluate ---------------------------------------------------------------------------------------------------------

EXTREMES = ["--policies", "always-local,always-remote", "--bins", "2", "--runs", "5"]


def test_evaluate_says_what_a_log_would_have_cost(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote")
    data = answer(capsys, "evaluate", path, "--offload-cost", "0.4", *EXTREMES)
    assert (data["trace"], data["samples"], data["bins"], data["offload_cost"]) == (path, 4, 2, 0.4)
    local, remote = data["policies"]
    assert set(local) == FIGURES | {"shuffled_cost_per_sample", "shuffled_spread"}
    assert (local["policy"], local["horizon"], local["runs"], local["regret_ci95"]) == ("always-local", 4, 1, None)
    assert (local["offload_fraction"], local["accuracy"], local["cost_per_sample"]) == (0, 0.75, 0.25)
    assert (remote["offload_fraction"], remote["accuracy"]) == (1, 1)
    assert remote["cost_per_sample"] == pytest.approx(0.4)
    # Agreement is ½ in the lower bin and 1 in the upper: accepting costs ½ and 0 there, offloading 0.4.
    assert local["regret"] == pytest.approx(2 * 0.1)
    assert remote["regret"] == pytest.approx(2 * 0.4)
    assert local["realised_regret"] == pytest.approx(1 - 2 * 0.4)
    assert local["shuffled_cost_per_sample"] == pytest.approx(0.25)
    assert local["shuffled_spread"] == pytest.approx(0)


def test_evaluate_knows_the_truth_where_the_log_does(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label")
    local, remote = answer(capsys, "evaluate", path, "--offload-cost", "0.4", *EXTREMES)["policies"]
    assert (local["true_accuracy"], remote["true_accuracy"]) == (0.5, 0.75)
    assert local["true_cost_per_sample"] == pytest.approx(0.5)
    assert remote["true_cost_per_sample"] == pytest.approx(0.25 + 0.4)  # Appendix B: what is paid, and wrong answers


def test_evaluate_takes_recorded_costs_where_they_are_to_be_learned(log: Callable[..., str], capsys: Captured) -> None:
    path = log("cost", "remote", "local", "confidence")  # in any order
    data = answer(capsys, "evaluate", path, "--offload-cost", "learned", *EXTREMES)
    assert data["offload_cost"] is None
    assert data["policies"][1]["cost_per_sample"] == pytest.approx(0.4)
    without = answer(capsys, "evaluate", path, "--offload-cost", "0.3", *EXTREMES)
    assert without["policies"][1]["cost_per_sample"] == pytest.approx(0.3)


def test_evaluate_learns_the_paper_s_costs_where_none_were_recorded(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", rows=ROWS * 500)
    remote = answer(capsys, "evaluate", path, "--offload-cost", "learned", *EXTREMES)["policies"][1]
    assert remote["cost_per_sample"] == pytest.approx(0.5, abs=0.006)
    assert remote["cost_per_sample"] != 0.5


def free_policies() -> list[str]:
    """Those that `all` stands for: a budget is another goal."""
    return [name for name in policy_names() if name != "lyapunov-exp4"]


def test_evaluate_all_means_every_policy(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label", rows=ROWS * 50)
    data = answer(capsys, "evaluate", path, "--policies", "all", "--runs", "2", "--bins", "2", "--offload-cost", "0.4")
    assert [figures["policy"] for figures in data["policies"]] == free_policies()
    assert all(set(figures) >= FIGURES | TRUE_FIGURES for figures in data["policies"])
    costs = {figures["policy"]: figures["cost_per_sample"] for figures in data["policies"]}
    assert costs["oracle"] == costs["offline"] == pytest.approx(0.2)
    assert costs["oracle"] < costs["always-local"] < costs["always-remote"]


def test_evaluate_all_is_what_happens_without_a_choice(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", rows=ROWS * 50)
    assert answer(capsys, "evaluate", path) == answer(capsys, "evaluate", path, "--policies", "all")


def test_evaluate_with_a_horizon_draws_with_replacement(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", "label", rows=ROWS * 50)
    chosen = ["--policies", " hi-lcb , hedge-hi", "--seed", "3", *SHORT]
    data = answer(capsys, "evaluate", path, *chosen)
    assert [figures["policy"] for figures in data["policies"]] == ["hi-lcb", "hedge-hi"]
    for figures in data["policies"]:
        assert set(figures) == FIGURES | TRUE_FIGURES
        assert (figures["horizon"], figures["runs"]) == (2000, 3)
        assert figures["regret_ci95"] > 0
    assert data == answer(capsys, "evaluate", path, *chosen)


def test_evaluate_prints_a_table_with_the_cheapest_first(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", rows=ROWS * 50)
    settings = ["--runs", "2", "--bins", "2", "--offload-cost", "0.4"]
    assert run(["evaluate", path, "--policies", "always-remote,oracle,always-local", *settings]) == 0
    out = capsys.readouterr().out
    assert "200 samples, in order" in out.replace("\n", "")
    names = [line.split()[0] for line in out.splitlines() if line.strip().startswith(("always", "oracle"))]
    assert names == ["oracle", "always-local", "always-remote"]


DIP = [(0.1, "dog", "cat"), *[(0.3, "cat", "cat")] * 9, (0.3, "dog", "cat"), *[(0.9, "dog", "cat")] * 3]
DIP += [(0.9, "cat", "cat")] * 2  # of four bins: 0 % agree in bin 0, 90 % in bin 1, 40 % in bin 3
BRIEF = ["--bins", "4", "--runs", "2", "--policies"]


def test_evaluate_warns_where_agreement_falls_with_confidence(log: Callable[..., str], capsys: Captured) -> None:
    path = log("confidence", "local", "remote", rows=DIP * 50)
    (warning,) = answer(capsys, "evaluate", path, *BRIEF, "hi-lcb")["warnings"]
    assert warning["warning"] == "agreement falls with confidence"
    assert (warning["bin"], warning["last_bin"], warning["rows"]) == (3, 3, 250)
    assert (warning["below_bin"], warning["below_last_bin"], warning["below_rows"]) == (1, 1, 500)
    assert (warning["agreement"], warning["below_agreement"], warning["crosses"]) == (0.4, 0.9, True)
    assert warning["price"] == pytest.approx(0.1)
    assert run(["evaluate", path, *BRIEF, "hi-lcb,kl,pooled-kl"]) == 0
    *lines, last = capsys.readouterr().err.splitlines()
    assert lines == [
        "Warning: agreement falls with confidence, most clearly in bin 3 (confidence 0.75 to 1): 40.0 % of 250 rows "
        "agree there, but 90.0 % of 500 in bin 1 (confidence 0.25 to 0.5).",
        "hi-lcb and pooled-kl assume that it never falls, and may accept such samples wrongly, at 0.1 each: compare "
        "the costs above.",
    ]
    assert last == "hi-lcb-lite, kl and thompson judge each bin by itself."


def test_evaluate_names_every_dip_and_nobody_who_is_not_misled(log: Callable[..., str], capsys: Captured) -> None:
    more = [*DIP, *[(0.6, "dog", "cat")] * 6, *[(0.6, "cat", "cat")] * 3]
    path = log("confidence", "local", "remote", rows=more * 50)
    assert run(["evaluate", path, *BRIEF, "kl,always-local"]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert "most clearly in bin 2 (confidence 0.5 to 0.75): 33.3 % of 450 rows" in first
    assert first.endswith("It falls in bin 3 (confidence 0.75 to 1) too.")
    assert second.endswith("judge each bin by itself.")


@pytest.mark.parametrize(("times", "cost"), [(1, "0.5"), (50, "0.05"), (50, "0.7")])
def test_evaluate_warns_of_no_dip_that_chance_explains_or_that_misleads_nobody(
    times: int, cost: str, log: Callable[..., str], capsys: Captured
) -> None:
    path = log("confidence", "local", "remote", rows=DIP * times)
    assert answer(capsys, "evaluate", path, *BRIEF, "hi-lcb", "--offload-cost", cost)["warnings"] == []
    assert run(["evaluate", path, *BRIEF, "hi-lcb", "--offload-cost", cost]) == 0
    assert capsys.readouterr().err == ""


# -- list -------------------------------------------------------------------------------------------------------------


def test_list_names_everything(capsys: Captured) -> None:
    data = answer(capsys, "list")
    assert [row["name"] for row in data["policies"]] == policy_names()
    assert [row["name"] for row in data["traces"]] == trace_names()
    assert all(row["what"] for row in data["policies"])
    assert set(answer(capsys, "list", "traces")) == {"traces"}
    assert run(["list", "policies"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in policy_names())


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("simulate --policy hi-lbc", "no policy is called 'hi-lbc'; did you mean 'hi-lcb'?"),
        ("simulate --trace synthetic-cifra10", "no trace is called 'synthetic-cifra10'; did you mean"),
        ("evaluate synthetic-cifar10 --policies hi-lcb,hedge-ih", "'hedge-ih'; did you mean 'hedge-hi'?"),
        ("evaluate synthetic-cifar", "no trace is called 'synthetic-cifar'; did you mean"),
        ("list polices", "there is no list of 'polices'; did you mean 'policies'?"),
        ("simulat", "no command is called 'simulat'; did you mean 'simulate'?"),
        ("simulate --polcy hi-lcb", "no option is called '--polcy'; did you mean '--policy'?"),
    ],
)
def test_unknown_names_say_what_was_meant(arguments: str, message: str, capsys: Captured) -> None:
    assert message in refusal(capsys, *arguments.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--alpha 0", "--alpha must be > 0, got 0"),
        ("--alpha -1", "--alpha must be > 0, got -1"),
        ("--alpha nan", "--alpha must be > 0, got nan"),
        ("--alpha high", "--alpha"),
        ("--bins 0", "--bins must be an integer >= 1, got 0"),
        ("--bins 1.5", "--bins"),
        ("--horizon 0", "--horizon must be an integer"),
        ("--runs 0", "--runs must be an integer >= 1, got 0"),
        ("--runs many", "--runs"),
        ("--seed -1", "--seed must be an integer"),
        ("--offload-cost 2", "--offload-cost must be from 0 to 1, got 2"),
        ("--offload-cost -0.1", "--offload-cost must be from 0 to 1, got -0.1"),
        ("--offload-cost nan", "--offload-cost must be from 0 to 1, got nan"),
        ("--offload-cost x", "--offload-cost must be a number from 0 to 1, or 'learned', got 'x'"),
    ],
)
@pytest.mark.parametrize("command", ["simulate", "evaluate synthetic-cifar10"])
def test_impossible_parameters_are_named(command: str, arguments: str, message: str, capsys: Captured) -> None:
    assert message in refusal(capsys, *command.split(), *arguments.split())


def test_a_refusal_names_the_program_once(capsys: Captured) -> None:
    assert refusal(capsys, "simulate", "--offload-cost", "2").count("hinge:") == 1


def test_more_bins_than_memory_are_refused_in_one_line(capsys: Captured) -> None:
    assert "memory" in refusal(capsys, "simulate", "--bins", str(10**14), *SHORT).lower()


def test_a_horizon_that_no_clock_reaches_is_named(capsys: Captured) -> None:
    assert "horizon" in refusal(capsys, "simulate", "--horizon", str(10**20))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("missing.csv", None, "No such file or directory"),
        ("empty.csv", b"", "there must be a header"),
        ("short.csv", b"confidence,local,remote\n0.9,1\n", "line 2: 2 fields where the header has 3"),
        ("lacking.csv", b"confidence,local\n0.9,1\n", "column 'remote' is missing"),
        ("named.csv", b"conf,local,remote\n0.9,1,1\n", "(is it 'conf'?); needed are confidence, local, remote, found"),
        ("misspelt.csv", b"confidence,local,remote,lable\n0.9,1,1,1\n", "did you mean 'label'?"),
        ("range.csv", b"confidence,local,remote\n0.5,1,1\n1.9,1,1\n", "line 3, column confidence: '1.9'"),
        ("cost.csv", b"confidence,local,remote,cost\n0.5,1,1,2\n", "line 2, column cost: '2'"),
        ("bytes.csv", b"\xff\xfe\x00\x01", "line 1"),
        ("junk.npz", b"junk", "cannot be read as npz"),
        ("junk.parquet", b"junk", "cannot be read as Parquet"),
        ("log.txt", b"junk", "no format of traces ends in '.txt'"),
    ],
)
@pytest.mark.parametrize("command", ["evaluate", "simulate --trace"])
def test_files_that_cannot_be_read_are_named(
    command: str, name: str, content: bytes | None, message: str, capsys: Captured, tmp_path: Path
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    line = refusal(capsys, *command.split(), str(path))
    assert message in line
    assert str(path) in line


def test_a_folder_is_no_trace_and_no_place_for_figures(capsys: Captured, tmp_path: Path) -> None:
    folder = tmp_path / "folder.csv"
    folder.mkdir()
    assert "Is a directory" in refusal(capsys, "evaluate", str(folder))
    assert "Is a directory" in refusal(capsys, "simulate", *SHORT, "--out", str(folder))
    assert "No such file" in refusal(capsys, "simulate", *SHORT, "--out", str(tmp_path / "none" / "out.csv"))


def test_arguments_that_are_missing_or_too_many_are_refused(capsys: Captured) -> None:
    assert "trace" in refusal(capsys, "evaluate").lower()
    assert "extra" in refusal(capsys, "simulate", "more")


def test_recorded_costs_are_used_unless_another_is_given(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    lines = [f"0.{i % 9 + 1},{i % 2},1,0.9" for i in range(200)]
    path.write_text("confidence,local,remote,cost\n" + "\n".join(lines) + "\n")
    for given, cost in (([], 0.9), (["--offload-cost", "learned"], 0.9), (["--offload-cost", "0.25"], 0.25)):
        found = answer(capsys, "evaluate", str(path), "--policies", "always-remote", "--runs", "2", *given)
        assert found["policies"][0]["cost_per_sample"] == pytest.approx(cost)


def test_one_policy_at_a_time_is_simulated(capsys: Captured) -> None:
    assert "takes one policy" in refusal(capsys, "simulate", "--policy", "all")


# -- interrupts -------------------------------------------------------------------------------------------------------


class InterruptedThreads:
    """Threads whose user presses Ctrl-C after two runs."""

    after = 2

    def map(self, tasks: Sequence[Callable[[], Result]]) -> Iterator[Result]:
        for task in tasks[: self.after]:
            yield task()
        signal.raise_signal(signal.SIGINT)


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

    monkeypatch.setattr("hinge.cli.simulating.simulate", interrupted)
    assert run(["evaluate", "synthetic-cifar10", "--policies", "hi-lcb", "--runs", "9", "--json"]) == 130
    captured = capsys.readouterr()
    assert json.loads(captured.out)["policies"][0]["horizon"] == 10_000


# -- the installed command --------------------------------------------------------------------------------------------


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script as a shell does."""
    script = Path(sys.executable).with_name("hinge")
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run([script, *arguments], capture_output=True, text=True, check=False, env=environment)


def test_the_installed_command_simulates() -> None:
    done = command("simulate", *SHORT, "--seed", "5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    again = command("simulate", *SHORT, "--seed", "5", "--json")
    assert done.stdout == again.stdout
    assert set(json.loads(done.stdout)) >= FIGURES | TRUE_FIGURES


def test_the_installed_command_refuses_in_one_line() -> None:
    done = command("simulate", "--policy", "hi-lbc")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hinge: no policy is called 'hi-lbc'; did you mean 'hi-lcb'?\n"


def test_the_installed_command_evaluates_a_log_and_says_its_version(tmp_path: Path) -> None:
    chance = np.random.default_rng(2)
    trace = Trace(chance.random(300), chance.integers(0, 2, 300), np.ones(300, int), cost=chance.random(300))
    write_trace(trace, tmp_path / "log.npz")
    done = command("evaluate", str(tmp_path / "log.npz"), "--offload-cost", "learned", "--runs", "2", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(json.loads(done.stdout)["policies"]) == len(free_policies())
    assert command("--version").stdout == f"hinge {__version__}\n"


def test_no_figure_is_cut_off_in_a_terminal_of_eighty_columns() -> None:
    done = command("evaluate", "synthetic-cifar10", "--runs", "2")
    assert "always-remote" in done.stdout
    assert "…" not in done.stdout


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "hinge", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"hinge {__version__}\n")


def test_help_says_how_and_no_command_at_all_says_the_same() -> None:
    helped = command("--help")
    assert helped.returncode == 0
    assert all(name in helped.stdout for name in ("simulate", "evaluate", "list"))
    bare = command()
    assert (bare.stdout + bare.stderr).startswith("Usage: hinge")
