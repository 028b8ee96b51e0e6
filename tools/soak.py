"""Everything at once, for half an hour: prints what was promised and what came of it, and fails if a promise broke.

    python tools/soak.py --minutes 30

A `Device` used by 16 threads and an `AsyncDevice` used by 8 tasks, each with a budget and its state on disk, ask a
remote whose network fails in another way every second. Beside them `hinge serve` runs with a log that is not read, its
model is replaced every few seconds, hostile clients connect without end, and an honest one checks every answer.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hinge import Answer, AsyncDevice, Breaker, Device, Isotonic, OpenInference, at_most  # noqa: E402  # after the path
from hinge.models import Recorded  # noqa: E402  # after the path is set
from hinge.oip.messages import build_request  # noqa: E402  # after the path is set
from hinge.traces import load_trace  # noqa: E402  # after the path is set
from tests.server import models  # noqa: E402  # after the path is set
from tests.server.clients import infer  # noqa: E402  # after the path is set
from tests.server.processes import serving  # noqa: E402  # after the path is set
from tests.support.chaos import ChaosProxy, Fault  # noqa: E402  # after the path is set
from tests.support.loopback import OipServer  # noqa: E402  # after the path is set

THREADS, TASKS = 16, 8
DEADLINE_S = 0.25
BUDGET = 0.2
FLAT_KIB = 16 * 1024  # between the second quarter and the last: what allocators keep back
FLAT_FILES = 16
TRACE = load_trace("synthetic-cifar10")
LOCAL = Recorded(TRACE)
REMOTE = TRACE.remote.tolist()


@dataclass
class Seen:
    """What the clients of one device, or of the server, saw."""

    answers: Counter[str] = field(default_factory=Counter)
    asked: int = 0
    wrong: int = 0
    worst_s: float = 0.0
    late: int = 0
    problems: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, number: int, answer: Answer, took_s: float, slack_s: float) -> None:
        """Check one answer."""
        expected = REMOTE[number] if answer.source == "remote" else LOCAL.answer(number)[0]
        with self.lock:
            self.answers[answer.source] += 1
            self.wrong += answer.label != expected
            self.worst_s = max(self.worst_s, took_s)
            self.late += took_s > DEADLINE_S + slack_s


def row(number: int) -> Any:
    """A sample, as server and local model take it."""
    return np.array([number])


def device_of(kind: Any, url: str, folder: Path) -> Any:
    """A device with a budget and a state, that tries its remote again soon."""
    policy = at_most(Isotonic(bins=16, offload_cost=0.05), offloads=BUDGET, window=1000)
    remote = OpenInference(url, model="remote")
    breaker = Breaker(failures=5, interval_s=1.0)
    return kind(LOCAL, remote, policy, deadline_s=DEADLINE_S, state=folder, breaker=breaker, in_flight=THREADS)


def ask_from_thread(device: Device, seen: Seen, over: threading.Event, seed: int, slack_s: float) -> None:
    """One thread's samples, one by one and in batches."""
    chance = random.Random(seed)
    while not over.is_set():
        numbers = [chance.randrange(len(REMOTE)) for _ in range(chance.choice((1, 1, 1, 8)))]
        with seen.lock:
            seen.asked += len(numbers)
        began = time.monotonic()
        try:
            answers = device.infer_many(map(row, numbers)) if len(numbers) > 1 else [device.infer(row(numbers[0]))]
        except Exception as error:
            seen.problems.append(repr(error))
            continue
        took = time.monotonic() - began
        for number, answer in zip(numbers, answers, strict=True):
            seen.note(number, answer, took, slack_s)
        time.sleep(0.005)


async def ask_from_loop(url: str, folder: Path, seen: Seen, over: threading.Event, slack_s: float) -> int:
    """The tasks' samples; some are cancelled. Returns what was learned."""
    device = device_of(AsyncDevice, url, folder)
    chance = random.Random(0)

    async def ask() -> None:
        while not over.is_set():
            number = chance.randrange(len(REMOTE))
            began = time.monotonic()
            task = asyncio.ensure_future(device.infer(row(number)))
            if chance.random() < 0.02:
                await asyncio.sleep(0.001)
                if task.cancel():
                    with suppress(asyncio.CancelledError):
                        await task
                    continue
            seen.asked += 1
            try:
                seen.note(number, await task, time.monotonic() - began, slack_s)
            except Exception as error:
                seen.problems.append(repr(error))
            await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        for _ in range(TASKS):
            group.create_task(ask())
    learned = int(device.policy.learned)
    await device.close()
    return learned


def flap(proxy: ChaosProxy, over: threading.Event) -> None:
    """Another fault every second, and none every other."""
    chance, faults = random.Random(1), [fault for fault in Fault if fault is not Fault.NONE]
    while not over.wait(0.5):
        proxy.fault = Fault.NONE if chance.random() < 0.5 else chance.choice(faults)
        proxy.attempts.clear()


def reload(path: Path, over: threading.Event) -> None:
    """Another model every two seconds; every third cannot be run."""
    number = 0
    while not over.wait(2.0):
        number += 1
        new = models.scaling(path.with_suffix(".new"), 2.0 + number % 2)
        if number % 3 == 0:
            new.write_bytes(new.read_bytes()[: 40 + number % 60])
        os.replace(new, path)


def be_hostile(url: str) -> None:
    """A process of its own: connects, pipelines, sends slowly, sends garbage, hangs up, until it is ended."""
    place = url.rpartition("/")[2].split(":")
    chance = random.Random(2)
    get = b"GET /" + b"x" * 200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
    post = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    pieces: list[Callable[[], bytes]] = [
        lambda: b"",
        lambda: get * 500,
        lambda: post % 10**6 + b'{"inputs":',
        lambda: post % 200_000 + b"[" * 200_000,
        lambda: post % 400_000 + b'{"inputs":[{"data":[' + b"9" * 399_980,
        lambda: chance.randbytes(3000),
        lambda: b"POST /v2/models/m/infer HTTP/1.1\r\nHost: evil\r\nTransfer-Encoding: gzip\r\n\r\n",
        lambda: post % 30 + b"x" * 10,
    ]
    held: list[socket.socket] = []
    while True:
        with suppress(OSError):
            client = socket.create_connection((place[0], int(place[1])), timeout=5)
            client.setblocking(False)
            held.append(client)
            client.send(chance.choice(pieces)())
        while len(held) > 300 or (held and chance.random() < 0.5):
            held.pop(chance.randrange(len(held))).close()
        time.sleep(0.01)


def check_server(url: str, seen: Seen, over: threading.Event) -> None:
    """An honest client: its answers are right, whichever model is current, or it is told to come again."""
    message = build_request({"x": np.ones((1, 3), np.float32)})
    while not over.is_set():
        seen.asked += 1
        began = time.monotonic()
        try:
            reply = infer(url, "m", message)
        except OSError as error:
            seen.answers[type(error).__name__] += 1
            continue
        seen.answers[str(reply.status)] += 1
        seen.worst_s = max(seen.worst_s, time.monotonic() - began)
        if reply.status == 200:
            seen.wrong += reply.json["outputs"][0]["data"] not in ([2.0] * 3, [3.0] * 3)
        elif reply.status != 503:
            seen.problems.append(f"status {reply.status}")
        time.sleep(0.01)


def measure(process: int) -> tuple[int, int, int]:
    """Memory in KiB, descriptors and threads of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    files = len(os.listdir(f"/proc/{process}/fd"))
    return int(fields["VmRSS"].split()[0]), files, int(fields["Threads"])


def quarters(values: list[int]) -> tuple[float, float]:
    """The medians of the second quarter and of the last."""
    size = max(1, len(values) // 4)
    return statistics.median(values[size : 2 * size] or values), statistics.median(values[-size:])


@contextmanager
def running(*threads: threading.Thread) -> Iterator[None]:
    """Start the threads, and wait for them at the end."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(60)


def soak(minutes: float, slack_s: float) -> bool:
    """Run everything; prints the table. Whether all promises held."""
    over, rows = threading.Event(), list[tuple[str, str, bool]]()
    threads_seen, loop_seen, server_seen = Seen(), Seen(), Seen()
    samples: dict[str, list[tuple[int, int, int]]] = {"device": [], "server": []}
    learned = list[int]()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        path = models.scaling(folder / "m.onnx", 2.0)
        process, url = stack.enter_context(serving(f"m={path}", "--watch", "--log-level", "info"))  # stderr: not read
        remote = stack.enter_context(OipServer.of_labels(REMOTE, 10))
        proxy = stack.enter_context(ChaosProxy(remote.url, byte_s=0.01))
        infer(url, "m", build_request({"x": np.ones((1, 3), np.float32)}))
        files = measure(process.pid)[1]
        command = [sys.executable, __file__, "--hostile", url]
        hostile = subprocess.Popen(command)
        stack.callback(hostile.wait, 30)
        stack.callback(hostile.kill)
        device = device_of(Device, proxy.url, folder / "threads")

        def loop() -> None:
            learned.append(asyncio.run(ask_from_loop(proxy.url, folder / "loop", loop_seen, over, slack_s)))

        workers = [
            threading.Thread(target=ask_from_thread, args=(device, threads_seen, over, seed, slack_s))
            for seed in range(THREADS)
        ]
        workers += [threading.Thread(target=loop), threading.Thread(target=flap, args=(proxy, over))]
        workers += [threading.Thread(target=reload, args=(path, over))]
        workers += [threading.Thread(target=check_server, args=(url, server_seen, over))]
        end = time.monotonic() + 60 * minutes
        with running(*workers):
            try:
                while time.monotonic() < end and process.poll() is None:
                    time.sleep(min(5.0, 2 * minutes))
                    samples["device"].append(measure(os.getpid()))
                    samples["server"].append(measure(process.pid))
            finally:
                over.set()
        alive = [thread for thread in workers if thread.is_alive()]
        rows.append(("threads that ended", f"{len(workers) - len(alive)} of {len(workers)}", not alive))
        hostile.kill()
        hostile.wait(30)
        time.sleep(2)  # what its connections held is given back
        left = measure(process.pid)[1] if process.poll() is None else -1
        rows.append(("server: descriptors, at first and at the end", f"{files}, {left}", 0 < left <= files + 4))
        status, at_end = device.status, int(device.policy.learned)
        device.close()
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            code = -1
        rows.append(("the server's exit status", str(code), code == 0))
        for name, count, place in (("threads", at_end, "threads"), ("event loop", sum(learned), "loop")):
            again = device_of(Device, proxy.url, folder / place)
            kept = int(again.policy.learned)
            again.close()
            rows.append((f"{name}: learned, and found on disk", f"{count}, {kept}", kept == count))
    offloads = status.answered_by_remote + sum(status.fell_back.values())
    allowed = BUDGET * status.samples + BUDGET * 1000
    rows.append(("threads: offloads, and allowed", f"{offloads}, {allowed:.0f}", offloads <= allowed))
    rows.append(("threads: fell back", ", ".join(f"{k} {v}" for k, v in status.fell_back.items()), True))
    for name, seen in (("threads", threads_seen), ("event loop", loop_seen)):
        total = sum(seen.answers.values())
        by = ", ".join(f"{key} {value}" for key, value in sorted(seen.answers.items()))
        rows.append((f"{name}: samples, and answers", f"{seen.asked}, {total} ({by})", seen.asked == total > 0))
        rows.append(
            (
                f"{name}: wrong answers, exceptions",
                f"{seen.wrong}, {len(seen.problems)}",
                not seen.wrong and not seen.problems,
            )
        )
        worst = (
            f"{1000 * seen.worst_s:.0f} ms at a deadline of {1000 * DEADLINE_S:.0f}; {seen.late} over by {slack_s:g} s"
        )
        rows.append((f"{name}: slowest answer", worst, seen.late == 0))
    by = ", ".join(f"{key}: {value}" for key, value in sorted(server_seen.answers.items()))
    rows.append(
        ("server: honest requests", f"{server_seen.asked} ({by})", server_seen.answers["200"] > 0.9 * server_seen.asked)
    )
    rows.append(
        (
            "server: wrong answers, other statuses",
            f"{server_seen.wrong}, {len(server_seen.problems)}",
            not server_seen.wrong and not server_seen.problems,
        )
    )
    rows.append(("server: slowest honest answer", f"{server_seen.worst_s:.2f} s", server_seen.worst_s < 5))
    for name, measured in samples.items():
        for what, index, most in (
            ("memory, KiB", 0, FLAT_KIB),
            ("descriptors", 1, FLAT_FILES),
            ("threads", 2, FLAT_FILES),
        ):
            if (name, index) == ("server", 1):  # which change with the hostile clients: looked at after them, above
                continue
            early, late = quarters([each[index] for each in measured])
            rows.append((f"{name}: {what}, early and late", f"{early:.0f}, {late:.0f}", late <= early + most))
    print(f"| what, in {minutes:g} minutes | found | |\n| --- | --- | --- |")
    for what, found, held in rows:
        print(f"| {what} | {found} | {'held' if held else 'BROKEN'} |")
    for seen in (threads_seen, loop_seen, server_seen):
        for problem, count in Counter(seen.problems).most_common(5):
            print(f"{count} x {problem}")
    return all(held for _, _, held in rows)


def main() -> int:
    """Read the arguments; exit status 1 if a promise broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument(
        "--slack", type=float, default=0.25, help="seconds over the deadline that a busy machine may add"
    )
    parser.add_argument("--hostile", metavar="URL", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.hostile:
        be_hostile(arguments.hostile)
    logging.getLogger("hinge").setLevel(logging.ERROR)
    return 0 if soak(arguments.minutes, arguments.slack) else 1


if __name__ == "__main__":
    sys.exit(main())
