"""What the page shows of a device is what it knows."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import msgspec
import numpy as np
import pytest
from PIL import Image

from hinge import HILCB, Classification, Device, FixedCost, Gate
from hinge.device.page.page import LivePage
from hinge.device.page.pictures import SIDE, data_url, small
from hinge.device.page.snapshot import RECENT, SENTENCE, Snapshots
from hinge.policies import AlwaysLocal, AlwaysRemote, Probation
from hinge.tasks import Transcription

WAIT_S = 20.0


def scores(sample: float) -> list[float]:
    return [0.0, sample]


def device(policy: Any = None, **options: Any) -> Device:
    """One whose remote is never late, however busy the machine."""
    policy = policy or Gate(offload_cost=0.5, bins=16)
    return Device(scores, lambda sample: int(sample > 1), policy, **{"deadline_s": 10.0, **options})


def shown(snapshots: Snapshots) -> Any:
    """What the page is told."""
    return json.loads(msgspec.json.encode(snapshots.take()))


def reported(watched: Device, samples: list[float]) -> Any:
    """What is shown after these samples, whose labels are known to be 1 above 1."""
    snapshots = Snapshots(watched)
    for sample in samples:
        snapshots.saw(watched.infer(sample), truth=int(sample > 1))
    return shown(snapshots)


def test_the_status_is_the_devices() -> None:
    with device() as watched:
        report = reported(watched, [0.1, 3.0] * 40)
        status = watched.status
        told = report["status"]
        assert (told["samples"], told["answered_by_remote"], told["agreed"], told["offload_cost"]) == (
            80, status.answered_by_remote, status.agreed, status.offload_cost
        )  # fmt: skip  # several to a line
        assert told["not_durable"] is None, "nobody asked for a disk"
        for bin in report["bins"]:
            known = watched.gate.explain((bin["from"] + bin["to"]) / 2)
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
        assert recent[-1]["reason"].startswith("Confidence 0.94–1 is accepted for ")
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
    task = Classification(["a", "b" * 500])
    with Device(scores, lambda _: 1, AlwaysRemote(bins=4), price=FixedCost(0.5), task=task) as watched:
        label = reported(watched, [3.0])["recent"][0]["label"]
        assert label == "b" * (len(label) - 1) + "…"


@pytest.mark.parametrize(
    ("bins", "spans"),
    [(2, [(0.0, 0.5), (0.5, 1.0)]), ([0.9], [(0.0, 0.9), (0.9, 1.0)])],
)
def test_bins_are_told_by_their_confidences(bins: Any, spans: list[Any]) -> None:
    with device(Gate(offload_cost=0.5, bins=bins)) as watched:
        assert [(bin["from"], bin["to"]) for bin in reported(watched, [])["bins"]] == spans


def test_bins_that_fit_themselves_are_told_as_they_are_and_hold_all_samples() -> None:
    with device(Gate(offload_cost=0.2)) as watched:
        samples = np.random.default_rng(0).uniform(0.0, 6.0, 400).tolist()
        told = reported(watched, samples)["bins"]
        assert sum(bin["samples"] for bin in told) == 400
        assert [(bin["from"], bin["to"]) for bin in told] == watched.gate.bins.spans()
        assert [bin["from"] for bin in told] != [bin / 16 for bin in range(16)]


def test_too_many_bins_are_not_told() -> None:
    with device(Probation(bins=2000, offload_cost=0.5)) as watched:
        assert reported(watched, [3.0])["bins"] == []


@pytest.mark.parametrize("chosen", [Probation(offload_cost=0.4), HILCB(offload_cost=0.4), AlwaysLocal(16)])
def test_the_cost_is_what_was_paid(chosen: Any) -> None:
    samples = np.random.default_rng(0).uniform(0.0, 2.0, 500).tolist()  # local says 1 of all, and is right above 1
    with device(chosen, price=FixedCost(0.4)) as watched:
        snapshots, paid = Snapshots(watched), 0.0
        for sample in samples:
            answer = watched.infer(sample)
            snapshots.saw(answer, truth=int(sample > 1))
            paid += 0.4 if answer.source == "remote" else sample <= 1
        assert shown(snapshots)["cost_per_sample"] == pytest.approx(paid / 500)


def test_without_labels_there_is_no_cost() -> None:
    with device() as watched:
        snapshots = Snapshots(watched)
        snapshots.saw(watched.infer(3.0))
        assert shown(snapshots)["cost_per_sample"] is None


def test_who_compares_knows_more() -> None:
    with device() as watched:
        snapshots = Snapshots(watched)
        rows = [{"policy": name, "cost_per_sample": 0.1, "regret": 7, "extra": 1} for name in ("probation", "hi-lcb")]
        snapshots.compare(rows)
        report = shown(snapshots)
        assert (report["cost_per_sample"], report["regret"]) == (0.1, 7.0)
        assert report["compare"] == [
            {"policy": "hi-lcb", "offload_fraction": None, "cost_per_sample": 0.1, "regret": 7.0}
        ]


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


def test_a_true_label_is_a_name_or_the_number_of_one() -> None:
    with device(task=Classification(["cat", "dog"])) as watched:
        snapshots = Snapshots(watched)
        for truth in (1, "dog", np.int64(1)):
            snapshots.saw(watched.infer(3.0), truth=truth)
        assert [seen["truth"] for seen in shown(snapshots)["recent"]] == ["dog"] * 3
        with pytest.raises(ValueError, match="an unknown label, 2"):
            snapshots.saw(watched.infer(3.0), truth=2)


def test_answers_of_any_task_are_reported_and_judged_by_it() -> None:
    with device(AlwaysLocal(16), task=Transcription(), price=FixedCost(0.5)) as watched:
        watched.local = lambda _: "turn on"
        snapshots = Snapshots(watched)
        snapshots.saw(watched.infer(0), truth="turn it on")
        report = shown(snapshots)
    assert [(seen["label"], seen["truth"]) for seen in report["recent"]] == [("turn on", "turn it on")]
    assert report["cost_per_sample"] == pytest.approx(1 / 3)


# -- the page ----------------------------------------------------------------------------------------------------------


def events(page: LivePage) -> Iterator[Any]:
    with urlopen(page.url + "events", timeout=WAIT_S) as stream:
        for line in stream:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


def test_the_page_tells_what_is_new_and_how_it_came_to_be() -> None:
    with device() as watched, LivePage(watched) as page:
        told = events(page)
        assert next(told)["status"]["samples"] == 0
        page.saw(watched.infer(3.0))
        last = next(each for each in told if each["status"]["samples"] == 1)
        assert [point[0] for point in last["points"]] == [0, 1]
        assert last["recent"][0]["label"] == "1"


def test_a_page_that_is_closed_hangs_up_and_frees_its_port() -> None:
    with device() as watched:
        with LivePage(watched) as page:
            told = events(page)
            next(told)
        assert list(told) is not None, "it ends"
        port = int(page.url.split(":")[2].strip("/"))
        with LivePage(watched, port) as again:
            assert urlopen(again.url).status == 200


def test_a_port_in_use_is_an_error() -> None:
    with device() as watched, LivePage(watched) as page, pytest.raises(OSError, match="in use"):
        LivePage(watched, int(page.url.split(":")[2].strip("/")))


def test_only_this_machine_looks_and_the_page_loads_nothing_from_elsewhere() -> None:
    with device() as watched, LivePage(watched) as page:
        assert page.url.startswith("http://127.0.0.1:")
        with urlopen(page.url) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.read().startswith(b"<!doctype html>")
        for path in ("", "events", "page.js"):
            with pytest.raises(HTTPError, match="400"):
                urlopen(Request(page.url + path, headers={"Host": "evil.example"}))


def test_a_policy_that_fails_to_explain_itself_stops_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> Any:
        raise ZeroDivisionError

    with device() as watched, LivePage(watched) as page:
        with monkeypatch.context() as broken:
            broken.setattr(Probation, "explain", fail)
            page.saw(watched.infer(3.0))
        assert next(each for each in events(page) if each["status"]["samples"] == 1)
