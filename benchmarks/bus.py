"""What a fleet's bus costs, on a mosquitto of its own: time of an accepted sample, messages and bytes, how soon a
lesson is everywhere, and what pooling takes.

    python benchmarks/bus.py [--devices N] [--others N]

Accepted samples are timed alone, in a fleet with nothing new, while others' evidence comes in, and while somebody
floods the fleet with what is none; the runs take turns in one process. Lessons: one device publishes, and all others,
each with a connection and the evidence of the fleet, say when they have it. A thousand that pool do not fit into two
cores; so one `Device` that knows the evidence of as many others says, in a run of its own, when it has borrowed what
was published.
"""

import argparse
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from multiprocessing import get_context
from operator import getitem
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter_ns, sleep
from typing import Any

from hinge import Device, Fleet, Gate, Sentinel, load_trace
from hinge.fleet import pool
from hinge.fleet.broker import Broker, Connection
from hinge.fleet.messages import Peers, build_evidence, identity, subscription, topic
from hinge.models import Recorded
from tests.fleet.brokers import Mosquitto

ROUNDS, TIMED_S = 4, 1.0
TOGETHER = 100  # devices in one process
NUMBERS = count(1)
BUDGET = 0.05
GATE = Gate(offload_cost=0.5)
IDENTITY = identity(GATE)


def device(url: str | None, name: str = "kitchen", budget: float | None = None) -> Device:
    fleet = None if url is None else Fleet(url, "cams", name, budget=budget)
    return Device(lambda sample: [0.0, sample], lambda sample: int(sample > 1), Gate(offload_cost=0.5), fleet=fleet)


def times_ns(target: Device) -> list[int]:
    times, end = [], perf_counter_ns() + TIMED_S * 1e9
    while (began := perf_counter_ns()) < end:
        answer = target.infer(6.0)
        took = perf_counter_ns() - began
        if not answer.offloaded:
            times.append(took)
    return times


@contextmanager
def speaker(url: str, say: Callable[[int], tuple[str, bytes]], per_second: float) -> Iterator[None]:
    """Somebody who publishes so many messages a second, in batches of a tenth of a second."""
    ended = threading.Event()

    def speak() -> None:
        with Broker("Speaker", url).connect("speaker", "none", ("speaker/will", b""), 2**20, lambda *_: None) as broker:
            while not ended.wait(0.1):
                for _ in range(round(per_second / 10)):
                    broker.publish(*say(next(NUMBERS)))
                broker.settle(5)

    thread = threading.Thread(target=speak, daemon=True)
    thread.start()
    yield
    ended.set()
    thread.join()


def evidence(number: int, others: int) -> tuple[str, bytes]:
    name, seen = f"d{number % others}", 10 + number // others
    offloads = [float(seen)] * 16
    agreements = [float(seen * bin // 16) for bin in range(16)]
    return topic("cams", name, "evidence"), build_evidence(name, IDENTITY, number, 10**6, offloads, agreements)


def accepted(url: str, others: int) -> None:
    print(f"\nAn accepted sample, µs; {others} others in the fleet:")
    print(f"  {'':<38}{'p50':>8}{'p99':>8}{'p99.9':>9}{'most':>9}")
    found: dict[str, list[int]] = {}
    with device(None) as alone, device(url) as member, device(url, "hall", BUDGET) as budgeted:
        junk = (topic("cams", "d0", "evidence"), b"x" * 300)
        runs: dict[str, tuple[Device, Callable[[int], tuple[str, bytes]], float]] = {
            "alone": (alone, lambda _: junk, 0),
            "in a fleet, nothing new": (member, lambda _: junk, 0),
            "with one budget for the fleet": (budgeted, lambda _: junk, 0),
            "10 messages a second": (member, lambda number: evidence(number, others), 10),
            "flooded by 1 000 a second": (member, lambda _: junk, 1_000),
        }
        for name, (target, say, rate) in [*runs.items()] * ROUNDS:
            with speaker(url, say, rate):
                sleep(0.3)
                found.setdefault(name, []).extend(times_ns(target))
        membership = member.status.fleet
    for name, times in found.items():
        ordered = sorted(times)
        tail = [ordered[int(len(ordered) * share)] / 1e3 for share in (0.99, 0.999)]
        print(f"  {name:<38}{median(ordered) / 1e3:8.2f}{tail[0]:8.2f}{tail[1]:9.2f}{ordered[-1] / 1e3:9.0f}")
    if membership is not None:
        print(f"  The member: {membership.figures()}")


def traffic(url: str, traces: dict[str, str], cost: float, budget: float | None = None, samples: int = 100_000) -> None:
    """What devices publish while each answers so many samples of its trace."""
    sent = list[tuple[str, int]]()
    ended = threading.Event()

    def listen() -> None:
        def take(name: str, payload: bytes, _: bool) -> None:
            sent.append((name, len(name) + len(payload)))

        with Broker("Listener", url).connect("listener", ["hinge/1/yard/#"], ("none", b""), 2**20, take) as broker:
            while not ended.is_set():
                broker.turn(0.2)

    thread = threading.Thread(target=listen)
    thread.start()
    with ExitStack() as stack:
        streams = []
        for name, trace in ((name, load_trace(trace)) for name, trace in traces.items()):
            # So often that, at this pace, no message is left out.
            fleet = Fleet(url, "yard", name, budget=budget, every_s=0.01)
            gate, remote = Gate(offload_cost=cost), partial(getitem, trace.remote)
            member = stack.enter_context(Device(Recorded(trace), remote, gate, fleet=fleet))
            streams.append((member, len(trace)))
        sleep(3)  # until all have connected, and listened
        for number in range(samples):
            for each, length in streams:
                each.infer(number % length)
            if number % 100 == 0:
                sleep(0.015)
    sleep(1)
    ended.set()
    thread.join()
    print(f"\n{samples} samples at an offload cost of {cost:g}, budget {budget}:")
    for name, (each, _) in zip(traces, streams, strict=True):
        sizes = [size for told, size in sent if told.split("/")[3] == name]
        told = f"{len(sizes)} messages, {sum(sizes)} bytes, {max(sizes)} at most"
        print(f"  {traces[name]}: {each.policy.learned} offloads, {told}")


def listen(url: str, numbers: range, ready: Any, ended: Any, found: Any) -> None:
    """Members of a fleet that note when they heard the teacher, in a process of their own."""
    heard = list[tuple[int, float]]()

    def member(number: int) -> None:
        peers = Peers("class", IDENTITY, 16)

        def take(name: str, payload: bytes, _: bool) -> None:
            said = peers.take(name, payload)
            if said is not None:
                heard.append((said.counter, monotonic()))

        with Broker("Member", url).connect(f"m{number}", subscription("class"), ("none", b""), 4096, take) as broker:
            ready.release()
            while not ended.is_set():
                broker.turn(0.5)

    threads = [threading.Thread(target=member, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.put(heard)


def lessons(url: str, devices: int, rounds: int = 20) -> None:
    """Seconds until the evidence of one is with all the others."""
    context = get_context("spawn")
    ready, ended, found = context.Semaphore(0), context.Event(), context.Queue()
    parts = [range(first, min(first + TOGETHER, devices)) for first in range(0, devices, TOGETHER)]
    processes = [context.Process(target=listen, args=(url, part, ready, ended, found)) for part in parts]
    for process in processes:
        process.start()
    for _ in range(devices):
        assert ready.acquire(timeout=120)
    sent = {}
    with teacher(url) as broker:
        for counter in range(1, rounds + 1):
            sent[counter] = monotonic()
            broker.publish(*lesson("class", "teacher", counter))
            broker.turn(1.0)
        broker.turn(5.0)
    ended.set()
    took = sorted(at - sent[counter] for _ in processes for counter, at in found.get())
    for process in processes:
        process.join()
    lost, tail = devices * rounds - len(took), took[int(0.99 * len(took))]
    print(f"\nA lesson at {devices} devices: half within {median(took):.3f} s, 99 % within {tail:.3f} s, {lost} lost")


def teacher(url: str) -> Connection:
    return Broker("Teacher", url).connect("teacher", "none", None, 4096, lambda *_: None)


def lesson(fleet: str, name: str, counter: int) -> tuple[str, bytes]:
    """Evidence like that of all others, but for the offloads of the first bin: one more than the counter before."""
    offloads, agreements = [100.0 + counter] + [100.0] * 15, [float(100 * bin // 16) for bin in range(16)]
    return topic(fleet, name, "evidence"), build_evidence(name, IDENTITY, counter, 10**6, offloads, agreements)


class Noting(Sentinel):
    """Notes when it was lent how many offloads of the first bin."""

    def __init__(self, bins: int, offload_cost: float) -> None:
        super().__init__(bins, offload_cost)
        self.lent = list[tuple[float, float]]()

    def borrow(self, offloads: Sequence[float], agreements: Sequence[float], devices: int) -> None:
        super().borrow(offloads, agreements, devices)
        self.lent.append((offloads[0], monotonic()))


def borrowed(url: str, devices: int, rounds: int = 100) -> None:
    """Seconds from when one publishes until a device that knows as many others has pooled it and may rely on it."""
    policy, sent = Noting(16, 0.5), {}
    fleet = Fleet(url, "school", "pupil")
    local, remote = (lambda sample: [0.0, sample]), (lambda sample: int(sample > 1))
    with teacher(url) as broker, Device(local, remote, policy, fleet=fleet) as pupil:
        for number in range(devices - 1):
            broker.publish(*lesson("school", f"d{number}", 0))
        broker.settle(60)
        while not policy.lent or policy.lent[-1][0] < 100 * (devices - 1):
            pupil.infer(6.0)
            broker.turn(0.1)
        for counter in range(1, rounds + 1):
            broker.turn(random.uniform(1.0, 2.0))
            sent[counter] = monotonic()
            broker.publish(*lesson("school", "teacher", counter))
            broker.settle(5)
            pupil.infer(6.0)
        broker.turn(5.0)
    known = {counter: [at for seen, at in policy.lent if seen >= 100 * devices + counter] for counter in sent}
    took = sorted(times[0] - sent[counter] for counter, times in known.items() if times)
    tail, lost = took[int(0.99 * len(took))], rounds - len(took)
    print(f"Borrowed, of {devices} devices: half within {median(took):.3f} s, 99 % within {tail:.3f} s, {lost} lost")


def pooling() -> None:
    """Milliseconds to pool what so many others have seen."""
    chance = random.Random(1)
    for devices in (12, 100, 1_000):
        seen = {f"d{number}": [float(chance.randint(0, 80)) for _ in range(16)] for number in range(devices)}
        said = {name: (row, [round(n * bin / 16) for bin, n in enumerate(row)]) for name, row in seen.items()}
        times = []
        for _ in range(5):
            began = perf_counter_ns()
            pool(said["d0"], said)
            times.append((perf_counter_ns() - began) / 1e6)
        print(f"Pooling {devices} devices: {median(times):.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=1_000)
    parser.add_argument("--others", type=int, default=12)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        broker = stack.enter_context(Mosquitto(folder, "allow_anonymous true", "max_queued_messages 10000"))
        accepted(broker.url, arguments.others)
        traffic(broker.url, {"hall": "fashion"}, 0.5)
        unlike = ("fashion", "cifar10-vgg16-calibrated", "imagenet-mobilenetv2", "cifar100-resnet50")
        traffic(broker.url, {f"d{number}": trace for number, trace in enumerate(unlike)}, 0.05, BUDGET)
        lessons(broker.url, arguments.devices)
        borrowed(broker.url, arguments.devices)
    pooling()


if __name__ == "__main__":
    main()
