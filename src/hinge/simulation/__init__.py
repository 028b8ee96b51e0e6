"""Simulation: sources of samples, the loops that policies run in, and the results."""

from hinge.simulation.engine import Threads, run_seeds, simulate
from hinge.simulation.evaluate import Evaluation, evaluate, lineup
from hinge.simulation.results import Record, Results, Run, checkpoints, interval
from hinge.simulation.trade import Recommendation, Trade, recommend, trade

__all__ = [
    "Evaluation",
    "Recommendation",
    "Record",
    "Results",
    "Run",
    "Threads",
    "Trade",
    "checkpoints",
    "evaluate",
    "interval",
    "lineup",
    "recommend",
    "run_seeds",
    "simulate",
    "trade",
]
