"""Timing on a shared machine: every probe is measured again and again, all of them in turn.

A probe runs a batch of operations and says how long they took. What other programs take from the machine only ever
adds time, so the shortest of many readings is the price; the median over the shortest is the noise beside it.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter, thread_time
from typing import NamedTuple

clock = perf_counter if sys.platform == "win32" else thread_time  # leaves out what other programs do; coarse on Windows
ENOUGH = 1_000  # samples in a batch for rare and expensive ones to be in it
GROUP = 12  # probes between two readings of the references


class Reading(NamedTuple):
    """A batch: its time, the operations that are counted, and the accepted samples that went along uncounted."""

    seconds: float
    operations: int
    accepted: int = 0


class Probe:
    """One operation to be timed, in batches of a size that is found at the first reading."""

    def __init__(self, run: Callable[[int], Reading], least: int = 1, most: int = 20_000, longer: float = 1.0) -> None:
        self.run, self.most, self.longer = run, most, longer
        self.size = least
        self.readings: list[Reading] = []
        self.spent_s = 0.0

    def calibrate(self, batch_s: float) -> None:
        """Grow the batch until it takes long enough to be timed; the readings of this warm-up are dropped."""
        batch_s *= self.longer
        while True:
            seconds = self.run(self.size).seconds
            if seconds >= batch_s / 2 or self.size >= self.most:
                return
            growth = batch_s / seconds if seconds > 0 else 10.0
            self.size = min(self.most, max(self.size + 1, int(self.size * min(10.0, growth))))

    def measure(self) -> None:
        gc.disable()  # as timeit does
        try:
            reading = self.run(self.size)
        finally:
            gc.enable()
        self.readings.append(reading)
        self.spent_s += reading.seconds

    def _each_ns(self, accepted_ns: float) -> list[float]:
        counted = [reading for reading in self.readings if reading.operations]
        return [(r.seconds * 1e9 - r.accepted * accepted_ns) / r.operations for r in counted]

    def best_ns(self, accepted_ns: float = 0.0) -> float:
        """Nanoseconds per operation in the fastest batch."""
        return min(self._each_ns(accepted_ns), default=float("nan"))

    def typical_ns(self, accepted_ns: float = 0.0) -> float:
        """The same for operations that differ: where batches are too small to be alike, the median one."""
        each = self._each_ns(accepted_ns)
        return median(each) if each and self.size < ENOUGH else self.best_ns(accepted_ns)

    def noise(self) -> float:
        """Median over minimum of the readings: 1.0 on an idle machine."""
        each = self._each_ns(0.0)
        return median(each) / min(each) if each else float("nan")


def interleave(
    references: Sequence[Probe], probes: Sequence[Probe], rounds: int, batch_s: float, most_s: float
) -> None:
    """Measure all probes in turn, `rounds` times, and the references between every few of them.

    A probe whose single operation is slow stops after `most_s` seconds, but not before its third reading.
    """
    for probe in [*references, *probes]:
        probe.calibrate(batch_s)
    for _ in range(rounds):
        for start in range(0, len(probes), GROUP):
            for probe in references:
                probe.measure()
            for probe in probes[start : start + GROUP]:
                if len(probe.readings) < 3 or probe.spent_s < most_s:
                    probe.measure()
