"""What all tests share: Hypothesis profiles, markers by folder, and a count of what was not tested here."""

import gc
import os
import re
import signal
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
MARKERS = {  # by folder or file; single tests elsewhere are marked where they stand
    "README.md": "docs",
    "docs": "docs",
    "tests/browser": "server",
    "tests/device/test_device_equals_simulator.py": "slow",
    "tests/docs": "docs",
    "tests/embedded": "embedded",
    "tests/faults": "slow",
    "tests/fuzz": "slow",
    "tests/gateway": "server",
    "tests/interop": "peers",
    "tests/paper": "slow",
    "tests/policies/test_policy_memory.py": "slow",
    "tests/server": "server",
    "tests/simulation/test_kernel_long_runs.py": "slow",
    "tests/simulation/test_engine_regret.py": "slow",
    "tests/test_examples.py": "slow",
}

# `fixed` tries the same examples every time, so that a failure is the change's; `make quick` a quarter of them, and
# `make test-random` others.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None)
settings.register_profile("quick", settings.get_profile("fixed"), max_examples=25)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("fixed")

# Every core has a worker at work: more threads of numpy's would wait for each other in busy loops, which takes up to
# eight times the processor time. Workers, and the processes that tests start, inherit this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell's background job ignores Ctrl-C, and so would every process that it starts: tests that interrupt one need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import folders whose marker is deselected: collecting them takes longer than many tests."""
    place = collection_path.relative_to(ROOT).as_posix() if collection_path.is_relative_to(ROOT) else ""
    return True if f"not {MARKERS.get(place)}" in (config.option.markexpr or "") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for marker in markers(item.path):
            item.add_marker(marker)


@cache
def markers(path: Path) -> list[str]:
    """Those of a file, and of the folders that it is in."""
    place = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
    return [marker for start, marker in MARKERS.items() if place == start or place.startswith(start + "/")]


def pytest_collection_finish() -> None:
    """Keep modules and tests, which stay, out of garbage collection: it takes a tenth of the time otherwise."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="module")
def frozen() -> None:
    """For modules that collect garbage often: what other tests have left is not looked through every time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Count what was skipped, and name the programs that were missing: CI installs all of them."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ())]
    missing: Counter[str] = Counter()
    for reason in reasons:
        found = re.search(r"not installed: ([^;]+)", reason)
        missing.update(found[1].split(", ") if found else [])
    if reasons:
        absent = ", ".join(f"{program} ({count} tests)" for program, count in sorted(missing.items()))
        terminalreporter.write_line(f"NOT TESTED HERE: {len(reasons)} tests; not installed: {absent or 'nothing'}")
