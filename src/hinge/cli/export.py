"""The commands `export c` and `export table`."""

import json as json_format
from pathlib import Path
from typing import Annotated, Any

import typer

from hinge.cli import console, options
from hinge.cli.options import UsageError
from hinge.embedded.export import export_c, export_table
from hinge.embedded.twin import twin_of
from hinge.errors import InvalidState
from hinge.gate import policy_state
from hinge.policies import ExpiryPolicy, Policy, Sentinel, build, restore

Out = Annotated[Path, typer.Option(help="The folder to write to; files of the same names are replaced.")]
StateFile = Annotated[Path, typer.Option("--state", help="A file by 'hinge state export'.")]
Start = Annotated[
    Path | None,
    typer.Option("--state", help="A file by 'hinge state export', in place of parameters: start from what it knows."),
]
PolicyName = Annotated[
    str | None, typer.Option("--policy", help="'hi-lcb-lite' (the default), 'hi-lcb' or 'sentinel'.")
]
Bins = Annotated[int | None, typer.Option(min=1, help="How many bins confidences are sorted into; without it 16.")]
Alpha = Annotated[float | None, typer.Option(help="HI-LCB's exploration parameter; without it 0.52.")]
OffloadCost = Annotated[
    str | None, typer.Option(help="What an offload costs, from 0 to 1, or 'learned'; without it 0.5.")
]

DEFAULTS: dict[str, Any] = {"policy": "hi-lcb-lite", "bins": 16, "alpha": 0.52, "offload_cost": "0.5"}

command = typer.Typer(rich_markup_mode=None)


@command.command("c")
def c_command(
    out: Out,
    policy: PolicyName = None,
    bins: Bins = None,
    alpha: Alpha = None,
    offload_cost: OffloadCost = None,
    state: Start = None,
    json: options.Json = False,
) -> None:
    """Write HI-LCB-lite, HI-LCB or Sentinel as a C library that learns on the device.

    Beside the header: an example, and what Arduino, PlatformIO, Zephyr and CMake want.

    Example: hinge export c --bins 16 --alpha 0.52 --offload-cost 0.5 --out firmware/hinge
    """
    given = {"policy": policy, "bins": bins, "alpha": alpha, "offload_cost": offload_cost}
    chosen = _built(given) if state is None else _started(state, given)
    try:
        twin = twin_of(chosen)
    except TypeError as error:
        raise UsageError(f"{error}") from error
    _report(export_c(twin, out), out, json)


@command.command("table")
def table_command(out: Out, state: StateFile, json: options.Json = False) -> None:
    """Write what a policy has learned as a table in C, for a device that does not learn.

    Example: hinge export table --state state.json --out firmware/hinge
    """
    policy = _read(state)
    if not isinstance(policy, ExpiryPolicy | Sentinel):
        raise UsageError(f"{policy.name}: has no table of expiries or countdowns")
    _report(export_table(policy, out), out, json)


def _built(given: dict[str, Any]) -> Policy:
    settings = {name: default if given[name] is None else given[name] for name, default in DEFAULTS.items()}
    cost = options.offload_cost(settings["offload_cost"])
    settings["offload_cost"] = cost if isinstance(cost, float) else None
    return build(settings.pop("policy"), **settings)


def _started(state: Path, given: dict[str, Any]) -> Policy:
    doubled = [name for name, value in given.items() if value is not None]
    if doubled:
        option = "--" + doubled[0].replace("_", "-")
        raise UsageError(f"{option} is in the state already: give --state or parameters, not both")
    return _read(state)


def _read(path: Path) -> Policy:
    content = path.read_bytes()
    try:
        return restore(policy_state(json_format.loads(content)))
    except (ValueError, RecursionError) as error:
        raise InvalidState(f"{path}: holds no state: {error}") from error


def _report(files: list[Path], out: Path, json: bool) -> None:
    if json:
        console.print_json({"out": str(out), "files": [str(file) for file in files]})
        return
    console.say(f"{out}: {len(files)} files; begin with examples/plain/main.c")
