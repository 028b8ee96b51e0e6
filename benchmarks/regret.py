"""Regret, on real traces, in random and hostile settings, against the floor, against others, and in a changing world.

    python benchmarks/regret.py [--quick] [--only SECTION …] [--results FOLDER]

Each section is a module of benchmarks/regrets/ and becomes a page in the results.
"""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for benchmarks.…

SECTIONS = ("traces", "settings", "floor", "variants", "libraries", "drift", "dips", "budgets", "classes", "warm")


def page(section: str, quick: bool) -> str:
    """A section's report, and what it took."""
    begun = time.monotonic()
    lines = import_module(f"benchmarks.regrets.{section}").report(quick)
    made = f"Written by `benchmarks/regret.py --only {section}` in {time.monotonic() - begun:.0f} s."
    return "\n".join([*lines, made, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures the regret of Hinge's policies.")
    parser.add_argument("--quick", action="store_true", help="few runs, in seconds, to see that it works")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION", help=str(SECTIONS))
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write each section to a page in this folder")
    options = parser.parse_args()
    for section in options.only:
        text = page(section, options.quick)
        print(text, flush=True)
        if options.results:
            (options.results / f"regret-{section}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
