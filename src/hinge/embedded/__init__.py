"""Hinge on a microcontroller: what writes the C library `hinge.h` into a folder, with a policy's configuration and what
build systems want beside it. Its twin in Python is in `hinge.embedded.twin`.
"""

from collections.abc import Sequence
from math import ceil
from pathlib import Path

from hinge import __version__
from hinge._checks import whole
from hinge.bins import Bins, EdgeBins, UniformBins
from hinge.embedded.twin import CLOCK_END, LATEST, LONGEST, MOST_BINS, SentinelTwin, Twin
from hinge.errors import InvalidType
from hinge.gate import Gate
from hinge.policies import ExpiryPolicy, Policy, Sentinel
from hinge.policies.sentinel import PARTS

C_FOLDER = Path(__file__).with_name("c")

_BUILD = (
    *("library.properties", "library.json", "CMakeLists.txt"),
    *("zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig"),
)
_BESIDE = {
    **{"src/hinge.h": "hinge.h", "src/hinge.c": "hinge.c", "examples/Gate/Gate.ino": "Gate.ino"},
    **dict(zip(_BUILD, _BUILD, strict=True)),
}


def export_c(twin: Twin, folder: Path, bins: Bins | None = None) -> list[Path]:
    """Write the library for a policy that goes on learning on the device, from what it knows already."""
    between = _bins(bins or UniformBins(twin.bins))
    if isinstance(twin, SentinelTwin):
        return _export_sentinel(twin, folder, between)
    table, numbers = twin.table, twin.constants
    settings = {**between, "RATE": f"{numbers.rate}u", "SHIFT": f"{numbers.shift}"}
    sums, columns = [twin.time], [table.expiry, table.offloads, table.agreements]
    if table.monotone:
        settings["MONOTONE"] = ""
    if twin.offload_cost is None:
        settings["LEARNED_COST"] = ""
        sums += [table.costs[1], table.costs[0]]
    else:
        settings["THRESHOLD"] = f"{numbers.threshold}u"
        columns += [table.own] if table.monotone else []
    cost = "learned" if twin.offload_cost is None else f"{twin.offload_cost:g}"
    config = _config(f"{twin.name}, alpha {twin.alpha:g}, offload cost {cost}", settings, sums, columns)
    return _write(folder, "learning/main.c", config)


def _export_sentinel(twin: SentinelTwin, folder: Path, between: dict[str, str]) -> list[Path]:
    table, numbers = twin.table, twin.constants
    settings = {**between, "SENTINEL": "", "BREAK_EVEN": f"{numbers.break_even!r}"}
    licences = [[min(samples, LONGEST - 1) for samples in column] for column in (table.left, table.granted)]
    wholes = (
        *(table.arrivals, table.offloads, table.agreements, table.recent_offloads, table.recent_agreements),
        *(table.weight, table.total, table.support, *([table.cut] if twin.bins >= 2 * PARTS else [])),
    )
    columns = [*licences, *([min(int(value), LATEST) for value in column] for column in wholes)]
    flags = [[i - first for i, first in enumerate(table.first)], [int(time > 0) for time in table.audited]]
    about = f"{twin.name}, offload cost {twin.offload_cost:g}"
    sums = [twin.time, min(table.since[0], CLOCK_END), *table.sums]
    if twin.bins > PARTS:
        sums.append(int(table.noticed[0]))
    config = _config(about, settings, sums, [*columns, table.evidence, table.suspicion, table.rising, *flags])
    return _write(folder, "learning/main.c", config)


def export_table(source: Policy | Gate, folder: Path) -> list[Path]:
    """Write the library for a device that only looks up what a policy, or a gate's, has learned elsewhere."""
    policy = source.policy if isinstance(source, Gate) else source
    if not isinstance(policy, ExpiryPolicy | Sentinel):
        raise TypeError(f"{policy.name}: has no table of expiries or countdowns")
    bins = whole(policy.name, "bins", policy.bins, 1, MOST_BINS)
    between = _bins(source.bins if isinstance(source, Gate) else UniformBins(bins))
    settings, sums = {**between, "TABLE_ONLY": ""}, list[int]()
    if isinstance(policy, Sentinel):
        settings["SENTINEL"] = ""
        countdowns = zip(*(policy.countdown(bin) for bin in range(bins)), strict=True)
        columns = [[min(samples, LATEST) for samples in column] for column in countdowns]
    else:
        # What has expired must stay so, also on a clock that has stopped before it.
        ends = [policy.expiry(bin) for bin in range(bins)]
        sums, columns = [policy.time], [[0 if end <= policy.time + 1 else min(end, LATEST) for end in ends]]
    return _write(folder, "table_only/main.c", _config(f"{policy.name}, as a table", settings, sums, columns))


def _bins(bins: Bins) -> dict[str, str]:
    """How confidences are sorted: the number of bins and, unless they are uniform, the last 1/256 below each edge."""
    if not isinstance(bins, UniformBins | EdgeBins):
        raise InvalidType("microcontroller", "bins", f"must be UniformBins or EdgeBins, got {bins!r:.200}")
    settings = {"BINS": f"{whole('microcontroller', 'bins', bins.bins, 1, MOST_BINS)}"}
    if isinstance(bins, EdgeBins) and bins.edges:
        settings["EDGES"] = f"{{{', '.join(str(ceil(256 * edge) - 1) for edge in bins.edges)}}}"
    return settings


def _write(folder: Path, example: str, config: str) -> list[Path]:
    sources = {**_BESIDE, "examples/plain/main.c": example}
    texts = {name: (C_FOLDER / source).read_text("utf-8") for name, source in sources.items()}
    texts["src/hinge_config.h"] = config
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{version}", __version__), "utf-8")
    return sorted(folder / name for name in texts)


def _literal(value: float) -> str:
    return f"{value}u" if isinstance(value, int) else f"{value!r}"  # an unsigned integer, or a double


def _config(about: str, settings: dict[str, str], sums: Sequence[float], columns: Sequence[Sequence[float]]) -> str:
    first = [min(time, CLOCK_END) for time in sums[:1]] + [*sums[1:]]
    lines = "\n".join(f"#define HINGE_{name} {value}".rstrip() for name, value in settings.items())
    rows = [f"{{{', '.join(map(_literal, row))}}}" for row in zip(*columns, strict=True)]
    bins = ", \\\n        ".join(rows)
    start = "".join(f"{_literal(value)}, " for value in first) + f"{{ \\\n        {bins} \\\n    }}"
    return f"""\
/* Hinge {__version__}: {about}. Written by `hinge export`. */
#ifndef HINGE_CONFIG_H
#define HINGE_CONFIG_H

{lines}

/* What a device knows at first: time and sums, if it keeps any, and a row for each bin. */
#define HINGE_START {{ \\
    {start} \\
}}

#endif
"""
