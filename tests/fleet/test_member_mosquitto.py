"""Fleets on mosquitto, with its access list, TLS and persistence, as `deploy/mosquitto` sets it up.

HINGE_FULL=1 (`make test-fleet`) kills, wipes and floods it as often as the promise says.
"""

import json
import logging
import os
import random
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hinge import Device, Gate, Sentinel
from hinge.fleet import member as module
from hinge.fleet import messages
from hinge.fleet.broker import Broker, BrokerFailed
from hinge.fleet.hub import Hub
from hinge.fleet.messages import build_evidence, identity, topic
from hinge.policies.policy import MOST_SAMPLES
from tests.faults.figures import note
from tests.fleet.brokers import WAIT_S, Mosquitto, needs_clients, needs_mosquitto, wait_for
from tests.fleet.fleets import BINS, Listener, member, say, teach

pytestmark = [needs_mosquitto, pytest.mark.server]
ROUNDS = 1_000 if os.environ.get("HINGE_FULL") else 3
EXAMPLE = Path(__file__).parents[2] / "deploy" / "mosquitto"
IDENTITY = identity(Gate(Sentinel(BINS, 0.5)))
FIVE: dict[str, Any] = {"mqtt": "5"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path, "allow_anonymous true") as server:
        yield server


class Secured:
    """A broker as the example sets it up, and the certificates of its devices."""

    def __init__(self, folder: Path, access: str = "acl", *names: str, without: str = "\n") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("not installed: openssl")
        self.folder = folder
        devices = ["kitchen", "hall", *names]
        subprocess.run(["sh", EXAMPLE / "certificates.sh", "127.0.0.1", *devices], cwd=folder, check=True)
        lines = (EXAMPLE / "mosquitto.conf").read_text().splitlines()
        ours = ("listener", "persistence")  # set by the test
        settings = [line for line in lines if line and not line.startswith(("#", *ours))]
        settings = [line.replace("/etc/mosquitto", str(folder)) for line in settings]
        allowed = (EXAMPLE / access).read_text().splitlines()
        (folder / "acl").write_text("\n".join(line for line in allowed if without not in line))
        self.broker = Mosquitto(folder, *settings)
        self.url = self.broker.url.replace("mqtt:", "mqtts:")

    def context(self, name: str | None, ca: str = "ca.pem") -> ssl.SSLContext:
        context = ssl.create_default_context()
        context.load_verify_locations(self.folder / ca)
        if name is not None:
            context.load_cert_chain(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        return context

    def member(self, device: str, certificate: str | None, ca: str = "ca.pem", **settings: Any) -> Device:
        return member(self.url, device, tls=self.context(certificate, ca), **{**FIVE, **settings})


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    made = Secured(tmp_path)
    with made.broker:
        yield made


# -- access -----------------------------------------------------------------------------------------------------------


def test_devices_with_certificates_share(secured: Secured) -> None:
    with secured.member("kitchen", "kitchen", home_assistant=True) as kitchen, secured.member("hall", "hall") as hall:
        teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 1)
        membership = kitchen.status.fleet
        assert membership
        assert sum(membership.failures.values()) == 0


@pytest.mark.parametrize("mqtt", ["5", "3.1.1"])
def test_nobody_speaks_for_another(secured: Secured, mqtt: str, caplog: pytest.LogCaptureFixture) -> None:
    with secured.member("kitchen", "kitchen") as kitchen:
        with caplog.at_level(logging.WARNING, "hinge"), secured.member("hall", "kitchen", mqtt=mqtt) as liar:
            teach(liar, 30)
            if mqtt == "5":  # 3.1.1 has no way to say it
                wait_for(lambda: liar.status.fleet and liar.status.fleet.failures["login"])
                assert sum("refuses the login, or a topic" in line for line in caplog.messages) == 1
            else:
                wait_for(lambda: liar.status.fleet and liar.status.fleet.sent)
        teach(kitchen, 1)
        assert kitchen.status.fleet
        assert kitchen.status.fleet.devices == 0


def test_only_its_hub_speaks_for_a_region(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "acl-regions", "north")
    with (
        secured.broker,
        secured.member("kitchen", "kitchen", region="north") as kitchen,
        secured.member("hall", "hall", region="south") as hall,
        Hub(secured.url, "cams", "south", tls=secured.context("kitchen")) as usurper,
        Hub(secured.url, "cams", "north", tls=secured.context("north")) as hub,
    ):
        teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.regions == 1)
        teach(hall, 30)
        wait_for(lambda: usurper.view.failures["login"])
        assert sum(hub.view.failures.values()) == 0
        assert kitchen.status.fleet
        assert kitchen.status.fleet.regions == 0


def test_a_broker_that_refuses_what_home_assistant_reads_is_told_the_evidence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secured = Secured(tmp_path, without="homeassistant")
    with (
        secured.broker,
        caplog.at_level(logging.WARNING, "hinge"),
        secured.member("kitchen", "kitchen", home_assistant=True) as kitchen,
        secured.member("hall", "hall") as hall,
    ):
        teach(kitchen, 30)
        wait_for(lambda: any("refuses homeassistant/" in line for line in caplog.messages))
        teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.received >= 1)
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.sent >= 2)
        membership = kitchen.status.fleet
        assert membership
        assert (membership.online, sum(membership.failures.values())) == (True, 0)


def test_in_regions_home_assistant_reads_of_a_device_and_a_hub_sees_it(tmp_path: Path) -> None:
    secured = Secured(tmp_path, "acl-regions", "hub", "homeassistant")
    topics = set[str]()
    broker = Broker("HomeAssistant", secured.url, None, secured.context("homeassistant"))
    with (
        secured.broker,
        secured.member("kitchen", "kitchen", region="north", home_assistant=True) as kitchen,
        secured.member("hall", "hall", region="south", home_assistant=True) as hall,
        Hub(secured.url, "cams.north", tls=secured.context("hub")) as hub,
        broker.connect("ha", "homeassistant/#", None, 2**16, lambda name, *_: topics.add(name)) as home_assistant,
    ):
        end = time.monotonic() + WAIT_S
        while len(topics) < 10 and time.monotonic() < end:
            home_assistant.turn(0.1)
        wait_for(lambda: [each.device for each in hub.view.devices] == ["kitchen"])
        for device in (kitchen, hall):
            assert device.status.fleet
            assert sum(device.status.fleet.failures.values()) == 0
    assert {name.split("/")[2] for name in topics} == {"hinge_cams_north_kitchen", "hinge_cams_south_hall"}


def refused(device: Device, kind: str) -> str:
    wait_for(lambda: device.status.fleet and device.status.fleet.failures[kind])
    assert device.infer(0.1).label == 0, "it goes on alone"
    assert device.status.fleet
    assert not device.status.fleet.online
    return str(device.status.fleet.problem)


def test_without_a_certificate_nobody_gets_in(secured: Secured) -> None:
    with secured.member("kitchen", None) as kitchen:
        assert "certificate" in refused(kitchen, "protocol")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # paho leaves the socket to be collected
def test_a_foreign_broker_is_not_trusted(secured: Secured) -> None:
    other = secured.folder / "other"
    other.mkdir()
    subprocess.run(["sh", EXAMPLE / "certificates.sh", "127.0.0.1"], cwd=other, check=True)
    with secured.member("kitchen", "kitchen", ca="other/ca.pem") as kitchen:
        assert "not trusted" in refused(kitchen, "certificate")


def test_a_wrong_password_is_refused(tmp_path: Path) -> None:
    passwords = tmp_path / "passwords"
    command = ["mosquitto_passwd", "-b", "-c", str(passwords), "kitchen", "right"]
    subprocess.run(command, check=True, capture_output=True)
    with Mosquitto(tmp_path, "allow_anonymous false", f"password_file {passwords}") as broker:
        url = broker.url.replace("//", "//kitchen@")
        with member(url, "kitchen", password="wrong", **FIVE) as kitchen:
            assert "refuses the login" in refused(kitchen, "login")
        with member(broker.url, "kitchen", **FIVE) as kitchen:
            refused(kitchen, "login")
        with member(url, "kitchen", password="right", **FIVE) as kitchen:
            wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.online)


def test_two_devices_of_one_name_are_told_so(broker: Mosquitto, caplog: pytest.LogCaptureFixture) -> None:
    with member(broker.url, "kitchen", **FIVE) as one, member(broker.url, "kitchen", **FIVE) as other:
        wait_for(lambda: all(each.status.fleet and each.status.fleet.sent for each in (one, other)))
        teach(one, 30)
        teach(other, 40)
        wait_for(lambda: all(each.status.fleet and each.status.fleet.failures["taken"] for each in (one, other)))
    [line] = {line for line in caplog.messages if "another device" in line}
    assert line.endswith("it publishes as 'kitchen', too, and each overwrites what the other has told")


@pytest.mark.parametrize("started", [True, False], ids=["while it runs", "before it starts"])
def test_a_counter_that_leaves_no_later_one_mutes_nobody(broker: Mosquitto, started: bool) -> None:
    sums = [9.0, 9.0, 9.0, 9.0], [1.0, 1.0, 1.0, 1.0]
    last = build_evidence("kitchen", IDENTITY, MOST_SAMPLES, 60, *sums)
    with member(broker.url, "hall", **FIVE) as hall, ExitStack() as stack:
        if started:
            kitchen = stack.enter_context(member(broker.url, "kitchen", **FIVE))
            teach(kitchen, 30)
            wait_for(lambda: hall.status.fleet and hall.status.fleet.received == 1)
        say(broker.url, (topic("cams", "kitchen", "evidence"), last))
        wait_for(lambda: hall.status.fleet and hall.status.fleet.received == 1 + started)
        if not started:
            kitchen = stack.enter_context(member(broker.url, "kitchen", **FIVE))
        wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.failures["muted"])
        assert kitchen.status.fleet
        assert "leaves no later one" in str(kitchen.status.fleet.problem)
        for offloads in (40, 100, 200):  # the last two more than a fifth, each
            received = hall.status.fleet.received if hall.status.fleet else 0
            teach(kitchen, offloads)
            wait_for(lambda: hall.status.fleet and hall.status.fleet.received > received)  # noqa: B023  # called at once
        assert hall.status.fleet
        assert sum(hall.status.fleet.dropped.values()) == 0


# -- lives ------------------------------------------------------------------------------------------------------------

DEVICE = """
import sys, time
from tests.fleet.fleets import member, teach
device = member(sys.argv[1], "kitchen", mqtt="5")
teach(device, 30)
time.sleep(60)
"""


@needs_clients
def test_who_vanishes_is_offline_and_anybody_can_read_it(broker: Mosquitto) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", DEVICE, broker.url], env=environment)
    try:
        with Listener(broker.url, **FIVE) as heard:
            wait_for(lambda: heard.status.get("kitchen") and heard.status["kitchen"][-1].online)
            wait_for(lambda: heard.evidence)
            process.kill()
            wait_for(lambda: not heard.status["kitchen"][-1].online)
    finally:
        process.kill()
        process.wait(10)
    command = ["mosquitto_sub", "-p", str(broker.port), "-t", "hinge/1/cams/kitchen/evidence", "-C", "1", "-W", "10"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, timeout=20).stdout)
    assert (said["device"], sum(said["offloads"])) == ("kitchen", 30)


def test_what_is_deleted_is_withdrawn_for_good_if_its_device_has_another_name(
    broker: Mosquitto, tmp_path: Path
) -> None:
    with member(broker.url, "hall", **FIVE) as hall, member(broker.url, "attic", **FIVE) as attic:
        teach(attic, 30)
        with member(broker.url, "old", tmp_path / "state", **FIVE) as kitchen:
            teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 2)
        say(broker.url, *((topic("cams", name, "evidence"), b"") for name in ("old", "attic")))
        with member(broker.url, "kitchen", tmp_path / "state", **FIVE) as kitchen:
            teach(kitchen, 30)
            wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 2)  # the attic has said it again
            wait_for(lambda: kitchen.status.fleet and kitchen.status.fleet.devices >= 1)
            assert kitchen.status.fleet
            assert set(kitchen.status.fleet.verdicts) <= {"attic", "hall"}


@needs_clients
def test_a_burst_of_names_does_not_shut_out_a_device_for_good(
    broker: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "Peers", partial(messages.Peers, most=2))
    monkeypatch.setattr(messages, "ROUND_S", 0.3)
    with member(broker.url, "hall", **FIVE) as hall:
        wait_for(lambda: hall.status.fleet and hall.status.fleet.online)
        for name in ("burst1", "burst2"):
            said = build_evidence(name, IDENTITY, 1, 60, [9.0] * BINS, [1.0] * BINS)
            command = ["mosquitto_pub", "-p", str(broker.port), "-q", "1", "-t", topic("cams", name, "evidence")]
            subprocess.run([*command, "-m", said], check=True, timeout=20)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.received == 2)
        with member(broker.url, "kitchen", **FIVE) as kitchen:
            teach(kitchen, 30)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.dropped["crowd"])
        wait_for(lambda: hall.status.fleet and hall.status.fleet.received == 3)


@pytest.mark.timeout(1800)
def test_a_broker_killed_wiped_and_flooded_loses_nothing(broker: Mosquitto, tmp_path: Path) -> None:
    """After each life of the broker it has again what was seen, but for the last part, and nothing twice."""
    chance, slowest, samples = random.Random(1), 0.0, 0
    folder = tmp_path / "state"
    with member(broker.url, "kitchen", folder, **FIVE) as kitchen, member(broker.url, "hall", **FIVE) as hall:

        def is_shared() -> bool:
            own = kitchen.policy.own_evidence()["offloads"]
            with Listener(broker.url, **FIVE) as heard:
                wait_for(lambda: heard.evidence.get("kitchen"))
                said = heard.evidence["kitchen"][-1].offloads
            assert all(there <= here for there, here in zip(said, own, strict=True)), "something was counted twice"
            return module.GROWTH * sum(said) >= kitchen.policy.learned

        for round in range(ROUNDS):
            fault = ("kill", "wipe", "flood")[round % 3]
            flood = subprocess.Popen([sys.executable, "-c", FLOOD, broker.url]) if fault == "flood" else None
            if flood is None:
                broker.kill()
            if fault == "wipe":
                broker.wipe()
            for _ in range(chance.randint(50, 300)):
                began = time.perf_counter()
                kitchen.infer(chance.choice([0.1, 3.0]))
                slowest, samples = max(slowest, time.perf_counter() - began), samples + 1
            if flood is None:
                broker.start()
            else:
                wait_for(lambda: sum(hall.status.fleet.dropped.values()) > 100 if hall.status.fleet else False)
                flood.kill()
                flood.wait(10)
            wait_for(is_shared)
        wait_for(lambda: hall.status.fleet and hall.status.fleet.devices == 1)
        own = tuple(kitchen.policy.own_evidence()["offloads"])
    note("fleet", "broker faults", rounds=ROUNDS, samples=samples, slowest_ms=1000 * slowest)
    with Listener(broker.url, **FIVE) as heard:
        wait_for(lambda: heard.evidence)
        assert heard.evidence["kitchen"][-1].offloads == own


FLOOD = """
import sys
from hinge.fleet.broker import Broker
with Broker("Flood", sys.argv[1]).connect("flood", "none", ("flood/will", b""), 2**20, print) as connection:
    number = 0
    while True:
        for _ in range(200):
            number += 1
            connection.publish(f"hinge/1/cams/d{number % 99}/evidence", b"x" * 200)
        connection.settle(5)
"""


def test_a_broker_of_the_example_does_not_let_a_stranger_publish(secured: Secured) -> None:
    broker = Broker("Stranger", secured.url, None, secured.context("kitchen"))
    will = ("hinge/1/cams/kitchen/status", b"{}")
    with broker.connect("stranger", "hinge/+/cams/+/evidence", will, 2048, lambda *_: None) as connection:
        connection.publish("hinge/1/cams/hall/status", b"{}")
        with pytest.raises(BrokerFailed, match="to publish hinge/1/cams/hall/status"):
            connection.settle(10)
