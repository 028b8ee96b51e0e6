"""The running system: what the gate adds, how it bears faults, how fast the server is, and what memory both take.

    python benchmarks/gate.py [--quick] [--only SECTION …] [--results FOLDER]

Each section is a module of benchmarks/gates/ and becomes a page in the results. Servers run in processes of their own
on loopback; Triton, KServe and MLServer in environments that are made once (see tools/peers).
"""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for benchmarks.…, tests.… and tools.…

SECTIONS = ("overhead", "round_trip", "faults", "servers", "memory")


def page(section: str, quick: bool) -> str:
    """A section's report, and what it took."""
    begun = time.monotonic()
    tables = import_module(f"benchmarks.gates.{section}").report(quick)
    made = f"Written by `benchmarks/gate.py --only {section}` in {time.monotonic() - begun:.0f} s."
    return "\n\n".join([*(table.markdown() for table in tables), made, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures Hinge's running system.")
    parser.add_argument("--quick", action="store_true", help="few readings, to see that it works")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS, metavar="SECTION", help=str(SECTIONS))
    parser.add_argument("--results", type=Path, metavar="FOLDER", help="write each section to a page in this folder")
    options = parser.parse_args()
    for section in options.only:
        text = page(section, options.quick)
        print(text, flush=True)
        if options.results:
            (options.results / f"gate-{section.replace('_', '-')}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
