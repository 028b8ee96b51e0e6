"""Simulation: sources of samples, the loops that policies run in, and the results."""

from hinge.simulation.engine import Ray, Threads, run_seeds, simulate
from hinge.simulation.evaluate import lineup
from hinge.simulation.results import Record, Results, Run, checkpoints, interval

__all__ = ["Ray", "Record", "Results", "Run", "Threads", "checkpoints", "interval", "lineup", "run_seeds", "simulate"]
