"""Members that are cut off from mosquitto, or hear nothing, or are not heard, or late; each in a network of its own.

HINGE_FULL=1 (`make test-fleet`) does so 200 times.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from hinge import Device
from hinge.fleet import broker as broker_module
from hinge.fleet import member as module
from tests.faults.figures import note
from tests.fleet.brokers import Mosquitto, needs_mosquitto, wait_for
from tests.fleet.fleets import Listener, member
from tests.fleet.namespaces import Link, Namespace, star, why_not

pytestmark = [needs_mosquitto, pytest.mark.server, pytest.mark.slow]
ROUNDS = 200 if os.environ.get("HINGE_FULL") else 4
NAMES = ("kitchen", "hall", "attic")
KEEPALIVE_S = 2


@pytest.fixture
def network() -> Iterator[tuple[Namespace, list[Link]]]:
    if (problem := why_not()) is not None:
        pytest.skip(problem)
    with star(len(NAMES)) as made:
        yield made


@pytest.mark.timeout(1800)
def test_who_was_cut_off_goes_on_and_in_the_end_everybody_knows_everything(
    network: tuple[Namespace, list[Link]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "KEEPALIVE_S", KEEPALIVE_S)
    monkeypatch.setattr(broker_module, "CONNECT_S", 1.0)
    monkeypatch.setattr(module, "GROWTH", 1.0)  # so that everything is told, and can be compared
    chance, slowest, samples, lost = random.Random(1), 0.0, 0, 0
    (center, links), devices = network, list[Device]()
    with ExitStack() as stack:
        with center.inside():
            broker = stack.enter_context(Mosquitto(tmp_path, "allow_anonymous true", bind="0.0.0.0"))
        for name, link in zip(NAMES, links, strict=True):
            with link.member.inside():
                url = broker.url.replace("127.0.0.1", link.host)
                devices.append(stack.enter_context(member(url, name, tmp_path / name, deadline_s=5, mqtt="5")))

        def everybody_knows_everything() -> bool:
            seen = [each.policy.own_evidence() for each in devices]
            for column in ("offloads", "agreements"):
                total = [sum(bins) for bins in zip(*(evidence[column] for evidence in seen), strict=True)]
                known = [list(getattr(each.policy.table.pooled, column)) for each in devices]
                more = [1 for bins in known for here, there in zip(bins, total, strict=True) if here > there + 1e-6]
                assert not more, "something was counted twice"
                if any(bins != pytest.approx(total) for bins in known):
                    return False
            return True

        for round in range(ROUNDS):
            fault, long = Link.FAULTS[round % len(Link.FAULTS)], round % 5 == 0
            failing = chance.sample(links, chance.randint(1, len(links)))
            for link in failing:
                link.fail(fault)
            end = time.monotonic() + (2.5 * KEEPALIVE_S if long else chance.uniform(0.1, KEEPALIVE_S))
            while time.monotonic() < end:
                for device in devices:
                    began = time.perf_counter()
                    device.infer(chance.choice([0.1, 3.0]))
                    slowest, samples = max(slowest, time.perf_counter() - began), samples + 1
                time.sleep(0.01)
            if long and fault != "slow":
                lost += len(failing)
                wait_for(partial(online, devices, len(links) - len(failing)))
            for link in failing:
                link.heal()
            wait_for(everybody_knows_everything)
        assert all(device.status.fell_back == {} for device in devices), "a sample was late"
        assert all(sum(device.status.alarms.values()) == 0 for device in devices)
        own = [tuple(device.policy.own_evidence()["offloads"]) for device in devices]
        for device in devices:
            device.close()
        with center.inside():
            heard = stack.enter_context(Listener(broker.url, mqtt="5"))
        wait_for(lambda: len(heard.evidence) == len(NAMES))
        assert [heard.evidence[name][-1].offloads for name in NAMES] == own
    note("fleet", "partitions", rounds=ROUNDS, samples=samples, slowest_ms=1000 * slowest, lost=lost)


def online(devices: Sequence[Device], number: int) -> bool:
    """Whether so many of them think that they are connected."""
    found = [device.status.fleet for device in devices]
    return sum(membership is not None and membership.online for membership in found) == number
