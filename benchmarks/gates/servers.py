"""Requests per second of `hinge serve` beside Triton, KServe and MLServer: the same model, the same requests."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.gates.load import http_request, seconds_each
from benchmarks.gates.resident import resident_mib
from benchmarks.report import Table, ratio
from hinge import OpenInference, fashion
from hinge.oip.messages import build_request, inference_path
from tools.peers.hinge import hinge
from tools.peers.kserve import kserve
from tools.peers.mlserver import mlserver
from tools.peers.process import Peer
from tools.peers.triton import triton

STARTS: dict[str, Callable[[Mapping[str, Path]], AbstractContextManager[Peer]]] = {
    "hinge": hinge,
    "triton": triton,
    "kserve": kserve,
    "mlserver": mlserver,
}
LEAST = {1: 0.8, 8: 0.8, 32: 0.8}  # of another server's requests per second, by connections


class Rate(NamedTuple):
    """What a server did under one load, in the round that is the middle one by rate."""

    per_second: float
    lowest: float
    highest: float
    p50_ms: float
    p99_ms: float


def report(quick: bool) -> list[Table]:
    images, _ = fashion.labelled_images()
    rounds, requests = (2, 200) if quick else (5, 2000)
    rates: dict[tuple[str, str, int], list[list[float]]] = {}
    memory: dict[str, float] = {}
    with ExitStack() as stack:
        peers = {name: stack.enter_context(start({"remote": fashion.remote_model()})) for name, start in STARTS.items()}
        forms = {name: _forms(peer, images[:1]) for name, peer in peers.items()}
        for _ in range(rounds + 1):
            for connections in LEAST:
                for name, peer in peers.items():
                    for form, request in forms[name].items():
                        found = seconds_each(peer.url, request, connections, requests)
                        rates.setdefault((name, form, connections), []).append(found)
        memory = {name: resident_mib(peer.pid) for name, peer in peers.items()}
    kept = {key: _rate(readings[1:]) for key, readings in rates.items()}  # the first round warms up
    return [_goals(kept), _rates(kept), _memory(memory)]


def _forms(peer: Peer, image: NDArray[np.uint8]) -> dict[str, bytes]:
    """The request in each form that the server takes."""
    server, _ = OpenInference(peer.url, "remote").metadata()
    binaries = {"JSON": False, "binary": True} if server.binary else {"JSON": False}
    messages = {form: build_request({"image": image}, binary=binary) for form, binary in binaries.items()}
    path = inference_path("remote")
    return {form: http_request(peer.url, path, dict(sent.headers), sent.body) for form, sent in messages.items()}


def _rate(readings: list[list[float]]) -> Rate:
    speeds = sorted((len(reading) - 1) / reading[-1] for reading in readings)
    middle = min(readings, key=lambda reading: abs((len(reading) - 1) / reading[-1] - median(speeds)))
    p50, p99 = np.percentile(middle[:-1], [50, 99]) * 1000
    return Rate(median(speeds), speeds[0], speeds[-1], float(p50), float(p99))


def _goals(rates: dict[tuple[str, str, int], Rate]) -> Table:
    table = Table("`hinge serve` against others, in requests per second")
    for (name, form, connections), theirs in rates.items():
        if name == "hinge":
            continue
        ours = rates["hinge", form, connections]
        share = ours.per_second / theirs.per_second
        least = LEAST[connections]
        goal = f">= {least:.1f}x"
        detail = f"{ours.per_second:.0f} ({ours.lowest:.0f} to {ours.highest:.0f}) against {theirs.per_second:.0f}"
        detail += f" ({theirs.lowest:.0f} to {theirs.highest:.0f})"
        table.goal(f"{name}, {form}, {connections} connections", goal, ratio(share), share >= least, detail)
    table.notes.append("Medians of rounds in which all servers take turns, with the slowest and the fastest round.")
    return table


def _rates(rates: dict[tuple[str, str, int], Rate]) -> Table:
    table = Table("Requests", ["", "form", "connections", "per second", "p50 ms", "p99 ms"])
    for (name, form, connections), rate in sorted(rates.items(), key=lambda item: (item[0][2], item[0][1])):
        row = [name, form, str(connections), f"{rate.per_second:.0f}", f"{rate.p50_ms:.2f}", f"{rate.p99_ms:.2f}"]
        table.rows.append(row)
    return table


def _memory(memory: dict[str, float]) -> Table:
    table = Table("Resident memory after the load", ["", "MiB"])
    table.rows += [[name, f"{size:.0f}"] for name, size in memory.items()]
    table.notes.append("The server's process and all those that it started; pages that they share count in each.")
    return table
