"""Devices that report to the server: what is taken, what is refused, and what those are told who listen."""

import json
import re
import socket
import time
import tracemalloc
from array import array
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hinge import Device, Isotonic
from hinge.device.reporter import Reporter, data_url
from hinge.errors import InvalidMessage
from hinge.server import Server
from hinge.server.connections import Refusal
from hinge.server.live import (
    FORGET_S,
    MAX_REPORT_BYTES,
    MOST_DEVICES,
    MOST_PAGES,
    OWN,
    POINTS,
    ReportFigures,
    Reports,
    read_report,
)
from tests.server.clients import HOST, TIMEOUT_S, Reply, ask, connect, send_raw
from tests.server.processes import WAIT_S, memory_kib, serving

TOKEN = "0123456789abcdef"
JSON = {"Content-Type": "application/json"}
PICTURE = data_url(np.zeros((64, 64, 1), np.uint8))[:78]  # whose header is whole


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(["fashion-local"], log_level="error") as server:
        yield server.url


@pytest.fixture(scope="module")
def report() -> Any:
    """A report as a device sends it."""
    device = Device(lambda sample: [0.0, sample], lambda _: 1, Isotonic(bins=4, offload_cost=0.5))
    with device, Reporter(device, "http://127.0.0.1:9", "hall") as reporter:
        for _ in range(10):
            reporter.saw(device.infer(3.0), truth=1)
        reporter.compare([{"policy": "hi-lcb", "offload_fraction": 0.5, "cost_per_sample": 0.25, "regret": 1.0}])
        return msgspec.to_builtins(reporter.report())


def put(url: str, report: Any, name: str = "hall", **headers: str) -> Reply:
    body = report if isinstance(report, bytes) else json.dumps(report).encode()
    return ask(url, f"/hinge/devices/{name}", "POST", body, {**JSON, **headers})


def changed(report: Any, path: str, value: Any) -> Any:
    """The report with another value at a place such as status/samples."""
    copy = json.loads(json.dumps(report))
    *parents, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    at = copy
    for key in parents:
        at = at[key]
    at[last] = value
    return copy


class Page:
    """A listener as a browser is one."""

    def __init__(self, url: str, headers: str = "") -> None:
        self.connection = connect(url)
        self.connection.sendall(f"GET /hinge/events HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode())
        self._file = self.connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers = {}
        while line := self._file.readline().strip().decode():
            name, _, value = line.partition(": ")
            self.headers[name.lower()] = value

    def events(self) -> Iterator[tuple[str, Any]]:
        """Each event, read strictly by the form that events have, until the stream ends."""
        text = b""
        while size := int(self._file.readline() or b"0", 16):
            text += self._file.read(size)
            self._file.readline()
            while b"\n\n" in text:
                event, _, text = text.partition(b"\n\n")
                found = re.fullmatch(rb"event: ([a-z]+)\ndata: ([^\n]+)", event)
                assert found, event
                yield found[1].decode(), json.loads(found[2])

    def close(self) -> None:
        self._file.close()
        self.connection.close()

    def __enter__(self) -> "Page":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def refusal(url: str) -> int:
    """The status with which a page is answered."""
    with Page(url) as page:
        return page.status


def until(page: Page, kind: str) -> Any:
    return next(data for found, data in page.events() if found == kind)


# -- reports -----------------------------------------------------------------------------------------------------------


def test_the_metrics_are_those_of_the_last_report(url: str, report: Any) -> None:
    assert put(url, changed(report, "status/fell_back", {"late": 2})).json == {"device": "hall"}
    text = ask(url, "/metrics").body.decode()
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.get("device") == "hall"
    }
    status = report["status"]
    assert values["hinge_device_samples", "hall"] == 10
    assert values["hinge_device_offloads", "hall"] == status["answered_by_remote"] + 2
    assert values["hinge_device_agreed", "hall"] == status["agreed"]
    assert values["hinge_device_offload_cost", "hall"] == status["offload_cost"]
    assert values["hinge_device_fell_back", "hall", "late"] == 2
    assert values["hinge_device_regret", "hall"] == report["regret"]
    assert values["hinge_device_breaker_open", "hall"] == 0


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("status/samples", -1, "Expected `int` >= 0 - at `$.status.samples`"),
        ("status/samples", 1.5, "Expected `int`, got `float` - at `$.status.samples`"),
        ("status/samples", True, "Expected `int`, got `bool` - at `$.status.samples`"),
        ("status/samples", "10", "Expected `int`, got `str` - at `$.status.samples`"),
        ("status/breaker", "ajar", "Invalid enum value 'ajar' - at `$.status.breaker`"),
        ("status/fell_back", {str(kind): 1 for kind in range(17)}, "length <= 16 - at `$.status.fell_back`"),
        ("status/fell_back", {"a\nb": 1}, "printable"),
        ("status/alarm_times", {"a\nb": [1.0, None]}, "printable"),
        ("status/alarm_reasons", {"a": "b\nc"}, "printable"),
        ("status/alarm_times", {"a": [None, 1.0]}, "Expected `float`, got `null` - at `$.status.alarm_times[...][0]`"),
        ("status/alarms", {"fire": -1}, "Expected `int` >= 0 - at `$.status.alarms[...]`"),
        ("status", [], "Expected `object`, got `array` - at `$.status`"),
        ("bins/0/agreement", 1.5, "Expected `float` <= 1.0 - at `$.bins[0].agreement`"),
        ("bins/0/licensed", 1, "Expected `bool`, got `int` - at `$.bins[0].licensed`"),
        ("bins/0/reason", "", "length >= 1 - at `$.bins[0].reason`"),
        ("bins/0/reason", "a\nb", "reason must be printable - at `$.bins[0]`"),
        ("bins/0/more", 1, "unknown field `more` - at `$.bins[0]`"),
        ("bins", [1] * 1025, "`$.bins"),
        ("compare", [{"policy": "x"}], "missing required field `offload_fraction` - at `$.compare[0]`"),
        ("recent/0/picture", "javascript:alert(1)", "matching regex '^data:image/png"),
        ("recent/0/picture", "data:image/png;base64," + "A" * 2**15, "length <= 32768 - at `$.recent[0].picture`"),
        ("recent/0/picture", "data:image/png;base64," + "A" * 99, "picture must be a PNG of at most 64 x 64 pixels"),
        ("recent/0/picture", "data:image/png;base64,AAAA", "picture must be a PNG"),
        ("recent/0/picture", data_url(np.zeros((65, 64, 1), np.uint8)), "a PNG of at most 64 x 64 pixels"),
        ("recent/0/picture", data_url(np.zeros((64, 65, 3), np.uint8)), "a PNG of at most 64 x 64 pixels"),
        ("recent/0/label", "x" * 300, "length <= 256 - at `$.recent[0].label`"),
        ("recent/0/label", "a\x1b[2J", "label must be printable - at `$.recent[0]`"),
        ("recent/0/reason", "", "length >= 1 - at `$.recent[0].reason`"),
        ("recent/0/number", 10**12 + 1, "Expected `int` <= 1000000000000 - at `$.recent[0].number`"),
        ("policy", "x" * 65, "length <= 64 - at `$.policy`"),
        ("compare/0/policy", "x" * 65, "length <= 64 - at `$.compare[0].policy`"),
        ("compare", [{}] * 9, "`$.compare"),
        ("compare/0/regret", -1.1e12, "Expected `float` >= -1000000000000.0 - at `$.compare[0].regret`"),
        ("regret", 1e300, "Expected `float` <= 1000000000000.0 - at `$.regret`"),
        ("regret", "much", "`$.regret`"),
        ("device", "kitchen", "device must be the one that reports"),
        ("surprise", 1, "unknown field `surprise`"),
    ],
)
def test_what_is_no_report_is_refused(url: str, report: Any, path: str, value: Any, problem: str) -> None:
    reply = put(url, changed(report, path, value))
    assert reply.status == 400
    assert problem in reply.json["error"]


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":NaN}', b'{"a":1,"a":1}', b"[" * 100_000, b"{}"])
def test_what_is_no_json_object_is_refused(url: str, body: bytes) -> None:
    assert put(url, body).status == 400


def test_bins_of_older_devices_have_no_reasons(url: str, report: Any) -> None:
    bins = [{key: value for key, value in bin.items() if key != "reason"} for bin in report["bins"]]
    assert put(url, changed(report, "bins", bins)).status == 200


def test_every_missing_field_is_noticed(report: Any) -> None:
    for field in report:
        without = {key: value for key, value in report.items() if key != field}
        with pytest.raises(InvalidMessage, match=f"missing required field `{field}`"):
            read_report("hall", json.dumps(without).encode())


def test_large_reports_are_refused_before_they_come(url: str) -> None:
    length = f"Content-Type: application/json\r\nContent-Length: {MAX_REPORT_BYTES + 1}\r\n\r\n"
    assert send_raw(url, f"POST /hinge/devices/hall HTTP/1.1\r\n{HOST}{length}".encode()).status == 413


def test_a_report_as_large_as_may_be_is_read(url: str, report: Any) -> None:
    bins = [{**report["bins"][0], "bin": bin} for bin in range(1024)]
    assert put(url, changed(report, "bins", bins)).status == 200


@pytest.mark.parametrize(
    ("name", "status"), [("a" * 64, 200), ("a" * 65, 400), ("..", 400), ("a%20b", 400), ("", 404), ("a/b", 404)]
)
def test_names_are_those_that_models_may_have(url: str, report: Any, name: str, status: int) -> None:
    assert put(url, changed(report, "device", name), name).status == status


def test_other_pages_cannot_make_a_browser_report(url: str, report: Any) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        assert put(url, report, **{"Content-Type": kind}).status == 415
    assert ask(url, "/hinge/devices/hall", "OPTIONS").status == 405
    assert ask(url, "/hinge/devices/hall").status == 405
    assert put(url, report, **{"Content-Encoding": "gzip"}).status == 415


# -- who listens -------------------------------------------------------------------------------------------------------


def test_a_page_is_told_all_there_is_and_then_what_changes(url: str, report: Any) -> None:
    put(url, report)
    page = Page(url)
    assert page.status == 200
    assert page.headers["content-type"] == "text/event-stream"
    assert page.headers["cache-control"] == "no-store"
    events = page.events()
    assert next(events)[0] == "hello"
    while (found := next(events))[0] != "history" or found[1]["device"] != "hall":
        pass
    assert found[1]["compared"] == ["hi-lcb"]
    assert found[1]["points"][-1][0] == 10
    assert found[1]["points"][-1][-3:] == [0.5, 0.25, 1]
    while (found := next(events))[0] != "report" or found[1]["report"]["device"] != "hall":
        pass
    assert found[1]["report"] == report
    put(url, changed(report, "status/samples", 11))
    while (found := next(events))[0] != "report":
        pass
    assert found[1]["point"][0] == found[1]["report"]["status"]["samples"] == 11
    page.close()


def test_the_server_tells_of_itself_every_second(url: str, report: Any) -> None:
    put(url, report)
    page = Page(url)
    told = [until(page, "server"), until(page, "server")]
    codes = next(row["codes"] for row in told[0]["requests"] if row["model"] == "")
    counted = re.search(r'hinge_requests_total\{code="200",model=""\} ([0-9.]+)', ask(url, "/metrics").body.decode())
    assert counted is not None
    assert 0 < codes["200"] <= float(counted[1])
    assert 0 <= told[0]["silent_s"]["hall"] <= told[1]["silent_s"]["hall"]
    page.close()


def test_no_more_listen_than_may(report: Any) -> None:
    with Server(["fashion-local"], log_level="error") as server:
        pages = [Page(server.url) for _ in range(MOST_PAGES)]
        assert {page.status for page in pages} == {200}
        assert refusal(server.url) == 503
        for page in pages:
            page.close()
        end = time.monotonic() + TIMEOUT_S
        while refusal(server.url) != 200:
            assert time.monotonic() < end


def test_who_does_not_read_takes_up_no_memory(report: Any) -> None:
    with serving("fashion-local", "--log-level", "error") as (process, url), Page(url) as page:
        page.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        picture = PICTURE + "A" * 30_000
        large = changed(report, "recent", [{**report["recent"][0], "picture": picture}] * 20)
        for samples in range(200):  # 120 MB, if they were kept
            assert put(url, changed(large, "status/samples", samples)).status == 200
        assert memory_kib(process, "VmRSS") < 300_000


def test_draining_lets_listeners_go() -> None:
    with serving("fashion-local", "--drain-s", "20") as (process, url), Page(url) as page:
        until(page, "server")
        process.terminate()
        began = time.monotonic()
        assert {kind for kind, _ in page.events()} <= {"server"}, "the stream ends, and ends as it should"
        assert process.wait(timeout=WAIT_S) == 0
        assert time.monotonic() - began < 10


def test_all_but_the_page_itself_needs_the_token(report: Any) -> None:
    with Server(["fashion-local"], token=TOKEN, log_level="error") as server:
        for path in ("/", "/hinge/page.js", "/hinge/style.css"):
            assert ask(server.url, path).status == 200
        shown = f"Bearer {TOKEN}"
        assert put(server.url, report).status == 401
        assert put(server.url, report, Authorization=shown).status == 200
        assert refusal(server.url) == 401
        with Page(server.url, f"Authorization: {shown}\r\n") as page:
            assert until(page, "hello")["version"]


def with_host(url: str, host: str) -> int:
    return send_raw(url, f"GET /v2 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()).status


def test_another_name_does_not_lead_here(url: str) -> None:
    port = url.rpartition(":")[2]
    for host in ("127.0.0.1", "localhost", "LocalHost", "[::1]"):
        assert with_host(url, host) == with_host(url, f"{host}:{port}") == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "localhost.", ""):
        assert with_host(url, host) == 421
    twice = send_raw(url, b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    assert (twice.status, twice.body) == (400, b"Invalid HTTP request received.")
    assert send_raw(url, b"GET /v2 HTTP/1.0\r\n\r\n").status == 200
    with Server(["fashion-local"], token=TOKEN, log_level="error") as guarded:
        assert with_host(guarded.url, "edge.example") == 401, "who shows the token may call it what they like"


# -- the page ----------------------------------------------------------------------------------------------------------


def test_the_page_may_load_nothing_but_itself(url: str) -> None:
    page = ask(url, "/")
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    loaded = re.findall(r'(?:src|href)="(hinge/[^"]+)"', page.body.decode())
    assert len(loaded) == 2
    for path in loaded:
        assert ask(url, f"/{path}").status == 200
    assert b"http://" not in page.body.replace(b"http://www.w3.org", b"")
    assert ask(url, "/hinge/../page.js").status == 404
    assert ask(url, "/", "HEAD").body == b""


# -- what is kept ------------------------------------------------------------------------------------------------------


def figures(report: Any, samples: int = 10) -> Any:
    return read_report("hall", json.dumps(changed(report, "status/samples", samples)).encode())


def at_sample(figures: ReportFigures, samples: int) -> ReportFigures:
    return figures._replace(samples=samples, point=array("d", [samples, *figures.point[1:]]))


def test_there_is_room_for_so_many_devices_and_silent_ones_make_way(report: Any) -> None:
    now = 0.0
    reports = Reports(list, lambda: now)
    for name in range(MOST_DEVICES):
        reports.put(f"d{name}", figures(report))
    with pytest.raises(Refusal, match="64 devices report already"):
        reports.put("late", figures(report))
    now = FORGET_S / 2
    for name in range(1, MOST_DEVICES):
        reports.put(f"d{name}", figures(report))
    now = FORGET_S
    reports.put("late", figures(report))
    told = {sample.labels["device"] for family in reports.collect() for sample in family.samples}
    assert "late" in told
    assert "d0" not in told
    assert len(told) == MOST_DEVICES


def test_a_history_is_bounded_begins_anew_and_skips_what_stands_still(report: Any) -> None:
    reports = Reports(list)
    read = [figures(report, samples) for samples in range(3)]
    for _ in range(5):
        reports.put("hall", read[1])
    points = reports.devices["hall"].points
    assert len(points) == 1
    reports.put("hall", read[2])
    assert len(points) == 2
    reports.put("hall", read[0])
    assert len(points) == 1
    for samples in range(1, 5 * POINTS):
        reports.put("hall", at_sample(read[0], samples))
        assert len(points) <= POINTS
    kept = [int(point[0]) for point in points[1:]]
    assert kept == sorted(kept)
    assert kept[-1] == 5 * POINTS - 1
    assert kept[1] - kept[0] > kept[-1] - kept[-2]


def test_what_was_told_of_other_policies_is_forgotten(report: Any) -> None:
    reports = Reports(list)
    reports.put("hall", figures(report, 1))
    reports.put("hall", figures(changed(report, "compare/0/policy", "oracle"), 2))
    assert [len(point) for point in reports.devices["hall"].points] == [OWN, OWN + 3]


def test_full_histories_are_small_and_shared_by_all_who_listen(report: Any) -> None:
    row = {"policy": "x" * 64, "offload_fraction": 1 / 3, "cost_per_sample": -1e12 / 3, "regret": -1e12 / 3}
    read = figures(changed(report, "compare", [row] * 8))
    tracemalloc.start()
    try:
        reports = Reports(list)
        for name in range(MOST_DEVICES):
            for samples in range(POINTS):
                reports.put(f"d{name}", at_sample(read, samples))
        for _ in range(MOST_PAGES):
            reports.open_page()
        devices = reports.devices.values()
        told = [device.history() for device in devices]
        assert all(before is device.history() for before, device in zip(told, devices, strict=True))
        assert tracemalloc.get_traced_memory()[0] < 40e6
    finally:
        tracemalloc.stop()
    reports.put("d0", at_sample(read, POINTS))
    changes = [before is not device.history() for before, device in zip(told, devices, strict=True)]
    assert changes == [True] + [False] * (MOST_DEVICES - 1)
