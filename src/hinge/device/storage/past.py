"""What a folder can be rolled back to, however much was learned since: what the last starts and merges began from."""

from collections.abc import Iterable
from typing import Any, NamedTuple

START, MERGE = "start", "merge"  # why a generation begins, unless it is only that a journal has become long
KEPT = 3  # of each: someone may restart a device, or merge once more, before it is noticed what it has learned


class Origin(NamedTuple):
    """A generation, as its journal ends, that a start (or a rollback) or a merge began from."""

    generation: int
    why: str


Past = tuple[Origin, ...]  # newest first


def remember(past: Past, generation: int | None, why: str | None) -> Past:
    """The past with one more, without those of its kind that are not kept any longer.

    >>> remember((Origin(4, "merge"), Origin(3, "start"), Origin(2, "start"), Origin(1, "start")), 7, "start")[1:]
    (Origin(generation=4, why='merge'), Origin(generation=3, why='start'), Origin(generation=2, why='start'))
    """
    if generation is None or why is None or any(origin.generation == generation for origin in past):
        return past
    longer, counts, kept = (Origin(generation, why), *past), dict[str, int](), list[Origin]()
    for origin in longer:
        counts[origin.why] = counts.get(origin.why, 0) + 1
        if counts[origin.why] <= KEPT:
            kept.append(origin)
    return tuple(kept)


def read_past(value: Iterable[Any]) -> Past:
    """The past as a snapshot has it; raises `ValueError` or `TypeError` where it is none."""
    past = tuple(Origin(*each) for each in value)
    if not all(isinstance(origin.generation, int) and origin.why in (START, MERGE) for origin in past):
        raise ValueError("no past")
    return past
