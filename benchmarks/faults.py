"""What a remote that fails costs those who wait (R2): the 99th percentile of answers, beside that of the local model.

The local model is the larger of the two shipped ones, and where the breaker is open also the smaller, which takes so
little time that what the device adds shows. It is timed alone and inside a device in turn, sample by sample, so that
whatever else the machine does meets both. The remote is in a process of its own. It fails on nothing: times depend on
the machine, and the noise is printed beside them; what is missed says so.
"""

import asyncio
import logging
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import Table, ratio
from hinge import AsyncDevice, Breaker, Device, FixedCost, OnnxModel, OpenInference, fashion
from hinge.oip.tensors import TensorSpec
from hinge.policies import AlwaysRemote
from tests.faults.hanging import full_port
from tests.faults.setting import tireless
from tests.support.chaos import ChaosProxy, Fault
from tests.support.loopback import OipServer

DEADLINE_S, SLACK_S = 0.05, 0.005
FAULTS = (Fault.STALL, Fault.DRIP)
LARGER, SMALLER = fashion.remote_model(), fashion.local_model()
IMAGE = fashion.labelled_images()[0][0]


class Times(NamedTuple):
    """Seconds of each answer: of the local model alone, and of the device."""

    alone: list[float]
    device: list[float]


def serve(fault: Fault, pipe: Any) -> None:
    """A server behind a proxy that does such things, until the pipe says that it is over."""
    answer = {"scores": np.eye(10, dtype=np.float32)[:1]}
    inputs, outputs = [TensorSpec("image", "UINT8", (-1, 28, 28))], [TensorSpec("scores", "FP32", (-1, 10))]
    server = OipServer(lambda _: answer, inputs=inputs, outputs=outputs, binary=True)
    with server, ChaosProxy(server.url, byte_s=0.005) as proxy:
        proxy.fault = fault
        pipe.send(proxy.url)
        pipe.recv()


@contextmanager
def remote_with(fault: Fault) -> Iterator[str]:
    """The URL of a remote in another process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(fault, there))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join(30)


def settings(model: Path, url: str, breaker: Breaker) -> dict[str, Any]:
    local = OnnxModel(model)
    remote = OpenInference(url, model="remote")
    terms = {"price": FixedCost(0.5), "deadline_s": DEADLINE_S, "breaker": breaker}
    return {"local": local, "remote": remote, "gate": AlwaysRemote(bins=16), **terms}


def of_threads(model: Path, url: str, breaker: Breaker, samples: int) -> Times:
    times = Times([], [])
    with Device(**settings(model, url, breaker)) as device:
        device.infer(IMAGE)
        for _ in range(samples):
            times.alone.append(_local_s(device))
            began = perf_counter()
            answer = device.infer(IMAGE)
            times.device.append(perf_counter() - began)
            assert answer.source == "local"
    return times


async def _of_loop(model: Path, url: str, breaker: Breaker, samples: int) -> Times:
    times = Times([], [])
    async with AsyncDevice(**settings(model, url, breaker)) as device:
        await device.infer(IMAGE)
        for _ in range(samples):
            times.alone.append(_local_s(device))
            began = perf_counter()
            answer = await device.infer(IMAGE)
            times.device.append(perf_counter() - began)
            assert answer.source == "local"
    return times


def of_loop(model: Path, url: str, breaker: Breaker, samples: int) -> Times:
    return asyncio.run(_of_loop(model, url, breaker, samples))


KINDS: dict[str, Callable[[Path, str, Breaker, int], Times]] = {"threads": of_threads, "event loop": of_loop}


def _local_s(device: Any) -> float:
    began = perf_counter()
    device.local.answer(IMAGE)
    return perf_counter() - began


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[int(0.99 * len(seconds))]


def ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}" if seconds < 0.01 else f"{1e3 * seconds:.2f}"


def held(holds: bool) -> str:
    return "yes" if holds else "MISSED"


def stalled_row(name: str, times: Times) -> list[str]:
    local, found = p99(times.alone), p99(times.device)
    noise = p99(times.alone) / median(times.alone)
    over = found - local - DEADLINE_S
    cells = [str(len(times.device)), ms(local), ms(median(times.device)), ms(found), ms(over), ratio(noise)]
    return [name, *cells, held(over <= SLACK_S)]


def stalled_table(samples: int) -> Table:
    table = Table(
        f"The remote stalls; deadline {1e3 * DEADLINE_S:.0f} ms",
        ["", "samples", "local p99", "median", "p99", "over", "noise", "held"],
        notes=[
            "Milliseconds. Over: p99 less the local p99 and the deadline; promised are 5 ms at most.",
            "Noise: the local model's 99th percentile over its median. The breaker never opens here.",
        ],
    )
    for kind, measure in KINDS.items():
        for fault in FAULTS:
            with remote_with(fault) as url:
                table.rows.append(stalled_row(f"{fault.name}, {kind}", measure(LARGER, url, tireless(), samples)))
        with full_port() as url:
            table.rows.append(stalled_row(f"connecting hangs, {kind}", measure(LARGER, url, tireless(), samples)))
    return table


def open_table(samples: int, rounds: int) -> Table:
    table = Table(
        "The breaker is open",
        ["", "samples", "local p99", "p99", "over local", "added", "noise", "held"],
        notes=[
            f"Milliseconds. Over local: p99 over the local p99, the median of {rounds} rounds, in brackets the least",
            "and the most; promised is 1.1x at most. Added: the difference of the two medians.",
            "Noise: the largest local p99 of a round over the smallest.",
        ],
    )
    for model, name in ((LARGER, "larger model"), (SMALLER, "smaller model")):
        for kind, measure in KINDS.items():
            with full_port() as url:
                found = [measure(model, url, Breaker(1, 3600), samples) for _ in range(rounds)]
            table.rows.append(open_row(f"{kind}, {name}", found))
    return table


def open_row(name: str, found: list[Times]) -> list[str]:
    shares = sorted(p99(times.device) / p99(times.alone) for times in found)
    locals_, devices = [p99(times.alone) for times in found], [p99(times.device) for times in found]
    added = median(median(times.device) - median(times.alone) for times in found)
    samples = sum(len(times.device) for times in found)
    spread = f"{ratio(median(shares))} ({shares[0]:.2f}–{shares[-1]:.2f})"
    cells = [str(samples), ms(median(locals_)), ms(median(devices)), spread, ms(added)]
    return [name, *cells, ratio(max(locals_) / min(locals_)), held(median(shares) <= 1.1)]


def report(quick: bool) -> list[Table]:
    """Measure what a failing remote costs those who wait."""
    logging.getLogger("hinge").setLevel(logging.ERROR)  # that the breaker opens is what we want
    return [stalled_table(40 if quick else 400), open_table(500 if quick else 4_000, 5)]
