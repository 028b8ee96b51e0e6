"""Total cost over the best threshold in hindsight, on the raw confidence: what a gate costs beside one that is tuned.

The best threshold is that of the whole trace, applied to the very samples that a gate sees. It knows all and pays
nothing to learn it; gates start cold. A threshold may be bought, too: so many first samples are all offloaded and paid
for, and what would have been best on them decides the rest. The oracle knows the agreement of 16 uniform bins: what it
costs more, no gate with these bins can save.
"""

import zlib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from benchmarks.report import geometric
from hinge import Gate, UniformBins, load_trace, simulate
from hinge.simulation import run_seeds
from hinge.simulation.engine import Threads
from hinge.simulation.sources import ConstantPrice, Resampled
from hinge.simulation.trade import accepts
from hinge.theory import fit_threshold
from hinge.traces import Trace, trace_names

PRICES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
RUNS = {1_000: 40, 10_000: 20, 100_000: 4}  # by samples
BOUGHT = (200, 500, 1_000)
SEED = 20_262
FITTED, UNIFORM = "fitted bins", "16 uniform bins"
NAMES = (
    FITTED,
    UNIFORM,
    "64 uniform bins",
    "hi-lcb",
    *(f"threshold of {n} pairs" for n in BOUGHT),
    "oracle of 16 bins",
)
Found = dict[str, float]  # cost over the best threshold, by name


def gates(price: float) -> dict[str, Gate]:
    return {
        FITTED: Gate(offload_cost=price),
        UNIFORM: Gate(offload_cost=price, bins=16),
        "64 uniform bins": Gate(offload_cost=price, bins=64),
        "hi-lcb": Gate("hi-lcb", offload_cost=price, bins=16),
    }


def paid(trace: Trace, rows: np.ndarray, threshold: float, price: float, first: int = 0) -> float:
    """What a threshold pays for some samples, the first of them all offloaded."""
    accepted = accepts(trace, threshold)[rows]
    accepted[:first] = False
    return float(np.where(accepted, 1.0 - trace.agreed[rows].astype(np.float64), price).sum())


def cell(name: str, price: float, horizon: int, runs: int) -> Found:
    """The mean cost of each over that of the best threshold; a wrong answer is added to both, as it may be none."""
    trace = load_trace(name)
    source = Resampled(trace, UniformBins(16), ConstantPrice(price))
    seed = SEED + zlib.crc32(f"{name} {price} {horizon}".encode())
    results = simulate(gates(price), source, horizon, runs, seed, times=[horizon], executor=Threads(1))
    costs = {each: [run.cost[-1] for run in results[each].runs] for each in results}
    costs["oracle of 16 bins"] = [run.oracle_cost[-1] for run in results[UNIFORM].runs]
    best, least = fit_threshold(trace.confidence, trace.agreed, price)[0], list[float]()
    for each in run_seeds(seed, runs):
        rows = np.concatenate([np.asarray(samples.rows) for samples in source.stream(each, horizon)])
        least.append(paid(trace, rows, best, price))
        for count in BOUGHT:
            first = rows[:count]
            bought = fit_threshold(trace.confidence[first], trace.agreed[first], price)[0]
            costs.setdefault(f"threshold of {count} pairs", []).append(paid(trace, rows, bought, price, count))
    return {each: float((np.mean(values) + 1.0) / (np.mean(least) + 1.0)) for each, values in costs.items()}


def table(
    horizon: int, traces: Sequence[str], prices: Sequence[float], found: dict[tuple[str, float], Found]
) -> list[str]:
    """A row for each: the geometric mean and the worst cell, of all prices and up to 0.5; and the mean by price."""
    heads = ["", "mean", "worst", "mean to 0.5", "worst to 0.5", *(f"at {price:g}" for price in prices), "worst where"]
    lines = [f"### T = {horizon}", "", f"| {' | '.join(heads)} |", "|---|" + "---:|" * (len(heads) - 2) + "---|"]
    for name in NAMES:
        ratios = {key: each[name] for key, each in found.items()}
        usual = [ratio for (_, price), ratio in ratios.items() if price <= 0.5]
        by_price = [geometric(ratios[trace, price] for trace in traces) for price in prices]
        figures = [geometric(ratios.values()), max(ratios.values()), geometric(usual), max(usual), *by_price]
        where, price = max(ratios, key=lambda key: ratios[key])
        lines.append(f"| {name} | {' | '.join(f'{figure:.3f}' for figure in figures)} | {where}, {price:g} |")
    beside = {key: each[FITTED] / each[UNIFORM] for key, each in found.items()}
    for what, some in (("to 0.5", [p for p in prices if p <= 0.5]), ("beyond", [p for p in prices if p > 0.5])):
        keys = [key for key in beside if key[1] in some]
        if keys:
            worst = max(keys, key=lambda key: beside[key])
            said = f"in the mean {geometric(beside[key] for key in keys):.3f}, at most {beside[worst]:.3f}"
            lines += ["", f"Fitted bins over 16 uniform ones, prices {what}: {said} ({worst[0]}, {worst[1]:g})."]
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    traces = trace_names()[::4] if quick else trace_names()
    prices = PRICES[1:6:2] if quick else PRICES
    horizons = {horizon: max(2, runs // 5) for horizon, runs in RUNS.items() if horizon < 100_000} if quick else RUNS
    each = ", ".join(f"{runs} of {horizon}" for horizon, runs in horizons.items())
    lines = [
        "## Total cost over the best threshold in hindsight",
        "",
        f"{len(traces)} traces, drawn with replacement, at known prices; cold start. Mean: geometric, over traces and",
        f"prices. Runs: {each} samples, the same for all.",
        "",
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        jobs = {
            (horizon, trace, price): pool.submit(cell, trace, price, horizon, runs)
            for horizon, runs in horizons.items()
            for trace in traces
            for price in prices
        }
        done = {key: job.result() for key, job in jobs.items()}
    for horizon in horizons:
        found = {key[1:]: each for key, each in done.items() if key[0] == horizon}
        lines += table(horizon, traces, prices, found)
    return lines
