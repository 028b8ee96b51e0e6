"""Simulation: the loops, compiled or not, the runs, and what they leave behind."""

from hinge.simulation.engine import Ray, Results, Threads, lineup, run_seeds, simulate
from hinge.simulation.results import Record, Run, checkpoints, interval

__all__ = ["Ray", "Record", "Results", "Run", "Threads", "checkpoints", "interval", "lineup", "run_seeds", "simulate"]
