"""How far the policies are from the least regret that is possible on average.

One bin whose agreement f is uniform on (0, 1): `hinge.theory.stopping_floor` is exact. Several: a bound from below.

Bayes regret is estimated with little noise. The agreement of a run is laid on a grid, and what is summed up is not its
own regret but what its decisions cost on average given all that was learned so far, under the uniform prior: an
acceptance costs E[(q - f)⁺], an offload E[(f - q)⁺], with f ~ Beta(1 + a, 1 + n - a). Its mean is the same.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import SPREAD, spread
from hinge import HILCB, Policy, Probation, Thompson, build, simulate
from hinge.policies.evidence import divergence
from hinge.policies.policy import Functions
from hinge.policies.random import uniform
from hinge.simulation.kernel import Loop, compiled, machine_table
from hinge.simulation.sources import ConstantPrice, Synthetic
from hinge.theory import stopping_floor

HORIZONS = (6_250, 100_000)
COSTS = tuple(round(0.1 * step, 1) for step in range(1, 10))
BINS = 16
COIN = 255  # the draw of chance that decides agreement: policies draw their own from 0 on, with the same seeds
HOPELESS = 20.0  # n kl(a / n, q) below q beyond which nothing is regretted any more, but for e^-20
ONE_BIN = (
    *("T", "cost", "floor", "probation", "probation / floor", "audits", "rest / floor"),
    *("hi-lcb / floor", "thompson / floor"),
)
MANY_BINS = ("probation", "hi-lcb")
Reals = NDArray[np.float64]


# -- one bin ----------------------------------------------------------------------------------------------------------


def prior_player(functions: Functions) -> Loop:
    """The loop below for a policy with these functions."""
    offloads, learns, accepts, asks = functions[:4]

    def play(table: Any, q: float, agreement: float, seed: int, stops: Any, regrets: Any, checks: Any) -> None:
        """One run in one bin: its expected regret under the uniform prior, at each stop, and how much of it is checks.

        A check is an offload right after an accepted sample: an audit, or the end of a licence.

        `below` is P(f < q) and `density` q^A (1 - q)^B / Beta(A, B) under the posterior Beta(A, B), kept up to date by
        the recurrences of the incomplete Beta function.
        """
        agreements, failures, below, density = 1.0, 1.0, q, q * (1.0 - q)
        regret, checked, stop, hopeless, accepted = 0.0, 0.0, 0, False, False
        mean, accepting, offloading = 0.5, q * q / 2.0, (1.0 - q) * (1.0 - q) / 2.0
        for time in range(1, stops[-1] + 1):
            if not hopeless:
                if offloads(table, 0, time):
                    regret += offloading
                    if accepted:
                        checked += offloading
                    accepted = False
                    asks(table, 0, time)
                    agreed = 1.0 if uniform(seed, time, COIN) < agreement else 0.0
                    learns(table, 0, agreed, 1.0 - q, time, time)
                    both = agreements + failures
                    if agreed == 1.0:
                        below, density = below - density / agreements, density * q * both / agreements
                        agreements += 1.0
                    else:
                        below, density = below + density / failures, density * (1.0 - q) * both / failures
                        failures += 1.0
                    mean = agreements / (both + 1.0)
                    accepting = max(0.0, q * below - mean * (below - density / agreements))
                    offloading = max(0.0, accepting + mean - q)
                    hopeless = mean < q and (both + 1.0) * divergence(mean, q) > HOPELESS
                else:
                    regret += accepting
                    accepted = True
                    accepts(table, 0, time)
            if time == stops[stop]:
                regrets[stop], checks[stop] = regret, checked
                stop += 1

    return play


def bayes_regret(
    policy: Policy, cost: float, horizons: Sequence[int], draws: int, seed: int = 0
) -> tuple[Reals, Reals]:
    """Draws × horizons: the regret of a one-bin policy, f on an even grid, and how much of it is checks.

    The coins are the same for all policies.
    """
    play, stops = compiled(prior_player(policy.functions)), np.array(horizons)
    regrets, checks = np.zeros((2, draws, len(horizons)))
    for draw in range(draws):
        table = machine_table(policy.fresh(seed=draw).table)
        play(table, 1.0 - cost, (draw + 0.5) / draws, seed * draws + draw, stops, regrets[draw], checks[draw])
    return regrets, checks


@cache
def floor_of(horizon: int, cost: float) -> float:
    """The floor, which takes seconds, but once."""
    return stopping_floor(horizon, cost)


def one_bin_row(horizon: int, cost: float, draws: int) -> str:
    floor = floor_of(horizon, cost)
    policies = (HILCB(1, 0.52, cost), Thompson(1, offload_cost=cost))
    regrets = [bayes_regret(policy, cost, [horizon], draws)[0] for policy in policies]
    watched, audits = bayes_regret(Probation(1, offload_cost=cost), cost, [horizon], draws)
    ours = f"{spread(watched, 2)} | {watched.mean() / floor:.2f}"
    apart = f"{audits.mean():.2f} | {(watched - audits).mean() / floor:.2f}"
    ratios = " | ".join(f"{values.mean() / floor:.2f}" for values in regrets)
    return f"| {horizon} | {cost} | {floor:.2f} | {ours} | {apart} | {ratios} |"


# -- several bins -----------------------------------------------------------------------------------------------------


def step_floor(horizon: int, cost: float) -> float:
    """A bound from below on the Bayes regret of anybody, over `BINS` bins that come alike and a curve that is a step.

    The step is at bin 1 … BINS - 1, each alike. By a coin, either local never agrees below it and the bins above share
    one agreement, uniform on (0, 1), or it always agrees above and those below share one. Who is told where the step is
    and which side is in doubt (that cannot hurt) is left with one bin whose horizon is the number of samples on that
    side. By Hoeffding's inequality that is 1.5 √T below its mean with a chance of at most e^-4.5, and the floor only
    grows with the horizon.
    """
    slack = 1.5 * horizon**0.5
    fewest = [max(1, int(horizon * width / BINS - slack)) for width in range(1, BINS)]
    return (1.0 - math.exp(-4.5)) * float(np.mean([stopping_floor(samples, cost) for samples in fewest]))


def step_curves(count: int) -> list[list[float]]:
    """Curves of that kind, the agreement in doubt on a grid."""
    curves = []
    for draw in range(count):
        step, agreement = 1 + draw % (BINS - 1), (draw // 2 * 0.6180339887 + 0.5 / count) % 1.0
        low, high = (0.0, agreement) if (draw // (BINS - 1)) % 2 else (agreement, 1.0)
        curves.append([low] * step + [high] * (BINS - step))
    return curves


def flat_curves(count: int) -> list[list[float]]:
    """All bins alike: the floor is that of one bin, for those who are told so."""
    return [[(draw + 0.5) / count] * BINS for draw in range(count)]


def curve_regrets(curves: list[list[float]], horizon: int, cost: float) -> dict[str, Reals]:
    """The regret of two policies, one run for each curve."""
    policies: dict[str, Policy] = {name: build(name, bins=BINS, offload_cost=cost) for name in MANY_BINS}
    regrets: dict[str, list[float]] = {name: [] for name in policies}
    for seed, curve in enumerate(curves):
        results = simulate(policies, Synthetic(curve, ConstantPrice(cost)), horizon, 1, seed)
        for name in policies:
            regrets[name].append(float(results[name].regret[0, -1]))
    return {name: np.array(values) for name, values in regrets.items()}


def many_bins_row(kind: str, horizon: int, cost: float, count: int) -> str:
    flat = kind == "flat"
    floor = floor_of(horizon, cost) if flat else step_floor(horizon, cost)
    regrets = curve_regrets(flat_curves(count) if flat else step_curves(count), horizon, cost)
    means = " | ".join(spread(values, 1) for values in regrets.values())
    ratios = " | ".join(f"{regrets[name].mean() / floor:.1f}" for name in MANY_BINS)
    return f"| {kind} | {horizon} | {cost} | {floor:.2f} | {means} | {ratios} |"


def report(quick: bool) -> list[str]:
    """The tables as Markdown."""
    costs = (0.2, 0.5) if quick else COSTS
    horizons, draws, curves = (HORIZONS[:1], 100, 60) if quick else (HORIZONS, 800, 300)
    lines = [
        "## The distance to the floor",
        "",
        f"One bin, f uniform: Bayes regret of {draws} draws, {SPREAD},",
        "then the ratio of its mean to the floor, the exact optimum of those who know horizon and prior. α = 0.52",
        "for HI-LCB. The interval takes the draws for independent; they lie on a grid of f, which makes the",
        "mean surer than it says. Audits: what Probation pays for offloads right after an accepted sample, because",
        "agreement might have changed, which here it never does; then the ratio to the floor of all else that it pays.",
        "",
        f"| {' | '.join(ONE_BIN)} |",
        "|---" * len(ONE_BIN) + "|",
        *(one_bin_row(horizon, cost, draws) for horizon in horizons for cost in costs),
        "",
        f"{BINS} bins that come alike, monotone curves drawn at random: nobody's mean regret can be below the bound.",
        "Flat: one uniform agreement for all bins; the bound is for those who know that. Step: 0 below and a uniform",
        "agreement above, or a uniform one below and 1 above; the bound is for those who know where the step is and",
        "which side is in doubt.",
        "",
        f"| curves | T | cost | bound | {' | '.join((*MANY_BINS, *(f'{name} / bound' for name in MANY_BINS)))} |",
        "|---" * 8 + "|",
    ]
    for kind in ("flat", "step"):
        for horizon in horizons:
            lines += [many_bins_row(kind, horizon, cost, curves) for cost in ((0.5,) if quick else (0.2, 0.5, 0.8))]
    return [*lines, ""]
