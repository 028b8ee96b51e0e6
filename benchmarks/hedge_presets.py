"""Which preset for A brings Hedge-HI nearest to Tables I and II of the paper.

    python benchmarks/hedge_presets.py [--markdown FILE]
"""

import argparse
from pathlib import Path

from hinge import Policy, simulate
from hinge.paper.figures import COST, PAPER_TABLES, PAPER_TRACES, Lab
from hinge.policies import HedgeHI
from hinge.policies.hedge import COMPLEXITIES

HORIZON, RUNS = 100_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares the presets of Hedge-HI with the paper's tables.")
    parser.add_argument("--markdown", type=Path, help="also write the table to this file")
    lines = ["| preset | set | offloaded | paper | agrees, % | paper |", "|---|---|---|---|---|---|"]
    distances = dict.fromkeys(COMPLEXITIES, 0.0)
    policies: dict[str, Policy] = {name: HedgeHI(HORIZON, 16, COST, complexity=name) for name in COMPLEXITIES}
    for title, trace in PAPER_TRACES.items():
        offloaded, accuracy = PAPER_TABLES[title, "Hedge-HI"]
        for name, record in simulate(policies, Lab().source(trace), HORIZON, RUNS, seed=1).items():
            ours = (record.offload_fraction[:, -1].mean(), 100 * record.accuracy[:, -1].mean())
            distances[name] += abs(ours[0] - offloaded) + abs(ours[1] - accuracy) / 100
            lines.append(f"| {name} | {title} | {ours[0]:.3f} | {offloaded:.3f} | {ours[1]:.2f} | {accuracy:.2f} |")
    lines += ["", "Sum of the absolute differences, shares and accuracies as fractions:", ""]
    lines += [f"- {name}: {distance:.3f}" for name, distance in sorted(distances.items(), key=lambda item: item[1])]
    head = f"# Presets of Hedge-HI\n\nWritten by `benchmarks/hedge_presets.py`; {RUNS} runs.\n\n"
    text = head + "\n".join(lines) + "\n"
    print(text)
    path = parser.parse_args().markdown
    if path:
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
