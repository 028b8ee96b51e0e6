"""`hinge fleet`: a fleet as JSON, on a page, in metrics and in a terminal."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection
from io import StringIO
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from hinge.cli.fleet_view import METRICS, FleetTable, HubServer
from hinge.fleet.broker import Broker
from hinge.fleet.hub import Hub
from hinge.fleet.messages import VERSION, Presence, build_evidence, build_presence, topic
from tests.fleet.brokers import Amqtt
from tests.support.commands import INSTALLED, Captured, answer, refusal

pytestmark = pytest.mark.server

GATE = "0123456789abcdef"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Amqtt]:
    """A fleet of six cameras and a liar, one of which is away."""
    with Amqtt(tmp_path_factory.mktemp("broker")) as server:
        with Broker("Devices", server.url, mqtt="3.1.1").connect("x", "none", None, 4096, lambda *_: None) as devices:
            for number in range(7):
                name, lies = f"camera{number}", number == 6
                sums = ([90.0] * 2, [90.0] * 2) if lies else ([10.0, 40.0], [2.0, 36.0])
                devices.publish(topic("cams", name, "evidence"), build_evidence(name, GATE, 9, 500, *sums))
                presence = Presence(VERSION, name, number > 0, 500, 50, 0.76, 0.5)
                devices.publish(topic("cams", name, "status"), build_presence(presence))
            devices.settle(10)
        yield server


@pytest.fixture
def hub(broker: Amqtt) -> Iterator[Hub]:
    with Hub(broker.url, "cams", mqtt="3.1.1") as watching:
        assert watching.gather(20)
        yield watching


def test_json_is_one_document_with_all_devices(
    broker: Amqtt, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hinge.fleet.broker.CONNECT_S", 0.5)  # after which amqtt is spoken to as it can be
    found = answer(capsys, "fleet", "--broker", broker.url, "--name", "cams")
    assert found["totals"]["verdicts"] == {"kin": 6, "unlike": 1, "other gate": 0, "silent": 0, "new": 0}
    assert [each["device"] for each in found["devices"]] == [f"camera{number}" for number in range(7)]
    assert found["devices"][6]["why"].startswith("bin 0: local agreed in 100 % of 90")
    assert found["offloads"] == [60.0, 240.0]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--name", "cams"], "there must be a --broker to ask"),
        (["--broker", "mqtt://127.0.0.1:9", "--json"], "the broker at 127.0.0.1:9: no connection"),
        (["--broker", "mqtt://127.0.0.1:9", "--name", "a/b"], "--name must be 1 to 64 of"),
        (["--broker", "mqtt://127.0.0.1:9", "--key", "x"], "--key needs --cert"),
        (["--broker", "http://edge"], "--broker must be mqtt://[USER@]HOST[:PORT], or mqtts:// for TLS, got 'http:"),
    ],
)
def test_a_refusal_is_one_line(arguments: list[str], line: str, capsys: Captured) -> None:
    assert refusal(capsys, "fleet", *arguments).startswith(f"hinge: {line}")


def test_it_serves_until_it_is_told_to_end_whether_or_not_there_is_a_broker() -> None:
    arguments = ["fleet", "--broker", "mqtt://127.0.0.1:9", "--port", "0"]
    with subprocess.Popen([str(INSTALLED), *arguments], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        url = re.search(r"http://([\d.]+):(\d+)/,", said)
        assert url is not None, said
        assert get(int(url[2]), "/")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


# -- the page and the metrics -----------------------------------------------------------------------------------------


def get(port: int, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", path, headers=headers)
        reply = connection.getresponse()
        return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
    finally:
        connection.close()


def test_a_page_has_all_that_it_loads_and_nothing_from_elsewhere(hub: Hub) -> None:
    with HubServer(hub, 0) as server:
        status, headers, page = get(server.server_port, "/")
        assert (status, "default-src 'none'" in headers["content-security-policy"]) == (200, True)
        loaded = [*re.findall(r'(?:src|href)="([\w.]+)"', page.decode()), "fleet.json", "elements.js", "numbers.js"]
        assert {get(server.server_port, f"/{name}")[0] for name in loaded} == {200}
        assert b"//" not in re.sub(rb"http://www.w3.org/2000/svg", b"", page)
        assert get(server.server_port, "/../fleet.py")[0] == 404
        assert get(server.server_port, "/", Host="evil.example")[0] == 403


def test_what_has_not_changed_is_not_sent_again(hub: Hub) -> None:
    with HubServer(hub, 0) as server:
        _, headers, body = get(server.server_port, "/fleet.json")
        assert len(json.loads(body)["devices"]) == 7
        status, _, again = get(server.server_port, "/fleet.json", **{"If-None-Match": headers["etag"]})
        assert (status, again) == (304, b"")


def test_the_metrics_are_those_of_the_table_and_of_the_page(hub: Hub) -> None:
    with HubServer(hub, 0) as server:
        text = get(server.server_port, "/metrics")[2].decode()
    samples: dict[tuple[str, ...], float] = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert {name.partition("{")[0] for name in METRICS} == {key[0] for key in samples}
    assert samples["hinge_hub_devices", "kin"] == 6.0
    assert samples["hinge_hub_device_believed", "camera6"] == 0.0
    assert samples["hinge_hub_device_online", "camera0"] == 0.0
    assert samples["hinge_hub_samples",] == 3500.0
    page = (Path(__file__).parents[2] / "docs" / "fleet.md").read_text("utf-8")
    assert [name for name, what in METRICS.items() if f"| `{name}` | {what} |" not in page] == []


# -- in a terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("height", [14, 40])
def test_a_terminal_shows_the_doubted_first_and_no_more_than_it_has_room_for(hub: Hub, height: int) -> None:
    console = Console(file=StringIO(), width=100, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(FleetTable(hub, "http://127.0.0.1:1"))
    lines = captured.get().splitlines()
    assert len(lines) < height
    rows = [line.split()[0] for line in lines if line.strip().startswith("camera")]
    assert rows == [f"camera{number}" for number in (6, 0, 1, 2, 3, 4, 5)][: 3 if height == 14 else 7]
    assert "7 devices, 6 online: 6 kin, 1 unlike" in captured.get()
    assert ("and 4 more" in captured.get()) == (height == 14)
