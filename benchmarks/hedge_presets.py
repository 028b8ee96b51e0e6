"""Which Hedge-HI costs what Tables I and II of the paper imply: two readings, their presets, and a grid of rates.

    python benchmarks/hedge_presets.py [--markdown FILE]

The tables' shares offloaded and accuracies imply what Hedge-HI cost beyond HI-LCB on the same samples, which depends
far less on the local models than the shares themselves: it is what the readings are judged by.
"""

import argparse
from itertools import product
from pathlib import Path
from typing import NamedTuple

from hinge import HILCB, Policy, simulate
from hinge.paper.claims import HEDGE, MONO
from hinge.paper.figures import ALPHA, COST, PAPER_TABLES, PAPER_TRACES, Lab
from hinge.policies import HedgeHI
from hinge.policies.baselines import COMPLEXITIES, FITTED

HORIZON, RUNS, SEED = 100_000, 20, 1
GRID = (0.0025, 0.005, 0.01, 0.02, 0.04)
READINGS = {"coin": next(iter(COMPLEXITIES)), "every offload": FITTED}


class Outcome(NamedTuple):
    """On one set: the cost beyond HI-LCB's at the horizon, and the table's two figures."""

    excess: float
    offloaded: float
    accuracy: float

    def markdown(self) -> str:
        return f"{self.excess:.0f}; {self.offloaded:.3f}, {self.accuracy:.2f}"


def implied(title: str) -> Outcome:
    """What the paper's tables say of Hedge-HI."""
    rows = (PAPER_TABLES[title, MONO], PAPER_TABLES[title, HEDGE])
    theirs, hedges = (HORIZON * (COST * share + 1 - per_cent / 100) for share, per_cent in rows)
    return Outcome(hedges - theirs, *rows[1])


def presets() -> dict[str, Policy]:
    return {f"coin, A = {name}": HedgeHI(HORIZON, 16, COST, name) for name in COMPLEXITIES}


def grid() -> dict[str, Policy]:
    return {
        f"{reading}, η = {rate}, ε = {exploration}": HedgeHI(HORIZON, 16, COST, complexity, rate, exploration)
        for (reading, complexity), rate, exploration in product(READINGS.items(), GRID, GRID)
    }


def outcomes(title: str, policies: dict[str, Policy]) -> dict[str, Outcome]:
    lineup = {MONO: HILCB(16, ALPHA, COST), **policies}
    results = simulate(lineup, Lab().source(PAPER_TRACES[title]), HORIZON, RUNS, SEED)
    base = results[MONO].cost_per_sample[:, -1].mean()
    found = {}
    for name in policies:
        record = results[name]
        figures = (record.offload_fraction[:, -1].mean(), 100 * record.accuracy[:, -1].mean())
        found[name] = Outcome(HORIZON * float(record.cost_per_sample[:, -1].mean() - base), *map(float, figures))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares readings of Hedge-HI with the paper's tables.")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    path = parser.parse_args().markdown
    policies = presets() | grid()
    found = {title: outcomes(title, policies) for title in PAPER_TRACES}
    paper = {title: implied(title) for title in PAPER_TRACES}

    def distance(name: str) -> float:
        return sum(abs(found[title][name].excess - paper[title].excess) for title in PAPER_TRACES)

    def row(name: str, figures: dict[str, Outcome], far: str) -> str:
        return f"| {name} | {' | '.join(figures[title].markdown() for title in PAPER_TRACES)} | {far} |"

    shown = [*presets()]
    for reading in READINGS:
        shown += sorted((name for name in grid() if name.startswith(reading)), key=distance)[:5]
    lines = [
        "# Readings of Hedge-HI",
        "",
        f"What Hedge-HI costs beyond HI-LCB after {HORIZON} samples; share offloaded, accuracy in per cent. The",
        f"paper's row is what its Tables I and II imply. {RUNS} runs. η and ε of both readings from {GRID}:",
        "the five nearest of each, by the sum of the absolute differences of the costs. Chosen: every offload,",
        "η = ε = 0.005 (of two that are level the one that explores more).",
        "",
        f"| reading | {' | '.join(PAPER_TRACES)} | differences |",
        "|---" * (len(PAPER_TRACES) + 2) + "|",
        row("the paper", paper, ""),
        *(row(name, {title: found[title][name] for title in PAPER_TRACES}, f"{distance(name):.0f}") for name in shown),
    ]
    text = "\n".join([*lines, "", "Written by `benchmarks/hedge_presets.py`.", ""])
    print(text)
    if path:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
