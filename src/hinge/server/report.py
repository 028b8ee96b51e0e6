"""What a device reports of itself (see `hinge.gate.reporting`): its form, and the figures in it."""

from typing import Any, NamedTuple

from hinge.errors import InvalidMessage
from hinge.gate.protocol.wire import read_json, shown, write_json
from hinge.gate.reporting import MOST_BINS, MOST_COMPARED, RECENT
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
_COMPARED = Record({"policy": Text(), "offload_fraction": Maybe(_SHARE), "cost_per_sample": _ANY, "regret": _ANY})
REPORT = Record(
    {
        "device": Text(64, "[A-Za-z0-9_.-]+"),
        "policy": Text(),
        "offload_cost": Maybe(_SHARE),
        "status": _STATUS,
        "bins": Many(_BIN, MOST_BINS),
        "cost_per_sample": _ANY,
        "regret": _ANY,
        "compare": Many(_COMPARED, MOST_COMPARED),
        "recent": Many(_RECENT, RECENT),
    }
)


class Figures(NamedTuple):
    """The numbers of a report that go into the metrics, and the report itself, written anew on one line."""

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
    point: bytes
    written: bytes


def read_report(name: str, body: bytes) -> Figures:
    """The figures of a report of the device of that name; whatever else it is raises `InvalidMessage`."""
    report: dict[str, Any] = read_json(body)
    REPORT.check("report", report)
    if report["device"] != name:
        raise InvalidMessage(f"report: device must be the one that reports, got {shown(report['device'])}")
    status = report["status"]
    offloads = status["answered_by_remote"] + sum(status["fell_back"].values())
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
        point=_point(report, offloads),
        written=write_json(report),
    )


def _point(report: dict[str, Any], offloads: int) -> bytes:
    """What the page draws over time."""
    compared = [
        [row["policy"], row["offload_fraction"], row["cost_per_sample"], row["regret"]] for row in report["compare"]
    ]
    return write_json(
        {
            "samples": report["status"]["samples"],
            "offloads": offloads,
            "offload_cost": report["status"]["offload_cost"],
            "cost_per_sample": report["cost_per_sample"],
            "regret": report["regret"],
            "compare": compared,
        }
    )
