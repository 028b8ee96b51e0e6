"""Running commands in tests: in this process, or as the installed script."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from hinge.cli import console
from hinge.cli.app import run

console.EVERY_S = None  # on a slow machine, lines of progress would be among what a command says
INSTALLED = Path(sys.executable).with_name("hinge")
Captured = pytest.CaptureFixture[str]

FIGURES = {"policy", "horizon", "runs", "offload_fraction", "accuracy", "cost_per_sample"}
REGRET = {"regret", "regret_ci95", "regret_p50", "regret_p99", "realised_regret"}  # of simulations by bins
TRUE_FIGURES = {"true_accuracy", "true_cost_per_sample"}
SHORT = ["--horizon", "2000", "--runs", "3"]
ROWS = [  # confidence, local, remote, label, cost
    (0.95, "cat", "cat", "cat", 0.2),
    (0.90, "cat", "cat", "dog", 0.4),
    (0.15, "dog", "cat", "cat", 0.6),
    (0.10, "dog", "dog", "dog", 0.4),
]


def shown(capsys: Captured, *arguments: str) -> str:
    """What a command prints; it must succeed and print nothing on standard error."""
    assert run(list(arguments)) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def answer(capsys: Captured, *arguments: str) -> Any:
    """The JSON that a command prints."""
    return json.loads(shown(capsys, *arguments, "--json"))


def refusal(capsys: Captured, *arguments: str) -> str:
    """The one line with which a command refuses what it was given, leaving standard output empty."""
    assert run(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("hinge: ")
    return captured.err.strip()


def write_log(path: Path, *columns: str, rows: Sequence[tuple[Any, ...]] = ROWS) -> str:
    """Write a user's log with some of the columns of `ROWS`, and return its path."""
    names = ("confidence", "local", "remote", "label", "cost")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([row[names.index(column)] for column in columns] for row in rows)
    return str(path)


def script(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the installed script as a shell does."""
    words, environment = [str(INSTALLED), *arguments], {**os.environ, "COLUMNS": "80", **variables}
    return subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
