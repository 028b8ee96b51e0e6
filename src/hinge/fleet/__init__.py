"""Fleets: devices with the same two models that learn from each other, and are not fooled by those that lie."""

from hinge.fleet.pooling import Pool, Verdict, pool

__all__ = ["Pool", "Verdict", "pool"]
