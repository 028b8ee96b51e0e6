"""The commands `export c` and `export table`."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from cyclopts import App

from hinge._files import write_whole
from hinge.cli import console, options
from hinge.cli.options import flag, option
from hinge.cli.settings import EDGES, UsageError
from hinge.cli.state import state_in
from hinge.embedded import bins_of, export_c, export_table
from hinge.errors import InvalidState, UnknownName
from hinge.gate import Gate, restore
from hinge.policies import HILCB, HILCBLite, Probation, build

Out = Annotated[Path, option("The folder to write to.")]
Replace = Annotated[bool, flag("Replace files of the same names that have another content.")]

_LEARNING = (Probation.name, HILCBLite.name, HILCB.name)

export_command = App(name="export")


@export_command.command(name="c")
def c_command(
    *,
    out: Out,
    policy: Annotated[str | None, option("'probation' (the default), 'hi-lcb' or 'hi-lcb-lite'.")] = None,
    bins: Annotated[str | None, option("How many, or the edges; without it 16.", metavar=EDGES)] = None,
    set: options.Set = (),
    offload_cost: Annotated[str | None, option("From 0 to 1; without it 0.5.")] = None,
    state: Annotated[Path | None, option("In place of these: a folder or exported file to start from.")] = None,
    replace: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Write Probation, HI-LCB or HI-LCB-lite as a C library that learns on the device.

    Beside the header: an example, and what Arduino, PlatformIO, Zephyr and CMake want.

    Example: hinge export c --bins 16 --offload-cost 0.5 --out firmware/hinge
    """
    given = {"policy": policy, "bins": bins, "set": set or None, "offload_cost": offload_cost}
    doubled = [name for name, value in given.items() if value is not None and state is not None]
    if doubled:
        option = "--" + doubled[0].replace("_", "-")
        raise UsageError(f"{option} is in the state already: give --state or parameters, not both")
    gate = _built(policy or Probation.name, bins or "16", set, offload_cost or "0.5") if state is None else _read(state)
    _warn_of_joined_bins("--bins" if state is None else str(state), gate)
    _write(_refusing(lambda folder: export_c(gate, folder)), out, replace, as_json)


@export_command.command(name="table")
def table_command(
    *,
    out: Out,
    state: Annotated[Path, option("A folder of states, or a file by 'hinge state export'.")],
    replace: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Write what a policy has learned as a table in C, for a device that does not learn.

    Example: hinge export table --state state.json --out firmware/hinge
    """
    gate = _read(state)
    _write(_refusing(lambda folder: export_table(gate, folder)), out, replace, as_json)


def _built(policy: str, bins: str, assigned: tuple[str, ...], offload_cost: str) -> Gate:
    cost, binning = options.offload_cost(offload_cost), options.binning(bins)
    if policy not in _LEARNING:
        only = "only probation, hi-lcb and hi-lcb-lite learn on a device"
        raise UsageError(f"--policy {policy}: {only}; for others, try 'hinge export table'")
    if not isinstance(cost, float):
        raise UsageError("--offload-cost learned: a device of this kind must be told a number")
    settings: dict[str, Any] = options.policy_settings([policy], assigned)
    return Gate(build(policy, bins=binning.bins, offload_cost=cost, **settings), bins=binning)


def _warn_of_joined_bins(owner: str, gate: Gate) -> None:
    """Say how many bins fall together, as a device knows an edge by 16 bits of its log-odds."""
    wanted, kept = len(gate.bins.spans()), len(bins_of(gate).parts)
    if kept < wanted:
        console.warn(f"{owner}: {wanted} bins become {kept}, as edges of 16 bits fall together")


def _refusing(export: Callable[[Path], list[Path]]) -> Callable[[Path], list[Path]]:
    """Return the same export; what cannot be exported is an error of the caller's."""

    def exported(folder: Path) -> list[Path]:
        try:
            return export(folder)
        except TypeError as error:
            raise UsageError(f"{error}") from error

    return exported


def _read(path: Path) -> Gate:
    try:
        found = restore(state_in(path))
        return found if isinstance(found, Gate) else Gate(found)
    except (ValueError, RecursionError) as error:
        unknown = error if isinstance(error, UnknownName) else error.__cause__
        if isinstance(unknown, UnknownName):
            own = "the table of a policy of your own is written in Python, by hinge.embedded.export_table"
            raise InvalidState(f"{path}: {unknown}; {own}") from error
        named = str(error).startswith(f"{path}: ")
        raise InvalidState(f"{error}" if named else f"{path}: holds no state: {error}") from error


def _write(export: Callable[[Path], list[Path]], out: Path, replace: bool, as_json: bool) -> None:
    """Write all files, or none if one of them is there already and may have been edited."""
    with TemporaryDirectory() as folder:
        files = {out / made.relative_to(folder): made.read_bytes() for made in export(Path(folder))}
    edited = [path for path, content in files.items() if path.exists() and path.read_bytes() != content]
    if edited and not replace:
        raise UsageError(f"{edited[0]} is there already, with another content: --replace writes over such files")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(files)
    changed = f", {len(edited)} of them replaced" if edited else ""
    told = f"{out}: {len(files)} files{changed}; begin with examples/plain/main.c"
    console.print_either(as_json, {"out": str(out), "files": [str(path) for path in files]}, told)
