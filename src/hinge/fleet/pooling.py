"""Placeholder until robust pooling lands."""

from collections.abc import Sequence


def pool(
    offloads: Sequence[float], agreements: Sequence[float], others: Sequence[tuple[Sequence[float], Sequence[float]]]
) -> tuple[list[float], list[float]]:
    """Plain sums."""
    n, a = [0.0] * len(offloads), [0.0] * len(offloads)
    for seen, agreed in others:
        n = [x + y for x, y in zip(n, seen, strict=True)]
        a = [x + y for x, y in zip(a, agreed, strict=True)]
    return n, a
