"""PLACEHOLDER"""

from collections.abc import Iterable

import numpy as np

from hinge.policies import Policy, build, policy_class, policy_names
from hinge.simulation.sources import Replay, Synthetic

FITTED = ("offline", "logistic")  # fitted in hindsight, on the very samples they are then tried on
KNOWING = ("oracle", "static", *FITTED)  # need a number for the cost, and cannot learn it


def lineup(
    names: Iterable[str],
    source: Replay | Synthetic,
    *,
    offload_cost: float | None,
    horizon: int,
    alpha: float = 0.52,
    seed: int = 0,
) -> dict[str, Policy]:
    """The policies of these names for a source; `all` stands for every policy that is free to offload at its cost.

    The oracle is told the source's agreement and mean cost. The modules that are fitted on labelled history (offline,
    logistic) are fitted on the source's own bins, in hindsight: they show the best that such a module could do.

    >>> from hinge.simulation.sources import FixedCosts
    >>> source = Synthetic([0.2, 0.9], FixedCosts(0.5))
    >>> lineup(["hi-lcb", "oracle"], source, offload_cost=0.5, horizon=1000)["oracle"]
    Oracle(agreement=[0.2, 0.9], offload_cost=0.5)
    """
    wanted = list(names)
    if wanted == ["all"]:
        wanted = [name for name in policy_names() if not policy_class(name).keeps_budget]
    return {name: _ready(name, source, offload_cost, horizon, alpha, seed) for name in wanted}


def _ready(
    name: str, source: Replay | Synthetic, offload_cost: float | None, horizon: int, alpha: float, seed: int
) -> Policy:
    chosen = policy_class(name)
    settings = {
        "bins": source.bins,
        "alpha": alpha,
        "offload_cost": source.mean_offload_cost if name in KNOWING and offload_cost is None else offload_cost,
        "horizon": horizon,
        "seed": seed,
        "agreement": source.agreement.tolist(),
    }
    if hasattr(chosen, "fit"):
        settings["history"], settings["agreed"] = _history(source)
    return build(name, **settings)


def _history(source: Replay | Synthetic) -> tuple[list[int], list[float]]:
    """A labelled history in the proportions of the source: its rows, or the share of each bin."""
    if isinstance(source, Replay):
        return source.rows()
    counts = np.maximum(np.round(source.weights * 10_000), 0).astype(int)
    history = np.repeat(np.arange(source.bins), counts)
    return history.tolist(), source.agreement[history].tolist()
