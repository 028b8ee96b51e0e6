"""Exponential weights over ten million samples: they neither overflow nor vanish."""

import math

import numpy as np
import pytest

from hinge import build
from hinge.policies.baselines import ThresholdPolicy
from hinge.simulation.engine import Player
from hinge.simulation.sources import ConstantPrice, Synthetic

HORIZON = 10_000_000


@pytest.mark.parametrize("name", ["hedge-hi", "hil-f"])
def test_weights_stay_weights_over_ten_million_samples(name: str) -> None:
    source = Synthetic([0.2, 0.9], ConstantPrice(0.5))
    policy = build(name, bins=2, offload_cost=0.5, horizon=HORIZON, seed=3)
    assert isinstance(policy, ThresholdPolicy)
    player = Player(policy, source, np.array([HORIZON]), 0, machine_code=True)
    for chunk in source.stream(1, HORIZON):
        player.play(chunk)
        assert np.isfinite(player.parts.policy.losses).all()
        assert np.isfinite(player.parts.policy.weights).all()
        assert player.parts.policy.weights.max() > 0.0
    assert player.time == HORIZON
    assert math.isfinite(player.book.sums[0])
    assert player.book.sums[1] / HORIZON == pytest.approx(0.5, abs=0.05)  # it has learned which of the two to offload
