"""The tables of docs/promises.md, from the figures that a full run of the tests left behind.

HINGE_FIGURES=figures.json make test-faults test-fuzz
HINGE_FIGURES=figures.json python benchmarks/faults.py
python tools/promises.py figures.json docs/promises.md
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

Cases = dict[str, dict[str, Any]]
Figures = dict[str, Cases]

BEGIN, END = "<!-- {}: written by tools/promises.py -->", "<!-- end -->"


class Promise(NamedTuple):
    """What is promised, which tests show it, and what they found."""

    what: str
    tests: str
    found: Callable[[Figures], str]


def number(value: int) -> str:
    """With spaces between thousands.

    >>> number(12345)
    '12 345'
    """
    return f"{value:,}".replace(",", " ")


def total(cases: Cases, key: str, only: str = "") -> int:
    """The sum of a figure over cases, those whose name holds `only`."""
    return sum(case[key] for name, case in cases.items() if only in name and key in case)


def most(cases: Cases, key: str) -> Any:
    """The largest of a figure."""
    return max(case[key] for case in cases.values())


def answers(figures: Figures) -> str:
    """R1."""
    shielded, sent, switched = (figures[f"R1 {how}"] for how in ("shielded", "sent", "switched"))
    samples, really = total(shielded, "samples") + total(sent, "samples"), total(sent, "samples")
    changing, switches = total(switched, "samples"), total(switched, "switches")
    return (
        f"{number(samples)} samples under {len({*_faults(shielded)})} faults, {number(really)} of them with "
        "a breaker that never opens, "
        f"and {number(changing)} while faults changed {number(switches)} times: each had one answer, the right one; "
        "no exception came out (by fault: below)"
    )


def deadlines(figures: Figures) -> str:
    """R2."""
    stalled, opened = figures["R2 stalled"], figures["R2 open"]
    missed = [name for name, case in stalled.items() if not case["held"]]
    over = most(stalled, "over_ms")
    ratios = ", ".join(
        f"{case['over_local']:.2f} ×{' (MISSED)' if case['over_local'] > 1.1 else ''} ({name})"
        for name, case in opened.items()
    )
    verdict = f"; MISSED by {', '.join(missed)}" if missed else ""
    left = number(total(figures["R2"], "samples"))
    return (
        f"stalled: p99 at most {over:.1f} ms over local p99 + deadline{verdict}; breaker open, p99 by that of the "
        f"local model: {ratios}. {left} samples were left at the deadline, connecting included"
    )


def outages(figures: Figures) -> str:
    """R3."""
    cases = figures["R3"]
    costs = ", ".join(f"{name} {case['attempts']}" for name, case in cases.items())
    back = max(case["back_s"] or 0.0 for case in cases.values())
    seconds = most(cases, "outage_s")
    return f"attempts in {seconds} s at 10 samples/s: {costs}; answered by the remote again after {back:.1f} s at most"


def evidence(figures: Figures) -> str:
    """R4."""
    cases = figures["R4"]
    late = total(cases, "replies", "late")
    return f"{number(total(cases, 'replies') - late)} faulty and {number(late)} late replies: not one bit differs"


def crashes(figures: Figures) -> str:
    """R5."""
    case = figures["R5"]["devices"]
    return (
        f"{number(case['kills'])} kills, {number(case['acknowledged'])} updates acknowledged: {case['lost']} lost, "
        f"{case['corrupt']} states corrupt"
    )


def disks(figures: Figures) -> str:
    """R7."""
    cases = figures["R7"]
    return (
        f"{number(total(cases, 'answered'))} samples while the disk failed in {len(cases)} ways, all answered and "
        "learned; each time durable again by a new database"
    )


def orders(figures: Figures) -> str:
    """R8."""
    case = figures["R8"]["device"]
    return f"a device: {number(case['lives'])} lives of {number(case['steps'])} steps in all, bit by bit as its model"


def fuzzed(figures: Figures) -> str:
    """R9."""
    cases = figures["R9"]
    return (
        f"{number(total(cases, 'inputs'))} inputs over {len(cases)} parsers in {total(cases, 'seconds'):.0f} s: no "
        f"error but their own; memory grew by {number(most(cases, 'grown_kib'))} KiB at most (by parser: below)"
    )


def broken(figures: Figures) -> str:
    """R10."""
    return f"{len(figures['R10'])} kinds of damage: each time the backup served"


def budgets(figures: Figures) -> str:
    """S5."""
    cases = figures["S5"]
    used_up = sum(case["fullest"] == most(cases, "fullest") for case in cases.values())
    told = sum(case["alarms"] > 0 for case in cases.values())
    return (
        f"{number(total(cases, 'samples'))} samples over {len(cases)} liars and inputs: never more than "
        f"{most(cases, 'fullest')} offloads in any 1 000 samples, of 200 allowed; so many in {used_up} cases, "
        f"an alarm in {told}"
    )


def elsewhere(text: str) -> Callable[[Figures], str]:
    """A row without figures."""
    return lambda _: text


SERVER = elsewhere("see [server.md](server.md)")
POWER = elsewhere("after every write of a recorded run; all of it in `make test`")
FORMS = elsewhere("a folder of every form ever written is in `tests/device/folders`; all of it in `make test`")
ATTACKED = elsewhere("all of it in `make test`")

PROMISES = {
    "R1": Promise(
        "whatever the remote does, every sample gets one answer, from the local model, marked as such",
        "`faults/test_answers.py`",
        answers,
    ),
    "R2": Promise(
        "one deadline, end to end; an open breaker adds next to nothing",
        "`faults/test_deadlines.py`, `benchmarks/faults.py`",
        deadlines,
    ),
    "R3": Promise(
        "five failures, then one probe per interval, and back within one",
        "`faults/test_outages.py`, `device/test_resilience_outages.py` in simulated time",
        outages,
    ),
    "R4": Promise(
        "what failed, came late or made no sense teaches nothing; a cost that is learned includes what it cost",
        "`faults/test_evidence.py`",
        evidence,
    ),
    "R5": Promise(
        "kill -9 at any instant loses nothing that was acknowledged",
        "`faults/test_crashes.py`, `device/test_store.py`",
        crashes,
    ),
    "R6": Promise(
        "power loss at any write leaves a whole state, and no more is lost than stated",
        "`device/test_database.py`",
        POWER,
    ),
    "R7": Promise(
        "a disk that is full or fails stops nothing, and is not trusted again",
        "`faults/test_disks.py`, `device/test_store.py`, `attacks/test_state.py`",
        disks,
    ),
    "R8": Promise(
        "holds for events in any order; merging is commutative, associative and idempotent",
        "`faults/test_any_order.py`, `device/test_store_stateful.py`, `test_testing.py`",
        orders,
    ),
    "R9": Promise(
        "whatever bytes come, parsers read or refuse them, and keep nothing",
        "`fuzz/`, `server/test_openapi.py`",
        fuzzed,
    ),
    "R10": Promise(
        "a broken model or state file leaves the old one serving",
        "`faults/test_disks.py`, `device/test_database.py`, `attacks/test_server.py`",
        broken,
    ),
    "R11": Promise(
        "a state by any older version opens with all that was learned; one made with other bins, measure or policy "
        "is refused",
        "`device/test_database.py`, `device/test_journal.py`, `test_gate.py`",
        FORMS,
    ),
    "R12": Promise(
        "the deadline holds for remotes of the user's own; a slow local model delays no other answer",
        "`attacks/test_device.py`",
        ATTACKED,
    ),
    "S1": Promise("bound to this machine, or guarded by a token or TLS", "`server/`", SERVER),
    "S2": Promise("limits hold before anything is allocated", "`server/`, `attacks/test_server.py`", SERVER),
    "S3": Promise("names are looked up and nothing else; errors give nothing away", "`server/`, `attacks/`", SERVER),
    "S4": Promise("no data from other folders, no pickle, no archives", "`server/`, `attacks/test_server.py`", SERVER),
    "S5": Promise(
        "neither a lying remote nor crafted inputs get more offloads than the budget",
        "`faults/test_budgets.py`, `attacks/test_state.py`",
        budgets,
    ),
}


def _faults(cases: Iterable[str]) -> list[str]:
    return [name.split(",")[0] for name in cases]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """Rows as Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, ["---"] * len(header), *rows))


def promises(figures: Figures) -> str:
    """Promise by promise."""
    rows = ([name, each.what, each.tests, each.found(figures)] for name, each in PROMISES.items())
    return table(["", "promise", "tests (in `tests/`)", "a full run"], rows)


def faults(figures: Figures) -> str:
    """R1, fault by fault."""
    shielded, sent = figures["R1 shielded"], figures["R1 sent"]
    rows = []
    for fault in dict.fromkeys(_faults(shielded)):
        cells = [f"{number(shielded[f'{fault}, {kind}']['samples'])}" for kind in ("threads", "event loop")]
        tried = total(shielded, "attempts", f"{fault},")
        asked = [sent[f"{fault}, {how}"] for how in ("threads, binary", "event loop, binary")]
        json_too = [sent[f"{fault}, {how}"] for how in ("threads, JSON", "event loop, JSON")]
        reached = sum(case["seen"] for case in asked + json_too)
        kinds = sorted({kind for case in asked + json_too for kind in case["ends"]})
        samples = [number(case["samples"]) for case in asked]
        both = number(sum(case["samples"] for case in json_too))
        rows.append([fault, " + ".join(cells), number(tried), *samples, both, number(reached), ", ".join(kinds)])
    how = ["behind a breaker", "attempts", "sent by threads", "by an event loop", "as JSON", "reached the proxy"]
    return table(["fault", *how, "ended as"], rows)


def parsers(figures: Figures) -> str:
    """R9, parser by parser."""
    keys = ("inputs", "read", "refused", "grown_kib")
    rows = ([name, *(number(case[key]) for key in keys)] for name, case in figures["R9"].items())
    return table(["parser", "inputs", "read", "refused", "memory, KiB"], rows)


def written(page: str, name: str, text: str) -> str:
    """The page with another text between the markers of that name."""
    begin = BEGIN.format(name)
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def main(source: Path, page: Path) -> None:
    """Write the tables."""
    figures: Figures = json.loads(source.read_text(encoding="utf-8"))
    text = page.read_text(encoding="utf-8")
    for name, make in (("promises", promises), ("faults", faults), ("parsers", parsers)):
        text = written(text, name, make(figures))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
