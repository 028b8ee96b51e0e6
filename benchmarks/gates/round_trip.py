"""An offload over HTTP: the device, its remote alone, and raw clients that send the same bytes to the same server."""

import asyncio
import time
from collections.abc import Callable
from http.client import HTTPConnection
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx2
import numpy as np

from benchmarks.report import Table, ratio, span
from hinge import AsyncDevice, Device, FixedCost, OnnxModel, OpenInference, fashion
from hinge.oip.messages import Message, build_request, inference_path
from hinge.policies import AlwaysRemote
from hinge.remotes import Deadline
from tools.peers.hinge import hinge

GOAL = 1.0
IN_LOOP = "await device.infer, the same in an event loop"
BLOCK = 50


def report(quick: bool) -> list[Table]:
    images, _ = fashion.labelled_images()
    with hinge({"remote": fashion.remote_model()}) as server:
        return [_compared(server.url, images, binary, quick) for binary in (True, False)]


def _compared(url: str, images: Any, binary: bool, quick: bool) -> Table:
    message = build_request({"image": images[:1]}, id="1", binary=binary)
    remote = OpenInference(url, "remote", binary=binary)
    terms: dict[str, Any] = {"price": FixedCost(0.5), "deadline_s": 10}
    device = Device(OnnxModel(fashion.local_model()), remote, AlwaysRemote(16), **terms)
    waiting = AsyncDevice(OnnxModel(fashion.local_model()), remote, AlwaysRemote(16), **terms)
    asked: dict[str, Callable[[], Any]] = {
        "device.infer, local model included": lambda: device.infer(images[0]),
        "its remote alone, OpenInference.ask": lambda: remote.ask([images[0]], Deadline(time.monotonic() + 10)),
        "httpx2, the bytes alone": _with_httpx2(url, message),
        "http.client, the bytes alone": _with_http_client(url, message),
    }
    times: dict[str, list[float]] = {name: [] for name in (*asked, IN_LOOP)}
    with asyncio.Runner() as runner:
        for _ in range(4 if quick else 60):
            for name, ask in asked.items():
                times[name] += _timed(ask)
            times[IN_LOOP] += runner.run(_timed_in_loop(waiting, images[0]))
        runner.run(waiting.close())
    device.close()
    return _table(times, "binary tensors" if binary else "JSON")


def _timed(ask: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(BLOCK):
        began = time.perf_counter_ns()
        ask()
        found.append(float(time.perf_counter_ns() - began))
    return found


async def _timed_in_loop(device: AsyncDevice, image: Any) -> list[float]:
    found = []
    for _ in range(BLOCK):
        began = time.perf_counter_ns()
        await device.infer(image)
        found.append(float(time.perf_counter_ns() - began))
    return found


def _with_httpx2(url: str, message: Message) -> Callable[[], Any]:
    client, address = httpx2.Client(), url + inference_path("remote")
    headers = dict(message.headers)
    return lambda: client.post(address, content=message.body, headers=headers).content


def _with_http_client(url: str, message: Message) -> Callable[[], Any]:
    parts = urlsplit(url)
    connection, headers = HTTPConnection(str(parts.hostname), parts.port), dict(message.headers)

    def ask() -> bytes:
        connection.request("POST", inference_path("remote"), message.body, headers)
        return connection.getresponse().read()

    return ask


def _table(times: dict[str, list[float]], form: str) -> Table:
    table = Table(f"An offload over HTTP to `hinge serve`, {form}")
    raw = median(times["httpx2, the bytes alone"])
    for name, found in times.items():
        ours = "device.infer" in name
        quarters = np.percentile(found, [25, 75, 99])
        detail = f"median {span(median(found))}, half of them {span(quarters[0])} to {span(quarters[1])}"
        share = median(found) / raw
        goal = f"<= {GOAL:g}x" if ours else "–"
        table.goal(name, goal, ratio(share), share <= GOAL if ours else None, f"{detail}, p99 {span(quarters[2])}")
    table.notes.append(
        "Against httpx2, whose request is made beforehand and whose response is not looked at; in turn, one connection."
    )
    return table
