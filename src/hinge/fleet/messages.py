"""The messages of a fleet, without I/O: topics, what is built, and what is believed of what was read.

    hinge/1/FLEET/DEVICE/evidence   JSON, retained: what a device has seen itself, as sums per bin
    hinge/1/FLEET/DEVICE/status     JSON, retained, and the last will: whether it is there, and how it fares
    hinge/1/FLEET/REGION/evidence   the same, of all devices of a region, which are in the fleet FLEET.REGION
    hinge/1/FLEET/table/KIND        binary, retained: licences for the thin devices of a kind

JSON, so that people and Home Assistant can read it as it is: with 16 bins, evidence takes a third of a KiB. Only the
table is read by microcontrollers, and so has a fixed form with a CRC.

Everything that is read is hostile: its length is checked before it is parsed, and what cannot be, or does not fit,
raises `Dropped`, whose `reason` is one of `REASONS`.

Messages may come in any order, by any route and more than once: of each device the evidence with the largest counter
counts, once (`Peers`). So a device that joins late, comes back or missed some ends with the same as everybody else.
Of no more than `MOST_DEVICES`: who is not on the broker then makes room for who is.

Home Assistant finds a device by itself, and shows its figures, by `discovery`: one retained message for each figure, in
the form of MQTT discovery (`homeassistant/COMPONENT/NODE/OBJECT/config`), that points at the device's status topic.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from hinge._checks import shown
from hinge.errors import InvalidMessage, InvalidValue
from hinge.gate import Gate
from hinge.oip.messages import decoded, model_name
from hinge.policies.policy import MOST_SAMPLES
from hinge.policies.shared_budget import ACCOUNTS

VERSION = 1
ROOT = f"hinge/{VERSION}"
TABLE = "table"  # stands where a device's name does
MOST_COUNTER = MOST_SAMPLES // 2  # of evidence, that is gone on from: nobody counts so far, and beyond is the end
REASONS = {
    "version": "of another version of Hinge's topics or messages",
    "topic": "a topic that no device of the fleet can have",
    "size": "longer than evidence can be",
    "format": "no evidence",
    "source": "another device's name than that of its topic",
    "gate": "evidence by other bins, another confidence measure, policy or models",
    "counts": "counts that cannot be: agreements above offloads, or more offloads than samples",
    "older": "an older counter than is known of the device, or the same with other evidence",
    "crowd": "a device beyond the most that are kept",
}

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Identity = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}\Z")]
Count = Annotated[int, Meta(ge=0, le=MOST_SAMPLES)]
AccountId = Annotated[str, Meta(pattern=r"^(?!0{15})[0-9a-f]{15}\Z")]  # 0: no account
Amount = Annotated[float, Meta(ge=0.0, le=float(MOST_SAMPLES))]
Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class Dropped(InvalidMessage):
    """A message that is not counted; `reason` is the label under which it is reported.

    >>> raise Dropped("source", "'hall' on the topic of 'kitchen'")
    Traceback (most recent call last):
    hinge.fleet.messages.Dropped: another device's name than that of its topic: 'hall' on the topic of 'kitchen'
    """

    def __init__(self, reason: str, problem: str) -> None:
        super().__init__(f"{REASONS[reason]}: {problem}")
        self.reason = reason


class Statement(Struct, frozen=True, gc=False):
    """Of a device's account in the budget of its fleet (`hinge.fleet.budget`)."""

    account: AccountId
    balance: Count  # credits that it holds
    spent: Count  # offloads so far
    granted: Annotated[dict[AccountId, Count], Meta(max_length=ACCOUNTS)]  # ceded to other accounts, in all


class Evidence(Struct, frozen=True, gc=False):
    """What a device has seen itself: offloads per bin, and in how many local agreed."""

    hinge: int
    device: Name
    gate: Identity
    counter: Count  # only grows: of two messages of a device, the one with the larger is the later
    samples: Count  # decided so far
    offloads: tuple[Amount, ...]
    agreements: tuple[Amount, ...]
    budget: Statement | None = None  # of a device that shares one


class Presence(Struct, frozen=True, gc=False, omit_defaults=True):
    """Whether a device is there, and its figures; of one that vanished, they are those of its last connection."""

    hinge: int
    device: Name
    online: bool
    samples: Count = 0
    offloads: Count = 0
    agreement: Share | None = None  # of local with remote, in what the evidence counts
    price: Share | None = None  # what an offload costs; None: it is learned


class Table(NamedTuple):
    """For devices that only look up: how many samples of each bin may be accepted between two that are offloaded."""

    counter: int  # only grows
    licences: tuple[int, ...]


# -- topics -----------------------------------------------------------------------------------------------------------


def checked_name(owner: str, what: str, name: object) -> str:
    """A name that can stand in a topic.

    >>> checked_name("Fleet", "device", "a/b")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Fleet: device must be 1 to 64 of A-Z a-z 0-9 _ . - and more than dots, got 'a/b'
    """
    try:
        if name == TABLE:
            raise InvalidMessage(f"{what} must not be {TABLE!r}, which has a meaning of its own in topics")
        return model_name(name, what)
    except InvalidMessage as error:
        raise InvalidValue(owner, what, str(error).removeprefix(f"{what} ")) from None


def fleet_name(owner: str, name: str, region: str | None) -> str:
    """The fleet in which a device publishes: that of its region, if it has one.

    >>> fleet_name("Fleet", "cams", None), fleet_name("Fleet", "cams", "north")
    ('cams', 'cams.north')
    """
    checked_name(owner, "name", name)
    return name if region is None else checked_name(owner, "region", f"{name}.{checked_name(owner, 'region', region)}")


def topic(fleet: str, device: str, kind: str) -> str:
    """Where a device publishes its evidence or status.

    >>> topic("cams", "kitchen", "evidence")
    'hinge/1/cams/kitchen/evidence'
    """
    return f"{ROOT}/{fleet}/{device}/{kind}"


def subscription(fleet: str) -> str:
    """Matches the evidence of all devices, and that by other versions of Hinge, which is to be noticed.

    >>> subscription("cams")
    'hinge/+/cams/+/evidence'
    """
    return f"hinge/+/{fleet}/+/evidence"


def observation(fleet: str) -> str:
    """Matches all that devices publish in a fleet, tables included.

    >>> observation("cams")
    'hinge/+/cams/+/+'
    """
    return f"hinge/+/{fleet}/+/+"


def source(name: str, fleet: str, kind: str) -> str:
    """The device whose topic this is."""
    levels = name.split("/") if len(name) <= 256 else []
    if len(levels) != 5 or [levels[0], *levels[2:5:2]] != ["hinge", fleet, kind]:
        raise Dropped("topic", shown(name, 100))
    if levels[1] != str(VERSION):
        raise Dropped("version", f"{shown(name, 100)}; this Hinge speaks {VERSION}")
    try:
        return checked_name("Fleet", "device", levels[3])
    except InvalidValue:
        raise Dropped("topic", shown(name, 100)) from None


def identity(gate: Gate, models: str = "") -> str:
    """What two gates must share for their evidence to mean the same: bins, measure, policy, and what the models are.

    >>> identity(Gate(offload_cost=0.5)) == identity(Gate(offload_cost=0.3)) != identity(Gate(offload_cost=0.3, bins=8))
    True
    """
    policy = gate.policy.unlimited
    settings = {name: getattr(policy, name) for name in policy.merges_on}
    described = [gate.description(), policy.name, settings, models]
    return hashlib.sha256(msgspec.json.encode(described, order="sorted")).hexdigest()[:16]


# -- evidence and status ----------------------------------------------------------------------------------------------


LONGEST_STATUS = 512  # bytes; names, and numbers that do not depend on the bins, fit into as many


def longest(bins: int) -> int:
    """The most bytes that evidence of so many bins can take, statement included: numbers have 16 digits and a point."""
    return LONGEST_STATUS + 2 * 18 * bins + 36 * ACCOUNTS


_EVIDENCE = msgspec.json.Decoder(Evidence)
_PRESENCE = msgspec.json.Decoder(Presence)
_VERSION = msgspec.json.Decoder(dict[str, Any])


def build_evidence(
    device: str,
    gate: str,
    counter: int,
    samples: int,
    offloads: Sequence[float],
    agreements: Sequence[float],
    budget: Statement | None = None,
) -> bytes:
    """The message of a device's own evidence.

    >>> print(build_evidence("kitchen", "0123456789abcdef", 90, 90, [0.0, 12.0], [0.0, 11.5]).decode())
    {"hinge":1,"device":"kitchen","gate":"0123456789abcdef","counter":90,"samples":90,"offloads":[0,12],"agreements":[0,11.5]}
    """
    agreed = map(min, agreements, offloads)  # sums of prices may round
    seen: dict[str, Any] = {"offloads": list(map(_short, offloads)), "agreements": list(map(_short, agreed))}
    if budget is not None:
        seen["budget"] = budget
    return msgspec.json.encode(
        {"hinge": VERSION, "device": device, "gate": gate, "counter": counter, "samples": samples, **seen}
    )


def parse_evidence(name: str, payload: bytes, fleet: str, gate: str | None, bins: int) -> Evidence:
    """The evidence in a message, if it is one of a device of the fleet with such a gate; None: any, of as many bins."""
    device = source(name, fleet, "evidence")
    found = _read(payload, _EVIDENCE, device, longest(bins))
    if gate is None:
        gate, bins = found.gate, min(bins, len(found.offloads))
    if found.gate != gate or not len(found.offloads) == len(found.agreements) == bins:
        raise Dropped("gate", f"{shown(device)} has gate {found.gate} of {len(found.offloads)} bins, we {gate}")
    if any(agreed > seen for agreed, seen in zip(found.agreements, found.offloads, strict=True)):
        raise Dropped("counts", f"{shown(device)} has more agreements than offloads")
    if sum(found.offloads) > found.samples + 1e-6 * bins:  # numbers are rounded in messages
        raise Dropped("counts", f"{shown(device)} has {sum(found.offloads):g} offloads of {found.samples} samples")
    if found.budget is not None and found.budget.spent > found.samples:
        raise Dropped("counts", f"{shown(device)} has spent {found.budget.spent} of {found.samples} samples")
    return found


def build_presence(presence: Presence) -> bytes:
    """The message of a device's status.

    >>> print(build_presence(Presence(1, "kitchen", online=True, samples=90, offloads=12, price=0.5)).decode())
    {"hinge":1,"device":"kitchen","online":true,"samples":90,"offloads":12,"price":0.5}
    """
    return msgspec.json.encode(presence)


def parse_presence(name: str, payload: bytes, fleet: str) -> Presence:
    """The status in a message of a device of the fleet."""
    return _read(payload, _PRESENCE, source(name, fleet, "status"), LONGEST_STATUS)


Said = TypeVar("Said", Evidence, Presence)


def _read(payload: bytes, decoder: msgspec.json.Decoder[Said], device: str, most: int) -> Said:
    """What a decoder makes of a message, if it is of our version and says that it is of this device."""
    if len(payload) > most:
        raise Dropped("size", f"{len(payload)} bytes by {shown(device)}, and there can be {most}")
    try:
        found = decoded(payload, decoder)
    except InvalidMessage as error:
        if _newer(payload):
            raise Dropped("version", f"a message of {shown(device)}; this Hinge speaks {VERSION}") from None
        raise Dropped("format", f"{shown(device)} sent {error}") from None
    if found.hinge != VERSION:
        raise Dropped("version", f"a message of {shown(device)}; this Hinge speaks {VERSION}")
    if found.device != device:
        raise Dropped("source", f"{shown(found.device)} on the topic of {shown(device)}")
    return found


def _newer(payload: bytes) -> bool:
    try:
        version = decoded(payload, _VERSION).get("hinge")
    except InvalidMessage:
        return False
    return type(version) is int and version != VERSION


def _short(value: float) -> float:
    """A whole number where it is one, as most are: half as long."""
    return int(value) if value == int(value) else round(value, 6)


# -- tables -----------------------------------------------------------------------------------------------------------

MOST_BINS, LONGEST_LICENCE, LAST_TABLE = 255, 2**16 - 1, 2**32 - 1  # as in hinge.h
MOST_TABLES = 2**31  # as MOST_COUNTER, of tables
_HEAD, _CRC, _MAGIC = struct.Struct("<2sBBI"), struct.Struct("<I"), b"hT"  # version, bins, counter


def table_topic(fleet: str, kind: str) -> str:
    """Where the table of a kind of thin device is.

    >>> table_topic("cams", "m0")
    'hinge/1/cams/table/m0'
    """
    return f"{ROOT}/{fleet}/{TABLE}/{kind}"


def build_table(table: Table) -> bytes:
    """The message of a table: a head, a licence for each bin, and the CRC of both, all little-endian.

    >>> len(build_table(Table(7, (0,) * 16)))
    44
    """
    head = _HEAD.pack(_MAGIC, VERSION, len(table.licences), table.counter)
    body = head + struct.pack(f"<{len(table.licences)}H", *(min(each, LONGEST_LICENCE) for each in table.licences))
    return body + _CRC.pack(zlib.crc32(body))


def parse_table(payload: bytes, bins: int) -> Table:
    """The table in a message, if it is one of so many bins."""
    if len(payload) != _HEAD.size + 2 * bins + _CRC.size:
        raise Dropped("size", f"a table of {bins} bins, in {len(payload)} bytes")
    magic, version, count, counter = _HEAD.unpack(payload[: _HEAD.size])
    if magic != _MAGIC or _CRC.unpack(payload[-_CRC.size :])[0] != zlib.crc32(payload[: -_CRC.size]):
        raise Dropped("format", "a table that does not match its CRC")
    if version != VERSION:
        raise Dropped("version", f"a table of version {version}; this Hinge speaks {VERSION}")
    if count != bins:
        raise Dropped("gate", f"a table of {count} bins, and we have {bins}")
    return Table(counter, struct.unpack(f"<{bins}H", payload[_HEAD.size : -_CRC.size]))


# -- Home Assistant ---------------------------------------------------------------------------------------------------


PREFIX = "homeassistant"  # Home Assistant's default
_SENSORS: dict[str, dict[str, Any]] = {
    "samples": {"name": "Samples", "state_class": "total_increasing", "icon": "mdi:counter"},
    "offloads": {"name": "Offloads", "state_class": "total_increasing", "icon": "mdi:cloud-upload"},
    "agreement": {"name": "Agreement", "unit_of_measurement": "%", "state_class": "measurement", "icon": "mdi:equal"},
    "price": {"name": "Offload price", "state_class": "measurement", "icon": "mdi:cash"},
}


def discovery(fleet: str, device: str) -> Iterator[tuple[str, bytes]]:
    """The topics and messages for a device.

    >>> for name, _ in discovery("cams", "kitchen"):
    ...     print(name)
    homeassistant/binary_sensor/hinge_cams_kitchen/online/config
    homeassistant/sensor/hinge_cams_kitchen/samples/config
    homeassistant/sensor/hinge_cams_kitchen/offloads/config
    homeassistant/sensor/hinge_cams_kitchen/agreement/config
    homeassistant/sensor/hinge_cams_kitchen/price/config
    """
    status = topic(fleet, device, "status")
    node = f"hinge_{fleet}_{device}".replace(".", "_")  # where a dot may not stand
    about = {"identifiers": [node], "name": f"Hinge {device}", "manufacturer": "Hinge", "model": f"fleet {fleet}"}

    def message(kind: str, figure: str, more: dict[str, Any]) -> tuple[str, bytes]:
        config = {"state_topic": status, "unique_id": f"{node}_{figure}", **more}
        config |= {"device": about, "origin": {"name": "Hinge"}}
        return f"{PREFIX}/{kind}/{node}/{figure}/config", msgspec.json.encode(config)

    online = "{{ 'ON' if value_json.online else 'OFF' }}"
    yield message(
        "binary_sensor", "online", {"name": "Online", "device_class": "connectivity", "value_template": online}
    )
    there = {
        "availability_topic": status,
        "availability_template": "{{ 'online' if value_json.online else 'offline' }}",
    }
    for figure, settings in _SENSORS.items():
        value, known = f"value_json.{figure}", f"value_json.{figure} is number"
        if settings["state_class"] == "total_increasing":
            value, known = f"{value} | default(0)", "value_json.online"  # a message leaves 0 out
        elif figure == "agreement":
            value = f"(100 * {value}) | round(1)"
        template = f"{{% if {known} %}}{{{{ {value} }}}}{{% endif %}}"
        yield message("sensor", figure, {**settings, **there, "value_template": template})


# -- what is known of the others --------------------------------------------------------------------------------------


MOST_DEVICES = 4096
ROUND_S, LONGEST_ROUND_S = 60.0, 86_400.0  # in which all that is retained has come; between two that are asked for


class Peers:
    """The latest evidence of each device of a fleet, and how many messages were dropped, by reason.

    A burst of names that are retained nowhere must not shut out devices for good, nor may more names push out any. So
    once there is no room, the broker is asked in *rounds* for all that it has retained (`asks`). Who comes so, and is
    not known, takes the place of a device that was not heard in this round, nor in all of the one before.

    >>> from hinge.fleet.messages import build_evidence
    >>> peers, gate = Peers("cams", "0123456789abcdef", bins=2), "0123456789abcdef"
    >>> for counter in (90, 60):
    ...     said = peers.take("hinge/1/cams/hall/evidence", build_evidence("hall", gate, counter, 90, [9, 3], [1, 3]))
    Traceback (most recent call last):
    hinge.fleet.messages.Dropped: an older counter than is known of the device, ...: 60 by 'hall', after 90
    >>> peers["hall"].counter, peers.dropped["older"]
    (90, 1)
    """

    def __init__(self, fleet: str, gate: str | None, bins: int, most: int = MOST_DEVICES) -> None:
        self.fleet, self.gate, self.bins, self._most = fleet, gate, bins, most
        self._latest: dict[str, Evidence] = {}
        self._heard = OrderedDict[str, int]()  # the last round in which each was, and in that order
        self._round, self._began, self._whole = 0, 0.0, False
        self._crowd, self._asked, self._pause = 0, 0.0, ROUND_S  # when a round was asked for, and until the next
        self.dropped = dict.fromkeys(REASONS, 0)
        self.version = 0  # how often what is known has changed

    def begin(self, now: float) -> None:
        """All that the broker has retained is about to come, as after every connection."""
        self._round += self._whole
        self._began, self._whole = now, False

    def asks(self, now: float) -> bool:
        """Whether the broker is to be asked for all that it has retained, as there was no room for somebody."""
        self._whole |= now - self._began >= ROUND_S
        if not self._whole or now - self._asked < self._pause:
            return False
        if self.dropped["crowd"] == self._crowd:
            self._pause = ROUND_S
            return False
        self._crowd, self._asked = self.dropped["crowd"], now
        self._pause = min(2 * self._pause, LONGEST_ROUND_S)
        self.begin(now)
        return True

    def take(self, topic: str, payload: bytes, retained: bool = False) -> Evidence | None:
        """Count a message; its evidence, if that is new, or None if it is known. Raises `Dropped`.

        An empty message, by which a retained one is deleted, withdraws what the device has said.
        """
        try:
            if not payload:
                self._forget(source(topic, self.fleet, "evidence"))
                return None
            return self._take(parse_evidence(topic, payload, self.fleet, self.gate, self.bins), retained)
        except Dropped as drop:
            self.dropped[drop.reason] += 1
            raise

    def _take(self, found: Evidence, retained: bool) -> Evidence | None:
        known = self._latest.get(found.device)
        if known is not None:
            self._hear(found.device)
        if known == found:
            return None
        if known is not None and known.counter >= found.counter:
            raise Dropped("older", f"{found.counter} by {shown(found.device)}, after {known.counter}")
        if known is None and len(self._latest) >= self._most:
            oldest = next(iter(self._heard))
            if not retained or self._heard[oldest] >= self._round - 1:
                raise Dropped("crowd", f"{shown(found.device)}, and {self._most} others are known")
            self._forget(oldest)
        self._hear(found.device)
        self._latest[found.device] = found
        self.version += 1
        return found

    def _hear(self, device: str) -> None:
        self._heard[device] = self._round
        self._heard.move_to_end(device)

    def _forget(self, device: str) -> None:
        if self._latest.pop(device, None) is not None:
            del self._heard[device]
            self.version += 1

    def sums(self) -> dict[str, tuple[tuple[float, ...], tuple[float, ...]]]:
        """Offloads and agreements of each device, to be pooled."""
        return {each.device: (each.offloads, each.agreements) for each in self._latest.values()}

    def __getitem__(self, device: str) -> Evidence:
        return self._latest[device]

    def __iter__(self) -> Iterator[Evidence]:
        return iter(self._latest.values())

    def __len__(self) -> int:
        return len(self._latest)
