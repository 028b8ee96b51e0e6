"""What a simulation leaves behind: for every policy and run, the sums at each checkpoint."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge._checks import whole
from hinge._html import PALETTE, Curve, Panel, save

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


def checkpoints(horizon: int, count: int = 60) -> Wholes:
    """Times at which to look: evenly spread on a logarithmic scale, the horizon the last.

    >>> checkpoints(1000, 4).tolist()
    [1, 10, 100, 1000]
    """
    horizon, count = whole("checkpoints", "horizon", horizon, 1), whole("checkpoints", "count", count, 2)
    return np.unique(np.round(np.geomspace(1, horizon, count)).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Run:
    """One policy on one stream: its sums at each checkpoint, and which bins it got wrong."""

    regret: Reals  # pseudo-regret: Σ |gap| over decisions other than the oracle's
    cost: Reals  # what was paid
    oracle_cost: Reals  # what the oracle would have paid for the same samples
    offloads: Reals
    matched: Reals  # answers that agree with the remote's
    right: Reals  # answers that agree with the truth; NaN where it is not known
    true_cost: Reals  # offload costs plus wrong answers, by the truth (Appendix B of the paper)
    wrong_accepts: Wholes  # for each bin, at the horizon
    wrong_offloads: Wholes
    decisions: NDArray[np.bool_] | None = None


def interval(values: Reals) -> tuple[float, float]:
    """Mean and half-width of its 95 % confidence interval (Student's t over runs).

    >>> mean, half = interval(np.array([1.0, 2.0, 3.0]))
    >>> mean, round(half, 3)
    (2.0, 2.484)
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, math.nan
    spread = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, student_t975(len(values) - 1) * spread


def student_t975(freedom: int) -> float:
    """The 97.5 % point of Student's t, by the Cornish-Fisher expansion (exact enough beyond 2 degrees; a table below).

    >>> round(student_t975(9), 3), round(student_t975(99), 3)
    (2.262, 1.984)
    """
    few = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646}
    if freedom in few:
        return few[freedom]
    z = 1.959963984540054
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


@dataclass(frozen=True, eq=False)
class Record:
    """All runs of one policy. Arrays are runs × checkpoints."""

    policy: str
    times: Wholes
    runs: tuple[Run, ...]

    def _stack(self, field: str) -> Reals:
        return np.stack([getattr(run, field) for run in self.runs])

    @property
    def regret(self) -> Reals:
        """Pseudo-regret: what the wrong decisions cost in expectation."""
        return self._stack("regret")

    @property
    def realised_regret(self) -> Reals:
        """What was paid minus what the oracle would have paid for the same samples."""
        return self._stack("cost") - self._stack("oracle_cost")

    @property
    def cost_per_sample(self) -> Reals:
        """Mean cost of a sample so far."""
        return self._stack("cost") / self.times

    @property
    def offload_fraction(self) -> Reals:
        """Share of the samples offloaded so far."""
        return self._stack("offloads") / self.times

    @property
    def accuracy(self) -> Reals:
        """Share of the answers so far that agree with the remote's."""
        return self._stack("matched") / self.times

    @property
    def true_accuracy(self) -> Reals:
        """Share of the answers so far that agree with the truth; NaN where it is not known."""
        return self._stack("right") / self.times

    @property
    def true_cost_per_sample(self) -> Reals:
        """Mean of offload cost plus wrong answers, by the truth; NaN where it is not known."""
        return self._stack("true_cost") / self.times

    @property
    def wrong_accepts(self) -> NDArray[Any]:
        """Runs × bins: samples accepted that the oracle offloads."""
        return self._stack("wrong_accepts")

    @property
    def wrong_offloads(self) -> NDArray[Any]:
        """Runs × bins: samples offloaded that the oracle accepts."""
        return self._stack("wrong_offloads")

    def curve(self, field: str) -> Curve:
        """The mean of an array over the runs, at every checkpoint, with its interval."""
        means, halves = zip(*map(interval, getattr(self, field).T), strict=True)
        return Curve(self.policy, self.times.tolist(), means, None if len(self.runs) == 1 else halves)

    def summary(self) -> dict[str, Any]:
        """The figures at the horizon, as `--json` prints them.

        `regret_ci95` is by Student's t over the runs, and too narrow where runs are few and a rare one pays much more
        than the others: most sets of runs then have none of these. `regret_p50` and `regret_p99` are quantiles of them.
        """
        regret, half = interval(self.regret[:, -1])
        p50, p99 = np.quantile(self.regret[:, -1], [0.5, 0.99]).tolist()
        means = ["realised_regret", "offload_fraction", "accuracy", "cost_per_sample"]
        if not np.isnan(self.true_accuracy[:, -1]).any():
            means += ["true_accuracy", "true_cost_per_sample"]
        return {
            "policy": self.policy,
            "horizon": int(self.times[-1]),
            "runs": len(self.runs),
            "regret": regret,
            "regret_ci95": None if math.isnan(half) else half,
            "regret_p50": p50,
            "regret_p99": p99,
            **{name: float(getattr(self, name)[:, -1].mean()) for name in means},
        }


@dataclass(frozen=True, eq=False)
class Results(Mapping[str, Record]):
    """The records of all policies, by name. `complete` is False where a run was interrupted."""

    records: dict[str, Record]
    complete: bool

    def __getitem__(self, name: str) -> Record:
        return self.records[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def figures(self) -> list[dict[str, Any]]:
        """The figures of every policy at the horizon, as `--json` prints them."""
        return [record.summary() for record in self.values()]

    def to_frame(self) -> Any:
        """Return the figures as a table of pyarrow, from which pandas and polars make frames of theirs."""
        from pyarrow import Table  # type: ignore[import-untyped]  # it carries no types

        return Table.from_pylist(self.figures())

    def __str__(self) -> str:
        """The figures as a table, the cheapest policy first."""
        return aligned(table(sorted(self.figures(), key=lambda row: float(row["cost_per_sample"]))))

    def plot(self, path: str | Path) -> None:
        """Draw regret, cost and offloads over time, with 95 % intervals: .html, or a picture as .png, .svg or .pdf."""
        save(Path(path), "Policies over time", self.panels())

    def panels(self) -> list[Panel]:
        """Regret, cost and offloads over time, of the cheapest policies if there are more than can be told apart."""
        cheap = sorted(self.values(), key=lambda record: float(record.cost_per_sample[:, -1].mean()))[: len(PALETTE)]
        shown = {"regret": "regret", "cost_per_sample": "cost per sample", "offload_fraction": "share offloaded"}
        return [Panel("", "samples", name, [each.curve(field) for each in cheap]) for field, name in shown.items()]

    def difference(self, one: str, other: str) -> Reals:
        """Regret of one policy minus that of another on the same samples: runs × checkpoints."""
        return self[one].regret - self[other].regret


_COLUMNS = {  # headings, and how to write the figure of that name
    "cost_per_sample": ("cost per sample", "{:.4f}"),
    "over_threshold": ("over threshold", "{:.3f}"),
    "cost_low": ("from", "{:.4f}"),
    "cost_high": ("to", "{:.4f}"),
    "offload_fraction": ("offloaded", "{:.3f}"),
    "accuracy": ("agrees", "{:.2%}"),
    "true_accuracy": ("true acc.", "{:.2%}"),
    "regret": ("regret", "{:.1f}"),
    "regret_ci95": ("± 95 %", "{:.1f}"),
    "shuffled_cost_per_sample": ("shuffled", "{:.4f}"),
    "shuffled_spread": ("± s.d.", "{:.4f}"),
}


def table(figures: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Figures of policies as rows of cells, with headings: those that any of them has."""
    shown = {name: form for name, form in _COLUMNS.items() if any(row.get(name) is not None for row in figures)}
    head = ["policy", *(heading for heading, _ in shown.values())]
    known = ([(row.get(name), form) for name, (_, form) in shown.items()] for row in figures)
    cells = (["" if value is None else form.format(value) for value, form in row] for row in known)
    return [head, *([row["policy"], *numbers] for row, numbers in zip(figures, cells, strict=True))]


def aligned(lines: list[list[str]]) -> str:
    """Rows of cells as text: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *(map(str.rjust, line[1:], widths[1:]))]) for line in lines)
