"""Simulation: the loops, compiled or not, the runs, and what they leave behind."""

from hinge.simulation.engine import Results, run_seeds, simulate
from hinge.simulation.executors import Ray, Threads
from hinge.simulation.lineup import lineup
from hinge.simulation.record import Record, Run, checkpoints, interval

__all__ = ["Ray", "Record", "Results", "Run", "Threads", "checkpoints", "interval", "lineup", "run_seeds", "simulate"]
