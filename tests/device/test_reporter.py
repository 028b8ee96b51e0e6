"""What a device reports is what it knows, and that it reports costs its answers nothing."""

import base64
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import numpy as np
import pytest
from PIL import Image

from hinge import HILCB, Device, FixedCost, Isotonic, Thompson, at_most
from hinge.bins import ClassBins, QuantileBins, UniformBins
from hinge.device.report import RECENT, SENTENCE, SIDE
from hinge.device.reporter import Reporter, copy_of, data_url, licences, small
from hinge.policies import AlwaysLocal, AlwaysRemote
from hinge.tasks import Transcription

WAIT_S = 20.0
NOWHERE = "http://127.0.0.1:9"


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


class Collecting:
    """A server that keeps what it is sent."""

    def __init__(self, port: int = 0, status: int = 200, answer: bytes = b"") -> None:
        collected = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collected.reports.append((self.path, dict(self.headers), json.loads(body)))
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self.reports: list[tuple[str, dict[str, str], Any]] = []
        self.server = HTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def wait(self, reports: int) -> None:
        wait_until(lambda: len(self.reports) >= reports)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Collecting]:
    with closing(Collecting()) as collecting:
        yield collecting


def scores(sample: float) -> list[float]:
    return [0.0, sample]


def device(policy: Any = None, **options: Any) -> Device:
    """One whose remote is never late, however busy the machine."""
    policy = policy or Isotonic(bins=16, offload_cost=0.5)
    return Device(scores, lambda sample: int(sample > 1), policy, **{"deadline_s": 10.0, **options})


def told(reporter: Reporter) -> Any:
    """The report as a message has it."""
    return msgspec.to_builtins(reporter.report())


def reported(watched: Device, samples: list[float], **seen: Any) -> Any:
    """The report after these samples, whose labels are known to be 1 above 1."""
    with Reporter(watched, NOWHERE) as reporter:
        for sample in samples:
            reporter.saw(watched.infer(sample), truth=int(sample > 1), **seen)
        return told(reporter)


def test_it_reports_again_and_again_and_once_at_the_end(server: Collecting) -> None:
    with device() as watched:
        with Reporter(watched, server.url, "kitchen", token="0123456789abcdef", every_s=0.02) as reporter:
            server.wait(3)
            reporter.saw(watched.infer(3.0))
        path, headers, last = server.reports[-1]
        assert path == "/hinge/devices/kitchen"
        assert headers["Authorization"] == "Bearer 0123456789abcdef"
        assert headers["Content-Type"] == "application/json"
        assert last["status"]["samples"] == 1
        assert last["recent"][0]["label"] == "1"


def test_it_goes_on_when_the_server_comes_back() -> None:
    first = Collecting()
    with device() as watched, Reporter(watched, first.url, every_s=0.02):
        first.wait(1)
        first.close()
        with closing(Collecting(first.port)) as again:
            again.wait(2)


def test_a_server_that_never_answers_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hinge.device.reporter._PATIENCE_S", 10 * WAIT_S)
    with socket.create_server(("127.0.0.1", 0)) as silent, device() as watched:
        silent.settimeout(WAIT_S)
        reporter = Reporter(watched, f"http://127.0.0.1:{silent.getsockname()[1]}", every_s=0.01)
        with silent.accept()[0]:
            for _ in range(1000):
                reporter.saw(watched.infer(3.0), picture=np.zeros((2000, 2000), np.uint8))
            assert reporter.problem is None, "all were answered while one report was under way"
            silent.close()
        reporter.close()
        assert not reporter._thread.is_alive()


def test_what_went_wrong_last_is_known() -> None:
    with closing(Collecting(status=400, answer=b'{"error":"no\nway"}')) as refusing, device() as watched:
        with Reporter(watched, NOWHERE) as nowhere, Reporter(watched, refusing.url) as refused:
            assert nowhere.problem is None
        assert str(nowhere.problem).startswith("the server gives no answer: cannot be reached")
        assert refused.problem == 'the server refused a report with status 400: {"error":"no way"}'


def test_a_report_that_cannot_be_made_is_not_the_last(server: Collecting, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Any:
        raise ZeroDivisionError("by zero")

    with device() as watched, Reporter(watched, server.url, every_s=0.02) as reporter:
        with monkeypatch.context() as broken:
            broken.setattr("hinge.device.reporter.copy_of", fail)
            wait_until(lambda: reporter.problem is not None)
        assert reporter.problem == "no report could be made: ZeroDivisionError: by zero"
        server.wait(len(server.reports) + 1)


def test_the_status_is_the_devices() -> None:
    with device() as watched:
        report = reported(watched, [0.1, 3.0] * 40)
        status = watched.status
        told = report["status"]
        assert (told["samples"], told["answered_by_remote"], told["agreed"], told["offload_cost"]) == (
            80, status.answered_by_remote, status.agreed, status.offload_cost
        )  # fmt: skip  # several to a line
        assert told["not_durable"] is None, "nobody asked for a disk"
        for bin, known in zip(report["bins"], licences(copy_of(watched)), strict=True):
            assert (bin["offloads"], bin["agreement"]) == (known.offloads, known.agreement)
            assert bin["licensed"] == (known.offload_probability == 0.0)
            assert bin["reason"] == known.reason
        assert sum(bin["samples"] for bin in report["bins"]) == 80
        assert [bin["from"] for bin in report["bins"]] == [bin / 16 for bin in range(16)]


def test_the_last_answers_are_told_with_their_reasons() -> None:
    with device() as watched:
        recent = reported(watched, [3.0] * 50)["recent"]
        assert [each["number"] for each in recent] == list(range(50 - RECENT, 50))
        assert recent[-1]["source"] == "local"
        assert recent[-1]["decision"] == "accept"
        assert recent[-1]["reason"].startswith("Bin 15 is accepted: local agreed in")
        assert recent[-1]["truth"] == "1"


def test_a_failing_remote_shows() -> None:
    def fail(sample: float) -> int:
        raise ConnectionError("un\nplugged")

    with Device(scores, fail, AlwaysRemote(bins=4), price=FixedCost(0.5)) as watched:
        report = reported(watched, [3.0] * 30)
        assert report["status"]["breaker"] == "open"
        assert sum(report["status"]["fell_back"].values()) == 30
        assert report["status"]["alarms"].keys() == report["status"]["alarm_times"].keys() != set()
        assert all(each["fault"].isprintable() for each in report["recent"])


def test_a_long_fault_is_told_to_its_end_and_an_endless_one_is_cut_visibly() -> None:
    def fail(sample: float) -> int:
        raise ConnectionError("x" * int(sample))

    with Device(scores, fail, AlwaysRemote(bins=4), price=FixedCost(0.5)) as watched:
        shorter, longer = reported(watched, [300.0, 5000.0])["recent"]
        assert "x" * 150 in shorter["reason"]
        assert shorter["reason"].endswith("; the local one stands.")
        assert all(len(each["reason"]) <= SENTENCE for each in (shorter, longer))


def test_a_long_label_is_cut_visibly() -> None:
    with Device(scores, lambda _: 1, AlwaysRemote(bins=4), price=FixedCost(0.5), labels=["a", "b" * 500]) as watched:
        label = reported(watched, [3.0])["recent"][0]["label"]
        assert label == "b" * (len(label) - 1) + "…"


def test_a_spent_budget_is_the_reason() -> None:
    with device(at_most(Thompson(bins=4, offload_cost=0.1), 0.001)) as watched:
        report = reported(watched, [0.1] * 50)
        assert "at most 1 of 1000 samples" in report["recent"][-1]["reason"]


@pytest.mark.parametrize(
    ("bins", "spans"),
    [
        (UniformBins(2), [(None, 0.0, 0.5), (None, 0.5, 1.0)]),
        (QuantileBins([0.9]), [(None, 0.0, 0.9), (None, 0.9, 1.0)]),
        (ClassBins(QuantileBins([0.9]), 2), [("0", 0.0, 0.9), ("0", 0.9, 1.0), ("1", 0.0, 0.9), ("1", 0.9, 1.0)]),
    ],
)
def test_bins_are_told_by_their_confidences(bins: Any, spans: list[Any]) -> None:
    with device(Isotonic(bins=2, offload_cost=0.5) if bins.bins == 2 else Thompson(4, 0.5), bins=bins) as watched:
        told = reported(watched, [])["bins"]
        assert [(bin["class"], bin["from"], bin["to"]) for bin in told] == spans


def test_too_many_bins_are_not_told() -> None:
    with device(Isotonic(bins=2000, offload_cost=0.5)) as watched:
        assert reported(watched, [3.0])["bins"] == []


@pytest.mark.parametrize("policy", [Isotonic, HILCB, AlwaysLocal])
@pytest.mark.parametrize("offload_cost", [0.1, 0.4, 0.8])
def test_regret_is_what_was_paid_above_the_cheapest_rule(policy: Any, offload_cost: float) -> None:
    samples = np.random.default_rng(0).uniform(0.0, 2.0, 500).tolist()  # local says 1 of all, and is right above 1
    chosen = AlwaysLocal(16) if policy is AlwaysLocal else policy(bins=16, offload_cost=offload_cost)
    with device(chosen, price=FixedCost(offload_cost)) as watched, Reporter(watched, NOWHERE) as reporter:
        paid, wrong, in_bin = 0.0, [0] * 16, [0] * 16
        for sample in samples:
            answer = watched.infer(sample)
            reporter.saw(answer, truth=int(sample > 1))
            paid += offload_cost if answer.source == "remote" else sample <= 1
            wrong[answer.bin] += sample <= 1
            in_bin[answer.bin] += 1
        least = sum(min(errors, offload_cost * count) for errors, count in zip(wrong, in_bin, strict=True))
        report = told(reporter)
        assert report["cost_per_sample"] == pytest.approx(paid / 500)
        expected = paid - least if watched.policy.offload_cost is not None else None
        assert report["regret"] == (None if expected is None else pytest.approx(expected))


def test_without_counts_of_agreement_there_is_no_regret() -> None:
    with device(AlwaysRemote(16), price=FixedCost(0.25)) as watched:
        report = reported(watched, [3.0])
        assert report["regret"] is None
        assert report["cost_per_sample"] == 0.25


def test_without_labels_there_is_no_regret() -> None:
    with device() as watched, Reporter(watched, NOWHERE) as reporter:
        reporter.saw(watched.infer(3.0))
        report = told(reporter)
        assert report["regret"] is None
        assert report["cost_per_sample"] is None


def test_who_compares_knows_more() -> None:
    with device() as watched, Reporter(watched, NOWHERE) as reporter:
        rows = [{"policy": name, "cost_per_sample": 0.1, "regret": 7, "extra": 1} for name in ("isotonic", "hi-lcb")]
        reporter.compare(rows)
        report = told(reporter)
        assert (report["cost_per_sample"], report["regret"]) == (0.1, 7.0)
        assert report["compare"] == [
            {"policy": "hi-lcb", "offload_fraction": None, "cost_per_sample": 0.1, "regret": 7.0}
        ]
        with pytest.raises(ValueError, match="regret must be a finite number"):
            reporter.compare([{"policy": "x", "regret": float("nan")}])
        with pytest.raises(ValueError, match="8 at most"):
            reporter.compare([{"policy": str(k)} for k in range(9)])


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 1), (1, 28, 28), (28, 28, 3), (3, 30, 20)])
def test_pictures_are_the_samples(shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    shrunk = small(pixels)
    assert shrunk is not None
    url = data_url(shrunk)
    read = np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))
    first = np.moveaxis(pixels, 0, -1) if shape[0] in (1, 3) else pixels
    assert np.array_equal(read, first.squeeze())


def test_large_pictures_shrink_and_floats_are_scaled() -> None:
    large = small(np.full((1000, 500, 3), 0.5, np.float32))
    assert large is not None
    assert max(large.shape) <= SIDE
    assert set(large.ravel().tolist()) == {127}
    for sample in (np.zeros(7), np.zeros((2, 2, 2)), np.zeros((0, 4)), np.zeros((2, 2), np.int64), None, "text"):
        assert small(sample) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [({"name": "../x"}, "name must be"), ({"url": "ftp://x"}, "url must start"), ({"every_s": 0}, "every_s must be")],
)
def test_what_makes_no_sense_is_refused(change: dict[str, Any], problem: str) -> None:
    with device() as watched, pytest.raises(ValueError, match=problem):
        Reporter(watched, **{"url": NOWHERE, **change})


def test_a_true_label_is_a_name_or_the_number_of_one() -> None:
    with device(labels=["cat", "dog"]) as watched, Reporter(watched, NOWHERE) as reporter:
        for truth in (1, "dog", np.int64(1)):
            reporter.saw(watched.infer(3.0), truth=truth)
        assert [seen["truth"] for seen in told(reporter)["recent"]] == ["dog"] * 3
        with pytest.raises(ValueError, match="Device: label must be a possible answer, got an unknown label, 2"):
            reporter.saw(watched.infer(3.0), truth=2)
        with pytest.raises(TypeError, match="Device: answer must be one that a device gave"):
            reporter.saw("dog", truth=1)  # type: ignore[arg-type]  # wrong on purpose


def test_a_true_label_of_another_kind_is_refused() -> None:
    wrong = pytest.raises(TypeError, match="Device: label must be of the kind that the answers are")
    with device() as watched, Reporter(watched, NOWHERE) as reporter, wrong:
        reporter.saw(watched.infer(3.0), truth="dog")


def test_answers_of_any_task_are_reported_and_judged_by_it() -> None:
    with device(AlwaysLocal(16), task=Transcription(), price=FixedCost(0.5)) as watched:
        watched.local = lambda _: "turn on"
        with Reporter(watched, NOWHERE) as reporter:
            reporter.saw(watched.infer(0), truth="turn it on")
            report = told(reporter)
    assert [(seen["label"], seen["truth"]) for seen in report["recent"]] == [("turn on", "turn it on")]
    assert report["cost_per_sample"] == pytest.approx(1 / 3)
