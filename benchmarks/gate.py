"""The running system: what the gate adds, how it bears faults, how fast the server is, and what memory both take.

    python benchmarks/gate.py [--quick] [--only SECTION …] [--results FOLDER]

Each section is a module of benchmarks/gates/ and becomes a page in the results. Servers run in processes of their own
on loopback; Triton, KServe and MLServer in environments that are made once (see tools/peers).
"""

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for benchmarks.…, tests.… and tools.…

SECTIONS = ("overhead", "round_trip", "faults", "servers", "memory")


def report(section: str, quick: bool) -> str:
    """The tables of a section."""
    tables = import_module(f"benchmarks.gates.{section}").report(quick)
    return "\n\n".join([*(table.markdown() for table in tables), ""])


if __name__ == "__main__":
    from benchmarks.sections import run_sections

    run_sections("Measures Hinge's running system.", "gate", SECTIONS, report)
