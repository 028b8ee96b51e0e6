"""One budget for a fleet: what it saves over a budget for each device, and that it holds, whoever is away or lies.

The fleet is of unlike devices: local is nearly always right on half of them, and often wrong on the others. The best
is that of static thresholds that know the very samples of a run, within one budget for all devices
(`benchmarks.regrets.budgets`). The constants were chosen on the first fleet, with another seed.
"""

import os
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from benchmarks.regrets import budgets
from benchmarks.regrets.budgeted_fleet import BudgetedFleet, BudgetLie, BudgetRun, simulate_fleet_budget
from benchmarks.regrets.fleet import a_third_away, split
from hinge.policies.shared_budget import START
from hinge.simulation.engine import run_seeds

SHARE, COST, DEVICES, HORIZON, SEED = 0.05, budgets.COST, 12, 20_000, 31
FLEETS = {
    "first": ("fashion", "cifar10-vgg16-calibrated", "imagenet-mobilenetv2", "cifar100-resnet50"),
    "second": ("cifar10-vgg16-calibrated", "fashion", "cifar100-resnet18-calibrated", "imagenet-mobilenet"),
}
NETWORKS = {"a third away": a_third_away, "two halves apart": split}
LIES = {
    "2 liars that cede what they have not": BudgetLie.GIVES,
    "2 liars that say they lack credits": BudgetLie.LACKS,
    "2 liars that say they hold many": BudgetLie.HOLDS,
}
CASES = ("5 % each", "5 % together", *NETWORKS, "broker wiped 5 times", *LIES)


class Trial(NamedTuple):
    """A run of a fleet in one of the cases."""

    fleet: str
    case: str
    run: int
    horizon: int


class Outcome(NamedTuple):
    """Of the honest devices of a run; the best may offload what they did."""

    share: float
    beyond: float  # the most credits beyond the budget at any time, a device
    cost: float
    costs: tuple[float, ...]  # of each device
    best: float
    by_trace: tuple[float, ...]
    prices: float  # the standard deviation over devices in the second half
    messages: float


def played(trial: Trial) -> Outcome:
    sources = [budgets.through(FLEETS[trial.fleet][k * 4 // DEVICES]) for k in range(DEVICES)]
    lie, network = LIES.get(trial.case), NETWORKS.get(trial.case)
    order = [*range(DEVICES)] if lie is None else [0, DEVICES - 1, *range(1, DEVICES - 1)]  # an easy one and a hard one
    fleet = BudgetedFleet(
        [sources[k] for k in order],
        [] if lie is None else [lie] * 2,
        (lambda times: network(times, DEVICES)) if network else None,
        [trial.horizon * k // 6 for k in range(1, 6)] if "wiped" in trial.case else (),
    )
    seed = SEED + trial.run
    together = trial.case != CASES[0]
    run = simulate_fleet_budget(fleet, COST, SHARE, shared=together, horizon=trial.horizon, seed=seed)
    honest = slice(len(fleet.lies), None)
    pairs = zip(order[honest], run_seeds(seed, DEVICES)[honest], strict=True)
    seen = [budgets.seen(sources[k], own, trial.horizon) for k, own in pairs]
    return outcome(run, seen, [k * 4 // DEVICES for k in order[honest]])


def outcome(run: BudgetRun, seen: list[budgets.Seen], traces: list[int]) -> Outcome:
    each, total = run.offloads[-1] / run.times[-1], run.offloads.sum(axis=1)
    return Outcome(
        share=float(each.mean()),
        beyond=float((total - SHARE * run.times * len(seen)).max() / len(seen)),
        cost=float(run.cost.mean()),
        costs=tuple(run.cost.tolist()),
        best=budgets.best_static(seen, SHARE)[1],
        by_trace=tuple(float(each[np.array(traces) == k].mean()) for k in range(4)),
        prices=float(run.prices[len(run.times) // 2 :].std(axis=1).mean()),
        messages=float(run.messages.mean()),
    )


def table(fleet: str, runs: int, horizon: int, found: dict[Trial, Outcome]) -> list[str]:
    lines = [
        f"### The {fleet} fleet: three devices each on {', '.join(FLEETS[fleet])}",
        "",
        "| | offloads | most beyond | cost | above the best | saved | of each trace | prices ± | messages |",
        "|---|--:|--:|--:|--:|--:|---|--:|--:|",
    ]
    alone = [found[Trial(fleet, CASES[0], run, horizon)].costs for run in range(runs)]
    for case in CASES:
        each = [found[Trial(fleet, case, run, horizon)] for run in range(runs)]
        cost, best = (np.array([getattr(one, field) for one in each]) for field in ("cost", "best"))
        rates = " ".join(f"{share:.3f}" for share in np.mean([one.by_trace for one in each], axis=0))
        honest = slice(1, -1) if case in LIES else slice(None)
        apart = np.array([np.mean(costs[honest]) for costs in alone])
        saved = f"{100 * (1 - (cost / apart).mean()):.1f} %"
        lines.append(
            f"| {case} | {np.mean([one.share for one in each]):.4f} | {max(one.beyond for one in each):.1f} "
            f"| {cost.mean():.4f} | {100 * (cost / best - 1).mean():.1f} % | {saved} | {rates} "
            f"| {np.mean([one.prices for one in each]):.3f} | {np.mean([one.messages for one in each]):.0f} |"
        )
    return [*lines, ""]


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    runs, horizon = (1, 3_000) if quick else (3, HORIZON)
    trials = [Trial(fleet, case, run, horizon) for fleet in FLEETS for case in CASES for run in range(runs)]
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        found = dict(zip(trials, pool.map(played, trials, chunksize=1), strict=True))
    lines = [
        "## One budget for a fleet",
        "",
        f"{DEVICES} devices with Sentinel, {horizon} samples each, offload cost {COST}, a budget of {SHARE:g};",
        f"{runs} runs. Most beyond: the most offloads beyond {SHARE:g} of all samples so far, at any time of",
        f"any run, for each device; the bound is {START:g}, but for liars that cede what they have not.",
        "Above the best: how much more it costs than static thresholds that know the samples, with one budget",
        "for all. Saved: of the cost with a budget for each. Prices ±: how much the prices of devices differ",
        "at one time, in the second half, as a standard deviation. With liars, figures are those of the ten",
        "honest devices, and what is saved is of what these cost with a budget for each; the liars are one of",
        "the first trace and one of the last. A third away: each third of the devices in turn, for a third of",
        "the time. Two halves apart: in the middle third of the time.",
        "",
    ]
    for fleet in FLEETS:
        lines += table(fleet, runs, horizon, found)
    return lines


if __name__ == "__main__":
    print("\n".join(report(quick=False)))
