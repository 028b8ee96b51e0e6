"""The Kullback–Leibler divergence D_B(p ‖ q) between two Bernoulli distributions (Section V, proof of Theorem 3)."""

import math

from hinge.arguments import real


def bernoulli_kl(p: float, q: float) -> float:
    """D_B(p ‖ q) = p log(p/q) + (1 − p) log((1 − p)/(1 − q)), with 0 log 0 = 0.

    Infinite where q rules out what p allows: q = 0 < p or q = 1 > p. Never negative, and accurate for p near q,
    where the formula as written loses all its digits.

    >>> bernoulli_kl(0.5, 0.5), bernoulli_kl(0.5, 0.0), round(bernoulli_kl(0.75, 0.5), 6)
    (0.0, inf, 0.130812)
    """
    p = real("bernoulli_kl", "p", p, 0, 1)
    q = real("bernoulli_kl", "q", q, 0, 1)
    # The two linear parts q − p and p − q cancel, so adding them changes nothing but keeps every part ≥ 0.
    return _part(p, q) + _part(1 - p, 1 - q)


def _part(p: float, q: float) -> float:
    """p log(p/q) + q − p, one outcome's share of the divergence."""
    if p == 0:
        return q
    if q == 0:
        return math.inf
    x = (q - p) / p
    if abs(x) > 0.1:
        return p * (math.log(p) - math.log(q)) + q - p
    return p * x * x * sum((-x) ** k / (k + 2) for k in range(16))  # x − log(1 + x), which cancels for small x
