"""Hinge on a microcontroller: what writes the C library `hinge.h` into a folder, with a policy's configuration and what
build systems want beside it. Its twin in Python is in `hinge.embedded.twin`.
"""

from collections.abc import Sequence
from pathlib import Path

from hinge import __version__
from hinge.bins import UniformBins
from hinge.embedded.twin import DeviceBins, device_bins, table_of, twin_of
from hinge.gate import Gate
from hinge.policies import Policy, Probation

C_FOLDER = Path(__file__).with_name("c")

_BUILD = (
    *("library.properties", "library.json", "CMakeLists.txt"),
    *("zephyr/module.yml", "zephyr/CMakeLists.txt", "zephyr/Kconfig"),
)
_BESIDE = {
    **{"src/hinge.h": "hinge.h", "src/hinge.c": "hinge.c", "examples/Gate/Gate.ino": "Gate.ino"},
    **dict(zip(_BUILD, _BUILD, strict=True)),
}


def export_c(source: Policy | Gate, folder: Path) -> list[Path]:
    """Write the library for a policy, or a gate's, that goes on learning on the device, from what it knows already."""
    twin = twin_of(source)
    return _write(folder, "learning/main.c", twin.name, source, twin.settings, *twin.state)


def export_table(source: Policy | Gate, folder: Path) -> list[Path]:
    """Write the library for a device that only looks up what a policy, or a gate's, has learned elsewhere."""
    policy = source.policy if isinstance(source, Gate) else source
    sums, rows = table_of(source)
    settings = {
        "BINS": f"{len(rows)}",
        "TABLE_ONLY": "",
        **({"PROBATION": ""} if isinstance(policy, Probation) else {}),
    }
    return _write(folder, "table_only/main.c", f"{policy.name}, as a table", source, settings, sums, rows)


def bins_of(source: Policy | Gate) -> DeviceBins:
    """Return how a device sorts confidences that decides as a policy, or a gate's."""
    return device_bins(source.bins if isinstance(source, Gate) else UniformBins(source.bins))


def _write(
    folder: Path,
    example: str,
    about: str,
    source: Policy | Gate,
    settings: dict[str, str],
    sums: Sequence[int],
    rows: Sequence[Sequence[int]],
) -> list[Path]:
    edges = bins_of(source).edges
    if edges:
        settings = {**settings, "EDGES": f"{{{', '.join(map(str, edges))}}}"}
    sources = {**_BESIDE, "examples/plain/main.c": example}
    texts = {name: (C_FOLDER / source).read_text("utf-8") for name, source in sources.items()}
    texts["src/hinge_config.h"] = _config(about, settings, sums, rows)
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{version}", __version__), "utf-8")
    return sorted(folder / name for name in texts)


def _config(about: str, settings: dict[str, str], sums: Sequence[int], rows: Sequence[Sequence[int]]) -> str:
    lines = "\n".join(f"#define HINGE_{name} {value}".rstrip() for name, value in settings.items())
    bins = ", \\\n        ".join(f"{{{', '.join(f'{value}u' for value in row)}}}" for row in rows)
    first = "".join(f"{value}u, " for value in sums)
    return f"""\
/* Hinge {__version__}: {about}. Written by `hinge export`. */
#ifndef HINGE_CONFIG_H
#define HINGE_CONFIG_H

{lines}

/* What a device knows at first: time and sums, if it keeps any, and a row for each bin. */
#define HINGE_START {{ \\
    {first}{{ \\
        {bins} \\
    }} \\
}}

#endif
"""
