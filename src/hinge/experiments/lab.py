"""The simulations behind the figures: each is run once, whoever asks for it.

The paper's settings are |Φ| = 16, T = 100 000, 100 runs, α = 0.52, and offload cost 0.5, known or drawn from 0.45 and
0.55.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hinge.bins import UniformBins
from hinge.policies import HILCB, HedgeHI, HILCBLite, Policy
from hinge.simulation import Results, interval, simulate
from hinge.sources import BimodalCosts, FixedCosts, OffloadCosts, Resampled, Source
from hinge.theory import Setting
from hinge.traces import load_trace

Progress = Callable[[str], None]

PAPER_TRACES = {"ImageNet1k": "imagenet-mobilenet", "CIFAR-10": "cifar10-vgg16", "CIFAR-100": "cifar100-resnet50"}
ALPHA = 0.52
COST = 0.5


@dataclass(frozen=True)
class Scale:
    """How large the experiments are."""

    runs: int = 100
    horizon: int = 100_000
    costs: tuple[float, ...] = tuple(round(0.1 * step, 1) for step in range(11))
    alphas: tuple[float, ...] = (0.52, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5)
    long_horizon: int = 10_000_000
    long_runs: int = 5
    seed: int = 2026


FULL = Scale()
QUICK = Scale(runs=20, costs=(0.0, 0.2, 0.5, 0.8, 1.0), alphas=(0.52, 1.0), long_horizon=1_000_000)


class Lab:
    """Runs simulations at a scale, and remembers what they found."""

    def __init__(self, scale: Scale = FULL, progress: Progress | None = None) -> None:
        self.scale, self._progress = scale, progress
        self._found: dict[tuple[object, ...], Results] = {}
        self._times: dict[str, float] = {}

    def source(self, trace: str, costs: OffloadCosts | None = None, bins: int = 16) -> Resampled:
        """A trace, drawn with replacement."""
        return Resampled(load_trace(trace), UniformBins(bins), costs or FixedCosts(COST))

    def setting(self, trace: str) -> Setting:
        """What the theory needs to know about a trace, at the paper's known cost."""
        source = self.source(trace)
        return Setting(source.agreement.tolist(), source.mean_offload_cost, source.weights.tolist())

    def known(self, trace: str, cost: float = COST, bins: int = 16) -> Results:
        """The paper's policies with a known cost."""
        policies = paper_policies(bins, cost, self.scale.horizon)
        return self._run(("known", trace, cost, bins), policies, self.source(trace, FixedCosts(cost), bins))

    def learned(self, trace: str) -> Results:
        """The paper's policies with costs of 0.45 or 0.55, which they do not know."""
        policies = paper_policies(16, None, self.scale.horizon)
        return self._run(("learned", trace), policies, self.source(trace, BimodalCosts()))

    def by_alpha(self, trace: str, alpha: float) -> Results:
        """HI-LCB and HI-LCB-lite at another exploration parameter."""
        policies: dict[str, Policy] = {
            "HI-LCB": HILCB(16, alpha, COST),
            "HI-LCB-lite": HILCBLite(16, alpha, COST),
        }
        return self._run(("alpha", trace, alpha), policies, self.source(trace))

    def long(self, trace: str) -> Results:
        """A horizon a hundred times the paper's."""
        scale = self.scale
        policies = paper_policies(16, COST, scale.long_horizon)
        return self._run(("long", trace), policies, self.source(trace), scale.long_horizon, scale.long_runs)

    def timed(self, name: str, policy: Policy, measure: Callable[[Policy], float]) -> float:
        """How long a policy takes, measured once."""
        if name not in self._times:
            self._times[name] = measure(policy)
        return self._times[name]

    def on(self, name: str, source: Source, policies: dict[str, Policy]) -> Results:
        """Any other comparison."""
        return self._run(("on", name), policies, source)

    def _run(
        self,
        key: tuple[object, ...],
        policies: dict[str, Policy],
        source: Source,
        horizon: int | None = None,
        runs: int | None = None,
    ) -> Results:
        if key not in self._found:
            if self._progress:
                self._progress(" ".join(map(str, key)))
            scale = self.scale
            results = simulate(policies, source, horizon or scale.horizon, runs or scale.runs, scale.seed)
            if not results.complete:
                raise KeyboardInterrupt
            self._found[key] = results
        return self._found[key]


def paper_policies(bins: int, cost: float | None, horizon: int) -> dict[str, Policy]:
    """HI-LCB and HI-LCB-lite at α = 0.52 and 1, and Hedge-HI, as in Figure 4."""
    return {
        "HI-LCB, α = 0.52": HILCB(bins, ALPHA, cost),
        "HI-LCB, α = 1": HILCB(bins, 1.0, cost),
        "HI-LCB-lite, α = 0.52": HILCBLite(bins, ALPHA, cost),
        "HI-LCB-lite, α = 1": HILCBLite(bins, 1.0, cost),
        "Hedge-HI": HedgeHI(horizon, bins, cost),
    }


def mean_and_half(values: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Mean over runs and half-width of its 95 % interval, at each checkpoint."""
    pairs = [interval(values[:, position]) for position in range(values.shape[1])]
    return [mean for mean, _ in pairs], [half for _, half in pairs]
