"""What became of the samples so far: counted as answers come, in room that does not grow with them."""

from __future__ import annotations

import math
from collections import Counter, deque
from typing import Any, NamedTuple

from hinge.cli.device.samples import Case
from hinge.device.answer import Answer
from hinge.device.status import Status

_STEP = math.log(1.01)  # latencies are told apart by this much


class Seen(NamedTuple):
    """A sample that was answered."""

    number: int
    case: Case
    answer: Answer


class Course:
    """The samples of one run."""

    def __init__(self, bins: int) -> None:
        self.samples = self.offloads = 0
        self.in_bin = [0] * bins
        self.last: deque[Seen] = deque(maxlen=8)
        self._true = self._truths = self._matched = self._recorded = 0
        self._latencies: Counter[int] = Counter()

    def take(self, case: Case, answer: Answer, latency_ms: float) -> Seen:
        """Count an answer, and how long it took."""
        seen = Seen(self.samples, case, answer)
        self.samples += 1
        self.offloads += answer.decision.offload
        self.in_bin[answer.bin] += 1
        if case.truth is not None:
            self._truths += 1
            self._true += answer.label == case.truth
        if case.remote is not None:
            self._recorded += 1
            self._matched += answer.label == case.remote
        self._latencies[round(math.log(max(latency_ms, 1e-6)) / _STEP)] += 1
        self.last.append(seen)
        return seen

    def latency_ms(self, share: float) -> float | None:
        """The time within which this share of the answers came, to a hundredth of it.

        >>> course = Course(bins=1)
        >>> course.latency_ms(0.5) is None
        True
        """
        left = share * self._latencies.total()
        for step, count in sorted(self._latencies.items()):
            left -= count
            if left <= 0:
                return math.exp(step * _STEP)
        return None

    def figures(self, status: Status, seconds: float) -> dict[str, Any]:
        """The summary, in the words that the other commands use; None stands for what nobody knows."""
        samples = self.samples
        missed, mistaken = self._recorded - self._matched, self._truths - self._true
        all_recorded, all_true = self._recorded == samples > 0, self._truths == samples > 0
        return {
            "samples": samples,
            "seconds": seconds,
            "offloads": self.offloads,
            "offload_fraction": _share(self.offloads, samples),
            "asked": asked(status),
            "answered_by_remote": status.answered_by_remote,
            "fell_back": status.fell_back,
            "dropped": status.dropped,
            "agreement": _share(status.agreed, status.answered_by_remote),
            "offload_cost": status.offload_cost,
            "offload_cost_per_sample": _share(status.offload_cost, samples),
            "accuracy": _share(self._matched, self._recorded),
            "cost_per_sample": _share(status.offload_cost + missed, samples) if all_recorded else None,
            "true_accuracy": _share(self._true, self._truths),
            "true_cost_per_sample": _share(status.offload_cost + mistaken, samples) if all_true else None,
            "latency_ms_p50": self.latency_ms(0.5),
            "latency_ms_p99": self.latency_ms(0.99),
            "breaker": status.breaker,
            "last_fault": status.last_fault,
            "not_durable": status.not_durable,
            "alarms": status.alarms,
        }


def asked(status: Status) -> int:
    """For how many samples the remote was asked; those that found the breaker open were not sent."""
    return status.answered_by_remote + sum(status.fell_back.values()) - status.fell_back.get("breaker", 0)


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None
