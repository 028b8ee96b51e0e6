"""The ledger: its figures against sums made by hand, and the same sums from the simulator."""

import math

import numpy as np

from hinge import HILCB
from hinge.ledger import OFFLOAD_COST, SUMS, Ledger, accept, offload
from hinge.simulation import run_seeds, simulate
from hinge.simulation.sources import ConstantPrice, Synthetic


def test_the_figures_of_a_few_samples() -> None:
    ledger = Ledger()
    ledger.accept(agreed=True, gap=-0.3, right=True)
    ledger.accept(agreed=False, gap=0.25, right=False)
    ledger.offload(cost=0.5, gap=-0.125, right=True)
    ledger.offload(cost=0.25, gap=0.4, right=False)
    assert ledger.figures() == {
        "offloads": 2,
        "offload_fraction": 0.5,
        "accuracy": 0.75,
        "cost_per_sample": (0.75 + 1) / 4,
        "regret": 0.375,
        "true_accuracy": 0.5,
        "true_cost_per_sample": (0.75 + 2) / 4,
    }


def test_what_is_not_known_of_every_sample_gives_no_sum() -> None:
    ledger = Ledger()
    ledger.accept(agreed=None)
    ledger.accept(agreed=True, right=True)
    figures = ledger.figures()
    assert (figures["accuracy"], figures["true_accuracy"]) == (1.0, 1.0)  # of the samples where it is known
    assert figures["cost_per_sample"] is figures["regret"] is figures["true_cost_per_sample"] is None


def test_without_samples_there_are_no_figures() -> None:
    figures = Ledger().figures()
    assert figures.pop("offloads") == 0
    assert figures.pop("regret") == 0.0
    assert set(figures.values()) == {None}


def test_a_failed_offload_costs_and_is_answered_locally() -> None:
    ledger = Ledger()
    ledger.accept(agreed=False, cost=0.25)
    assert (ledger.offloads, ledger.offload_cost, ledger.cost) == (0, 0.25, 1.25)


def test_an_offload_may_differ_from_what_was_recorded_of_the_remote() -> None:
    ledger = Ledger()
    ledger.offload(cost=0.5, agreed=False)
    ledger.offload(cost=0.5, agreed=None)
    assert ledger.figures()["accuracy"] == 0.0
    assert ledger.figures()["cost_per_sample"] is None


def test_the_simulator_and_a_ledger_keep_the_same_sums() -> None:
    source, horizon = Synthetic([0.2, 0.6, 0.9], ConstantPrice(0.5)), 3000
    run = simulate([HILCB(3, offload_cost=0.5)], source, horizon, record_decisions=True)["hi-lcb"].runs[0]
    assert run.decisions is not None
    ledger, samples = Ledger(), next(source.stream(run_seeds(0, 1)[0], horizon))
    for offloaded, agreed, cost, gap in zip(run.decisions, samples.agreed, samples.costs, samples.gaps, strict=True):
        if offloaded:
            ledger.offload(cost, gap=gap)
        else:
            ledger.accept(agreed, gap=gap)
    assert (ledger.offloads, ledger.cost, ledger.regret) == (run.offloads[-1], run.cost[-1], run.regret[-1])


def test_the_functions_add_to_any_array() -> None:
    sums = np.zeros(SUMS)
    accept(sums, 0.25, 0.5)
    offload(sums, 0.5, -math.inf)
    assert sums[OFFLOAD_COST] == 0.5
    assert sums.tolist() == [math.inf, 1.0, 0.5, 0.75, 0.0]
