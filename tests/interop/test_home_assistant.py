"""Home Assistant's own MQTT integration finds a device by its discovery messages, and shows its figures."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet.brokers import Mosquitto, needs_mosquitto, wait_for
from tools.peers.environments import PythonTooNew
from tools.peers.home_assistant import HomeAssistant, home_assistant
from tools.peers.process import ROOT

pytestmark = needs_mosquitto
FIGURES = ("samples", "offloads", "agreement", "offload_price")
WAIT_S = 60  # the first start compiles what it imports

DEVICE = """
import json, sys
from hinge.fleet import member
from tests.fleet.fleets import member as device_of
member.WATCHED_S = 0.2
device = device_of(sys.argv[1], "kitchen", mqtt="5", home_assistant=True)
for line in sys.stdin:
    for _ in range(int(line)):
        device.infer(0.1)
        device.infer(3.0)
    known, own = device.policy, device.policy.own_evidence()
    agreement = round(100 * sum(own["agreements"]) / sum(own["offloads"]), 1)
    print(json.dumps([known.time, known.learned, agreement, 0.5]), flush=True)
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path, "allow_anonymous true") as server:
        yield server


@pytest.fixture
def home(broker: Mosquitto) -> Iterator[HomeAssistant]:
    try:
        with home_assistant(broker.port) as running:
            yield running
    except PythonTooNew as problem:
        pytest.skip(str(problem))


def test_a_device_appears_with_its_figures_and_is_unavailable_once_it_is_killed(
    broker: Mosquitto, home: HomeAssistant
) -> None:
    def shown() -> list[Any]:
        states = home.states()
        found = [states.get(f"sensor.hinge_kitchen_{name}", {}).get("state") for name in FIGURES]
        return [states.get("binary_sensor.hinge_kitchen_online", {}).get("state"), *found]

    def waits_for(*expected: str) -> None:
        wait_for(lambda: shown() == [*expected], WAIT_S)

    process = subprocess.Popen(
        [sys.executable, "-c", DEVICE, broker.url], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        waits_for("on", "0", "0", "unknown", "0.5")
        for pairs, total in ((20, 40), (30, 100)):
            print(pairs, file=process.stdin, flush=True)
            figures = json.loads(process.stdout.readline())
            assert figures[0] == total
            waits_for("on", *map(str, figures))
        process.kill()
        waits_for("off", *["unavailable"] * 4)
    finally:
        process.kill()
        process.communicate(timeout=10)
    states = home.states()
    assert {state["device"] for state in states.values()} == {"Hinge kitchen"}
    assert states["sensor.hinge_kitchen_agreement"]["unit_of_measurement"] == "%"
