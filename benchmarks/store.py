"""What keeping a gate on disk adds to an update: microseconds, in memory and on disk.

    python benchmarks/store.py [--updates N] [--folder FOLDER]

An update is one offload: `decide` and `learn`, timed each. The two kinds of run take turns in one process. The folder
should be on the disk that is meant; by default it is made where temporary files go.
"""

import argparse
import gc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns, sleep

from hinge import Gate, Thompson
from hinge.device.locked import LockedGate
from hinge.device.store import Store

ROUNDS = 5
PAUSE_S = 0.0003  # between two updates: an offload takes longer than that


def gates() -> dict[str, Callable[[], Gate]]:
    return {
        "probation, fitted bins": lambda: Gate(offload_cost=0.9),
        "probation, a measured price": lambda: Gate(),
        "thompson": lambda: Gate(Thompson(bins=16, offload_cost=0.5)),
        "probation, a budget": lambda: Gate(offload_cost=0.1, budget=0.4),
    }


def times_ns(store: LockedGate, updates: int) -> tuple[list[int], list[int]]:
    """Nanoseconds of each offload's decision, and of each update."""
    deciding, learning, bin = list[int](), list[int](), 0
    while len(learning) < updates:
        bin = (bin * 5 + 3) % 16
        began = perf_counter_ns()
        decision = store.decide(bin / 16)
        decided = perf_counter_ns()
        if not decision.offload:
            continue
        store.learn(decision, agreed=bin % 3 == 0, cost=0.5)
        done = perf_counter_ns()
        deciding.append(decided - began)
        learning.append(done - decided)
        sleep(PAUSE_S)
    return deciding, learning


def line(name: str, samples: list[int], bare: float) -> str:
    ordered = sorted(samples)
    middle = median(ordered)
    tail = [ordered[int(len(ordered) * share)] / 1e3 for share in (0.99, 0.999)]
    return f"  {name:<38}{middle / 1e3:8.2f}{tail[0]:8.2f}{tail[1]:9.2f}{(middle - bare) / 1e3:9.2f}"


def compare(name: str, gate: Callable[[], Gate], updates: int, folder: Path) -> None:
    plain: tuple[list[int], list[int]] = [], []
    kept: tuple[list[int], list[int]] = [], []
    behind: tuple[list[int], list[int]] = [], []
    memory = LockedGate(gate())
    with (
        Store(folder / "disk", gate()) as disk,
        Store(folder / "thread", gate(), background=True) as thread,
    ):
        for _ in range(ROUNDS):
            for store, all_times in ((memory, plain), (disk, kept), (thread, behind)):
                for total, part in zip(all_times, times_ns(store, updates // ROUNDS), strict=True):
                    total += part
        problem = disk.problem or thread.problem
    print(f"{name}{'' if problem is None else f' (not durable: {problem})'}")
    for what, without, with_disk, with_thread in zip(("decide, an offload", "learn"), plain, kept, behind, strict=True):
        bare = median(without)
        print(line(f"{what}, in memory", without, bare))
        print(line(f"{what}, on disk", with_disk, bare))
        print(line(f"{what}, on disk by the thread", with_thread, bare))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what the store adds to an update.")
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    gc.disable()  # as timeit does
    print(f"{'µs':<40}{'median':>8}{'p99':>8}{'p99.9':>9}{'added':>9}")
    for number, (name, gate) in enumerate(gates().items()):
        with TemporaryDirectory(dir=arguments.folder) as folder:
            compare(name, gate, arguments.updates, Path(folder) / str(number))


if __name__ == "__main__":
    main()
