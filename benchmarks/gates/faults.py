"""Answers while the remote is healthy, stalled or dead: the whole device over a stream of images."""

import time
from itertools import cycle, islice
from typing import Any

import numpy as np

from benchmarks.report import Table, span
from hinge import Device, Isotonic, OnnxModel, OpenInference, fashion
from tests.support.chaos import ChaosProxy, Fault
from tools.peers.hinge import hinge

DEADLINE_S = 0.1
CASES = {
    "healthy": Fault.NONE,
    "stalled (requests are never answered)": Fault.STALL,
    "dead (connections are refused)": Fault.REFUSE,
    "dripping (a byte every 50 ms)": Fault.DRIP,
}


def report(quick: bool) -> list[Table]:
    images, _ = fashion.labelled_images()
    samples = list(islice(cycle(images), 2_000 if quick else 20_000))
    header = ["", "p50", "p99", "p99.9", "longest", "by remote", "fell back", "attempts"]
    table = Table("How long an answer takes", header)
    local = OnnxModel(fashion.local_model())
    table.rows.append(["the local model alone", *_spans(_timed(local, samples)), "–", "–", "–"])
    with hinge({"remote": fashion.remote_model()}) as server:
        for name, fault in CASES.items():
            with ChaosProxy(server.url) as proxy:
                table.rows.append(_row(name, local, samples, proxy, fault))
    table.notes.append(
        f"{len(samples)} images, one after another, isotonic from nothing, deadline {DEADLINE_S * 1000:g} ms, breaker"
        " and retries as they come. A proxy stands between device and server in every case, and takes its time, too."
    )
    return [table]


def _row(name: str, local: OnnxModel, samples: Any, proxy: ChaosProxy, fault: Fault) -> list[str]:
    proxy.fault = fault
    policy, remote = Isotonic(bins=16, offload_cost=0.5), OpenInference(proxy.url, "remote")
    with Device(local, remote, policy, deadline_s=DEADLINE_S) as device:
        times = _timed(device.infer, samples)
        status = device.status
    fell_back = sum(status.fell_back.values())
    return [name, *_spans(times), str(status.answered_by_remote), str(fell_back), str(status.attempts.attempts)]


def _timed(function: Any, samples: Any) -> list[int]:
    times = []
    for sample in samples:
        began = time.perf_counter_ns()
        function(sample)
        times.append(time.perf_counter_ns() - began)
    return times


def _spans(times: list[int]) -> list[str]:
    return [span(float(value)) for value in (*np.percentile(times, [50, 99, 99.9]), max(times))]
