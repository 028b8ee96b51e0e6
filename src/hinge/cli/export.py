"""The commands `export c` and `export table`."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from cyclopts import App

from hinge._files import write_whole
from hinge.cli import console, options
from hinge.cli.options import flag, option
from hinge.cli.settings import EDGES, UsageError
from hinge.cli.state import state_in
from hinge.embedded import bins_of, export_c, export_table
from hinge.errors import InvalidState, UnknownName
from hinge.gate import Gate, restore
from hinge.policies import HILCB, HILCBLite, Policy, Probation, build

Out = Annotated[Path, option("The folder to write to.")]
Replace = Annotated[bool, flag("Replace files of the same names that have another content.")]

_LEARNING = (Probation.name, HILCB.name, HILCBLite.name)

export_command = App(name="export")


@export_command.command(name="c")
def c_command(
    *,
    out: Out,
    policy: Annotated[str | None, option("'probation' (the default), 'hi-lcb' or 'hi-lcb-lite'.")] = None,
    bins: Annotated[str | None, option("How many, or the edges; without it 16.", metavar=EDGES)] = None,
    set: options.Set = (),
    offload_cost: Annotated[float | None, option("Between 0 and 1; without it 0.5.")] = None,
    state: Annotated[Path | None, option("In place of these: a folder or exported file to start from.")] = None,
    replace: Replace = False,
    as_json: options.Json = False,
) -> None:
    """Write Probation, HI-LCB or HI-LCB-lite as a C library that learns on the device.

    Beside the header: an example, and what Arduino, PlatformIO, Zephyr and CMake want.

    Example: hinge export c --bins 16 --offload-cost 0.15 --out firmware/hinge
    """
    given = {"policy": policy, "bins": bins, "set": set or None, "offload_cost": offload_cost}
    doubled = [name for name, value in given.items() if value is not None and state is not None]
    if doubled:
        option = "--" + doubled[0].replace("_", "-")
        raise UsageError(f"{option} is in the state already: give --state or parameters, not both")
    source = _built(policy or Probation.name, bins or "16", set, offload_cost) if state is None else _read(state)
    _write(export_c, source, out, replace, as_json)


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
    _write(export_table, _read(state), out, replace, as_json)


def _built(policy: str, bins: str, set: tuple[str, ...], offload_cost: float | None) -> Gate:
    if policy not in _LEARNING:
        only = "only probation, hi-lcb and hi-lcb-lite learn on a device"
        raise UsageError(f"--policy {policy}: {only}; for others, try 'hinge export table'")
    binning, settings = options.binning(bins), options.policy_settings([policy], set)
    cost = 0.5 if offload_cost is None else offload_cost
    return Gate(build(policy, bins=binning.bins, offload_cost=cost, **settings), bins=binning)


def _read(path: Path) -> Policy | Gate:
    try:
        source: Policy | Gate = restore(state_in(path))
    except (ValueError, RecursionError) as error:
        unknown = error if isinstance(error, UnknownName) else error.__cause__
        if isinstance(unknown, UnknownName):
            own = "the table of a policy of your own is written in Python, by hinge.embedded.export_table"
            raise InvalidState(f"{path}: {unknown}; {own}") from error
        named = str(error).startswith(f"{path}: ")
        raise InvalidState(f"{error}" if named else f"{path}: holds no state: {error}") from error
    return source


def _write(
    export: Callable[[Policy | Gate, Path], list[Path]], source: Policy | Gate, out: Path, replace: bool, as_json: bool
) -> None:
    """Write all files, or none if one of them is there already and may have been edited."""
    with TemporaryDirectory() as folder:
        try:
            made = export(source, Path(folder))
        except TypeError as error:
            raise UsageError(f"{error}") from error
        files = {out / path.relative_to(folder): path.read_bytes() for path in made}
    edited = [path for path, content in files.items() if path.exists() and path.read_bytes() != content]
    if edited and not replace:
        raise UsageError(f"{edited[0]} is there already, with another content: --replace writes over such files")
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(files)
    parts = bins_of(source).parts
    joined = sum(map(len, parts)) - len(parts)
    if joined:
        console.warn(f"{joined} edges fall together with others in 16 bits of log-odds: {len(parts)} bins are left")
    changed = f", {len(edited)} of them replaced" if edited else ""
    told = f"{out}: {len(files)} files{changed}; begin with examples/plain/main.c"
    console.print_either(as_json, {"out": str(out), "files": [str(path) for path in files], "joined": joined}, told)
