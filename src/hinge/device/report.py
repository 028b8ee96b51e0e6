"""A report: how a device fares, as `hinge.device.reporter` makes it and `hinge.server.live` reads it.

When one is read from a message, msgspec checks types and limits. The structs are OpenAPI's schema, too.
"""

from __future__ import annotations

import base64
import binascii
import struct
from functools import lru_cache
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from hinge.oip.tensors import MAX_TEXT

RECENT = 20  # answers in a report
MOST_COMPARED = 8
MOST_BINS = 1024  # the page could not show more
SENTENCE = 1_000  # characters of a fault or a reason
NAME = 64  # of a policy's name
SIDE = 64  # pixels of a picture, each way: a browser would spend seconds and memory on large ones
MOST = 10**12  # the largest number; a chart of larger ones could not tell neighbours apart

Text = Annotated[str, Meta(min_length=1, max_length=MAX_TEXT)]
Sentence = Annotated[str, Meta(min_length=1, max_length=SENTENCE)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME)]
DeviceName = Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9_.-]+$")]
Share = Annotated[float, Meta(ge=0, le=1)]
Number = Annotated[float, Meta(ge=-MOST, le=MOST)]
Positive = Annotated[float, Meta(ge=0, le=MOST)]
Count = Annotated[int, Meta(ge=0, le=MOST)]
Counts = Annotated[dict[Text, Count], Meta(max_length=16)]
Picture = Annotated[str, Meta(max_length=2**15, pattern=r"^data:image/png;base64,[A-Za-z0-9+/=]+$")]


class _Checked(Struct, forbid_unknown_fields=True):
    """A part of a report: text in it is printable."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, str) and not value.isprintable():
                raise ValueError(f"{name} must be printable")


class DeviceStatus(_Checked):
    """A device's counts."""

    samples: Count
    answered_by_remote: Count
    agreed: Positive
    fell_back: Counts
    offload_cost: Positive
    breaker: Literal["closed", "open", "probing"]
    not_durable: Sentence | None
    alarms: Counts
    compared: Count | None = None  # of these answers; older devices do not say
    alarm_reasons: Annotated[dict[Text, Sentence], Meta(max_length=16)] = field(default_factory=dict)
    alarm_times: Annotated[dict[Text, tuple[Positive, Positive | None]], Meta(max_length=16)] = field(
        default_factory=dict
    )  # Unix times of the device: since when, and until when if it is over

    def __post_init__(self) -> None:
        super().__post_init__()
        told = (*self.alarm_reasons, *self.alarm_reasons.values())
        if not all(text.isprintable() for text in (*self.fell_back, *self.alarms, *self.alarm_times, *told)):
            raise ValueError("names of counts and reasons must be printable")


class BinReport(_Checked):
    """A bin's confidences, evidence and licence."""

    bin: Count
    of_class: Text | None = field(name="class")
    low: Share = field(name="from")
    high: Share = field(name="to")
    samples: Count
    offloads: Positive | None
    agreement: Share | None
    expiry: Count | None
    samples_left: Count | None
    offload_probability: Share
    licensed: bool
    reason: Sentence | None = None  # older devices do not say


class Compared(_Checked):
    """Another policy beside the device's own."""

    policy: Name
    offload_fraction: Share | None
    cost_per_sample: Number | None
    regret: Number | None


class RecentSample(_Checked):
    """A sample and its answer."""

    number: Count
    label: Text
    source: Literal["local", "remote"]
    confidence: Share
    bin: Count
    decision: Literal["offload", "accept"]
    cost: Share
    fault: Sentence | None
    reason: Sentence
    truth: Text | None
    picture: Picture | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.picture is not None:
            _check_picture(self.picture)


class Report(_Checked):
    """How a device fares."""

    device: DeviceName
    policy: Name
    offload_cost: Share | None
    status: DeviceStatus
    bins: Annotated[list[BinReport], Meta(max_length=MOST_BINS)]
    cost_per_sample: Number | None
    regret: Number | None
    compare: Annotated[list[Compared], Meta(max_length=MOST_COMPARED)]
    recent: Annotated[list[RecentSample], Meta(max_length=RECENT)]


@lru_cache(maxsize=1024)  # a device sends each picture many times
def _check_picture(url: str) -> None:
    """Refuse a PNG whose header does not say that it is small."""
    try:
        head = base64.b64decode(url.partition(",")[2][:44], validate=True)
        signature, kind, width, height = struct.unpack(">8s4x4sII", head[:24])
    except (binascii.Error, struct.error):
        raise ValueError("picture must be a PNG") from None
    if signature != b"\x89PNG\r\n\x1a\n" or kind != b"IHDR" or not (0 < width <= SIDE and 0 < height <= SIDE):
        raise ValueError(f"picture must be a PNG of at most {SIDE} x {SIDE} pixels")
