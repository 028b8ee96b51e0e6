"""What counts of offloads and agreements say: the evidence for accepting, and whether a prediction still holds.

Plain functions on numbers, which numba compiles.
"""

from math import log


def divergence(p: float, q: float) -> float:
    """Return kl(p, q) = p ln(p/q) + (1-p) ln((1-p)/(1-q)) in nats, for q between 0 and 1.

    >>> round(divergence(0.75, 0.5), 4), divergence(0.3, 0.3), divergence(1.0, 0.5) == log(2.0)
    (0.1308, 0.0, True)
    """
    total = 0.0
    if p > 0.0:
        total += p * log(p / q)
    if p < 1.0:
        total += (1.0 - p) * log((1.0 - p) / (1.0 - q))
    return total


def predicted(offloads: float, agreements: float) -> float:
    """Return the agreement that a record predicts, half an agreement and half a disagreement added to it.

    >>> predicted(0, 0), predicted(3, 3)
    (0.5, 0.875)
    """
    return (agreements + 0.5) / (offloads + 1.0)


def support(offloads: float, agreements: float, q: float) -> float:
    """Return how far a record speaks for accepting at the break-even q, in nats; 0 if it does not.

    >>> round(support(10, 10, 0.5), 2), support(10, 5, 0.5)
    (5.59, 0.0)
    """
    p = predicted(offloads, agreements)
    if agreements <= q * offloads or p <= q:
        return 0.0
    return (offloads + 1.0) * divergence(p, q)


def page(total: float, agreed: float, changed: float, usual: float) -> float:
    """Return Page's sum after one more offload: of the log-likelihood ratio of two predictions, never below 0.

    >>> round(page(0.0, 0.0, 0.5, 0.9), 2), page(0.0, 1.0, 0.5, 0.9)
    (1.61, 0.0)
    """
    ratio = agreed * log(changed / usual) + (1.0 - agreed) * log((1.0 - changed) / (1.0 - usual))
    return max(total + ratio, 0.0)
