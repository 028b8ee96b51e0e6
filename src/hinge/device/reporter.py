"""Reports a device to a server twice a second, so that people can watch it: see `docs/page.md`.

Reports are made and sent in a thread of their own, from a snapshot of the policy. No answer waits for one, and a report
that fails affects nothing else. Besides: what is known of every bin (`licences`), and samples as small pictures.
"""

from __future__ import annotations

import base64
import ssl
import struct
import time
import zlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from threading import Event, Lock, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hinge._checks import positive, real
from hinge.bins import Bins
from hinge.device.answer import Answer
from hinge.device.device import BaseDevice
from hinge.device.report import (
    MOST,
    MOST_BINS,
    MOST_COMPARED,
    NAME,
    RECENT,
    SENTENCE,
    SIDE,
    BinReport,
    Compared,
    DeviceStatus,
    RecentSample,
    Report,
)
from hinge.device.status import Status
from hinge.errors import InvalidMessage, InvalidValue, RemoteFailed
from hinge.ledger import Ledger
from hinge.oip.messages import json_message, model_name
from hinge.policies.policy import Explanation, Policy
from hinge.remotes import Deadline
from hinge.remotes.address import bearer, check_url
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request


def copy_of(device: BaseDevice) -> Policy:
    """A snapshot of the device's policy, to read while the device goes on."""
    policy: Policy = type(device.policy).restore(device.state())
    return policy


def licences(policy: Policy) -> list[Explanation]:
    """What is known of every bin, and until when it is accepted, budgets aside.

    >>> from hinge import Isotonic, at_most
    >>> [licence.offload_probability for licence in licences(at_most(Isotonic(bins=2, offload_cost=0.5), 0.1))]
    [1.0, 1.0]
    """
    free = policy.unlimited
    return [free.explain(bin) for bin in range(policy.bins)]


_KINDS = {1: 0, 3: 2}  # PNG's numbers for grey and for colour, by channels


def small(sample: Any) -> NDArray[np.uint8] | None:
    """A copy of an image, made small by leaving out pixels; None if the sample is no image.

    An image has two axes, or a third of 1 or 3 channels, first or last. Floats go from 0 to 1.

    >>> small(np.zeros((3, 640, 480), np.uint8)).shape
    (64, 48, 3)
    >>> small("no image") is None
    True
    """
    if not isinstance(sample, np.ndarray) or (sample.dtype != np.uint8 and sample.dtype.kind != "f"):
        return None
    if sample.ndim == 3 and sample.shape[0] in _KINDS and sample.shape[2] not in _KINDS:
        sample = np.moveaxis(sample, 0, -1)
    if sample.ndim == 2:
        sample = sample[..., None]
    if sample.ndim != 3 or sample.shape[2] not in _KINDS or min(sample.shape) == 0:
        return None
    step = -(-max(sample.shape[:2]) // SIDE)
    pixels = sample[::step, ::step]
    if pixels.dtype == np.uint8:
        return np.array(pixels)
    return np.array(255 * np.nan_to_num(pixels).clip(0, 1), np.uint8)


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Pixels of shape [height, width, channels] as a PNG file.

    >>> png(np.zeros((1, 1, 1), np.uint8))[:4]
    b'\\x89PNG'
    """
    height, width, channels = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in parts)


def data_url(pixels: NDArray[np.uint8]) -> str:
    """A picture as an address that holds all of it."""
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


_PATIENCE_S = 2.0  # for one report, from connecting to the answer
TEXT = 240  # characters of a label, or of a bin's reason: there are up to 1024 in a report


class Reporter:
    """Reports a device to the server at `url`, under a name, until it is closed; without a URL it only makes reports.

    >>> from hinge import Device, Isotonic
    >>> device = Device(lambda sample: [0.0, sample], lambda sample: 1, Isotonic(bins=16, offload_cost=0.5))
    >>> with Reporter(device, "http://127.0.0.1:9", "kitchen") as reporter:  # nobody is there, which does no harm
    ...     reporter.saw(device.infer(3.0), truth=1)
    ...     report = reporter.report()
    >>> report.status.samples, report.recent[0].source, report.bins[15].offloads
    (1, 'remote', 1.0)
    """

    def __init__(
        self,
        device: BaseDevice,
        url: str | None,
        name: str = "device",
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        every_s: float = 0.5,
    ) -> None:
        self._every_s = positive("Reporter", "every_s", every_s)
        self._device, self._name = device, _checked_name(name)
        self._http = None if url is None else HttpClient(check_url("Reporter", url), bearer("Reporter", token), tls)
        bins = device.policy.bins
        self._lock = Lock()
        self._seen, self._in_bin, self._ledger = 0, [0] * bins, Ledger(bins)
        self._recent: deque[_Seen] = deque(maxlen=RECENT)
        self._compared: dict[str, Compared] = {}
        self.problem: str | None = None  # the last one: the server could not be reached, or refused a report
        self._ended = Event()
        if self._http is not None:
            args = (self._http,)
            self._thread = Thread(target=self._keep_reporting, args=args, name="hinge-reporter", daemon=True)
            self._thread.start()

    def saw(self, answer: Answer, *, picture: Any = None, truth: Any = None) -> None:
        """Take note of an answer; `picture` shows its sample, as an image of bytes, and `truth` is the true label."""
        pixels = None if picture is None else small(picture)
        truth = None if truth is None else self._device.true_label(answer, truth)
        with self._lock:
            self._recent.append(_Seen(self._seen, answer, pixels, truth))
            self._seen += 1
            self._in_bin[answer.bin] += 1
            if truth is None:
                return
            if answer.source == "remote":  # right by definition, as in the paper
                self._ledger.offload(answer.cost, bin=answer.bin)
            else:
                agreed = self._device.task.agreement(answer.label, truth)
                self._ledger.accept(agreed, cost=answer.cost, bin=answer.bin)

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
        if self._http is not None:
            self._thread.join(2 * _PATIENCE_S)
            LOOP.run(self._http.close, deadline=Deadline.after(_PATIENCE_S))

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _keep_reporting(self, http: HttpClient) -> None:
        while not self._ended.wait(self._every_s):
            self._send(http)
        self._send(http)

    def _send(self, http: HttpClient) -> None:
        """Send one report; if that goes wrong, there is the next."""
        try:
            request = Request("POST", f"/hinge/devices/{self._name}", json_message(self.report()))
            deadline = Deadline.after(_PATIENCE_S, time.monotonic())
            response = LOOP.run(http.send, request, deadline, deadline=deadline)
            if response.status != 200:
                told = f"status {response.status}: {response.body.decode(errors='replace')}"
                self.problem = _text(f"the server refused a report with {told}")
        except RemoteFailed as error:
            self.problem = _text(f"the server gives no answer: {error}")
        except Exception as error:
            self.problem = _text(f"no report could be made: {type(error).__name__}: {error}")

    def report(self) -> Report:
        """How the device fares now."""
        with self._lock:  # first, so that the policy has learned from all that was seen
            recent, in_bin, ledger = list(self._recent), list(self._in_bin), deepcopy(self._ledger)
        policy = copy_of(self._device)
        known = licences(policy)
        cost = ledger.figures()["cost_per_sample"]
        regret = ledger.hindsight_regret([licence.agreement for licence in known], policy.offload_cost)
        compared = dict(self._compared)
        if (own := compared.pop(policy.name, None)) is not None:
            cost, regret = own.cost_per_sample, own.regret
        explain = lru_cache(maxsize=None)(policy.explain)  # which is dear where there is a budget
        return Report(
            device=self._name,
            policy=policy.name[:NAME],
            offload_cost=policy.offload_cost,
            status=_status(self._device.status),
            bins=_bins(self._device.bins, known, in_bin),
            cost_per_sample=cost,
            regret=regret,
            compare=list(compared.values()),
            recent=[seen.written(explain) for seen in recent],
        )


class _Seen:
    """An answer, whose picture is written and whose reason is looked up once, when it is first reported."""

    def __init__(self, number: int, answer: Answer, pixels: Any, truth: Any) -> None:
        self._number, self._answer, self._pixels, self._truth = number, answer, pixels, truth
        self._written: RecentSample | None = None

    def written(self, explain: Callable[[int], Explanation]) -> RecentSample:
        if self._written is None:
            answer = self._answer
            self._written = RecentSample(
                number=self._number,
                label=_text(answer.label),
                source=answer.source,
                confidence=float(answer.confidence),
                bin=int(answer.bin),
                decision="offload" if answer.decision.offload else "accept",
                cost=float(answer.cost),
                fault=None if answer.fault is None else _text(answer.fault, SENTENCE),
                reason=_text(answer.reason_by(explain(answer.bin)), SENTENCE),
                truth=None if self._truth is None else _text(self._truth),
                picture=None if self._pixels is None else data_url(self._pixels),
            )
        return self._written


def _status(status: Status) -> DeviceStatus:
    return DeviceStatus(
        samples=status.samples,
        answered_by_remote=status.answered_by_remote,
        compared=status.compared,
        agreed=status.agreed,
        fell_back=status.fell_back,
        offload_cost=status.offload_cost,
        breaker=status.breaker,
        not_durable=None if status.not_durable is None else _text(status.not_durable, SENTENCE),
        alarms=status.alarms,
        alarm_reasons={what: _text(why, SENTENCE) for what, why in status.alarm_reasons.items()},
        alarm_times=status.alarm_times,
    )


def _bins(bins: Bins, known: Sequence[Explanation], in_bin: Sequence[int]) -> list[BinReport]:
    """Each bin's confidences, its evidence and its licence; none if they are too many to look at."""
    if len(known) > MOST_BINS:
        return []
    return [
        BinReport(
            bin=licence.bin,
            of_class=None if of_class is None else _text(of_class),
            low=low,
            high=high,
            samples=in_bin[licence.bin],
            offloads=licence.offloads,
            agreement=None if licence.agreement is None else min(1.0, licence.agreement),  # sums that age round
            expiry=_limited(licence.expiry),
            samples_left=_limited(licence.samples_left),
            offload_probability=licence.offload_probability,
            licensed=licence.offload_probability == 0.0,
            reason=_text(licence.reason),
        )
        for licence, (of_class, low, high) in zip(known, bins.spans(), strict=True)
    ]


def _limited(samples: int | None) -> int | None:
    """What lies beyond the largest number of a report is as good as the end."""
    return None if samples is None else min(samples, MOST)


def _compared(row: Mapping[str, Any]) -> Compared:
    figures = ("offload_fraction", "cost_per_sample", "regret")
    numbers = {key: None if row.get(key) is None else real("Reporter", key, row[key]) for key in figures}
    return Compared(policy=_text(row["policy"])[:NAME], **numbers)


def _text(value: object, most: int = TEXT) -> str:
    """What may stand on a page and in a log."""
    text = "".join(char if char.isprintable() else " " for char in str(value)[: most + 1])
    return (text if len(text) <= most else text[: most - 1] + "…") or "–"


def _checked_name(name: str) -> str:
    try:
        return model_name(name, "name")
    except InvalidMessage as error:
        raise InvalidValue("Reporter", "name", str(error).removeprefix("name ")) from None
