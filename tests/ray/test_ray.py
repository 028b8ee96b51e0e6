"""The Ray executor on a real Ray of this machine: `make test-ray`, which installs the extra `ray` first."""

from collections.abc import Iterator
from dataclasses import fields

import numpy as np
import pytest
import ray

from hinge import UniformBins
from hinge.simulation import Ray, Results, Run, Threads, lineup, simulate
from hinge.simulation.sources import FixedCosts, Resampled
from hinge.traces import load_trace

HORIZON, RUNS = 20_000, 4
LOCAL = {"num_cpus": 2, "include_dashboard": False, "log_to_driver": False}


def results(executor: Ray | Threads) -> Results:
    source = Resampled(load_trace("synthetic-cifar10"), UniformBins(16), FixedCosts(0.5))
    policies = lineup(["hi-lcb", "thompson", "hedge-hi"], source, offload_cost=0.5, horizon=HORIZON)
    return simulate(policies, source, HORIZON, RUNS, seed=3, record_decisions=True, executor=executor)


def bits(found: Results) -> dict[str, list[list[bytes]]]:
    """Every figure of every run, bit by bit."""
    names = [field.name for field in fields(Run)]
    return {
        policy: [[np.asarray(getattr(run, name)).tobytes() for name in names] for run in record.runs]
        for policy, record in found.items()
    }


@pytest.fixture
def cluster() -> Iterator[None]:
    ray.init(**LOCAL)
    yield
    ray.shutdown()


def test_ray_gives_the_same_bits_as_threads() -> None:
    found = results(Ray(**LOCAL))
    assert found.complete
    assert bits(found) == bits(results(Threads(2)))
    assert not ray.is_initialized()  # what was started here is over


@pytest.mark.usefixtures("cluster")
def test_a_cluster_that_is_there_is_used_and_stays() -> None:
    assert ray.cluster_resources()["CPU"] == 2
    assert bits(results(Ray())) == bits(results(Threads(2)))
    assert ray.is_initialized()


@pytest.mark.usefixtures("cluster")
def test_an_interrupt_keeps_the_runs_that_are_done() -> None:
    source = Resampled(load_trace("synthetic-cifar10"), UniformBins(16), FixedCosts(0.5))
    policies = lineup(["hi-lcb"], source, offload_cost=0.5, horizon=HORIZON)

    def report(done: int, total: int) -> None:
        if done == 2:
            raise KeyboardInterrupt

    found = simulate(policies, source, HORIZON, runs=6, executor=Ray(), progress=report)
    assert not found.complete
    assert len(found["hi-lcb"].runs) == 2


def test_an_error_in_a_worker_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(Ray(**LOCAL).map([lambda: 1 // 0]))
    assert not ray.is_initialized()
