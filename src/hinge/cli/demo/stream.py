"""The images of the demo in the order of the trace that was recorded from them, at a pace that a person can follow."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from hinge import fashion
from hinge.bins import UniformBins
from hinge.cli.device.samples import Case
from hinge.simulation.sources import FixedCosts, InOrder
from hinge.traces import load_trace

BINS = 16
_SLOWEST_S = 0.15  # between the first two; 10 000 take a hundred times as long
_SHORTEST_S = 0.002  # sleeps that are worth their while

T = TypeVar("T")


class Row(NamedTuple):
    """What is recorded of a sample; the names are those of `hinge.simulation.sources.Samples`."""

    bin: int
    agreed: float
    cost: float
    gap: float
    local_right: bool
    remote_right: bool


def recorded(offload_cost: float) -> InOrder:
    """What both models said of the images, as the simulator sees it."""
    return InOrder(load_trace("fashion"), UniformBins(BINS), FixedCosts(offload_cost))


def rows(source: InOrder, samples: int) -> Iterator[Row]:
    """The record of each sample."""
    for chunk in source.stream(0, samples):
        columns = [[] if column is None else column.tolist() for column in chunk]
        yield from map(Row, *columns)


def cases(source: InOrder, samples: int) -> Iterator[Case]:
    """The images, with the true labels and what the remote said of them; from the first again after the last."""
    images, labels = fashion.labelled_images()
    remote = source.trace.remote.tolist()
    for number in range(samples):
        row = number % len(images)
        yield Case(images[row], fashion.CLASSES[labels[row]], fashion.CLASSES[int(remote[row])])


def paced(items: Iterable[T]) -> Iterator[T]:
    """The items slowly enough to be watched, and most slowly at first, while there is most to learn."""
    began = time.monotonic()
    for number, item in enumerate(items):
        left = _SLOWEST_S * number**0.5 - (time.monotonic() - began)
        if left > _SHORTEST_S:
            time.sleep(left)
        yield item
