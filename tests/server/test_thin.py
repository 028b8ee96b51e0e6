"""Thin devices at the server: what reports teach, what is dropped, and tables on a real broker."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from hinge import OnnxModel, UniformBins, fashion
from hinge.cli.app import run
from hinge.confidence import max_softmax
from hinge.device.store import SqliteStore
from hinge.embedded import export_thin
from hinge.errors import InvalidState, InvalidValue
from hinge.fleet import broker as connections
from hinge.fleet.messages import Table, build_table, parse_table, table_topic
from hinge.fleet.thin import ThinDevice
from hinge.server import Server
from hinge.server import thin as module
from hinge.server.thin import THIN_METRICS, THIN_REASONS, ThinFleet
from tests.fleet.brokers import Mosquitto, needs_mosquitto, wait_for
from tests.fleet.fleets import Listener, say
from tests.server.clients import Reply, ask
from tools.boards.targets import STRICT

BINS = 16
IMAGES, _ = fashion.labelled_images()
NOBODY = "mqtt://127.0.0.1:9"
REPORT = {"hinge_kind": "m0", "hinge_device": "kitchen", "hinge_bin": 15, "hinge_local": 3, "hinge_accepted": 0}
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LISTEN_S", 0.2)
    monkeypatch.setattr(module, "EVERY_S", 0.02)
    monkeypatch.setattr(connections, "PAUSE_S", 0.1)
    monkeypatch.setattr(connections, "LONGEST_PAUSE_S", 0.2)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path, "allow_anonymous true") as server:
        yield server


def serving(url: str = NOBODY, state: Path | None = None) -> Server:
    return Server(["fashion"], thin=ThinFleet(url, "cams", offload_cost=0.5, bins=BINS, state=state), workers=1)


def inputs(*images: Any) -> list[dict[str, Any]]:
    data = np.stack(images).ravel().tolist()
    return [{"name": "image", "datatype": "UINT8", "shape": [len(images), 28, 28], "data": data}]


def send(url: str, parameters: dict[str, Any], *images: Any) -> Reply:
    body = {"parameters": parameters, "inputs": inputs(*(images or IMAGES[:1]))}
    return ask(url, "/v2/models/fashion/infer", "POST", json.dumps(body).encode(), {"Content-Type": "application/json"})


def answer(url: str) -> int:
    """What the remote says of the first image."""
    return int(np.argmax(send(url, {}).json["outputs"][0]["data"]))


def metric(url: str, name: str) -> float:
    lines = ask(url, "/metrics").body.decode().splitlines()
    return float(next(line.rpartition(" ")[2] for line in lines if line.startswith(name + " ")))


def test_reports_teach_and_are_counted() -> None:
    with serving() as server:
        right = answer(server.url)
        for local in (right, right, (right + 1) % 10):
            assert send(server.url, {**REPORT, "hinge_local": local}).status == 200
        assert metric(server.url, 'hinge_thin_reports_total{kind="m0"}') == 3
        assert metric(server.url, 'hinge_thin_devices{kind="m0"}') == 1
        assert metric(server.url, 'hinge_thin_trusted{kind="m0"}') == 1
        assert metric(server.url, "hinge_thin_online") == 0
        assert metric(server.url, 'hinge_thin_failures_total{kind="unreachable"}') > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hinge_bin": BINS}, "bin"),
        ({"hinge_bin": 255}, "bin"),
        ({"hinge_local": 10}, "answer"),
        ({"hinge_local": -1}, "answer"),
        ({"hinge_local": "3"}, "answer"),
        ({"hinge_device": None}, "incomplete"),
        ({"hinge_bin": None}, "incomplete"),
        ({"hinge_local": None}, "incomplete"),
        ({"hinge_kind": "a/b"}, "name"),
        ({"hinge_kind": ".."}, "name"),
        ({"hinge_device": "table"}, "name"),
    ],
)
def test_what_cannot_be_is_dropped_and_the_inference_is_answered(change: dict[str, Any], reason: str) -> None:
    fleet = ThinFleet(NOBODY, "cams", offload_cost=0.5)
    with Server(["fashion"], thin=fleet, workers=1) as server:
        assert send(server.url, {**REPORT, **change}).status == 200
        assert metric(server.url, f'hinge_thin_dropped_total{{reason="{reason}"}}') == 1
        assert 'kind="m0"' not in ask(server.url, "/metrics").body.decode()


@pytest.mark.parametrize(
    "change", [{"hinge_bin": -1}, {"hinge_bin": "x"}, {"hinge_accepted": 65_536}, {"hinge_kind": 7}]
)
def test_parameters_of_another_type_or_beyond_their_limits_are_refused(change: dict[str, Any]) -> None:
    with serving() as server:
        reply = send(server.url, {**REPORT, **change})
        assert (reply.status, "$.parameters" in reply.json["error"]) == (400, True)


def test_two_samples_are_not_one_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_KINDS", 2)
    with serving() as server:
        assert send(server.url, REPORT, *IMAGES[:2]).status == 200
        assert metric(server.url, 'hinge_thin_dropped_total{reason="answer"}') == 1
        for kind in ("a", "b", "c", "a"):
            send(server.url, {**REPORT, "hinge_kind": kind})
        assert metric(server.url, 'hinge_thin_dropped_total{reason="crowd"}') == 1
        assert metric(server.url, 'hinge_thin_reports_total{kind="a"}') == 2


def test_a_kind_is_learned_with_one_model() -> None:
    fleet = ThinFleet(NOBODY, "cams", offload_cost=0.5)
    with Server(["fashion", "fashion-local"], thin=fleet, workers=1) as server:
        send(server.url, REPORT)
        body = json.dumps({"parameters": REPORT, "inputs": inputs(IMAGES[0])}).encode()
        assert ask(server.url, "/v2/models/fashion-local/infer", "POST", body).status == 200
        assert metric(server.url, 'hinge_thin_dropped_total{reason="model"}') == 1


def test_a_kind_whose_state_cannot_be_opened_is_counted_and_learned_once_it_can_be(tmp_path: Path) -> None:
    with serving(state=tmp_path) as server:
        (tmp_path / "m0").touch()  # where its folder should be
        for kind in ("m0", "m0", "m1"):
            assert send(server.url, {**REPORT, "hinge_kind": kind}).status == 200
        assert metric(server.url, 'hinge_thin_dropped_total{reason="state"}') == 2
        assert metric(server.url, 'hinge_thin_reports_total{kind="m1"}') == 1
        (tmp_path / "m0").unlink()
        assert send(server.url, REPORT).status == 200
        assert metric(server.url, 'hinge_thin_reports_total{kind="m0"}') == 1


def test_nobody_waits_while_the_state_of_a_new_kind_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening, answered, waited = Event(), Event(), list[bool]()

    def slow(*arguments: Any, **settings: Any) -> SqliteStore:
        opening.set()
        waited.append(answered.wait(5))
        return SqliteStore(*arguments, **settings)

    monkeypatch.setattr(module, "SqliteStore", slow)
    with serving(state=tmp_path) as server:
        reports = [Thread(target=send, args=(server.url, REPORT)) for _ in range(2)]
        for each in reports:
            each.start()
        assert opening.wait(5)
        assert ask(server.url, "/v2/health/live").status == 200
        answered.set()
        for each in reports:
            each.join(20)
        assert waited == [True]
        assert metric(server.url, 'hinge_thin_reports_total{kind="m0"}') == 2


def test_a_server_that_cannot_open_a_kind_starts_once_that_is_mended(tmp_path: Path) -> None:
    with serving(state=tmp_path) as server:
        for kind in ("m0", "m1"):
            send(server.url, {**REPORT, "hinge_kind": kind})
    server = serving(state=tmp_path)
    with SqliteStore(tmp_path / "m1"), pytest.raises(InvalidState, match="in use"):
        server.start()
    with server:
        assert metric(server.url, 'hinge_thin_reports_total{kind="m0"}') == 0


def test_a_server_without_a_fleet_ignores_reports() -> None:
    with Server(["fashion"], workers=1) as server:
        assert send(server.url, REPORT).status == 200
        assert b"hinge_thin" not in ask(server.url, "/metrics").body


@needs_mosquitto
def test_tables_are_published_and_survive_the_server_and_the_broker(broker: Mosquitto, tmp_path: Path) -> None:
    topic = table_topic("cams", "m0")

    def tables(listener: Listener) -> list[Any]:
        return [parse_table(payload, BINS) for name, payload in listener.messages if name == topic]

    with serving(broker.url, tmp_path / "state") as server, Listener(broker.url) as listener:
        report = {**REPORT, "hinge_local": answer(server.url)}
        for _ in range(12):
            send(server.url, report)
        wait_for(lambda: tables(listener) and tables(listener)[-1].counter == 12)  # made of all reports: the last one
        assert tables(listener)[-1].licences[15] >= 20
        wait_for(lambda: metric(server.url, 'hinge_thin_tables_total{kind="m0"}') == len(tables(listener)))
        before = tables(listener)
    counters = [table.counter for table in before]
    assert counters == sorted(set(counters))
    with serving(broker.url, tmp_path / "state") as server:
        with Listener(broker.url) as listener:
            wait_for(lambda: metric(server.url, "hinge_thin_online") == 1 and tables(listener))
            assert tables(listener) == before[-1:]  # the broker still has it: nothing is to be said
        broker.kill()
        broker.wipe()
        broker.start()
        with Listener(broker.url) as second:
            wait_for(lambda: tables(second))
            [table] = tables(second)
    assert table.licences == before[-1].licences
    assert table.counter > before[-1].counter


@needs_mosquitto
@pytest.mark.parametrize("counter", [2**31 + 1, 2**32 - 1])
def test_a_table_that_leaves_no_later_counter_stops_no_kind(broker: Mosquitto, counter: int) -> None:
    topics = [table_topic("cams", kind) for kind in ("m0", "m1")]
    say(broker.url, (topics[1], build_table(Table(counter, (0,) * BINS))))
    with serving(broker.url) as server, Listener(broker.url) as listener:
        wait_for(lambda: metric(server.url, 'hinge_thin_failures_total{kind="muted"}') == 1)
        report = {**REPORT, "hinge_local": answer(server.url)}
        for kind in ("m1", "m0"):
            for _ in range(6):
                send(server.url, {**report, "hinge_kind": kind})
        last = {(topic, 6) for topic in topics}  # made of all reports
        wait_for(lambda: last <= {(topic, parse_table(said, BINS).counter) for topic, said in listener.messages})
        assert metric(server.url, "hinge_thin_online") == 1
        assert metric(server.url, 'hinge_thin_failures_total{kind="internal"}') == 0


@needs_mosquitto
def test_a_server_without_its_folder_goes_on_above_the_old_counter(broker: Mosquitto) -> None:
    tables = []
    for bin in (15, 14):  # so that the second server's table is another
        with serving(broker.url) as server:
            report = {**REPORT, "hinge_bin": bin, "hinge_local": answer(server.url)}
            for _ in range(12):
                send(server.url, report)
            wait_for(lambda: metric(server.url, 'hinge_thin_tables_total{kind="m0"}') > 0)
        with Listener(broker.url) as listener:
            wait_for(lambda: listener.messages)
        tables.append(parse_table(listener.messages[-1][1], BINS))
    first, second = tables
    assert (first.licences[14], second.licences[14] > 0) == (0, True)
    assert second.counter > first.counter


@needs_mosquitto
def test_a_thin_device_in_c_runs_from_the_servers_tables(broker: Mosquitto, tmp_path: Path) -> None:
    program = client(tmp_path)
    local, bins = OnnxModel(fashion.local_model()), UniformBins(BINS)
    scores = [np.asarray(local(image)) for image in IMAGES[:150]]
    lines = [
        f"{bins.bin(float(max_softmax(each)))} {each.argmax()} {json.dumps(inputs(image))}"
        for each, image in zip(scores, IMAGES, strict=False)
    ]
    with serving(broker.url) as server:
        place = server.url.rpartition(":")[2]
        arguments = ["127.0.0.1", str(broker.port), "cams", "m0", "kitchen", "127.0.0.1", place, "fashion"]
        with Running([program, *arguments], tmp_path / "first") as device:
            answers = [device.ask(line).split() for line in lines]
        offloads = [answer for answer in answers if answer[0] == "offload"]
        assert {answer[-1] for answer in offloads} == {"200"}
        assert 0 < len(offloads) < len(lines)
        assert metric(server.url, 'hinge_thin_reports_total{kind="m0"}') == len(offloads)
        with Listener(broker.url) as listener:
            wait_for(lambda: listener.messages)
        twin = ThinDevice(BINS)
        assert twin.take(listener.messages[-1][1])
        with Running([program, *arguments], tmp_path / "second") as device:
            device.wait(f"table {twin.counter}")
            for line in lines * 3:
                bin, answer, _ = line.split(maxsplit=2)
                expected = "offload" if twin.decide(int(bin)) else "accept"
                accepted = [str(twin.accepted), "0"] if expected == "offload" else []  # and no request, so no status
                assert device.ask(f"{bin} {answer}").split() == [expected, bin, answer, *accepted]


def client(folder: Path) -> str:
    """The example of a thin device, compiled."""
    if shutil.which("gcc") is None:
        pytest.skip("not installed: gcc")
    export_thin(BINS, folder / "c")
    sources = [folder / "c/examples/mqtt/main.c", folder / "c/src/hinge.c"]
    files = [f"-I{folder / 'c/src'}", *map(str, sources), "-lmosquitto", "-o", f"{folder}/thin"]
    command = ["gcc", *STRICT, "-O2", *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "mosquitto.h: No such file" in done.stderr:
        pytest.skip("not installed: libmosquitto-dev")
    assert done.returncode == 0, done.stderr
    return f"{folder}/thin"


class Running:
    """A program that answers lines with lines."""

    def __init__(self, command: list[str], errors: Path) -> None:
        self._errors = errors
        with errors.open("w") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, bufsize=1
            )

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline()

    def wait(self, line: str) -> None:
        wait_for(lambda: line in self._errors.read_text().splitlines())

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=20)


# -- settings ---------------------------------------------------------------------------------------------------------


def test_settings_are_checked() -> None:
    with pytest.raises(InvalidValue, match="bins must be"):
        ThinFleet(NOBODY, "cams", offload_cost=0.5, bins=256)
    with pytest.raises(InvalidValue, match="offload_cost must be"):
        ThinFleet(NOBODY, "cams", offload_cost=1.5)
    with pytest.raises(InvalidValue, match="name must be"):
        ThinFleet(NOBODY, "a/b", offload_cost=0.5)


@pytest.mark.parametrize(
    "option", [("--state", "folder"), ("--offload-cost", "0.2"), ("--bins", "8"), ("--fleet-name", "cams")]
)
def test_the_command_says_what_is_missing(option: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "nosuch.onnx", *option]) == 2  # which would not be served, either
    assert "need --fleet" in capsys.readouterr().err


@pytest.mark.parametrize("table", [THIN_METRICS, THIN_REASONS])
def test_the_page_has_the_tables(table: dict[str, str]) -> None:
    page = (DOCS / "fleet.md").read_text("utf-8")
    for name, text in table.items():
        assert f"| `{name}` | {text} |" in page
