"""What a source yields: samples in chunks, each with what it costs to accept and to offload."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

CHUNK = 16_384  # samples generated at a time: small enough for the cache, large enough to amortise numpy's calls

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Samples(NamedTuple):
    """A chunk of a stream, column by column."""

    bins: Wholes
    agreed: Reals  # 1 where local agrees with remote, 0 where not
    costs: Reals  # what an offload costs
    gaps: Reals  # expected cost of accepting minus that of offloading; the oracle accepts iff negative
    local_right: Flags | None = None  # against the true label, where there is one
    remote_right: Flags | None = None


class Source(Protocol):
    """Where samples come from. The same seed gives the same samples, whichever policy they are for."""

    bins: int

    def stream(self, seed: int, horizon: int) -> Iterator[Samples]:
        """Chunks of samples, `horizon` of them in all."""


def chunk_lengths(horizon: int) -> Iterator[tuple[int, int]]:
    """The first time and the length of each chunk.

    >>> list(chunk_lengths(20_000))
    [(1, 16384), (16385, 3616)]
    """
    for start in range(0, horizon, CHUNK):
        yield start + 1, min(CHUNK, horizon - start)


def generators(seed: int) -> tuple[np.random.Generator, np.random.Generator, np.random.Generator]:
    """Independent streams of chance for arrivals, agreement and costs: changing one leaves the others as they are."""
    arrivals, agreement, costs = np.random.SeedSequence(seed).spawn(3)
    return np.random.default_rng(arrivals), np.random.default_rng(agreement), np.random.default_rng(costs)
