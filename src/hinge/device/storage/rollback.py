"""Going back: to which generation, and how those after it are set aside."""

from contextlib import suppress
from pathlib import Path

from hinge.device.storage.disk import Disk
from hinge.device.storage.past import Past
from hinge.device.storage.recovery import Found, generations, journal_name, names_in, read_generation, snapshot_name
from hinge.errors import InvalidState
from hinge.policies.policy import Policy, State

SUFFIX = ".rolled-back"


def find_earlier(
    disk: Disk, folder: Path, left: int | None, past: Past, present: State, to: int | None
) -> tuple[Policy, Found]:
    """The policy as it was before the last start or merge, or as the generation `to` ended, and what was found of it.

    A start that nothing followed is passed over: to go back to before it would change nothing.
    """
    held = [each for each in generations(names_in(disk, folder)) if left is not None and each < left]
    if to is not None and to not in held:
        known = ", ".join(map(str, held)) or "none"
        raise InvalidState(f"{folder}: cannot roll back to generation {to}; those before the present one: {known}")
    marked = [origin.generation for origin in past if origin.generation in held]
    for generation in [to] if to is not None else marked or held[:1]:
        found = Found()
        policy = read_generation(disk, folder, generation, found)
        if policy is None:
            raise InvalidState(f"{folder}: cannot roll back: {' '.join(found.notes).rstrip('.')}")
        if to is not None or policy.state() != present:
            return policy, found
    raise InvalidState(f"{folder}: cannot roll back: there is no previous generation{' that differs' if held else ''}")


def set_aside(disk: Disk, folder: Path, after: int, left: int) -> None:
    """Rename what follows a generation, the present one last: until then it counts, and then none of them does."""
    passed = [each for each in sorted(generations(names_in(disk, folder))) if after < each < left]
    for generation in passed:
        _rename(disk, folder, generation)
    if passed:
        disk.sync_folder(folder)
    _rename(disk, folder, left)
    disk.sync_folder(folder)


def _rename(disk: Disk, folder: Path, generation: int) -> None:
    # The snapshot goes first: a journal without one is nothing.
    for name in (snapshot_name(generation), journal_name(generation)):
        with suppress(FileNotFoundError):
            disk.rename(folder / name, folder / f"{name}{SUFFIX}")
