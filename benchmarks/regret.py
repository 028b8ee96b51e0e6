"""Regret, on real traces, in random and hostile settings, against the floor, against others, and in a changing world.

    python benchmarks/regret.py [--quick] [--only SECTION …] [--results FOLDER]

Each section is a module of benchmarks/regrets/ and becomes a page in the results.
"""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for benchmarks.…

SECTIONS = (
    *("changes", "fine", "traces", "settings", "floor", "early", "variants", "libraries"),
    *("drift", "dips", "budgets", "targets", "classes", "warm", "forecasts", "truth"),
    *("weak", "logs", "flat_logs", "pairs", "bins", "nothing"),
)


def report(section: str, quick: bool) -> str:
    """The lines of a section."""
    lines: list[str] = import_module(f"benchmarks.regrets.{section}").report(quick)
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    from benchmarks.sections import run_sections

    run_sections("Measures the regret of Hinge's policies.", "regret", SECTIONS, report)
