"""Simulation: sources of samples, the loops that policies run in, and the results."""

from hinge.simulation.engine import Threads, run_seeds, simulate
from hinge.simulation.results import Record, Results, Run, checkpoints, interval


__all__ = [
    "interval", "lineup", "recommend", "run_seeds", "simulate", "trade",
]
