"""The table of docs/attacks.md, from what runs of the same tests on two versions left behind.

    pytest $(python tools/attacks.py --tests) --junitxml=after.xml    # and the same on the older version: before.xml
    python tools/attacks.py docs/attacks.md --before before.xml --after after.xml

Tests record what they measure (pytest's record_property), so that a figure comes from the very attack that is tested.
"""

import argparse
import sys
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import NamedTuple

BEGIN, END = "<!-- attacks: written by tools/attacks.py -->", "<!-- end -->"
DEVICE, SERVER, STATE = (f"tests/attacks/test_{name}.py" for name in ("device", "server", "state"))


class Point(NamedTuple):
    """One thing that broke, and where its tests are: a file, and a part of their names."""

    id: str
    what: str
    file: str
    tests: str
    found: str  # by the attack on the first version


POINTS = (
    Point("H1", "pipelined requests", SERVER, "test_h1_", "400 clients: 103 → 6 565 MiB, 70 s"),
    Point("M1", "replies that are costly to read", DEVICE, "test_m1_", "0.56–1.2 s at a deadline of 0.2 s"),
    Point("M2", "fork", DEVICE, "test_m2_", "2 wrong answers of 1 200; 95 of 100 children hang"),
    Point("M3", "cancellation", DEVICE, "test_m3_", "115 of 200 cancelled loops go on"),
    Point("M4", "a log that is not read", SERVER, "test_m4_", "silent after 384 requests, SIGTERM ignored"),
    Point("M5", "remote to operator", DEVICE, "test_m5_", "raw escapes, 60 KiB a fault"),
    Point("M6", "interim responses", DEVICE, "test_m6_", "0.5 s at a deadline of 0.06 s; 103 taken as final"),
    Point("M7", "handshakes, few descriptors", SERVER, "test_m7_", "3 017 descriptors for 60 s; all locked out"),
    Point("M8", "impossible states", STATE, "test_m8_", "86–89 % of decisions changed"),
    Point("M9", "a vanished folder", STATE, "test_m9_", "`durable` stays True"),
    Point("M9", "a vanished file or lock", "tests/device/test_store.py", "test_files_that_vanish", "two writers"),
    Point("M10", "models that eat memory or time", SERVER, "test_m10_", "killed at 24 GB; SIGTERM ignored"),
    Point(
        "M10",
        "functions that call each other",
        "tests/models/test_onnx.py",
        "test_functions_that_call",
        "the load never ends",
    ),
    Point("M11", "answers in advance", DEVICE, "test_m11_", "50 of 100 taken"),
    Point("L1", "idle connections, slow bodies", SERVER, "test_l1_", "all locked out for 31 s"),
    Point("L2", "SIGHUP", "tests/server/test_server.py", "test_it_finishes_what_is_under_way", "6 of 6 requests lost"),
    Point("L3", "no thread can start", DEVICE, "test_l3_", "RuntimeError; 32 permits lost"),
    Point("L4", "no descriptor is left", DEVICE, "test_l4_", "the remote is never reached again"),
    Point("L5", "the first offload", DEVICE, "test_l5_", "64 ms at a deadline of 10 ms"),
    Point("L6", "hostile states", "tests/policies/test_policy_states.py", "test_", "OverflowError in 7 policies"),
    Point("L6", "damaged models", "tests/models/test_onnx.py", "test_damaged_models", "119 of 5 000 foreign errors"),
    Point("L6", "damaged files of all kinds", "tests/fuzz/test_parsers.py", "test_r9_", "4 of 50 000 Parquet files"),
    Point("L7", "flipped bits of an export", "tests/cli/test_state.py", "test_no_flipped_bit", "838 of 20 000 merged"),
    Point("L8", "devices that are dropped", STATE, "test_l8_", "100 threads, 200 descriptors of 100"),
    Point("L9", "rollback and budget", STATE, "test_l9_", "909 offloads of 200 allowed"),
    Point("L10", "costly bodies", SERVER, "test_l10_", "321 ms for a 400"),
    Point("L11", "large pictures", "tests/server/test_live.py", "test_what_is_no_report", "13 000² pixels accepted"),
    Point("L12", "Ctrl-C", DEVICE, "test_l12_", "3 of 8 permits lost"),
    Point("L13", "hung lookups", DEVICE, "test_l13_", "a thread each; asyncio.run ends 4–10 s late"),
    Point("L14", "CSV headers", "tests/traces/test_files.py", "test_a_header_of_many", "over 60 s"),
    Point("L14", "FIFOs", "tests/traces/test_files.py", "test_a_pipe_is_refused", "hangs"),
    Point("L14", "npz and Parquet bombs", "tests/traces/test_files.py", "unpacks_to_too_much", "5 GiB from 5 MB"),
    Point("L15", "a disk that fails", "tests/device/test_store.py", "test_a_failing_disk", "never durable again"),
    Point("L15", "`--metrics-port`", "tests/device/test_metrics.py", "test_l15_", "no limit, no check of Host"),
    Point("L15", "other sites, transfer codings", SERVER, "test_l15_", "a cross-site POST is run"),
    Point("S4", "pickle, packages without use", SERVER, "test_s4_", "`pickle.loads`; `uvicorn[standard]`"),
)


class Case(NamedTuple):
    """A test as it went."""

    failed: bool
    figures: tuple[tuple[str, str], ...]


def read(paths: list[Path]) -> dict[str, dict[str, Case]]:
    """The tests of JUnit files, by file and name; of one that ran twice, the last."""
    cases: dict[str, dict[str, Case]] = {}
    for path in paths:
        for case in ET.parse(path).iter("testcase"):
            if case.find("skipped") is not None:
                continue
            file = case.get("classname", "").replace(".", "/") + ".py"
            failed = case.find("failure") is not None or case.find("error") is not None
            figures = tuple((each.get("name", ""), each.get("value", "")) for each in case.iter("property"))
            cases.setdefault(file, {})[case.get("name", "")] = Case(failed, figures)
    return cases


def summary(point: Point, cases: dict[str, dict[str, Case]]) -> str:
    """How many of a point's tests failed, and the worst of each figure."""
    found = [case for name, case in cases.get(point.file, {}).items() if point.tests in name]
    if not found:
        return "not run"
    figures: dict[str, list[str]] = {}
    for case in found:
        for name, value in case.figures:
            figures.setdefault(name, []).append(value)
    failed = sum(case.failed for case in found)
    parts = [f"{failed} of {len(found)} fail" if failed else f"{len(found)} held"]
    return "; ".join(parts + [f"{name}: {worst(values)}" for name, values in figures.items()])


def worst(values: list[str]) -> str:
    """The least and the largest, where they are numbers.

    >>> worst(["0.5", "0.25"]), worst(["3"]), worst(["True", "True"])
    ('0.25–0.5', '3', 'True')
    """
    try:
        ordered = sorted(set(values), key=float)
    except ValueError:
        ordered = sorted(set(values))
        return " / ".join(ordered)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]}–{ordered[-1]}"


def table(before: dict[str, dict[str, Case]], after: dict[str, dict[str, Case]]) -> str:
    """All points."""
    lines = ["| | what | tests | the attack found | before | now |", "| --- | --- | --- | --- | --- | --- |"]
    for point in POINTS:
        tests = f"`{point.file.removeprefix('tests/')}::{point.tests}`"
        cells = [point.id, point.what, tests, point.found, summary(point, before), summary(point, after)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Write the table, or print the tests' files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="print the files of the tests, and nothing else")
    parser.add_argument("--before", nargs="+", type=Path, default=[])
    parser.add_argument("--after", nargs="+", type=Path, default=[])
    parser.add_argument("page", nargs="?", type=Path)
    arguments = parser.parse_args()
    if arguments.tests or arguments.page is None:
        print(*sorted({point.file for point in POINTS}))
        return 0
    start, _, rest = arguments.page.read_text("utf-8").partition(BEGIN)
    written = f"{BEGIN}\n\n{table(read(arguments.before), read(arguments.after))}\n\n"
    arguments.page.write_text(start + written + END + rest.partition(END)[2], "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
