"""The commands `export c` and `export table`."""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from cyclopts import App

from hinge._files import write_whole
from hinge.bins import Bins as AnyBins
from hinge.bins import EdgeBins, restore_bins
from hinge.cli import console, options
from hinge.cli.options import flag, option
from hinge.cli.settings import EDGES, UsageError
from hinge.cli.state import state_in
from hinge.embedded import export_c, export_table
from hinge.embedded.twin import twin_of
from hinge.errors import InvalidState, UnknownName
from hinge.gate import Gate, policy_state
from hinge.policies import HILCB, ExpiryPolicy, HILCBLite, Sentinel, build, restore

Out = Annotated[Path, option("The folder to write to.")]
Replace = Annotated[bool, flag("Replace files of the same names that have another content.")]

_LEARNING = (HILCBLite.name, HILCB.name, Sentinel.name)

export_command = App(name="export")


@export_command.command(name="c")
def c_command(
    *,
    out: Out,
    policy: Annotated[str | None, option("'hi-lcb-lite' (the default), 'hi-lcb' or 'sentinel'.")] = None,
    bins: Annotated[str | None, option("How many, or the edges; without it 16.", metavar=EDGES)] = None,
    set: options.Set = (),
    offload_cost: Annotated[str | None, option("From 0 to 1, or 'learned'; without it 0.5.")] = None,
    state: Annotated[Path | None, option("In place of these: a folder or exported file to start from.")] = None,
    replace: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Write HI-LCB-lite, HI-LCB or Sentinel as a C library that learns on the device.

    Beside the header: an example, and what Arduino, PlatformIO, Zephyr and CMake want.

    Example: hinge export c --bins 16 --set alpha=0.52 --offload-cost 0.5 --out firmware/hinge
    """
    given = {"policy": policy, "bins": bins, "set": set or None, "offload_cost": offload_cost}
    doubled = [name for name, value in given.items() if value is not None and state is not None]
    if doubled:
        option = "--" + doubled[0].replace("_", "-")
        raise UsageError(f"{option} is in the state already: give --state or parameters, not both")
    gate = _built(policy or HILCBLite.name, bins or "16", set, offload_cost or "0.5") if state is None else _read(state)
    _warn_of_empty_bins("--bins" if state is None else str(state), gate.bins)
    try:
        twin = twin_of(gate.policy)
    except TypeError as error:
        raise UsageError(f"{error}") from error
    _write(lambda folder: export_c(twin, folder, gate.bins), out, replace, as_json)


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
    if not isinstance(gate.policy, ExpiryPolicy | Sentinel):
        raise UsageError(f"{gate.policy.name}: has no table of expiries or countdowns")
    _write(lambda folder: export_table(gate, folder), out, replace, as_json)


def _built(policy: str, bins: str, assigned: tuple[str, ...], offload_cost: str) -> Gate:
    cost, binning = options.offload_cost(offload_cost), options.binning(bins)
    if policy not in _LEARNING:
        only = "only sentinel, hi-lcb and hi-lcb-lite learn on a device"
        raise UsageError(f"--policy {policy}: {only}; for others, try 'hinge export table'")
    settings: dict[str, Any] = options.policy_settings([policy], assigned)
    known = cost if isinstance(cost, float) else None
    return Gate(build(policy, bins=binning.bins, offload_cost=known, **settings), bins=binning)


def _warn_of_empty_bins(owner: str, bins: AnyBins) -> None:
    """Say how many bins no confidence of 8 bits falls into."""
    edges = bins.edges if isinstance(bins, EdgeBins) else ()
    if empty := len(edges) - len({ceil(256 * edge) for edge in edges} - {256}):
        of = f"{empty} of {bins.bins} bins stay empty"
        console.warn(f"{owner}: {of}, as a confidence has 8 bits on the device: leave out edges closer than 1/256")


def _read(path: Path) -> Gate:
    try:
        state = state_in(path)
        bins = restore_bins(state["bins"]) if "hinge_gate" in state else None
        return Gate(restore(policy_state(state)), bins=bins)
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
