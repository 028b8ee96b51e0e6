"""A hub knows who is in a fleet, believes no more than a device would, and counts nobody twice."""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hinge import Sentinel
from hinge.errors import InvalidValue
from hinge.fleet import hub as module
from hinge.fleet import member as member_module
from hinge.fleet.broker import Broker
from hinge.fleet.hub import Hub, SeenDevice
from hinge.fleet.messages import (
    VERSION,
    Evidence,
    Presence,
    build_evidence,
    build_presence,
    longest,
    parse_evidence,
    topic,
)
from hinge.policies.policy import MOST_SAMPLES
from tests.fleet.brokers import Amqtt, Mosquitto, needs_mosquitto, wait_for
from tests.fleet.fleets import member, say, teach

pytestmark = pytest.mark.server

GATE, OTHER = "0123456789abcdef", "fedcba9876543210"
HONEST = [10.0, 40.0], [2.0, 36.0]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Amqtt]:
    with Amqtt(tmp_path) as server:
        yield server


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUIET_S", 0.2)
    monkeypatch.setattr(module, "TURN_S", 0.05)


def watching(broker: Amqtt, region: str | None = None) -> Hub:
    return Hub(broker.url, "cams", region, mqtt="3.1.1")


def publish(broker: Amqtt, *messages: tuple[str, bytes]) -> None:
    with Broker("Devices", broker.url, mqtt="3.1.1").connect("devices", "none", None, 4096, lambda *_: None) as devices:
        for name, payload in messages:
            devices.publish(name, payload)
        devices.settle(10)


def evidence(
    device: str, sums: tuple[Sequence[float], Sequence[float]] = HONEST, fleet: str = "cams", **changes: Any
) -> tuple[str, bytes]:
    told: dict[str, Any] = {"gate": GATE, "counter": 1, "samples": 1000, **changes}
    said = build_evidence(device, told["gate"], told["counter"], told["samples"], *sums)
    return topic(fleet, device, "evidence"), said


def status(device: str, online: bool = True, **figures: Any) -> tuple[str, bytes]:
    return topic("cams", device, "status"), build_presence(Presence(VERSION, device, online, **figures))


def known(hub: Hub) -> dict[str, SeenDevice]:
    return {each.device: each for each in hub.view.devices}


# -- watching ---------------------------------------------------------------------------------------------------------


def test_what_is_retained_is_seen_and_judged(broker: Amqtt) -> None:
    publish(
        broker,
        *(evidence(f"camera{number}") for number in range(6)),
        evidence("liar", ([90.0, 90.0], [90.0, 90.0])),
        evidence("old", gate=OTHER),
        status("camera0", samples=5000, offloads=77, price=0.3),
        status("camera1", online=False),
        status("quiet"),
    )
    with watching(broker) as hub:
        assert hub.gather(20)
        found, totals = known(hub), hub.view.totals
    assert {name: each.verdict for name, each in found.items()} == {
        **{f"camera{number}": "kin" for number in range(6)},
        "liar": "unlike",
        "old": "other gate",
        "quiet": "silent",
    }
    assert (totals.devices, totals.online, totals.samples) == (9, 2, 5000 + 7 * 1000)
    assert (found["camera0"].offloads, found["camera0"].price, found["camera1"].online) == (77, 0.3, False)
    assert found["camera2"].agreement == pytest.approx(38 / 50)
    assert found["liar"].why is not None
    assert found["liar"].why.startswith("bin 0: local agreed in 100 % of 90, in the fleet in 20 % of 60")
    assert hub.view.offloads == [60.0, 240.0]
    assert hub.view.groups == [[f"camera{number}" for number in range(6)], ["liar"]]


def test_what_is_no_evidence_and_no_status_is_dropped_and_counted(
    broker: Amqtt, caplog: pytest.LogCaptureFixture
) -> None:
    publish(
        broker,
        ("hinge/1/cams/odd/evidence", b"{}"),
        ("hinge/1/cams/odd/status", b"x" * (longest(0) + 1)),
        ("hinge/2/cams/odd/evidence", b"{}"),
        ("hinge/1/cams/hall/status", build_presence(Presence(VERSION, "kitchen", online=True))),
        ("hinge/1/cams/<b>/evidence", b"{}"),
        evidence("wide", ([0.0] * 2000, [0.0] * 2000)),
        evidence("camera", samples=20),
        ("hinge/1/cams/table/0123456789abcdef", b"hT"),
    )
    with caplog.at_level(logging.WARNING), watching(broker) as hub:
        assert hub.gather(20)
        dropped = {reason: count for reason, count in hub.view.dropped.items() if count}
    assert dropped == {"version": 1, "topic": 1, "size": 1, "format": 1, "source": 1, "gate": 1, "counts": 1}
    assert hub.view.devices == []


def test_what_changes_is_seen_and_what_is_withdrawn_is_forgotten(broker: Amqtt) -> None:
    publish(broker, evidence("camera"), status("camera"))
    with watching(broker) as hub:
        assert hub.gather(20)
        publish(broker, evidence("camera", ([20.0, 50.0], [3.0, 40.0]), counter=2), evidence("camera", counter=1))
        wait_for(lambda: hub.view.offloads == [20.0, 50.0])
        wait_for(lambda: hub.view.dropped["older"] == 1)
        publish(broker, (topic("cams", "camera", "evidence"), b""), (topic("cams", "camera", "status"), b""))
        wait_for(lambda: hub.view.devices == [])
        wait_for(lambda: hub.view.offloads == [])  # a moment later: the hub pools for a quarter of the time at most


def test_a_hub_finds_its_broker_again(broker: Amqtt) -> None:
    with watching(broker) as hub:
        assert hub.gather(20)
        publish(broker, status("hall"))
        wait_for(lambda: hub.view.totals.online == 1)
        broker.kill()
        wait_for(lambda: not hub.view.online)
        assert hub.view.problem is not None
        assert (hub.view.totals.online, known(hub)["hall"].online) == (0, None)  # who is there now is not known
        broker.start()
        publish(broker, evidence("camera"))
        wait_for(lambda: hub.view.online and len(hub.view.devices) == 2)
        assert hub.view.problem is None


@pytest.mark.parametrize("settings", [{"name": "a/b"}, {"region": "table"}, {"region": "x" * 64}, {"url": "http://a"}])
def test_a_hub_that_cannot_be_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match="Hub: "):
        Hub(**{"url": "mqtt://127.0.0.1:9", "name": "cams", **settings})


# -- regions ----------------------------------------------------------------------------------------------------------


@needs_mosquitto
def test_in_regions_a_device_borrows_from_every_other_once_and_never_from_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member_module, "GROWTH", 1.0)  # so that everything is told
    monkeypatch.setattr(module, "GROWTH", 1.0)
    lent: dict[int, list[list[float]]] = {}
    monkeypatch.setattr(Sentinel, "borrow", lambda policy, n, *_: lent.setdefault(id(policy), []).append(n))
    names, each = [(region, f"{region}{number}") for region in ("north", "south") for number in range(3)], 20
    with ExitStack() as stack:
        broker = stack.enter_context(Mosquitto(tmp_path, "allow_anonymous true"))
        devices = {
            name: stack.enter_context(member(broker.url, name, region=region, mqtt="5")) for region, name in names
        }
        hubs = [stack.enter_context(Hub(broker.url, "cams", region)) for region in ("north", "south")]
        for device in devices.values():
            teach(device, each)
        everybody_else = each * (len(devices) - 1)
        lendings = [lent[id(device.policy)] for device in devices.values()]
        wait_for(lambda: all(sum(known[-1]) == everybody_else for known in lendings))
        statuses = [device.status.fleet for device in devices.values()]
        assert [(status.devices, status.regions, status.kin) for status in statuses if status] == [(2, 1, 3)] * 6
        time.sleep(0.5)  # for what would be counted twice
        assert max(sum(offloads) for known in lendings for offloads in known) == everybody_else
        assert [sum(hub.view.failures.values()) for hub in hubs] == [0, 0]


def test_a_region_is_one_message_of_its_kin_and_goes_on_after_its_hub_was_away(broker: Amqtt) -> None:
    def heard() -> list[Evidence]:
        with Broker("Other", broker.url, mqtt="3.1.1").connect("other", own, None, 4096, take) as other:
            other.turn(0.3)
        return messages

    def take(name: str, payload: bytes, retained: bool) -> None:
        if name == own:  # amqtt sends more than was asked for
            messages.append(parse_evidence(name, payload, "cams", GATE, 2))

    own, messages = topic("cams", "north", "evidence"), list[Evidence]()
    liar = evidence("liar", ([90.0, 90.0], [90.0, 90.0]), "cams.north")
    publish(broker, *(evidence(f"camera{number}", HONEST, "cams.north") for number in range(6)), liar)
    with watching(broker, "north"):
        wait_for(heard)
    assert (messages[-1].offloads, messages[-1].agreements) == ((60.0, 240.0), (12.0, 216.0))
    assert messages[-1].samples == 6000
    with watching(broker, "north") as again:
        wait_for(lambda: again.view.published >= 2)  # its status, and that it knows nothing less
    assert heard()[-1].counter > messages[0].counter


def test_two_hubs_of_a_region_notice_each_other(broker: Amqtt) -> None:
    publish(broker, *(evidence(f"camera{number}", HONEST, "cams.north") for number in range(3)))
    with watching(broker, "north") as first:
        assert first.gather(20)
        with watching(broker, "north"):
            wait_for(lambda: first.view.failures["taken"])
        assert first.view.problem is not None
        assert "another hub publishes for 'north'" in first.view.problem


@needs_mosquitto
def test_a_counter_that_leaves_no_later_one_does_not_mute_a_region(tmp_path: Path) -> None:
    own, heard = topic("cams", "north", "evidence"), list[bytes]()
    camera = evidence("camera", HONEST, "cams.north")
    with Mosquitto(tmp_path, "allow_anonymous true") as broker:
        say(broker.url, camera, evidence("north", counter=MOST_SAMPLES))
        settings = own, None, 4096, lambda _, payload, __: heard.append(payload)
        with Broker("Device", broker.url).connect("device", *settings) as device:
            with Hub(broker.url, "cams", "north") as hub:
                wait_for(lambda: hub.view.published)
                assert hub.view.failures["muted"] == 1
            device.turn(0.5)
    _, withdrawn, later = heard
    assert withdrawn == b""
    assert parse_evidence(own, later, "cams", GATE, 2).offloads == (10.0, 40.0)
