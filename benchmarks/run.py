"""Run the benchmarks, each a section, and write what they print to pages.

    python -m benchmarks.run [SECTION …] [--quick] [--results FOLDER]

A section is a module here whose `report(quick)` returns lines of Markdown or tables. Servers run in processes of their
own on loopback; Triton, KServe and MLServer in environments that are made once (see tools/peers).
"""

import argparse
import os
import platform
import time
from importlib import import_module
from pathlib import Path

SECTIONS = {  # the module of each page
    **{name: name for name in ("decide", "simulate", "faults", "gateway")},
    **{f"gate-{name}": f"gates.{name}" for name in ("overhead", "round_trip", "servers", "memory")},
    "regret-thresholds": "regrets.thresholds",
    **{f"regret-{name}": f"regrets.{name}" for name in ("changes", "drift", "budgets", "targets", "forecasts", "warm")},
    **{f"regret-{name}": f"regrets.{name}" for name in ("logs", "traces", "pairs", "bins", "floor", "libraries")},
}


def page(section: str, quick: bool) -> str:
    """Run a section; return what it found, and on what machine."""
    load, begun = os.getloadavg()[0], time.monotonic()
    parts = import_module(f"benchmarks.{SECTIONS[section]}").report(quick)
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores, load {load:.1f} at the start"
    took = f"{time.monotonic() - begun:.0f} s"
    return "\n".join([*map(str, parts), f"Written by `python -m benchmarks.run {section}` in {took}; {machine}.", ""])


def main() -> None:
    """Run the sections that the command line names, or all."""
    parser = argparse.ArgumentParser(description="Run the benchmarks.")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"one of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--quick", action="store_true", help="few runs, to see that it works")
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write each section to a page in this folder")
    options = parser.parse_args()
    if unknown := set(options.sections) - SECTIONS.keys():
        parser.error(f"no such section: {', '.join(sorted(unknown))}")
    for section in options.sections or SECTIONS:
        text = page(section, options.quick)
        print(text, flush=True)
        if options.results:
            (options.results / f"{section.replace('_', '-')}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
