"""What keeping a policy on disk adds to an update: microseconds, with and without the store.

    python benchmarks/store.py [--updates N] [--folder FOLDER]

An update is one offload: `decide` and `learn`, timed each. The two kinds of run take turns in one process. The folder
should be on the disk that is meant; by default it is made where temporary files go.
"""

import argparse
import gc
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter_ns, sleep

from hinge import Isotonic, Policy, Thompson, at_most, on_budget
from hinge.device.storage.store import Store

ROUNDS = 5
PAUSE_S = 0.0003  # between two updates: an offload takes longer than that


def policies() -> dict[str, Policy]:
    return {
        "isotonic, known cost": Isotonic(bins=16, offload_cost=0.9),
        "isotonic, learned cost": Isotonic(bins=16),
        "thompson": Thompson(bins=16, offload_cost=0.5),
        "at_most(on_budget(isotonic))": at_most(on_budget(Isotonic(bins=16, offload_cost=0.1), offloads=0.4)),
    }


def times_ns(decider: Policy | Store, updates: int) -> tuple[list[int], list[int]]:
    """Nanoseconds of each offload's decision, and of each update."""
    deciding, learning, bin = list[int](), list[int](), 0
    while len(learning) < updates:
        bin = (bin * 5 + 3) % 16
        began = perf_counter_ns()
        decision = decider.decide(bin)
        decided = perf_counter_ns()
        if not decision.offload:
            continue
        decider.learn(decision, agreed=bin % 3 == 0, cost=0.5)
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


def compare(name: str, policy: Policy, updates: int, folder: Path) -> None:
    plain: tuple[list[int], list[int]] = [], []
    kept: tuple[list[int], list[int]] = [], []
    alone = policy.fresh()
    with Store(folder, policy) as store:
        for _ in range(ROUNDS):
            for decider, all_times in ((alone, plain), (store, kept)):
                for total, part in zip(all_times, times_ns(decider, updates // ROUNDS), strict=True):
                    total += part
        durable, reason = store.durable, store.reason
    print(f"{name}{'' if durable else f' (not durable: {reason})'}")
    for what, without, with_store in zip(("decide, an offload", "learn"), plain, kept, strict=True):
        print(line(f"{what}, without", without, median(without)))
        print(line(f"{what}, with the store", with_store, median(without)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what the store adds to an update.")
    parser.add_argument("--updates", type=int, default=4_000)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    gc.disable()  # as timeit does
    print(f"{'µs':<40}{'median':>8}{'p99':>8}{'p99.9':>9}{'added':>9}")
    for number, (name, policy) in enumerate(policies().items()):
        with TemporaryDirectory(dir=arguments.folder) as folder:
            compare(name, policy, arguments.updates, Path(folder) / str(number))


if __name__ == "__main__":
    main()
