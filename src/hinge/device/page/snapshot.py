"""What the live page shows of a device: what it knows of every bin, its figures, and its last answers."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from threading import Lock
from typing import Any

from hinge.bins import FittedBins
from hinge.device.answer import Answer
from hinge.device.device import BaseDevice
from hinge.device.page.pictures import data_url, small
from hinge.errors import printable
from hinge.gate import Gate
from hinge.ledger import Ledger
from hinge.policies.policy import Explanation

RECENT = 20  # answers that are shown
MAX_BINS = 1024  # the page could not show more
TEXT, SENTENCE = 240, 1_000  # characters of a label, and of a fault or a reason
_STATUS = (
    "samples", "answered_by_remote", "compared", "agreed", "fell_back", "offload_cost", "breaker", "not_durable",
    "alarms", "alarm_reasons", "alarm_times",
)  # fmt: skip  # several to a line

Json = dict[str, Any]


@dataclass
class _Seen:
    """An answer, which is written once, when it is first shown."""

    number: int
    answer: Answer
    pixels: Any
    truth: Any
    written: Json | None = None

    def as_dict(self, explain: Callable[[float], Explanation]) -> Json:
        if self.written is None:
            answer = self.answer
            self.written = {
                "number": self.number,
                "label": _text(answer.label),
                "source": answer.source,
                "confidence": float(answer.confidence),
                "fault": None if answer.fault is None else _text(answer.fault, SENTENCE),
                "reason": _text(answer.reason_by(explain(answer.confidence)), SENTENCE),
                "truth": None if self.truth is None else _text(self.truth),
                "picture": None if self.pixels is None else data_url(self.pixels),
            }
        return self.written


class Snapshots:
    """Takes note of a device's answers, and says what the page shows. Thread-safe.

    >>> from hinge import Device
    >>> device = Device(lambda sample: [0.0, sample], lambda sample: 1, offload_cost=0.5)
    >>> snapshots = Snapshots(device)
    >>> snapshots.saw(device.infer(3.0), truth=1)
    >>> shown = snapshots.take()
    >>> shown["status"]["samples"], shown["recent"][0]["source"], shown["bins"][15]["offloads"]
    (1, 'remote', 1.0)
    """

    def __init__(self, device: BaseDevice) -> None:
        self._device, self._lock = device, Lock()
        self._number, self._in_bin, self._ledger = 0, Counter[int](), Ledger()
        self._recent: deque[_Seen] = deque(maxlen=RECENT)
        self._compared: dict[str, Json] = {}

    def saw(self, answer: Answer, *, picture: Any = None, truth: Any = None) -> None:
        """Take note of an answer; `picture` shows its sample, as an image of bytes, and `truth` is the true label."""
        pixels = None if picture is None else small(picture)
        truth = None if truth is None else self._device.task.answer(truth)
        with self._lock:
            self._recent.append(_Seen(self._number, answer, pixels, truth))
            self._number += 1
            self._in_bin[answer.group] += 1
            if truth is None:
                return
            if answer.source == "remote":  # right by definition, as in the paper
                self._ledger.offload(answer.cost)
            else:
                agreed = self._device.task.agreement(answer.label, truth)
                self._ledger.accept(agreed, cost=answer.cost)

    def compare(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show other policies beside this one: dicts of policy, offload_fraction, cost_per_sample and regret.

        If the device's own policy is among them, its cost and regret are taken from there: who compares knows more.
        """
        figures = ("policy", "offload_fraction", "cost_per_sample", "regret")
        self._compared = {row["policy"]: {key: row.get(key) for key in figures} for row in rows}

    def take(self) -> Json:
        """Return how the device fares now."""
        with self._lock:  # first, so that the gate has learned from all that was seen
            recent, in_bin, ledger = list(self._recent), Counter(self._in_bin), deepcopy(self._ledger)
        gate, status = self._device.copy_of_gate(), self._device.status
        compared, cost, regret = dict(self._compared), ledger.figures()["cost_per_sample"], None
        if (own := compared.pop(gate.policy.name, None)) is not None:
            cost, regret = own["cost_per_sample"], own["regret"]
        return {
            "policy": gate.policy.name,
            "offload_cost": gate.offload_price if gate.policy.weighs_price else None,
            "status": {name: getattr(status, name) for name in _STATUS},
            "bins": _bins(gate, in_bin) if gate.bins.bins <= MAX_BINS else [],
            "cost_per_sample": cost,
            "regret": regret,
            "compare": list(compared.values()),
            "recent": [seen.as_dict(gate.explain) for seen in recent],
        }


def _bins(gate: Gate, in_bin: Counter[int]) -> list[Json]:
    """Each bin's confidences, its evidence and its licence; of bins that fit themselves, all samples that it holds."""
    if isinstance(gate.bins, FittedBins):
        in_bin = Counter()
        for bin, samples in zip(gate.bins.cells.group, gate.bins.cells.samples, strict=True):
            in_bin[bin] += int(samples)
    return [
        {
            "from": low,
            "to": high,
            "samples": in_bin[bin],
            "offloads": why.offloads,
            "agreement": None if why.agreement is None else min(1.0, why.agreement),  # sums that age round
            "samples_left": why.samples_left,
            "offload_probability": why.offload_probability,
            "licensed": why.offload_probability == 0.0,
            "reason": why.reason,
        }
        for bin, (low, high) in enumerate(gate.bins.spans())
        for why in [gate.explain((low + high) / 2.0)]
    ]


def _text(value: object, most: int = TEXT) -> str:
    return printable(str(value), most) or "–"
