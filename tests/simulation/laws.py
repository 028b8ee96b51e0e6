"""What the tests of the sources share: whole streams, and how far chance may stray."""

import numpy as np
from numpy.typing import NDArray

from hinge.simulation.sources import Samples, Source

SIGMAS = 5.0  # a fair check fails once in 1.7 million


def whole(source: Source, horizon: int, seed: int = 1) -> Samples:
    """All samples of a stream at once, without what they say about the truth."""
    chunks = list(source.stream(seed, horizon))
    agreed, costs, gaps = (np.concatenate([np.asarray(chunk[i]) for chunk in chunks]) for i in (1, 2, 3))
    return Samples(np.concatenate([chunk.bins for chunk in chunks]), agreed, costs, gaps)


def follows(successes: NDArray[np.float64], trials: NDArray[np.float64], chance: NDArray[np.float64]) -> bool:
    """Whether counts are those of coins, each within SIGMAS standard deviations of its mean."""
    spread = np.sqrt(trials * chance * (1 - chance))
    return bool((np.abs(successes - trials * chance) <= SIGMAS * spread + 1e-9).all())


def agreement_follows(samples: Samples, chance: NDArray[np.float64]) -> bool:
    """Whether local agrees in each bin as often as it should."""
    bins = len(chance)
    trials = np.bincount(samples.bins, minlength=bins).astype(float)
    return follows(np.bincount(samples.bins, samples.agreed, bins).astype(float), trials, chance)


def arrivals_follow(samples: Samples, weights: NDArray[np.float64]) -> bool:
    """Whether each bin arrives as often as it should."""
    counts = np.bincount(samples.bins, minlength=len(weights)).astype(float)
    return follows(counts, np.full(len(weights), float(len(samples.bins))), weights)


def mean_follows(values: NDArray[np.float64], mean: float) -> bool:
    """Whether an average is within SIGMAS standard errors of the mean it should have."""
    error = values.std() / np.sqrt(len(values))
    return bool(abs(values.mean() - mean) <= SIGMAS * error + 1e-12)
