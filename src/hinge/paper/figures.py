"""Every figure and table of the paper, and ours beside them, from simulations that are each run once.

The paper's settings are |Φ| = 16, T = 100 000, 100 runs, α = 0.52, and offload cost 0.5, known or drawn from 0.45 and
0.55. `EXPERIMENTS` lists what there is; an entry computes its `Figure` from the simulations of a `Lab`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from hinge import theory
from hinge._files import write_csv
from hinge._html import Curve, Panel
from hinge.bins import UniformBins
from hinge.policies import HILCB, HedgeHI, HILCBLite, Policy
from hinge.simulation import Results, interval, simulate
from hinge.simulation.kernel import numba_installed
from hinge.simulation.sources import BimodalPrice, ConstantPrice, PriceProcess, Replay, Resampled, Source, Synthetic
from hinge.traces import load_trace


@dataclass(frozen=True)
class Figure:
    """Numbers for a file and curves for a plot: the panels of a figure, or the rows of a table."""

    panels: Sequence[Panel] = ()
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """All numbers, as CSV: a row for each point of each curve, or the table itself."""
        if self.columns:
            write_csv(path, [self.columns, *self.rows])
            return
        rows: list[Sequence[Any]] = [["panel", "curve", "x", "y", "half_width_95"]]
        for panel in self.panels:
            for curve in panel.curves:
                widths = curve.half_width if curve.half_width is not None else [""] * len(curve.x)
                rows += ([panel.title, curve.name, *point] for point in zip(curve.x, curve.y, widths, strict=True))
        write_csv(path, rows)


Progress = Callable[[str], None]

PAPER_TRACES = {"ImageNet1k": "imagenet-mobilenet", "CIFAR-10": "cifar10-vgg16", "CIFAR-100": "cifar100-resnet50"}
ALPHA = 0.52
COST = 0.5


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    runs: int = 100
    horizon: int = 100_000
    costs: tuple[float, ...] = tuple(round(0.1 * step, 1) for step in range(11))
    alphas: tuple[float, ...] = (0.52, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)
    long_horizon: int = 10_000_000
    long_runs: int = 5
    seed: int = 2026


FULL = Scale()
QUICK = Scale(runs=20, costs=(0.0, 0.2, 0.5, 0.8, 1.0), alphas=(0.52, 1.0), long_horizon=1_000_000)


class Lab:
    """Runs the simulations behind the figures at a given scale, and caches their results."""

    def __init__(self, scale: Scale = FULL, progress: Progress | None = None) -> None:
        self.scale, self._progress = scale, progress
        self._found: dict[tuple[object, ...], Results] = {}

    def source(self, trace: str, costs: PriceProcess | None = None, bins: int = 16) -> Resampled:
        """A trace, drawn with replacement."""
        return Resampled(load_trace(trace), UniformBins(bins), costs or ConstantPrice(COST))

    def known(self, trace: str, cost: float = COST, bins: int = 16) -> Results:
        """The paper's policies with a known cost."""
        policies = paper_policies(bins, cost, self.scale.horizon)
        return self._run(("known", trace, cost, bins), policies, self.source(trace, ConstantPrice(cost), bins))

    def learned(self, trace: str) -> Results:
        """The paper's policies with costs of 0.45 or 0.55, which they do not know."""
        policies = paper_policies(16, None, self.scale.horizon)
        return self._run(("learned", trace), policies, self.source(trace, BimodalPrice()))

    def by_alpha(self, trace: str, alpha: float) -> Results:
        """HI-LCB and HI-LCB-lite at another exploration parameter."""
        policies: dict[str, Policy] = {"HI-LCB": HILCB(16, alpha, COST), "HI-LCB-lite": HILCBLite(16, alpha, COST)}
        return self._run(("alpha", trace, alpha), policies, self.source(trace))

    def long(self, trace: str) -> Results:
        """A horizon a hundred times the paper's."""
        scale = self.scale
        policies = paper_policies(16, COST, scale.long_horizon)
        return self._run(("long", trace), policies, self.source(trace), scale.long_horizon, scale.long_runs)

    @cached_property
    def run_times(self) -> list[Curve]:
        """Nanoseconds per sample of the compiled loops, against bins."""
        sizes = (16.0, 64.0, 256.0, 1024.0)
        makers: dict[str, Callable[[int], Policy]] = {
            "HI-LCB": lambda bins: HILCB(bins, ALPHA, COST),
            "HI-LCB-lite": lambda bins: HILCBLite(bins, ALPHA, COST),
            "Hedge-HI": lambda bins: HedgeHI(TIMED, bins, COST),
        }
        return [Curve(name, sizes, [run_time(make(int(bins))) for bins in sizes]) for name, make in makers.items()]

    def _run(
        self,
        key: tuple[object, ...],
        policies: dict[str, Policy],
        source: Source,
        horizon: int | None = None,
        runs: int | None = None,
    ) -> Results:
        if key not in self._found:
            if self._progress:
                self._progress(" ".join(map(str, key)))
            scale = self.scale
            results = simulate(policies, source, horizon or scale.horizon, runs or scale.runs, scale.seed)
            if not results.complete:
                raise KeyboardInterrupt
            self._found[key] = results
        return self._found[key]


def paper_policies(bins: int, cost: float | None, horizon: int) -> dict[str, Policy]:
    """HI-LCB and HI-LCB-lite at α = 0.52 and 1, and Hedge-HI in both readings, as in Figure 4."""
    return {
        "HI-LCB, α = 0.52": HILCB(bins, ALPHA, cost),
        "HI-LCB, α = 1": HILCB(bins, 1.0, cost),
        "HI-LCB-lite, α = 0.52": HILCBLite(bins, ALPHA, cost),
        "HI-LCB-lite, α = 1": HILCBLite(bins, 1.0, cost),
        "Hedge-HI": HedgeHI(horizon, bins, cost),
        "Hedge-HI, coin": HedgeHI(horizon, bins, cost, "N ln 2"),
    }


TIMED = 50_000  # samples of a run that is timed


@dataclass(frozen=True)
class Experiment:
    """A figure or a table: its name in files, its title, and how it is found."""

    name: str
    title: str
    note: str
    find: Callable[[Lab], Figure]


def over_time(results: Results, figure: str) -> list[Curve]:
    """A curve for each policy: the mean over runs at every checkpoint."""
    return [record.curve(figure) for record in results.values()]


def over(xs: tuple[float, ...], find: Callable[[float], Results], figure: str) -> list[Curve]:
    """A curve for each policy: a figure at the horizon, against a parameter."""
    found = [find(x) for x in xs]
    curves = []
    for name in found[0]:
        mean, half = zip(*(interval(getattr(results[name], figure)[:, -1]) for results in found), strict=True)
        curves.append(Curve(name, xs, mean, half))
    return curves


def agreement_by_confidence(lab: Lab) -> Figure:
    """Agreement of each bin, and how many samples it has."""
    panels = []
    for title, trace in PAPER_TRACES.items():
        source = lab.source(trace)
        seen = np.flatnonzero(source.weights)
        counts = source.weights[seen] * len(source.trace)
        half = 1.96 * np.sqrt(source.agreement[seen] * (1 - source.agreement[seen]) / counts)
        centres = ((seen + 0.5) / source.bins).tolist()
        curve = Curve("agreement", centres, source.agreement[seen].tolist(), half.tolist())
        arrivals = Curve("share of samples", centres, source.weights[seen].tolist())
        panels.append(Panel(title, "confidence", "agreement with remote", [curve, arrivals]))
    return Figure(panels)


def run_time_by_bins(lab: Lab) -> Figure:
    """Nanoseconds per sample of the compiled loops."""
    return Figure([Panel("Time per sample", "bins", "nanoseconds", lab.run_times, log_x=True, log_y=True)])


def run_time(policy: Policy) -> float:
    """Nanoseconds per sample of a whole simulation, the best of five."""
    source = Synthetic(np.linspace(0.2, 0.98, policy.bins), ConstantPrice(COST))
    code = numba_installed()
    simulate([policy], source, 10, machine_code=code)  # compile
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        simulate([policy], source, TIMED, machine_code=code)
        taken.append(time.perf_counter() - start)
    return min(taken) / TIMED * 1e9


def on_every_set(x: str, y: str, find: Callable[[str], list[Curve]], log_x: bool = False, suffix: str = "") -> Figure:
    """A panel for each of the paper's three sets."""
    return Figure([Panel(f"{title}{suffix}", x, y, find(trace), log_x=log_x) for title, trace in PAPER_TRACES.items()])


def regrets(find: Callable[[Lab, str], Results], log_x: bool = False, suffix: str = "") -> Callable[[Lab], Figure]:
    """Regret over time on each of the three sets."""
    return lambda lab: on_every_set(
        "time", "regret", lambda trace: over_time(find(lab, trace), "regret"), log_x=log_x, suffix=suffix
    )


def regret_by_cost(lab: Lab) -> Figure:
    """Regret at the horizon for every cost."""
    costs = lab.scale.costs
    return on_every_set(
        "offload cost", "regret", lambda trace: over(costs, lambda cost: lab.known(trace, cost), "regret")
    )


def regret_by_alpha(lab: Lab) -> Figure:
    """Regret at the horizon for every α."""
    alphas = lab.scale.alphas
    return on_every_set("α", "regret", lambda trace: over(alphas, lambda alpha: lab.by_alpha(trace, alpha), "regret"))


def true_cost_over_time(lab: Lab) -> Figure:
    """Mean cost with the truth in place of the remote's answer."""
    trace, figure, name = PAPER_TRACES["CIFAR-100"], "true_cost_per_sample", "true cost per sample"
    over_times = over_time(lab.known(trace), figure)
    by_cost = over(lab.scale.costs, lambda cost: lab.known(trace, cost), figure)
    first = Panel("CIFAR-100, cost 0.5", "time", name, over_times, log_x=True)
    return Figure([first, Panel("CIFAR-100, at the horizon", "offload cost", name, by_cost)])


def true_cost_by_alpha(lab: Lab) -> Figure:
    """The same at the horizon for every α."""
    trace = PAPER_TRACES["CIFAR-100"]
    curves = over(lab.scale.alphas, lambda alpha: lab.by_alpha(trace, alpha), "true_cost_per_sample")
    return Figure([Panel("CIFAR-100", "α", "true cost per sample", curves)])


def repaired_bound(problem: theory.Problem, horizon: int) -> float:
    """Theorem 2 as its lemmas give it, with the first offload of every bin in Algorithm 1, which it overlooks."""
    forced = theory.forced_offload_regret(problem, horizon=horizon)
    return theory.stochastic_bound(problem, horizon=horizon, alpha=ALPHA) + forced


BOUNDS: dict[str, Callable[..., float]] = {
    "Theorem 1": partial(theory.adversarial_bound, alpha=ALPHA),
    "Theorem 2, repaired": repaired_bound,
    "Theorem 2, as printed": partial(theory.stochastic_bound_printed, alpha=ALPHA),
    "structured lower bound": theory.structured_lower_bound,
}


def bounds(lab: Lab) -> Figure:
    """Measured regret, the paper's upper bounds, and the structured lower bound."""
    panels = []
    for title, trace in PAPER_TRACES.items():
        source, measured = lab.source(trace), over_time(lab.known(trace), "regret")
        problem = theory.Problem(source.agreement.tolist(), source.mean_offload_cost, source.weights.tolist())
        curves = [curve for curve in measured if "0.52" in curve.name]
        times = [int(time) for time in curves[0].x if time >= 10]
        for name, bound in BOUNDS.items():
            curves.append(Curve(name, times, [bound(problem, horizon=time) for time in times]))
        panels.append(Panel(title, "time", "regret", curves, log_x=True, log_y=True))
    return Figure(panels)


PAPER_HEDGE = {"ImageNet1k": (0.361, 86.38), "CIFAR-10": (0.325, 89.63), "CIFAR-100": (0.493, 85.42)}
PAPER_TABLES = {  # offloaded share and accuracy in per cent, as printed in Tables I and II
    ("ImageNet1k", "HI-LCB, α = 0.52"): (0.450, 91.14),
    ("ImageNet1k", "HI-LCB-lite, α = 0.52"): (0.451, 91.17),
    ("CIFAR-10", "HI-LCB, α = 0.52"): (0.333, 90.29),
    ("CIFAR-10", "HI-LCB-lite, α = 0.52"): (0.337, 90.42),
    ("CIFAR-100", "HI-LCB, α = 0.52"): (0.620, 92.28),
    ("CIFAR-100", "HI-LCB-lite, α = 0.52"): (0.624, 92.43),
    **{(title, reading): row for title, row in PAPER_HEDGE.items() for reading in ("Hedge-HI", "Hedge-HI, coin")},
}


def tables(lab: Lab) -> Figure:
    """Tables I and II, ours beside the paper's, with the reason where they differ."""
    columns = (
        *("set", "trace", "policy", "paper_offloaded", "offloaded", "paper_accuracy", "accuracy"),
        *("local_agreement", "expected_calibration_error", "why"),
    )
    rows = []
    for (title, policy), paper in PAPER_TABLES.items():
        record = lab.known(PAPER_TRACES[title])[policy]
        ours = (float(record.offload_fraction[:, -1].mean()), 100 * float(record.accuracy[:, -1].mean()))
        source = lab.source(PAPER_TRACES[title])
        agreement, error = source.trace.agreement, calibration_error(source)
        figures = (paper[0], round(ours[0], 4), paper[1], round(ours[1], 2), round(agreement, 4), round(error, 4))
        rows.append([title, PAPER_TRACES[title], policy, *figures, explanation(policy, paper, ours, source)])
    return Figure(columns=columns, rows=rows)


def calibration_error(source: Replay) -> float:
    """Expected calibration error of the local model, with the remote's answer taken as right."""
    gaps = source.trace.confidence - source.trace.agreed
    return float(np.abs(np.bincount(source.trace.bins_by(source.binning), gaps)).sum()) / len(gaps)


def explanation(policy: str, paper: tuple[float, float], ours: tuple[float, float], source: Replay) -> str:
    """Where ours differs from the paper's by more than 0.05 or 2 points: what in the trace makes the difference."""
    if abs(ours[0] - paper[0]) <= 0.05 and abs(ours[1] - paper[1]) <= 2.0:
        return ""
    accepted = [1.0 - (1.0 - accuracy / 100) / (1.0 - offloaded) for offloaded, accuracy in (paper, ours)]
    below = float(source.weights[source.agreement <= 1.0 - COST].sum())
    reasons = [
        f"{below:.3f} of our samples lie in bins that agree in half of the cases or fewer, which the oracle offloads",
        f"the samples accepted agree in {accepted[1]:.1%} of the cases, in the paper in {accepted[0]:.1%}",
        f"our local model agrees in {source.trace.agreement:.1%}, calibration error {calibration_error(source):.3f}",
    ]
    if policy.startswith("Hedge-HI"):
        reasons.append("Hedge-HI is reconstructed")
    return "; ".join(reasons)


EXPERIMENTS = (
    Experiment(
        "figure-2",
        "Agreement rises with confidence",
        "Figure 2. Shaded: 95 % binomial interval; 16 bins.",
        agreement_by_confidence,
    ),
    Experiment("figure-3", "Time per sample against the number of bins", "Figure 3. Compiled loops.", run_time_by_bins),
    Experiment("figure-4a", "Regret over time, known cost 0.5", "Figure 4(a).", regrets(Lab.known)),
    Experiment("figure-4b", "Regret over time, costs 0.45 or 0.55", "Figure 4(b).", regrets(Lab.learned)),
    Experiment("figure-4c", "Regret against the offload cost", "Figure 4(c).", regret_by_cost),
    Experiment("figure-4d", "Regret against α", "Figure 4(d).", regret_by_alpha),
    Experiment("tables", "Offloads and accuracy", "Tables I and II, beside the paper's.", tables),
    Experiment("appendix-b-1", "Cost against the truth", "Appendix B, first figure.", true_cost_over_time),
    Experiment("appendix-b-2", "Cost against the truth, by α", "Appendix B, second figure.", true_cost_by_alpha),
    Experiment("bounds", "Measured regret and the bounds", "Ours. Known cost 0.5, α = 0.52.", bounds),
    Experiment("horizons", "A horizon of ten million", "Ours.", regrets(Lab.long, log_x=True)),
    Experiment(
        "many-bins", "256 bins", "Ours.", regrets(lambda lab, trace: lab.known(trace, bins=256), suffix=", 256 bins")
    ),
)
