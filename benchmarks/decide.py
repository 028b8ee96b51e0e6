"""What a decision costs: Hinge's policies, the paper's formulas taken literally, and other libraries, in one run.

    python benchmarks/decide.py [--quick] [--markdown FILE]

Prints times, their ratios to an empty method call, and at the end which of our goals they meet. It fails on nothing:
times depend on the machine, and the noise is printed beside them.
"""

import argparse
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for benchmarks.… and tests.…

from benchmarks.goals import goal_table
from benchmarks.plan import Plan
from benchmarks.tables import accepted_table, batch_table, mix_table, offload_table, peer_table


def machine() -> str:
    python = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs."
    method = (
        "Operations are timed in batches, all in turn, and the shortest batch counts, in CPU time.\n"
        "Noise: the median batch over the shortest, 1.00 on an idle machine."
    )
    return f"{python} {method}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what a decision costs.")
    parser.add_argument("--quick", action="store_true", help="fewer readings, and only 16 and 65536 bins")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables as a Markdown page")
    arguments = parser.parse_args()
    plan = Plan(arguments.quick)
    plan.run()
    tables = [make(plan) for make in (accepted_table, offload_table, mix_table, peer_table, batch_table, goal_table)]
    print("\n\n".join([machine(), *(table.text() for table in tables)]))
    if arguments.markdown:
        page = ["# What a decision costs", machine(), *(table.markdown() for table in tables)]
        arguments.markdown.write_text("\n\n".join(page) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
