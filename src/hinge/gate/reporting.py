"""Tells a server how a device fares, twice a second, so that people can watch it: see `docs/page.md`.

What is reported is gathered in a thread of its own, from a copy of the policy. The way of a sample does not know of it,
and whatever becomes of a report, nothing else does.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from itertools import pairwise
from threading import Event, Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from hinge.arguments import positive, real
from hinge.bins import ClassBins, QuantileBins, UniformBins
from hinge.errors import InvalidMessage, RemoteFailed
from hinge.gate.answer import Answer
from hinge.gate.core import Core
from hinge.gate.deadline import Deadline
from hinge.gate.hindsight import Hindsight
from hinge.gate.licences import copy_of, licences
from hinge.gate.pictures import data_url, small
from hinge.gate.protocol.wire import json_message, model_name
from hinge.gate.remote.http import Ask, Http, Response
from hinge.gate.tally import Status
from hinge.policies.decision import Explanation

RECENT = 20  # answers in a report
MOST_COMPARED = 8
MOST_BINS = 1024  # in a report; the page could not show more
_PATIENCE_S = 2.0  # for one report, from connecting to the answer
TEXT = 240  # characters of a label, a fault or a reason
NAME = 64  # of a policy's name
_MOST = 10**12  # the largest number of a report

Json = dict[str, Any]


class Reporter:
    """Reports a device to the server at `url`, under a name, until it is closed.

    >>> from hinge import Device, Isotonic
    >>> device = Device(lambda sample: [0.0, sample], lambda sample: 1, Isotonic(bins=16, offload_cost=0.5))
    >>> with Reporter(device, "http://127.0.0.1:9", "kitchen") as reporter:  # nobody is there, which does no harm
    ...     reporter.saw(device.infer(3.0), truth=1)
    ...     report = reporter.report()
    >>> report["status"]["samples"], report["recent"][0]["source"], report["bins"][15]["offloads"]
    (1, 'remote', 1.0)
    """

    def __init__(
        self, device: Core, url: str, name: str = "device", *, token: str | None = None, every_s: float = 0.5
    ) -> None:
        self._every_s = positive("Reporter", "every_s", every_s)
        self._device, self._name = device, _checked_name(name)
        self._http = Http(_checked_url(url), {} if token is None else {"Authorization": f"Bearer {token}"})
        bins = device.policy.bins
        self._lock = Lock()
        self._seen, self._in_bin, self._hindsight = 0, [0] * bins, Hindsight(bins)
        self._recent: deque[_Seen] = deque(maxlen=RECENT)
        self._compared: dict[str, Json] = {}
        self.problem: str | None = None  # the last one: the server could not be reached, or refused a report
        self._ended = Event()
        self._thread = Thread(target=self._keep_reporting, name="hinge-reporter", daemon=True)
        self._thread.start()

    def saw(self, answer: Answer, *, picture: Any = None, truth: Any = None) -> None:
        """Take note of an answer; `picture` shows its sample, as an image of bytes, and `truth` is the true label."""
        pixels = None if picture is None else small(picture)
        with self._lock:
            self._recent.append(_Seen(self._seen, answer, pixels, truth))
            self._seen += 1
            self._in_bin[answer.bin] += 1
            if truth is not None:
                self._hindsight.take(answer, truth)

    def compare(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Show other policies beside this one: dicts of policy, offload_fraction, cost_per_sample and regret.

        If the device's own policy is among them, its cost and regret are taken from there: who compares knows more.
        """
        if len(rows) > MOST_COMPARED:
            raise ValueError(f"Reporter: rows must be {MOST_COMPARED} at most, got {len(rows)}")
        self._compared = {str(row["policy"]): _compared(row) for row in rows}

    def close(self) -> None:
        """Report for the last time."""
        self._ended.set()
        self._thread.join(2 * _PATIENCE_S)
        self._http.close()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _keep_reporting(self) -> None:
        while not self._ended.wait(self._every_s):
            self._send()
        self._send()

    def _send(self) -> None:
        """Send one report; if that goes wrong, there is the next."""
        try:
            ask = Ask("POST", f"/hinge/devices/{self._name}", json_message(self.report()))
            response = self._http.send(ask, Deadline.after(_PATIENCE_S, time.monotonic()))
            if response.status != 200:
                self.problem = _refusal(response)
        except RemoteFailed as error:
            self.problem = _text(f"the server gives no answer: {error}")
        except Exception as error:
            self.problem = _text(f"no report could be made: {type(error).__name__}: {error}")

    def report(self) -> Json:
        """How the device fares now."""
        with self._lock:  # first, so that the policy has learned from all that was seen
            recent, in_bin, hindsight = list(self._recent), list(self._in_bin), deepcopy(self._hindsight)
        policy = copy_of(self._device)
        known = licences(policy)
        regret = hindsight.regret(known, policy.offload_cost)
        compared = dict(self._compared)
        judged = compared.pop(policy.name, {"cost_per_sample": hindsight.cost_per_sample, "regret": regret})
        explain = lru_cache(maxsize=None)(policy.explain)  # which is dear where there is a budget
        return {
            "device": self._name,
            "policy": policy.name[:NAME],
            "offload_cost": policy.offload_cost,
            "status": _status(self._device.status),
            "bins": _bins(self._device.bins, known, in_bin),
            "cost_per_sample": judged["cost_per_sample"],
            "regret": judged["regret"],
            "compare": list(compared.values()),
            "recent": [seen.as_dict(explain) for seen in recent],
        }


class _Seen:
    """An answer, whose picture is written and whose reason is looked up once, when it is first reported."""

    def __init__(self, number: int, answer: Answer, pixels: Any, truth: Any) -> None:
        self._number, self._answer, self._pixels, self._truth = number, answer, pixels, truth
        self._written: Json | None = None

    def as_dict(self, explain: Callable[[int], Explanation]) -> Json:
        if self._written is None:
            answer = self._answer
            self._written = {
                "number": self._number,
                "label": _text(answer.label),
                "source": answer.source,
                "confidence": float(answer.confidence),
                "bin": int(answer.bin),
                "decision": "offload" if answer.decision.offload else "accept",
                "cost": float(answer.cost),
                "fault": None if answer.fault is None else _text(answer.fault),
                "reason": _text(answer.reason_by(explain(answer.bin))),
                "truth": None if self._truth is None else _text(self._truth),
                "picture": None if self._pixels is None else data_url(self._pixels),
            }
        return self._written


def _status(status: Status) -> Json:
    return {
        "samples": status.samples,
        "answered_by_remote": status.answered_by_remote,
        "agreed": float(status.agreed),
        "fell_back": status.fell_back,
        "offload_cost": float(status.offload_cost),
        "breaker": status.breaker,
        "not_durable": None if status.not_durable is None else _text(status.not_durable),
        "alarms": status.alarms,
    }


def _bins(
    bins: UniformBins | QuantileBins | ClassBins, known: Sequence[Explanation], in_bin: Sequence[int]
) -> list[Json]:
    """Each bin's confidences, its evidence and its licence; none if they are too many to look at."""
    if len(known) > MOST_BINS:
        return []
    return [
        {
            "bin": licence.bin,
            "class": of_class,
            "from": low,
            "to": high,
            "samples": in_bin[licence.bin],
            "offloads": licence.offloads,
            "agreement": None if licence.agreement is None else min(1.0, licence.agreement),  # sums that age round
            "expiry": _whole(licence.expiry),
            "samples_left": _whole(licence.samples_left),
            "offload_probability": licence.offload_probability,
            "licensed": licence.offload_probability == 0.0,
        }
        for licence, (of_class, low, high) in zip(known, _spans(bins), strict=True)
    ]


def _spans(bins: UniformBins | QuantileBins | ClassBins) -> list[tuple[str | None, float, float]]:
    """The class and the confidences of each bin."""
    classes: Sequence[str | None] = [None]
    if isinstance(bins, ClassBins):
        named = range(bins.classes) if isinstance(bins.classes, int) else bins.classes
        classes, bins = [_text(name) for name in named], bins.within
    edges = (0.0, *bins.edges, 1.0)
    return [(name, low, high) for name in classes for low, high in pairwise(edges)]


def _compared(row: Mapping[str, Any]) -> Json:
    figures = ("offload_fraction", "cost_per_sample", "regret")
    numbers = {key: None if row.get(key) is None else real("Reporter", key, row[key]) for key in figures}
    return {"policy": _text(row["policy"])[:NAME], **numbers}


def _whole(number: int | None) -> int | None:
    """A number that a page can show; what lies beyond is as good as the end of it."""
    return None if number is None else min(number, _MOST)


def _refusal(response: Response) -> str:
    return _text(f"the server refused a report with status {response.status}: {response.body.decode(errors='replace')}")


def _text(value: object) -> str:
    """What may stand on a page and in a log."""
    return "".join(char if char.isprintable() else " " for char in str(value)[:TEXT]) or "–"


def _checked_name(name: str) -> str:
    try:
        return model_name(name, "name")
    except InvalidMessage as error:
        raise ValueError(f"Reporter: {error}") from None


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"Reporter: url must start with http:// or https:// and name a host, got {url!r}")
    return url
