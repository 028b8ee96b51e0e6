"""The commands `state show`, `state rollback`, `state export` and `state merge`."""

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table

from hinge.cli import console as show
from hinge.cli import options
from hinge.device.storage.at_rest import earlier, look, roll_back
from hinge.device.storage.folder_lock import holder
from hinge.device.storage.recovery import Found
from hinge.device.storage.store import Store
from hinge.errors import InvalidState
from hinge.policies import Policy
from hinge.policies.policy import State
from hinge.traces.files import replacing

Folder = Annotated[Path, typer.Argument(help="The folder given to a device as --state.", show_default=False)]

command = states = typer.Typer(
    help="Look at what a device has learned, take it elsewhere, or take it back.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@states.command("show")
def show_command(folder: Folder, json: options.Json = False) -> None:
    """Show what the policy in a folder knows, also while a device uses it.

    Example: hinge state show state/
    """
    policy, found = look(folder)
    figures = _figures(policy, found, holder(folder))
    figures["earlier"] = [each._asdict() for each in earlier(folder, found)]
    if json:
        show.print_json(figures)
        return
    show.out.print(f"{policy!r}", highlight=False, soft_wrap=True, markup=False)
    using = figures["in_use_by"]
    if using:
        show.out.print(f"in use by process {using}; as of its last offload", highlight=False)
    counts = f"{show.counted(policy.time, 'sample')}, {show.counted(policy.learned, 'offload')} learned from"
    others = f"{figures['pending']} waiting for feedback; evidence of {show.counted(figures['merged'], 'other device')}"
    show.out.print(f"{counts}, {others}", highlight=False, soft_wrap=True)
    show.out.print(str(found), highlight=False, soft_wrap=True, style="yellow" if found.notes else None)
    for each in figures["earlier"]:
        why = f", before a {each['before']}" if each["before"] else ""
        known = f"{show.counted(each['time'], 'sample')}, {show.counted(each['learned'], 'offload')} learned from"
        show.out.print(f"--to {each['generation']} goes back to {known}{why}", highlight=False, soft_wrap=True)
    _print_bins(figures["bins"])


@states.command("rollback")
def rollback_command(
    folder: Folder,
    to: Annotated[
        int | None, typer.Option(help="The generation to go back to, of those that 'hinge state show' lists.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Go back to before the last start or merge that changed anything; what is left stays in the folder, set aside.

    Example: hinge state rollback state/
    """
    look(folder)  # to lock a folder that holds no state would leave a file in it
    left, found = roll_back(folder, to=to)
    if json:
        show.print_json({"from": left, "to": found.generation, "records": found.records, "notes": found.notes})
        return
    show.out.print(f"From generation {left} back to before it. {found}", highlight=False, soft_wrap=True)


@states.command("export")
def export_command(
    folder: Folder,
    out: Annotated[Path | None, typer.Option(help="The file to write; without it, standard output.")] = None,
) -> None:
    """Write what the policy in a folder knows as JSON, for 'hinge state merge' or Policy.restore.

    Example: hinge state export state/ --out state.json
    """
    policy, _ = look(folder)
    text = json_format.dumps(policy.state(), allow_nan=False) + "\n"
    if out is None:
        print(text, end="")
        return
    with replacing(out) as stream:
        stream.write(text.encode())


@states.command("merge")
def merge_command(
    folder: Folder,
    others: Annotated[list[Path], typer.Argument(help="Files by 'hinge state export', or other folders.")],
    json: options.Json = False,
) -> None:
    """Add what other devices have learned: all of it, or if anything does not fit, nothing.

    Each device counts once, by the latest of its states, however often they are merged.

    Example: hinge state merge state/ kitchen.json hall.json
    """
    look(folder)  # to open a folder that is not there would make it
    given = {path: _state_in(path) for path in others}
    with Store(folder, seconds=None) as store:
        before = store.generation
        _check_all(store.policy, given)
        store.merge(*given.values())
        sources = sorted(store.policy.state()["merged"])
        figures = {"from": before, "to": store.generation, "sources": sources}
    if json:
        show.print_json(figures)
        return
    changed = f"generation {before} became {store.generation}" if before != store.generation else "nothing was new"
    devices = show.counted(len(sources), "other device")
    show.out.print(f"{folder}: {changed}; evidence of {devices}", highlight=False, soft_wrap=True)


def _figures(policy: Policy, found: Found, using: str | None) -> dict[str, Any]:
    state = policy.state()
    return {
        **{key: state[key] for key in ("policy", "parameters", "id", "time", "learned")},
        "pending": len(state["pending"]),
        "merged": len(state["merged"]),
        "generation": found.generation,
        "records": found.records,
        "notes": found.notes,
        "damaged": found.damaged,
        "in_use_by": using,
        "bins": [asdict(policy.explain(bin)) for bin in range(policy.bins)],
    }


def _print_bins(bins: list[dict[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("bin", "offloads", "agreement", "expiry", "samples left"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in bins:
        agreement = "" if each["agreement"] is None else f"{each['agreement']:.4f}"
        offloads = "" if each["offloads"] is None else f"{each['offloads']:g}"
        licensed = each["offload_probability"] == 0.0
        expiry = "for good" if licensed and each["expiry"] is None else each["expiry"] if licensed else "none"
        left = "" if each["samples_left"] is None or not licensed else str(each["samples_left"])
        table.add_row(str(each["bin"]), offloads, agreement, str(expiry), left)
    show.print_table(table)


def _state_in(path: Path) -> State:
    """The state in a file or in another folder."""
    if path.is_dir():
        return look(path)[0].state()
    content = path.read_bytes()
    try:
        state = json_format.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidState(f"{path}: holds no state: {error}") from error
    if not isinstance(state, dict):
        raise InvalidState(f"{path}: holds no state, but {str(state)[:40]!r}")
    return state


def _check_all(policy: Policy, given: dict[Path, State]) -> None:
    """Merge into a copy first, so that a refusal names its file."""
    trial = type(policy).restore(policy.state())
    for path, state in given.items():
        try:
            trial.merge(state)
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise InvalidState(f"{path}: {error}") from error
