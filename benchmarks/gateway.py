"""What the gateway adds to asking the local server directly, and who answers while the remote fails.

The local server is a stand-in that answers at once, the gateway `hinge gateway`, each in a process of its own. A
request goes to the one and to the other in turn, over a connection that stays open, so that whatever else the machine
does meets both. Accepted requests are timed: the policy is 'always-local', which never asks the remote. Many
connections at once show how much it takes. Then the remote is dead, stalled, or answers garbage, every request is
offloaded ('always-remote'), and answers are counted.
"""

import http.client
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from benchmarks.gates.load import http_request, seconds_each
from benchmarks.report import Table
from tests.support.chat_server import ChatStandIn, dead_url

GOAL_MS = 1.0
PER_SECOND = {1: 1_560, 16: 2_550}  # least, by connections: benchmarks/baseline.json
ROUNDS = 5
MESSAGES = [{"role": "user", "content": "Is water wet? Answer yes or no. " * 10}]
BODY = json.dumps({"model": "any", "messages": MESSAGES, "max_tokens": 3}).encode()


def serve(text: str, behaviour: str, pipe: Any) -> None:
    """A stand-in, until the pipe says that it is over."""
    with ChatStandIn(text, behaviour=behaviour) as server:
        pipe.send(server.base_url)
        pipe.recv()


@contextmanager
def stand_in(text: str, behaviour: str = "answer") -> Iterator[str]:
    """The URL of a stand-in in another process."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(text, behaviour, there))
    process.start()
    try:
        yield here.recv()
    finally:
        here.send(None)
        process.join()


@contextmanager
def gateway(local: str, remote: str, *options: str) -> Iterator[str]:
    """The base URL of a gateway in a process of its own."""
    command = [sys.executable, "-m", "hinge", "gateway", "--local", local, "--remote", remote, "--port", "0"]
    command += ["--task", "options:yes,no", "--log-level", "error", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[-1]
        finally:
            process.terminate()


class Client:
    """One connection that stays open."""

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        self._path = f"{parts.path}/chat/completions"
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=60)

    def ask(self) -> tuple[bool, str | None]:
        """Whether the answer is one, and who gave it."""
        self._connection.request("POST", self._path, BODY, {"Content-Type": "application/json"})
        response = self._connection.getresponse()
        answered = json.loads(response.read()).get("choices") is not None
        return answered and response.status == 200, response.getheader("hinge-answered-by")


def latencies(requests: int) -> Table:
    """Direct and through the gateway, in turn."""
    with ExitStack() as stack:
        local = stack.enter_context(stand_in("yes"))
        remote = stack.enter_context(dead_url())
        served = stack.enter_context(gateway(local, remote, "--policy", "always-local"))
        clients = Client(local), Client(served)
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(requests + 200):
            for client, taken in zip(clients, times, strict=True):
                began = perf_counter()
                answered, _ = client.ask()
                assert answered
                if number >= 200:  # after a warm-up
                    taken.append(1000 * (perf_counter() - began))
    table = Table("Latency", ["", "median, ms", "90 %, ms", "99 %, ms"])
    for name, taken in zip(("the local server directly", "through the gateway"), times, strict=True):
        cuts = quantiles(taken, n=100)
        table.rows.append([name, f"{median(taken):.2f}", f"{cuts[89]:.2f}", f"{cuts[98]:.2f}"])
    added = median(through - direct for direct, through in zip(*times, strict=True))
    verdict = "kept" if added <= GOAL_MS else "missed"
    table.notes.append(f"The gateway adds {added:.2f} ms (median over pairs); the goal, {GOAL_MS:g} ms, is {verdict}.")
    return table


def rates(requests: int) -> Table:
    """Accepted requests per second, by connections; the middle one of several rounds."""
    table = Table("Requests per second, accepted")
    with ExitStack() as stack:
        local = stack.enter_context(stand_in("yes"))
        served = stack.enter_context(gateway(local, local, "--policy", "always-local"))
        for connections, least in PER_SECOND.items():
            found: dict[str, list[float]] = {local: [], served: []}
            for _ in range(ROUNDS):
                for url, speeds in found.items():
                    path = f"{urlsplit(url).path}/chat/completions"
                    request = http_request(url, path, {"Content-Type": "application/json"}, BODY)
                    speeds.append(requests / seconds_each(url, request, connections, requests)[-1])
            speed, direct = median(found[served]), median(found[local])
            detail = f"{min(found[served]):.0f} to {max(found[served]):.0f}; the local server directly {direct:.0f}"
            table.goal(f"{connections} connections", f">= {least}", f"{speed:.0f}", speed >= least, detail)
    return table


def outages(requests: int) -> Table:
    """Requests without an answer while the remote fails."""
    table = Table("Outages", ["", "requests", "without an answer", "answered by local", "longest, ms"])
    for failure in ("dead", "stall", "garbage"):
        with ExitStack() as stack:
            local = stack.enter_context(stand_in("yes"))
            remote = stack.enter_context(dead_url() if failure == "dead" else stand_in("no", failure))
            served = stack.enter_context(gateway(local, remote, "--policy", "always-remote", "--deadline-s", "1"))
            client, unanswered, by_local, longest = Client(served), 0, 0, 0.0
            for _ in range(requests):
                began = perf_counter()
                answered, source = client.ask()
                longest = max(longest, 1000 * (perf_counter() - began))
                unanswered += not answered
                by_local += source == "local"
            rows = [f"the remote: {failure}", f"{requests:,}", str(unanswered), f"{by_local:,}", f"{longest:.0f}"]
            table.rows.append(rows)
    return table


def report(quick: bool) -> list[Table]:
    """Measure what the gateway adds and how much it takes, and count answers while the remote fails."""
    count = 1_000 if quick else 10_000
    return [latencies(count), rates(count), outages(count)]
