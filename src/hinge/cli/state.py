"""The commands `state show`, `state set`, `state export` and `state merge`."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App

from hinge._files import replacing
from hinge.bins import restore_bins, span_text
from hinge.cli import console, options
from hinge.cli.options import option
from hinge.device.locked import copy_of
from hinge.device.store import CLOSED, Store, policy_state, read, restored
from hinge.errors import InvalidState
from hinge.gate import sealed, unsealed
from hinge.policies.policy import Policy, State

Folder = Annotated[Path, option("The folder given to a device as --state.")]

state_command = App(name="state")


@state_command.command(name="show")
def show_command(
    folder: Annotated[Path, option("The folder given to a device as --state; or an exported file.")],
    /,
    *,
    as_json: options.Json = False,
) -> None:
    """Show what the policy in a folder knows, also while a device uses it; or in a file by 'hinge state export'.

    Example: hinge state show state/
    """
    held, used_by = state_in(folder), None if folder.is_file() else read(folder).used_by
    state, gate = policy_state(held), held if "hinge_gate" in held else None
    policy = restored(folder, held)
    figures: dict[str, Any] = {
        **{key: state[key] for key in ("policy", "parameters", "id", "time", "learned")},
        "confidence": gate and gate.get("confidence"),
        "binning": gate and gate.get("bins"),
        "pending": len(state["pending"]),
        "merged": len(state["merged"] if gate is None else _sources(gate)),
        "in_use_by": used_by,
        "price": gate and gate.get("price"),
        "budget": gate["budget"][0] if gate and gate.get("budget") else None,
        "bins": [_explained(policy, bin, span) for bin, span in enumerate(_spans(gate, policy.bins))],
    }
    if as_json:
        console.print_json(figures)
        return
    console.say(f"{policy!r}")
    if used_by:
        console.say(f"in use by process {used_by}; as of its last write")
    if gate is not None:
        budget = "" if figures["budget"] is None else f", budget {figures['budget']:g}"
        console.say(f"confidence {json.dumps(gate['confidence']):.200}{budget}")
    seen = f"{console.counted(policy.time, 'sample')}, {console.counted(policy.learned, 'offload')} learned from"
    others = console.counted(figures["merged"], "other device")
    console.say(f"{seen}, {figures['pending']} waiting for feedback; evidence of {others}")
    rows = []
    for bin in figures["bins"]:
        agreement = "" if bin["agreement"] is None else f"{bin['agreement']:.4f}"
        offloads = "" if bin["offloads"] is None else f"{bin['offloads']:g}"
        licensed = bin["offload_probability"] == 0.0
        left = "none" if not licensed else "for good" if bin["samples_left"] is None else str(bin["samples_left"])
        where = "" if bin["from"] is None else f"{bin['from']:.9g} to {bin['to']:.9g}"
        rows.append((where or f"bin {bin['bin']}", offloads, agreement, left))
    console.print_rows(("confidence", "offloads", "agreement", "samples left"), rows)


def _spans(gate: State | None, bins: int) -> Sequence[tuple[float, float] | None]:
    """Return the confidences of each bin; none where a policy was saved alone, or with bins of one's own."""
    with suppress(InvalidState):
        return [None] * bins if gate is None else restore_bins(gate["bins"]).spans()
    return [None] * bins


def _explained(policy: Policy, bin: int, span: tuple[float, float] | None) -> dict[str, Any]:
    """Return what the policy knows of a bin, by the range of its confidences where that is known."""
    why = asdict(policy.explain(bin))
    low, high = span or (None, None)
    if span is not None:
        why["reason"] = f"Confidence {span_text(*span)}{why['reason'].removeprefix(f'Bin {bin}')}"
    return {**why, "from": low, "to": high}


@state_command.command(name="set")
def set_command(
    folder: Folder,
    settings: Annotated[tuple[str, ...], option("offload_cost=0.3, or alpha=… where the policy has one.")],
    /,
    *,
    as_json: options.Json = False,
) -> None:
    """Change the offload cost of a policy, or its alpha, and keep what it has learned.

    Give the device the same from then on. Where the cost is learned, or what was learned depends on it, as Hedge-HI's
    weights do, nothing is changed.

    Example: hinge state set state/ offload_cost=0.3
    """
    changes = options.assignments(settings)
    with _opened(folder) as store:
        store.change(**changes)
    console.print_either(as_json, {"parameters": store.policy.parameters}, f"{folder}: {store.policy!r}")


@state_command.command(name="export")
def export_command(
    folder: Folder, /, *, out: Annotated[Path | None, option("The file to write; without it, standard output.")] = None
) -> None:
    """Write what a folder holds as JSON with a checksum, for 'hinge state merge', 'hinge export' or hinge.restore.

    Example: hinge state export state/ --out state.json
    """
    text = json.dumps(sealed(read(folder).gate), allow_nan=False) + "\n"
    if out is None:
        print(text, end="")
        return
    with replacing(out) as stream:
        stream.write(text.encode())


@state_command.command(name="merge")
def merge_command(
    folder: Folder,
    others: Annotated[tuple[Path, ...], option("Files by 'hinge state export', or other folders.")],
    /,
    *,
    as_json: options.Json = False,
) -> None:
    """Add what other devices have learned: all of it, or if anything does not fit, nothing.

    Each device counts once, by the latest of its states, however often they are merged.

    Example: hinge state merge state/ kitchen.json hall.json
    """
    with _opened(folder) as store:
        given = {path: state_in(path) for path in others}
        trial = store.locked(copy_of)  # a copy first, so that a refusal names its file
        for path, state in given.items():
            try:
                trial.merge(state)
            except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
                raise InvalidState(f"{path}: {error}") from error
        store.merge(*given.values())
        sources = _sources(store.gate.state())
    devices = console.counted(len(sources), "other device")
    console.print_either(as_json, {"sources": sources}, f"{folder}: evidence of {devices}")


def _sources(gate: State) -> list[str]:
    """Return the ids of the gates whose evidence a state holds: of policies that count by bin, or of cells."""
    return sorted({*gate["policy"]["merged"], *gate["merged"]})


@contextmanager
def _opened(folder: Path) -> Iterator[Store]:
    """The store of a folder, to be changed; raises `InvalidState` if the change has not reached the disk."""
    if folder.is_file():
        raise InvalidState(f"{folder}: is a file, and no folder; 'hinge state merge FOLDER FILE' takes an exported one")
    read(folder)  # to open a folder that is not there would make it
    with Store(folder, seconds=None) as store:
        yield store
    if store.problem != CLOSED:
        raise InvalidState(f"{folder}: {store.problem}: what was to be changed is not on the disk")


def state_in(path: Path) -> State:
    """The state in a folder, or in a file by 'hinge state export'."""
    if path.is_dir():
        return read(path).gate
    content = path.read_bytes()
    try:
        state = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidState(f"{path}: holds no state: {error}") from error
    if not isinstance(state, dict):
        raise InvalidState(f"{path}: holds no state, but {str(state)[:40]!r}")
    if "hinge_gate" in state and "crc32" not in state:
        raise InvalidState(f"{path}: has no checksum, so that it was damaged or edited; export it again")
    try:
        return unsealed(state)
    except InvalidState as error:
        raise InvalidState(f"{path}: {error}") from error
