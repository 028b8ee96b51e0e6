"""Plain objects with `decide` and `learn` in the simulator."""

from typing import Any

import numpy as np
import pytest

import hinge
from hinge import HILCB, Decision, EdgeBins, Gate, HILCBLite, Policy, Thompson, UniformBins, load_trace, simulate
from hinge.policies import AlwaysRemote
from hinge.simulation.sources import BimodalPrice, ConstantPrice, Resampled, Synthetic

SOURCE = Synthetic([0.1, 0.6, 0.9], BimodalPrice())


class Wrapped:
    """A known policy of which nothing is visible but `decide` and `learn`."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def decide(self, bin: int) -> Decision:
        return self._policy.decide(bin)

    def learn(self, decision: Decision, agreed: bool, cost: float) -> None:
        assert isinstance(agreed, bool)
        self._policy.learn(decision, agreed, cost)


class Greedy:
    """Offloads until ten offloads of a bin agreed; decides by plain flags."""

    def __init__(self) -> None:
        self.agreed, self.bin = [0, 0, 0], 0

    def decide(self, bin: int) -> bool:
        self.bin = bin
        return self.agreed[bin] < 10

    def learn(self, decision: bool, agreed: bool, cost: float) -> None:
        assert decision is True
        assert cost in (0.45, 0.55)
        self.agreed[self.bin] += agreed


@pytest.mark.medium
@pytest.mark.parametrize("policy", [HILCB(3), HILCBLite(3), HILCB(3, offload_cost=0.5)], ids=repr)
def test_a_wrapped_policy_has_the_sums_of_the_compiled_one(policy: Policy) -> None:
    settings: dict[str, Any] = {"horizon": 4000, "runs": 3, "seed": 6, "record_decisions": True}
    compiled = simulate({"it": policy}, SOURCE, machine_code=True, **settings)["it"]
    wrapped = simulate({"it": Wrapped(policy)}, SOURCE, **settings)["it"]
    for one, other in zip(compiled.runs, wrapped.runs, strict=True):
        for field in ("regret", "cost", "oracle_cost", "offloads", "matched", "wrong_accepts", "wrong_offloads"):
            assert getattr(one, field).tobytes() == getattr(other, field).tobytes(), field
        assert one.decisions is not None
        assert other.decisions is not None
        assert one.decisions.tolist() == other.decisions.tolist()


def test_every_run_starts_from_a_copy() -> None:
    greedy = Greedy()
    runs = simulate([greedy], SOURCE, 2000, runs=3)["Greedy"].runs
    assert greedy.agreed == [0, 0, 0]
    offloads = [run.offloads[-1] for run in runs]
    assert min(offloads) > 30  # each of them had to find its ten in every bin
    assert max(offloads) < 2000


def test_a_function_makes_the_object_of_each_run() -> None:
    made: list[Greedy] = []

    def make() -> Greedy:
        made.append(Greedy())
        return made[-1]

    by_function = simulate({"greedy": make}, SOURCE, 2000, runs=3)["greedy"]
    assert len(made) == 3
    for maker in (Greedy, Greedy()):
        again = simulate({"greedy": maker}, SOURCE, 2000, runs=3)["greedy"]
        assert again.regret.tobytes() == by_function.regret.tobytes()


@pytest.mark.medium
def test_plain_and_compiled_policies_see_the_same_samples() -> None:
    results = simulate([Greedy(), HILCB(3)], SOURCE, 2000, runs=2, machine_code=True)
    assert list(results) == ["Greedy", "hi-lcb"]
    oracle = [[run.oracle_cost[-1] for run in record.runs] for record in results.values()]
    assert oracle[0] == oracle[1]


def test_an_object_that_states_its_needs_learns_from_accepted_samples_too() -> None:
    class Curious(Greedy):
        needs = frozenset({hinge.policies.Need.AGREEMENT})
        seen: list[int] = []  # noqa: RUF012  # shared by the copies, on purpose

        def decide(self, bin: int) -> bool:
            return False

        def learn(self, decision: bool, agreed: bool, cost: float) -> None:
            self.seen.append(agreed)

    simulate([Curious()], SOURCE, 500)
    assert len(Curious.seen) == 500


@pytest.mark.medium
def test_evaluate_runs_plain_objects() -> None:
    policy = Thompson(16, offload_cost=0.5, seed=3)
    results = hinge.evaluate("synthetic-cifar10", {"mine": Wrapped(policy), "remote": AlwaysRemote(16)}, 0.5, runs=1)
    assert results["mine"].cost_per_sample[0, -1] < results["remote"].cost_per_sample[0, -1]


def test_gates_are_simulated_in_their_own_bins() -> None:
    trace, bins = load_trace("synthetic-cifar10"), EdgeBins([0.2, 0.5, 0.9, 0.99])
    gate = Gate(HILCB(5, offload_cost=0.5), bins=bins)
    by_policy = simulate([HILCB(5, offload_cost=0.5)], Resampled(trace, bins, ConstantPrice(0.5)), 3000)["hi-lcb"]
    for usual in (bins, UniformBins(8)):  # those of the oracle
        by_gate = simulate([gate], Resampled(trace, usual, ConstantPrice(0.5)), 3000)["hi-lcb"]
        assert by_gate.cost_per_sample.tobytes() == by_policy.cost_per_sample.tobytes()


def test_what_cannot_decide_is_refused() -> None:
    with pytest.raises(TypeError, match="objects with decide and learn, or what makes one, got 3"):
        simulate([3], SOURCE, 10)  # type: ignore[list-item]  # the point of the test


def test_fractions_of_agreement_reach_the_object_as_they_are() -> None:
    seen: list[float] = []

    class Always:
        def decide(self, bin: int) -> bool:
            return True

        def learn(self, decision: bool, agreed: float, cost: float) -> None:
            seen.append(agreed)

    trace = load_trace("synthetic-cifar10")
    prices = np.full((10, 10), 0.25) - 0.25 * np.eye(10)
    prices[0, 1] = 1.0
    wrong = hinge.CostMatrix(prices.tolist())
    simulate([Always], Resampled(trace, UniformBins(4), ConstantPrice(0.5), wrong), 500)
    assert {0.75, True} <= {*seen} <= {0.75, True, False}
