"""Where a simulation's samples come from: traces, made-up settings, adversaries, and streams that drift."""

from hinge.sources.drifting import Drifting, Gradual, Periodic, Sudden
from hinge.sources.offload_costs import BimodalCosts, FixedCosts, LognormalCosts, OffloadCosts, RecordedCosts
from hinge.sources.replay import InOrder, Replay, Resampled, Shuffled
from hinge.sources.samples import CHUNK, Samples, Source
from hinge.sources.synthetic import (
    Adaptive,
    Scheduled,
    Synthetic,
    blocks,
    rare_first,
    sorted_down,
    sorted_up,
)

__all__ = [
    "CHUNK",
    "Adaptive",
    "BimodalCosts",
    "Drifting",
    "FixedCosts",
    "Gradual",
    "InOrder",
    "LognormalCosts",
    "OffloadCosts",
    "Periodic",
    "RecordedCosts",
    "Replay",
    "Resampled",
    "Samples",
    "Scheduled",
    "Shuffled",
    "Source",
    "Sudden",
    "Synthetic",
    "blocks",
    "rare_first",
    "sorted_down",
    "sorted_up",
]
