"""Exponential weights over thresholds, written down as the papers put them: real intervals, weights exp(-η · loss).

A threshold θ in (0, 1] offloads iff the confidence is below it; a bin's confidence is its centre. Thresholds between
two neighbouring confidences behave alike, so an `Experts` is a list of intervals (low, high], each with a prior and a
loss. Weights are recomputed from the losses whenever they are asked for, without any shift, as the runs are short.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Experts:
    """Intervals of thresholds with their losses."""

    def __init__(self, edges: list[float], prior: list[float]) -> None:
        self.low, self.high = edges[:-1], edges[1:]
        self.prior, self.loss = list(prior), [0.0] * len(prior)

    def split(self, confidence: float) -> None:
        """Cut the interval around a confidence in two, which share its prior by their widths and inherit its loss."""
        for k, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
            if low < confidence < high:
                priors = [self.prior[k] * part / (high - low) for part in (confidence - low, high - confidence)]
                self.low[k : k + 1], self.high[k : k + 1] = [low, confidence], [confidence, high]
                self.prior[k : k + 1], self.loss[k : k + 1] = priors, [self.loss[k]] * 2
                return

    def offloading(self, confidence: float) -> NDArray[np.bool_]:
        return np.array(self.low) >= confidence

    def weights(self, rate: float) -> Floats:
        """Normalised prior · exp(-rate · loss)."""
        raw = np.array(self.prior) * np.exp(-rate * np.array(self.loss))
        return np.asarray(raw / raw.sum())

    def share(self, confidence: float, rate: float) -> float:
        """The share of the weight above a confidence."""
        return float(self.weights(rate)[self.offloading(confidence)].sum())

    def charge(self, confidence: float, offloading: float, accepting: float) -> None:
        """Add to every expert's loss what it would have paid."""
        losses = np.where(self.offloading(confidence), offloading, accepting)
        self.loss = (np.array(self.loss) + losses).tolist()


def centre(bin: int, bins: int) -> float:
    """The confidence of a bin."""
    return (bin + 0.5) / bins


def hedge_hi_rates(complexity: float, horizon: float) -> tuple[float, float]:
    """η = (2A²/(βT²))^(1/3) and ε = min(1, √(η/2β)), with β = 1."""
    rate = (2 * complexity**2 / horizon**2) ** (1 / 3)
    return rate, min(1.0, math.sqrt(rate / 2))
