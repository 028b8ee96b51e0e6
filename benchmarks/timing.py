"""Timing on a shared machine: batches of operations, all in turn, in processor time; the shortest of each counts.

What other programs take from the machine only adds time, and meets all operations alike where they take turns. pyperf
times one benchmark after the other, each in processes of its own, by the mean of wall time: on a busy machine the
ratios of its figures say more about the minute than about the code.
"""

import gc
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from time import thread_time
from typing import Any, NamedTuple

Batch = Callable[[], float]  # does its operations, and says how many seconds one of them took


class Timed(NamedTuple):
    """The time of an operation in its shortest batch, and the median batch over that: 1.0 on an idle machine."""

    ns: float
    noise: float


def in_turn(batches: Mapping[str, Batch], rounds: int) -> dict[str, Timed]:
    """Run all batches `rounds` times, in turn, after one round to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in batches}
    for _ in range(rounds + 1):
        for name, batch in batches.items():
            gc.disable()  # as timeit does
            try:
                seconds[name].append(batch())
            finally:
                gc.enable()
    kept = {name: found[1:] for name, found in seconds.items()}
    return {name: Timed(1e9 * min(found), median(found) / min(found)) for name, found in kept.items()}


def calls(function: Callable[[Any], object], arguments: Sequence[Any]) -> Batch:
    """Return a batch that calls a function with each of the arguments."""

    def batch() -> float:
        call = function
        began = thread_time()
        for argument in arguments:
            call(argument)
        return (thread_time() - began) / len(arguments)

    return batch


def whole(work: Callable[[], object], operations: int = 1) -> Batch:
    """Return a batch that does some work, which is so many operations."""

    def batch() -> float:
        began = thread_time()
        work()
        return (thread_time() - began) / operations

    return batch


def noisiest(timed: Iterable[Timed]) -> str:
    """Return a note on the largest noise."""
    return f"Noise, the median batch over the shortest: {max(each.noise for each in timed):.2f} at most."
