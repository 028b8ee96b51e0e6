"""Every kind of source in one place, and every policy with a known and with a learned cost, for the tests beside."""

from functools import cache
from typing import Any

import numpy as np

from hinge import Gate, Policy, UniformBins
from hinge.policies import policy_names
from hinge.simulation import lineup, run_seeds
from hinge.simulation.evaluate import INFORMED
from hinge.simulation.sources import (
    BimodalPrice,
    ConstantPrice,
    Drifting,
    Gradual,
    InOrder,
    LognormalPrice,
    Periodic,
    Replay,
    Resampled,
    Samples,
    Scheduled,
    Shuffled,
    Source,
    Sudden,
    Synthetic,
)
from hinge.traces import Trace, load_trace

LATENCY = LognormalPrice(median=0.45, spread=0.4)


def trace_with_costs() -> Trace:
    """A shipped trace, with a cost recorded for every sample."""
    trace = load_trace("synthetic-cifar10")
    cost = np.random.default_rng(5).uniform(0.3, 0.7, len(trace))
    return Trace(trace.confidence, trace.local, trace.remote, trace.label, cost, name="with-costs")


def whole_stream(source: Source, horizon: int, seed: int = 0) -> Samples:
    """All samples of the first run at once, without what they say about the truth."""
    chunks = list(source.stream(run_seeds(seed, 1)[0], horizon))
    agreed, costs, gaps = (np.concatenate([np.asarray(chunk[i]) for chunk in chunks]) for i in (1, 2, 3))
    return Samples(np.concatenate([chunk.bins for chunk in chunks]), agreed, costs, gaps)


def trace_of_fractions() -> Trace:
    """Agreement anywhere from 0 to 1, which rises with confidence in the mean."""
    chance = np.random.default_rng(5)
    confidence = chance.random(4000)
    return Trace(confidence, agreed=np.clip(confidence + chance.uniform(-0.5, 0.5, 4000), 0.0, 1.0))


@cache
def sources(bins: int) -> dict[str, Source]:
    """One source of every kind; between them they draw every kind of cost."""
    trace, binning = load_trace("synthetic-cifar10"), UniformBins(bins)
    rising = np.linspace(0.1, 0.95, bins)
    weights = np.linspace(3.0, 1.0, bins)
    before = Synthetic(rising, ConstantPrice(0.5), weights)
    after = Synthetic(rising[::-1], BimodalPrice(0.2, 0.4), weights[::-1])
    return {
        "resampled": Resampled(trace, binning, ConstantPrice(0.5)),
        "resampled, recorded costs": Resampled(trace_with_costs(), binning),
        "in order": InOrder(trace, binning, BimodalPrice()),
        "shuffled": Shuffled(trace, binning, LATENCY),
        "fractions": Resampled(trace_of_fractions(), binning, BimodalPrice()),
        "synthetic": Synthetic(rising, BimodalPrice(), weights),
        "synthetic, lognormal costs": Synthetic(rising**2, LATENCY),
        "in a bad order": Scheduled(rising, LATENCY, weights, order=range(bins - 1, -1, -1)),
        "blocks": Scheduled(rising, BimodalPrice(0.1, 0.9), weights, order=range(bins), period=50 * bins),
        "sudden drift": Drifting(before, after, Sudden(at=0.4)),
        "gradual drift": Drifting(before, after, Gradual()),
        "periodic drift": Drifting(before, after, Periodic(cycles=3)),
    }


OWN: dict[str, dict[str, Any]] = {"threshold": {"threshold": 0.5}}  # settings that no source has


def variants() -> list[tuple[str, bool]]:
    """Every policy by name, with a known cost (False) and, where it learns one by itself, with a learned one (True)."""
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    learning = [name for name in policy_names() if name not in INFORMED and _learns(policy_for(name, True, source, 10))]
    return [(name, False) for name in policy_names()] + [(name, True) for name in learning]


def policy_for(name: str, learned: bool, source: Source, horizon: int) -> Policy:
    """The policy made ready for a source; on a drifting one for the setting that it starts from."""
    setting = source.before if isinstance(source, Drifting) else source
    if not isinstance(setting, Replay | Synthetic):
        raise TypeError(f"no policy can be fitted to {source!r}")
    cost = None if learned else setting.mean_offload_cost
    ready = lineup([name], setting, offload_cost=cost, horizon=horizon, **OWN.get(name, {}))[name]
    return ready.policy if isinstance(ready, Gate) else ready


def _learns(policy: Policy) -> bool:
    return "offload_cost" in policy.parameters and policy.offload_cost is None
