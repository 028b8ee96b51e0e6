"""What a device reports of itself (see `hinge.device.reporter`): its form, and the figures in it."""

from array import array
from math import isnan, nan
from typing import Any, NamedTuple, TypeAlias

from hinge.device.reporter import MOST_BINS, MOST_COMPARED, NAME, RECENT
from hinge.errors import InvalidMessage
from hinge.oip.json import read_json, shown, write_json
from hinge.server.events import event
from hinge.server.shapes import COUNT, Counts, Many, Maybe, Number, Record, Text, Truth

MAX_REPORT_BYTES = 2**20

_SHARE = Number(0, 1)
_ANY = Maybe(Number())
_STATUS = Record(
    {
        "samples": COUNT,
        "answered_by_remote": COUNT,
        "agreed": Number(0),
        "fell_back": Counts(),
        "offload_cost": Number(0),
        "breaker": Text(16, "closed|open|probing"),
        "not_durable": Maybe(Text()),
        "alarms": Counts(),
    }
)
_BIN = Record(
    {
        "bin": COUNT,
        "class": Maybe(Text()),
        "from": _SHARE,
        "to": _SHARE,
        "samples": COUNT,
        "offloads": Maybe(Number(0)),
        "agreement": Maybe(_SHARE),
        "expiry": Maybe(COUNT),
        "samples_left": Maybe(COUNT),
        "offload_probability": _SHARE,
        "licensed": Truth(),
    }
)
_RECENT = Record(
    {
        "number": COUNT,
        "label": Text(),
        "source": Text(16, "local|remote"),
        "confidence": _SHARE,
        "bin": COUNT,
        "decision": Text(16, "offload|accept"),
        "cost": _SHARE,
        "fault": Maybe(Text()),
        "reason": Text(),
        "truth": Maybe(Text()),
        "picture": Maybe(Text(2**15, "data:image/png;base64,[A-Za-z0-9+/=]+")),
    }
)
_COMPARED = Record({"policy": Text(NAME), "offload_fraction": Maybe(_SHARE), "cost_per_sample": _ANY, "regret": _ANY})
REPORT = Record(
    {
        "device": Text(64, "[A-Za-z0-9_.-]+"),
        "policy": Text(NAME),
        "offload_cost": Maybe(_SHARE),
        "status": _STATUS,
        "bins": Many(_BIN, MOST_BINS),
        "cost_per_sample": _ANY,
        "regret": _ANY,
        "compare": Many(_COMPARED, MOST_COMPARED),
        "recent": Many(_RECENT, RECENT),
    }
)


# What the page draws over time: samples, offloads, offload cost, cost per sample and regret, then for each policy that
# is compared its offload fraction, cost per sample and regret. What is not known is no number.
Point: TypeAlias = "array[float]"  # as a history of many devices is to be small
OWN = 5  # numbers of the device itself, with which a point begins


class Figures(NamedTuple):
    """The numbers of a report that go into the metrics and the history, and the event that tells of it."""

    samples: int
    offloads: int
    answered_by_remote: int
    agreed: float
    offload_cost: float
    cost_per_sample: float | None
    regret: float | None
    breaker_open: bool
    not_durable: bool
    licensed_bins: int
    fell_back: dict[str, int]
    alarms: dict[str, int]
    compared: tuple[str, ...]  # the policies beside the device's own
    point: Point
    told: bytes


def read_report(name: str, body: bytes) -> Figures:
    """The figures of a report of the device of that name; whatever else it is raises `InvalidMessage`."""
    report: dict[str, Any] = read_json(body)
    REPORT.check("report", report)
    if report["device"] != name:
        raise InvalidMessage(f"report: device must be the one that reports, got {shown(report['device'])}")
    status = report["status"]
    offloads = status["answered_by_remote"] + sum(status["fell_back"].values())
    point = _point(report, offloads)
    return Figures(
        samples=status["samples"],
        offloads=offloads,
        answered_by_remote=status["answered_by_remote"],
        agreed=status["agreed"],
        offload_cost=status["offload_cost"],
        cost_per_sample=report["cost_per_sample"],
        regret=report["regret"],
        breaker_open=status["breaker"] != "closed",
        not_durable=status["not_durable"] is not None,
        licensed_bins=sum(each["licensed"] for each in report["bins"]),
        fell_back=status["fell_back"],
        alarms=status["alarms"],
        compared=tuple(row["policy"] for row in report["compare"]),
        point=point,
        told=event("report", b'{"report":%s,"point":%s}' % (write_json(report), write_point(point))),
    )


def write_point(point: Point) -> bytes:
    """A point as JSON; nine digits are more than a chart can show.

    >>> write_point(array("d", [3.0, nan, 1 / 3]))
    b'[3,null,0.333333333]'
    """
    return b"[%s]" % ",".join(map(_number, point)).encode("ascii")


def _number(number: float) -> str:
    if isnan(number):
        return "null"
    return str(int(number)) if number.is_integer() else f"{number:.9g}"


def _point(report: dict[str, Any], offloads: int) -> Point:
    status = report["status"]
    numbers = [status["samples"], offloads, status["offload_cost"], report["cost_per_sample"], report["regret"]]
    for row in report["compare"]:
        numbers += [row["offload_fraction"], row["cost_per_sample"], row["regret"]]
    return array("d", [nan if number is None else number for number in numbers])
