"""Finding in a folder the newest state that is whole."""

import re
from dataclasses import dataclass, field
from pathlib import Path

from hinge.device.storage.disk import Disk
from hinge.device.storage.journal import HEADER_SIZE, Contents, Record, read_journal
from hinge.device.storage.past import Past
from hinge.device.storage.replay import Divergence, replay
from hinge.device.storage.snapshot import Damaged, read_snapshot
from hinge.errors import HingeError, InvalidState, UnknownName
from hinge.policies.policy import Policy, State, restore

_NAME = re.compile(r"(snapshot|journal)-(\d{8,})\.(?:json|log)")


def snapshot_name(generation: int) -> str:
    """The file of a generation's snapshot.

    >>> snapshot_name(7), journal_name(7)
    ('snapshot-00000007.json', 'journal-00000007.log')
    """
    return f"snapshot-{generation:08d}.json"


def journal_name(generation: int) -> str:
    """The file of the journal that follows a generation's snapshot."""
    return f"journal-{generation:08d}.log"


@dataclass
class Found:
    """What was found on opening or rolling back, and what was lost; `str()` says it in words."""

    generation: int | None = None
    records: int = 0  # replayed from the journal
    notes: list[str] = field(default_factory=list)  # a sentence for each thing that was not as it should be
    damaged: list[str] = field(default_factory=list)  # files that are set aside
    began: str | None = None  # why the generation began
    past: Past = ()  # what it can be rolled back to

    def __str__(self) -> str:
        if self.generation is None:
            begin = "Nothing usable was found: the policy starts anew."
        else:
            records = "1 record" if self.records == 1 else f"{self.records} records"
            begin = f"Generation {self.generation} was found, and {records} after it."
        return " ".join([begin, *self.notes])


def names_in(disk: Disk, folder: Path) -> list[str]:
    """The files in a folder; raises `InvalidState` if it cannot be read."""
    try:
        return disk.names(folder)
    except OSError as error:
        raise InvalidState(f"{folder}: cannot be read: {error.strerror or error}") from error


def generations(names: list[str]) -> list[int]:
    """The generations that have a snapshot, newest first.

    >>> generations(["journal-00000003.log", "snapshot-00000002.json", "snapshot-00000004.json"])
    [4, 2]
    """
    matches = (_NAME.fullmatch(name) for name in names)
    return sorted((int(match[2]) for match in matches if match and match[1] == "snapshot"), reverse=True)


def highest(names: list[str]) -> int:
    """The highest generation that ever left a file, set aside or not: numbers are not used twice."""
    return max((int(match[2]) for name in names if (match := _NAME.match(name))), default=0)


def unused(names: list[str], kept: set[int | None]) -> list[str]:
    """Files of generations that are not kept, and snapshots that never got their name.

    >>> unused(["snapshot-00000001.json", "snapshot-00000002.json", "snapshot-00000003.json.tmp"], {2})
    ['snapshot-00000001.json', 'snapshot-00000003.json.tmp']
    """
    matches = [(name, _NAME.fullmatch(name.removesuffix(".tmp"))) for name in names]
    return [name for name, match in matches if match and (name.endswith(".tmp") or int(match[2]) not in kept)]


def recover(disk: Disk, folder: Path, names: list[str]) -> tuple[Policy | None, Found]:
    """The newest good snapshot with what follows it in its journal; None if there is no good one."""
    found, policy = Found(), None
    for generation in generations(names):
        policy = read_generation(disk, folder, generation, found)
        if policy:
            break
    _note_orphans(disk, folder, names, found)
    return policy, found


def read_generation(disk: Disk, folder: Path, generation: int, found: Found) -> Policy | None:
    """One generation as it was at the last good record of its journal; None if its snapshot is damaged."""
    name = snapshot_name(generation)
    try:
        held = read_snapshot(str(folder / name), disk.read(folder / name), generation)
        policy = _restored(folder / name, held.state)
    except (Damaged, OSError) as error:
        found.notes.append(f"{name} {_why(error)}: what it held and what followed it is lost.")
        found.damaged += [name, journal_name(generation)]
        return None
    found.generation, found.began, found.past = generation, held.began, held.past
    contents = read_records(disk, folder, generation)
    return _followed(policy, held.state, folder, journal_name(generation), contents, found)


def _followed(
    policy: Policy, state: State, folder: Path, name: str, contents: Contents, found: Found
) -> Policy:
    """The policy after the records of a journal, as far as they are good."""
    good, trouble, damaged = _replayed(policy, contents.records), contents.trouble, contents.damaged
    if good is not None:
        number, why = good
        trouble, damaged = f"does not follow its snapshot at record {number}: {why}", True
        contents = contents._replace(records=contents.records[:number])
        policy = _restored(folder / name, state)
        _replayed(policy, contents.records)
    found.records = len(contents.records)
    if trouble:
        found.notes.append(f"{name} {trouble}: what was learned from there on is lost.")
    if damaged:
        found.damaged.append(name)
    return policy


def _replayed(policy: Policy, records: list[Record]) -> tuple[int, str] | None:
    """Replay the records; says which of them does not follow, and why, if one does not."""
    for number, record in enumerate(records):
        try:
            replay(policy, record)
        except Divergence as error:
            return number, str(error)
    return None


def read_records(disk: Disk, folder: Path, generation: int) -> Contents:
    """What the journal of a generation holds; one that cannot be read holds nothing, and is damaged."""
    path = folder / journal_name(generation)
    try:
        return read_journal(str(path), disk.read(path), generation)
    except OSError as error:
        return Contents([], _why(error), True)


def _restored(path: Path, state: State) -> Policy:
    try:
        return restore(state)
    except UnknownName as error:
        raise InvalidState(f"{path}: {error}; import the module that defines it first") from error
    except (HingeError, TypeError, ValueError, LookupError) as error:
        raise Damaged(f"holds a state that cannot be: {error}") from error


def _note_orphans(disk: Disk, folder: Path, names: list[str], found: Found) -> None:
    """A journal without a snapshot: of a generation that a crash left unfinished, unless somebody took the snapshot."""
    for name in names:
        match = _NAME.fullmatch(name)
        if not match or match[1] != "journal" or snapshot_name(int(match[2])) in names:
            continue
        try:
            size = len(disk.read(folder / name))
        except OSError:
            size = HEADER_SIZE + 1
        if size > HEADER_SIZE and int(match[2]) > (found.generation or 0):
            found.notes.append(f"{name} has no snapshot, as if a crash had left it unfinished.")
            found.damaged.append(name)


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "is missing"
    return f"cannot be read ({error})" if isinstance(error, OSError) else str(error)
