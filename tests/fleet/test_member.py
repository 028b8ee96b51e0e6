"""A device in a fleet tells what it has seen, borrows from the others, and is none the worse for any broker."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hinge import AsyncDevice, Device, Fleet, Gate, Sentinel
from hinge.device.metrics import FLEET_METRICS, DeviceCollector
from hinge.device.store import SqliteStore
from hinge.errors import InvalidValue
from hinge.fleet import member as module
from hinge.fleet.broker import FAILURES, Broker
from hinge.fleet.messages import REASONS, build_evidence, identity, topic
from hinge.policies import AlwaysRemote
from tests.fleet.brokers import Amqtt, login, publish, scripted, wait_for
from tests.fleet.fleets import BINS, Listener, member, say, scores, teach

pytestmark = pytest.mark.server

NOBODY = "mqtt://127.0.0.1:9"
IDENTITY = identity(Gate(Sentinel(BINS, 0.5)))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Amqtt]:
    with Amqtt(tmp_path) as server:
        yield server


@pytest.fixture
def borrowed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What policies were lent, in order."""
    found: list[Any] = []
    monkeypatch.setattr(Sentinel, "borrow", lambda _, *evidence: found.append(evidence), raising=False)
    return found


def own(device: Device) -> tuple[float, ...]:
    return tuple(device.policy.own_evidence()["offloads"])


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_what_a_device_has_seen_is_published_and_pooled_by_another(broker: Amqtt, borrowed: list[Any]) -> None:
    with member(broker.url, "kitchen") as kitchen, member(broker.url, "hall") as hall, Listener(broker.url) as heard:
        teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 1)
        wait_for(lambda: any(sum(offloads) > 0 for offloads, *_ in borrowed))
        expected = own(kitchen)
        kitchen.close()
        wait_for(lambda: heard.evidence["kitchen"][-1].offloads == expected)
        wait_for(lambda: not heard.status["kitchen"][-1].online)
    assert heard.status["kitchen"][-1].offloads == 30


def test_who_joins_late_offloads_less_and_does_not_believe_liars(broker: Amqtt) -> None:
    def offloads(device: Device) -> int:
        return sum(device.infer(sample).offloaded for sample in [3.0, 0.1] * 100)

    honest = [(f"d{number}", [0.0, 0.0, 50.0, 40.0], [0.0, 0.0, 0.0, 40.0]) for number in range(8)]
    liars = [(f"liar{number}", [0.0, 0.0, 90.0, 90.0], [0.0, 0.0, 90.0, 0.0]) for number in range(2)]
    settings = ("none", ("will", b""), 4096, lambda *_: None)
    with Broker("Others", broker.url, mqtt="3.1.1").connect("others", *settings) as others:
        for name, seen, agreed in honest + liars:
            others.publish(topic("cams", name, "evidence"), build_evidence(name, IDENTITY, 1, 1000, seen, agreed))
        others.settle(10)
    with member(NOBODY, "hall") as alone, member(broker.url, "kitchen") as newcomer:
        teach(alone, 4)
        teach(newcomer, 4)  # by which to tell kin from others
        wait_for(lambda: newcomer.status.fleet and newcomer.status.fleet.devices == 10)
        wait_for(lambda: newcomer.status.fleet and newcomer.status.fleet.kin == 8)
        assert offloads(newcomer) < offloads(alone)
        assert not newcomer.infer(3.0).offloaded
        assert newcomer.infer(0.1).offloaded


def test_messages_come_when_offloads_have_grown_by_a_factor(broker: Amqtt) -> None:
    with Listener(broker.url) as heard, member(broker.url, "kitchen", every_s=0.01) as kitchen:
        for _ in range(40):
            teach(kitchen, 10)
            time.sleep(0.02)
        kitchen.close()
        wait_for(lambda: heard.evidence and sum(heard.evidence["kitchen"][-1].offloads) == 400)
        counts = [sum(said.offloads) for said in heard.evidence["kitchen"]]
        counters = [said.counter for said in heard.evidence["kitchen"]]
        assert 3 <= len(counts) <= 17  # of 40: as many as fit between 10 and 400, each a fifth more than the last
        assert all(later > module.GROWTH * earlier for earlier, later in pairwise(counts[:-1]))
        assert counters == sorted({*counters})


def test_an_event_loop_has_a_fleet_too(broker: Amqtt) -> None:
    async def main() -> None:
        fleet = Fleet(broker.url, "cams", "kitchen", mqtt="3.1.1", every_s=0.05)
        async with AsyncDevice(scores, lambda _: 0, Sentinel(BINS, 0.5), fleet=fleet, deadline_s=30) as device:
            for _ in range(20):
                await device.infer(0.1)
            while not device.status.fleet or not device.status.fleet.online:
                await asyncio.sleep(0.02)

    asyncio.run(main())
    with Listener(broker.url) as heard:
        wait_for(lambda: heard.evidence)
        assert sum(heard.evidence["kitchen"][-1].offloads) == 20


def test_what_was_merged_is_not_passed_on_as_ones_own(broker: Amqtt) -> None:
    veteran = Sentinel(BINS, 0.5)
    for _ in range(50):
        veteran.learn(veteran.decide(0), agreed=False)
    with member(broker.url, "kitchen") as kitchen:
        kitchen.merge(veteran.state())
        teach(kitchen, 10)
    with Listener(broker.url) as heard:
        wait_for(lambda: heard.evidence)
        assert sum(heard.evidence["kitchen"][-1].offloads) == 10


# -- lives ------------------------------------------------------------------------------------------------------------


def test_a_broker_that_was_wiped_is_told_again(broker: Amqtt) -> None:
    with member(broker.url, "kitchen") as kitchen, member(broker.url, "hall") as hall:
        teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 1)
        broker.kill()
        teach(kitchen, 3)  # too little to be told by itself
        wait_for(lambda: kitchen.status.fleet and not kitchen.status.fleet.online)
        broker.start()
        with Listener(broker.url) as heard:
            wait_for(lambda: heard.evidence)
            wait_for(lambda: heard.evidence["kitchen"][-1].offloads == own(kitchen))
            wait_for(lambda: hall.status.fleet and hall.status.fleet.received == 2)
    assert kitchen.status.fleet
    assert kitchen.status.fleet.failures["unreachable"] > 0
    assert hall.status.fleet
    assert sum(hall.status.fleet.dropped.values()) == 0


def test_a_device_with_a_folder_goes_on_where_it_was(broker: Amqtt, tmp_path: Path) -> None:
    with member(broker.url, "kitchen", tmp_path / "state") as kitchen:
        teach(kitchen, 30)
        samples = kitchen.policy.time
    with Listener(broker.url) as heard, member(broker.url, "kitchen", tmp_path / "state") as kitchen:
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.sent)
        time.sleep(3 * module.LISTEN_S)
        assert [said.counter for said in heard.evidence["kitchen"]] == [samples], "there is nothing new to tell"
        teach(kitchen, 7)  # a fifth more, once
        wait_for(lambda: len(heard.evidence["kitchen"]) == 2)
        assert heard.evidence["kitchen"][-1].counter > samples
        teach(kitchen, 23)
        kitchen.close()
        wait_for(lambda: sum(heard.evidence["kitchen"][-1].offloads) == 60)


def test_a_rollback_is_told(broker: Amqtt, tmp_path: Path) -> None:
    for _ in range(2):
        with member(broker.url, "kitchen", tmp_path / "state") as kitchen:
            teach(kitchen, 30)
    with SqliteStore(tmp_path / "state") as store:
        store.rollback()
    with Listener(broker.url) as heard, member(broker.url, "kitchen", tmp_path / "state"):
        wait_for(lambda: len(heard.evidence.get("kitchen", ())) == 2)
        before, after = heard.evidence["kitchen"]
        assert (sum(before.offloads), sum(after.offloads)) == (60, 30)
        assert after.counter > before.counter


def test_a_device_without_a_folder_does_not_replace_what_it_has_forgotten_by_less(broker: Amqtt) -> None:
    with member(broker.url, "kitchen") as kitchen:
        teach(kitchen, 30)
    with Listener(broker.url) as heard:
        with member(broker.url, "kitchen") as kitchen:
            wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.sent)
            teach(kitchen, 10)
            time.sleep(2 * module.LISTEN_S)
        assert [sum(said.offloads) for said in heard.evidence["kitchen"]] == [30]
        with member(broker.url, "kitchen") as kitchen:
            wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.sent)
            time.sleep(2 * module.LISTEN_S)
            teach(kitchen, 50)
            wait_for(lambda: len(heard.evidence["kitchen"]) >= 2)
        wait_for(lambda: sum(heard.evidence["kitchen"][-1].offloads) == 50)
        earlier, later = heard.evidence["kitchen"][0], heard.evidence["kitchen"][-1]
        assert min(sum(said.offloads) for said in heard.evidence["kitchen"]) == 30
        assert later.counter > earlier.counter


def test_what_a_device_has_told_before_it_had_a_region_is_no_region(
    broker: Amqtt, caplog: pytest.LogCaptureFixture
) -> None:
    told = [(name, build_evidence(name, IDENTITY, 1, 100, [9.0] * BINS, [1.0] * BINS)) for name in ("kitchen", "south")]
    say(broker.url, *((topic("cams", name, "evidence"), message) for name, message in told), mqtt="3.1.1")
    with caplog.at_level(logging.WARNING, "hinge"), member(broker.url, "kitchen", region="north") as kitchen:
        wait_for(lambda: any("hinge/1/cams/kitchen/evidence is not counted" in line for line in caplog.messages))
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.received)
        assert kitchen.status.fleet
        assert (kitchen.status.fleet.regions, kitchen.status.fleet.received) == (1, 1)


# -- alone ------------------------------------------------------------------------------------------------------------


def test_without_a_broker_a_device_goes_on_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "hinge"), member(NOBODY, "kitchen") as kitchen:
        teach(kitchen, 30)
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.failures["unreachable"] >= 2)
        membership = kitchen.status.fleet
        assert membership
        assert not membership.online
        assert "no connection" in str(membership.problem)
        assert kitchen.infer(0.1).label == 0
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("fleet")]
    assert lines == [f"fleet cams: {membership.problem}; this device goes on alone"]


def test_a_broker_that_does_not_answer_delays_the_end_of_a_device_a_little() -> None:
    with scripted(lambda _: time.sleep(3 * module.CLOSE_S)) as url:
        device = member(url, "kitchen")
        began = time.monotonic()
        device.close()
        assert time.monotonic() - began < 3 * module.CLOSE_S


def test_what_is_no_evidence_is_counted_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def lie(connection: Any) -> None:
        login(connection, 4)
        gate = IDENTITY
        honest = build_evidence("hall", gate, 60, 60, [9.0, 3, 0, 0], [1.0, 3, 0, 0])
        said = {
            "hinge/1/cams/hall/evidence": [honest, honest, b"hello\x1b[2J", b"x" * 1000],
            "hinge/1/cams/attic/evidence": [honest],
            "hinge/2/cams/hall/evidence": [honest],
            "hinge/1/cams/cellar/evidence": [build_evidence("cellar", "f" * 16, 1, 60, [9.0] * BINS, [1.0] * BINS)],
        }
        for place, payloads in said.items():
            for payload in payloads:
                connection.sendall(publish(place, payload, 4))
        time.sleep(0.5)

    with caplog.at_level(logging.WARNING, "hinge"), scripted(lie) as url, member(url, "kitchen") as kitchen:
        expected = {"format": 1, "size": 1, "source": 1, "version": 1, "gate": 1}
        wait_for(lambda: kitchen.status.fleet and sum(kitchen.status.fleet.dropped.values()) >= 5)
        registry = CollectorRegistry()
        registry.register(DeviceCollector(kitchen))
        for reason in ("format", "counts"):
            count = registry.get_sample_value("hinge_fleet_dropped_total", {"reason": reason})
            assert count == expected.get(reason, 0)
        assert registry.get_sample_value("hinge_fleet_devices") == 1
        assert registry.get_sample_value("hinge_fleet_received_total") == 1
        assert registry.get_sample_value("hinge_fleet_failures_total", {"kind": "login"}) == 0
        dropped = kitchen.status.fleet.dropped if kitchen.status.fleet else {}
        assert {reason: count for reason, count in dropped.items() if count} == expected
    lines = [record.getMessage() for record in caplog.records if "not counted" in record.getMessage()]
    assert len(lines) == len(expected)
    assert all(line.isprintable() for line in lines)


def test_another_device_of_the_same_name_is_noticed() -> None:
    def imitate(connection: Any) -> None:
        login(connection, 4)
        said = build_evidence("kitchen", IDENTITY, 60, 60, [9.0] * BINS, [1.0] * BINS)
        connection.sendall(publish("hinge/1/cams/kitchen/evidence", said, 4))
        time.sleep(0.5)

    with scripted(imitate) as url, member(url, "kitchen") as kitchen:
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.failures["taken"])


def test_a_forked_child_shares_nothing(broker: Amqtt) -> None:
    with member(broker.url, "kitchen") as kitchen:
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.online)
        child = os.fork()
        if child == 0:
            membership = kitchen.status.fleet
            right = membership is not None and not membership.online and "fork" in str(membership.problem)
            kitchen.infer(0.1)
            kitchen.close()
            os._exit(0 if right else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        teach(kitchen, 30)
    with Listener(broker.url) as heard:
        wait_for(lambda: heard.evidence)
        assert sum(heard.evidence["kitchen"][-1].offloads) == 30


# -- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "a/b"}, "Fleet: name must be 1 to 64"),
        ({"device": "+"}, "Fleet: device must be 1 to 64"),
        ({"device": "table"}, "Fleet: device must not be 'table'"),
        ({"url": "edge"}, "Fleet: url must be mqtt"),
        ({"every_s": 0}, "Fleet: every_s must be > 0"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Fleet(**{"url": NOBODY, "name": "cams", "device": "kitchen", **settings})


def test_a_fleet_is_joined_once() -> None:
    fleet = Fleet(NOBODY, "cams", "kitchen")
    refused = pytest.raises(InvalidValue, match="each device")
    with Device(scores, lambda _: 1, Sentinel(BINS, 0.5), fleet=fleet), refused:
        Device(scores, lambda _: 1, Sentinel(BINS, 0.5), fleet=fleet)


def test_a_policy_that_cannot_borrow_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"Fleet: policy must be one .* as 'sentinel' can, got 'always-remote'"):
        Device(scores, lambda _: 1, AlwaysRemote(BINS), state=tmp_path, fleet=Fleet(NOBODY, "cams", "kitchen"))
    assert not any(tmp_path.iterdir())


def test_a_device_that_cannot_join_lets_go_of_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start = Thread.start

    def full(thread: Thread) -> None:
        if thread.name == "hinge-fleet":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(Thread, "start", full)
    with pytest.raises(RuntimeError) as refused:
        member(NOBODY, "kitchen", tmp_path)
    with SqliteStore(tmp_path, Gate(Sentinel(BINS, 0.5))):  # while the error is there, and all that it holds
        assert refused.value


@pytest.mark.parametrize("table", [FLEET_METRICS, REASONS])
def test_the_page_has_the_tables(table: dict[str, str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    for name, text in table.items():
        assert f"| `{name}` | {text} |" in page


def test_every_kind_of_failure_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    assert [kind for kind in FAILURES if f"| `{kind}` |" not in page] == []
