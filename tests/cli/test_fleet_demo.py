"""The demo of a fleet: real devices on a broker in the same process."""

import io
import json
import subprocess
import sys
from statistics import mean

import numpy as np
import pytest
from rich.console import Console

from hinge.cli.app import run
from hinge.cli.fleet_demo import HONEST, LATER, TRACE, Liar, Member, Show, Traffic
from hinge.simulation.fleet import Lie
from tests.support.commands import Captured

NOBODY = "mqtt://127.0.0.1:9"


@pytest.mark.slow
@pytest.mark.server
def test_twenty_devices_share_and_believe_no_liar() -> None:
    # in a process of its own, as amqtt leaves sockets to the garbage collector
    command = [sys.executable, "-m", "hinge", "fleet", "demo", "--samples", "900", "--json", "--seed", "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    devices = {each["device"]: each for each in found["devices"]}
    honest = [each for name, each in devices.items() if name.startswith("camera-")]
    assert (len(devices), len(honest), found["complete"]) == (20, HONEST, True)
    assert {each["samples"] for each in honest} == {900}
    paid, alone = (mean(each[figure] for each in honest) for figure in ("regret", "regret_alone"))
    assert paid < alone
    assert f"each paid {paid:.1f} more than the best rule, instead of {alone:.1f} alone" in found["summary"]
    assert mean(each["believed_by"] for each in honest) > HONEST / 2
    for name in LATER:
        assert (devices[name]["heard_by"], devices[name]["believed_by"]) == (HONEST, 0)
        assert 0 < devices[name]["samples"] < 900, "they joined midway"
        assert f"{name} ({devices[name]['about']}) is believed by 0 of {HONEST}." in found["summary"]
        assert any(each["event"] == f"{name} is believed by nobody" for each in found["events"])
    assert found["messages"] > 20
    assert 100 * found["messages"] < found["bytes"] < 1024 * found["messages"]


def test_a_device_that_reaches_nobody_pays_what_its_twin_pays() -> None:
    member = Member("camera-1", "", Lie.HONEST, TRACE, np.random.default_rng(1), 500)
    member.join(NOBODY)
    member.answer(500)
    figures = member.as_dict()
    assert member.device is not None
    member.device.close()
    assert figures["samples"] == 500
    assert figures["regret"] == figures["regret_alone"] > 0
    assert figures["cost"] == figures["cost_alone"] > 0


@pytest.mark.parametrize(("lie", "agreed"), [(Lie.OVER, 3), (Lie.UNDER, 0)])
def test_a_liar_lies_to_others_alone(lie: Lie, agreed: int) -> None:
    liar = Liar(2, 0.5)
    liar.lie = lie
    for answer in (True, False, True):
        liar.learn(liar.decide(0), agreed=answer)
    assert liar.own_evidence()["offloads"] == [3, 0]
    assert liar.own_evidence()["agreements"] == [agreed, 0]
    assert liar.explain(0).agreement == pytest.approx(2 / 3)


@pytest.mark.parametrize("height", [24, 40])
def test_the_view_fits_the_terminal_and_shows_who_joins_later(height: int) -> None:
    show = Show(100, 0, Traffic(NOBODY))
    for _ in range(5):
        show.note("two liars join, and a device with other models")
    console = Console(file=io.StringIO(), width=80, height=height)
    with console.capture() as drawn:
        console.print(show)
    lines = drawn.get().splitlines()
    assert len(lines) < height
    assert "0 of 100 samples each; 0 messages, 0.0 kB" in lines[0]
    assert all(any(line.strip().startswith(name) and "joins later" in line for line in lines) for name in LATER)
    cameras = sum(line.strip().startswith("camera-") for line in lines)
    assert cameras == HONEST if height == 40 else any(f"{HONEST - cameras} more" in line for line in lines)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setitem(sys.modules, "amqtt", None)
    assert run(["fleet", "demo"]) == 2
    assert capsys.readouterr().err == "hinge: the demo needs amqtt: pip install 'hinge-gate[cli,fleet,broker]'\n"
