"""The gateway for the Open Inference Protocol, between models in files and servers that answer or misbehave."""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

from hinge import Breaker, Device, Gate, OnnxModel, OpenInference, fashion
from hinge.errors import InvalidModel
from hinge.gateway import InferenceGateway, ServedRows
from hinge.oip.messages import build_request, inference_path, json_message, parse_response
from hinge.oip.tensors import TensorSpec
from hinge.server import Server
from tests.support.chat_server import dead_url
from tests.support.loopback import Http, OipServer, http_response

IMAGES = fashion.labelled_images()[0]
LOCAL, REMOTE = OnnxModel(fashion.local_model()), OnnxModel(fashion.remote_model())
WAIT_S = 20.0


def gate() -> Gate:
    return Gate(offload_cost=0.3)


@pytest.fixture(scope="module")
def edge() -> Iterator[str]:
    with Server(["fashion", "fashion-local"], log_level="error") as server:
        yield server.url


def gateway(local: Any, remote: ServedRows, **settings: Any) -> InferenceGateway:
    return InferenceGateway(local, remote, gate(), **{"deadline_s": WAIT_S, "log_level": "error", **settings})


def ask(url: str, images: Any, model: str = "fashion-local", **parameters: Any) -> tuple[Any, dict[str, str]]:
    """The scores, and the headers of the answer."""
    message = build_request({"image": np.asarray(images)}, binary=True)
    if parameters:
        fields = json.loads(build_request({"image": np.asarray(images)}).body)
        message = type(message)({}, json.dumps({**fields, "parameters": parameters}).encode())
    with urlopen(Request(url + inference_path(model), message.body, message.headers), timeout=WAIT_S) as answer:
        response = parse_response(dict(answer.headers), answer.read(), id="", model=model)
        return response.outputs["scores"], {name.lower(): value for name, value in answer.headers.items()}


def refused(url: str, images: Any) -> tuple[int, str]:
    with pytest.raises(HTTPError) as raised:
        ask(url, images)
    with raised.value as error:
        return error.code, json.load(error)["error"]


def test_the_answers_are_those_of_a_device(edge: str) -> None:
    with Device(LOCAL, OpenInference(edge, "fashion"), gate(), deadline_s=WAIT_S) as device:
        expected = [device.infer(image) for image in IMAGES[:300]]
    with gateway(fashion.local_model(), ServedRows(edge, "fashion"), output="scores") as served:
        name = fashion.local_model().stem
        found = [ask(served.url, image[None], name) for image in IMAGES[:300]]
    for image, answer, (scores, headers) in zip(IMAGES, expected, found, strict=False):
        assert headers["hinge-answered-by"] == answer.source
        model = LOCAL if answer.source == "local" else REMOTE
        np.testing.assert_allclose(scores[0], model(image), rtol=1e-4, atol=1e-4)
        assert headers["hinge-cost"] == f"{answer.cost:.6g}"
    assert 20 < sum(answer.source == "remote" for answer in expected) < 280


def test_rows_of_a_request_are_answered_by_whoever_the_gate_says(edge: str) -> None:
    with gateway(ServedRows(edge, "fashion-local"), ServedRows(edge, "fashion")) as served:
        for _ in range(10):
            ask(served.url, IMAGES[:200])
        scores, headers = ask(served.url, IMAGES[200:300])
    near, far = LOCAL.many(IMAGES[200:300]), REMOTE.many(IMAGES[200:300])
    by_local = np.isclose(scores, near, atol=1e-4).all(axis=1)
    by_remote = np.isclose(scores, far, atol=1e-4).all(axis=1)
    assert (by_local ^ by_remote).all()
    assert headers["hinge-answered-by"] == "both"
    assert float(headers["hinge-cost"]) == pytest.approx(0.3 * by_remote.sum())


def test_a_client_sees_the_local_model(edge: str) -> None:
    with gateway("small=" + str(fashion.local_model()), ServedRows(edge, "fashion")) as served:
        client = OpenInference(served.url, "small")
        assert client.check(IMAGES[0]) == 10
        assert client.metadata()[1].outputs == (TensorSpec("scores", "FP32", (-1, 10)),)
        client.close()
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            assert b"hinge_samples_total 0.0" in page.read()


def test_a_request_without_rows_is_the_local_models(edge: str) -> None:
    with gateway(fashion.local_model(), ServedRows(edge, "fashion")) as served:
        scores, headers = ask(served.url, IMAGES[:0], fashion.local_model().stem)
        assert (scores.shape, "hinge-answered-by" in headers) == ((0, 10), False)


@pytest.mark.parametrize("local", ["file", "server"])
def test_when_the_remote_fails_the_local_model_answers(local: str, edge: str) -> None:
    image = TensorSpec("image", "UINT8", (-1, 28, 28))
    other = OipServer(lambda _: {"scores": np.zeros((1, 7), np.float32)}, inputs=[image])
    with dead_url() as dead, other:
        for remote in (ServedRows(dead.removesuffix("/v1"), "fashion"), ServedRows(other.url, "remote")):
            near = fashion.local_model() if local == "file" else ServedRows(edge, "fashion-local")
            with gateway(near, remote) as served:
                name = fashion.local_model().stem if local == "file" else "fashion-local"
                for image in IMAGES[:100]:
                    scores, headers = ask(served.url, image[None], name)
                    assert headers["hinge-answered-by"] == "local"
                    np.testing.assert_allclose(scores[0], LOCAL(image), atol=1e-4)


def test_when_the_local_server_fails_the_remote_answers(edge: str) -> None:
    with dead_url() as dead, gateway(ServedRows(dead[:-3], "fashion-local"), ServedRows(edge, "fashion")) as served:
        scores, headers = ask(served.url, IMAGES[:3])
        assert headers["hinge-answered-by"] == "remote"
        assert "the local model failed" in headers["hinge-reason"]
        np.testing.assert_allclose(scores, REMOTE.many(IMAGES[:3]), atol=1e-4)
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            assert b"hinge_local_failures_total 3.0" in page.read()


def stalling(back: Event) -> OipServer:
    """A server of the local model that gives no answer until it is back."""

    def slow(inputs: Any) -> Any:
        back.wait(WAIT_S)
        return {"scores": LOCAL.many(inputs["image"])}

    inputs, outputs = [TensorSpec("image", "UINT8", (-1, 28, 28))], [TensorSpec("scores", "FP32", (-1, 10))]
    return OipServer(slow, inputs=inputs, outputs=outputs, model="fashion-local")


def test_a_local_server_that_stalls_is_left_alone_until_a_probe_finds_it_back(edge: str) -> None:
    back, device = Event(), {"breaker": Breaker(failures=1, interval_s=1.0)}
    with stalling(back) as local:
        near, far = ServedRows(local.url, "fashion-local"), ServedRows(edge, "fashion")
        with gateway(near, far, deadline_s=0.8, device=device) as served:
            reasons = [ask(served.url, IMAGES[:2])[1]["hinge-reason"] for _ in range(3)]
            assert "the local model failed (no answer in time)" in reasons[0]
            assert "The local model has failed once; next try in" in reasons[2]
            assert local.inferences == 1
            back.set()
            end = time.monotonic() + WAIT_S
            while "hinge-confidence" not in ask(served.url, IMAGES[:2])[1]:
                assert time.monotonic() < end
            assert local.inferences == 2


def test_a_client_in_a_hurry_does_not_take_the_local_server_from_others(edge: str) -> None:
    back, device = Event(), {"breaker": Breaker(failures=1, interval_s=60)}
    with stalling(back) as local:
        near, far = ServedRows(local.url, "fashion-local"), ServedRows(edge, "fashion")
        with gateway(near, far, device=device) as served:
            assert ask(served.url, IMAGES[:1], timeout=500_000)[1]["hinge-answered-by"] == "remote"
            back.set()
            assert "hinge-confidence" in ask(served.url, IMAGES[:1])[1]


def test_a_local_server_that_is_left_alone_answers_where_the_remote_fails() -> None:
    back, device = Event(), {"breaker": Breaker(failures=1, interval_s=60)}
    with stalling(back) as local, Server(["fashion"], log_level="error") as away:
        near, far = ServedRows(local.url, "fashion-local"), ServedRows(away.url, "fashion")
        with gateway(near, far, deadline_s=2, device=device) as served:
            assert ask(served.url, IMAGES[:2])[1]["hinge-answered-by"] == "remote"
            back.set()
            away.close()
            scores, headers = ask(served.url, IMAGES[:2])
            assert headers["hinge-answered-by"] == "local"
            np.testing.assert_allclose(scores, LOCAL.many(IMAGES[:2]), atol=1e-4)


def test_a_remote_that_stalls_leaves_time_for_a_local_server_that_is_back() -> None:
    back, end, device = Event(), Event(), {"breaker": Breaker(failures=1, interval_s=60)}
    with stalling(back) as local, stalling(end) as away, ExitStack() as stack:
        stack.callback(end.set)
        near, far = ServedRows(local.url, "fashion-local"), ServedRows(away.url, "fashion-local")
        with gateway(near, far, deadline_s=2, device=device) as served:
            assert refused(served.url, IMAGES[:2])[0] == 504
            back.set()
            scores, headers = ask(served.url, IMAGES[:2])
            assert headers["hinge-answered-by"] == "local"
            np.testing.assert_allclose(scores, LOCAL.many(IMAGES[:2]), atol=1e-4)


class Failing(OipServer):
    """Answers every inference with an error."""

    def __init__(self, status: int, problem: str, retry_after: int | None = None) -> None:
        inputs, outputs = [TensorSpec("image", "UINT8", (-1, 28, 28))], [TensorSpec("scores", "FP32", (-1, 10))]
        super().__init__(lambda _: {}, inputs=inputs, outputs=outputs, model="fashion-local")
        self._error = http_response(status, json_message({"error": problem}))
        if retry_after is not None:
            self._error.headers["retry-after"] = str(retry_after)

    def _infer(self, request: Http) -> Http:
        return self._error


@pytest.mark.parametrize("status", [400, 422, 500])
def test_a_local_server_that_refuses_or_fails_leaves_the_request_to_the_remote(status: int, edge: str) -> None:
    with ExitStack() as stack:
        local = stack.enter_context(Failing(status, "dim 3 is odd"))
        served = stack.enter_context(gateway(ServedRows(local.url, "fashion-local"), ServedRows(edge, "fashion")))
        for _ in range(4):
            scores, headers = ask(served.url, IMAGES[:2])
        assert (headers["hinge-answered-by"], scores.shape) == ("remote", (2, 10))
        assert headers["hinge-reason"] == f"Not gated: the local model failed (HTTP {status}, 'dim 3 is odd')."
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            assert (b"hinge_alarms_total{" in page.read()) == (status == 500)
        ask(served.url, IMAGES[:2])
        with urlopen(f"{served.url}/metrics", timeout=WAIT_S) as page:
            assert b"hinge_alarms_total{" in page.read()


@pytest.mark.parametrize(
    ("local_says", "remote_says", "status", "retry_after"),
    [((400, None), (500, None), 400, None), ((429, 3), (429, 5), 429, "5"), ((429, 3), (500, None), 502, None)],
)
def test_when_both_answer_with_errors_both_are_told(
    local_says: Any, remote_says: Any, status: int, retry_after: str | None
) -> None:
    near, far = Failing(local_says[0], "too odd", local_says[1]), Failing(remote_says[0], "too large", remote_says[1])
    with near, far:
        local, remote = ServedRows(near.url, "fashion-local"), ServedRows(far.url, "fashion-local")
        with gateway(local, remote) as served, pytest.raises(HTTPError) as raised:
            ask(served.url, IMAGES[:1])
        with raised.value as error:
            assert (error.code, error.headers["retry-after"]) == (status, retry_after)
            told = json.load(error)["error"]
    assert told == (
        f"no answer: the local model failed (HTTP {local_says[0]}, 'too odd'), "
        f"the remote model failed (HTTP {remote_says[0]}, 'too large')"
    )


def test_the_reason_sums_up_what_became_of_the_rows(edge: str) -> None:
    with ExitStack() as stack:
        far = stack.enter_context(Failing(500, "too large"))
        near = ServedRows(edge, "fashion-local")
        served = stack.enter_context(gateway(near, ServedRows(far.url, "fashion-local")))
        reason = ask(served.url, IMAGES[:200])[1]["hinge-reason"]
    accepted, offloaded, failed = map(int, re.findall(r"(\d+) (?:accepted|offloaded|failed)", reason))
    assert accepted + offloaded == 200
    assert offloaded == failed > 0
    assert reason.endswith("failed: HTTP 500, 'too large'")


def test_when_both_fail_the_error_is_the_protocols(edge: str) -> None:
    with ExitStack() as stack:
        away = stack.enter_context(Server(["fashion", "fashion-local"], log_level="error"))
        near, far = ServedRows(away.url, "fashion-local"), ServedRows(away.url, "fashion")
        served = stack.enter_context(gateway(near, far))
        away.close()
        status, problem = refused(served.url, IMAGES[:1])
        assert (status, problem.startswith("no answer: the local model failed")) == (502, True)


def test_bad_requests_are_refused_as_by_a_server(edge: str) -> None:
    with gateway(ServedRows(edge, "fashion-local"), ServedRows(edge, "fashion")) as served:
        assert refused(served.url, np.zeros((1, 3), np.uint8))[0] == 400
        with pytest.raises(HTTPError, match="404") as raised:
            ask(served.url, IMAGES[:1], "unknown")
        raised.value.close()


def test_a_model_without_scores_or_samples_is_refused_at_the_start(edge: str) -> None:
    with pytest.raises(InvalidModel, match="no output 'label'"):
        gateway(fashion.local_model(), ServedRows(edge, "fashion"), output="label").start()
    other = OipServer(lambda _: {}, outputs=[TensorSpec("labels", "INT64", (-1,))])
    with other, pytest.raises(InvalidModel, match="the remote model has no output 'scores'"):
        gateway(fashion.local_model(), ServedRows(other.url, "remote")).start()


def test_who_is_away_at_the_start_is_named() -> None:
    with dead_url() as dead, gateway(fashion.local_model(), ServedRows(dead[:-3], "fashion")) as served:
        assert [*served.away] == ["remote"]


class Watched(OipServer):
    """Notes the time that it is given."""

    told_ms: tuple[int, ...] = ()

    def _respond(self, request: Http) -> Http:
        self.told_ms = (*self.told_ms, int(request.headers["x-envoy-expected-rq-timeout-ms"]))
        return super()._respond(request)


@pytest.mark.parametrize("said_by", ["Triton's parameter", "Envoy's header"])
def test_one_deadline_goes_through_two_gateways(said_by: str, edge: str) -> None:
    inputs, outputs = [TensorSpec("image", "UINT8", (-1, 28, 28))], [TensorSpec("scores", "FP32", (-1, 10))]
    cloud = Watched(lambda _: {"scores": np.eye(10, dtype=np.float32)[:1]}, inputs=inputs, outputs=outputs)
    near = str(fashion.local_model())
    with (
        cloud,
        gateway(f"m={near}", ServedRows(cloud.url, "remote")) as second,
        gateway(f"m={near}", ServedRows(second.url, "m")) as first,
    ):
        if said_by == "Triton's parameter":
            ask(first.url, IMAGES[:1], "m", timeout=8_000_000)
        else:
            with Device(LOCAL, OpenInference(first.url, "m"), gate(), deadline_s=8) as device:
                assert device.infer(IMAGES[0]).label == 0
        assert 0 < max(cloud.told_ms) <= 0.95 * 8_000  # so that what it answers at the end is in time for the first


def test_a_local_server_is_told_half_of_the_time_so_that_the_remote_has_the_rest(edge: str) -> None:
    inputs, outputs = [TensorSpec("image", "UINT8", (-1, 28, 28))], [TensorSpec("scores", "FP32", (-1, 10))]
    near = Watched(lambda _: {"scores": np.eye(10, dtype=np.float32)[:1]}, inputs=inputs, outputs=outputs)
    with near, gateway(ServedRows(near.url, "remote"), ServedRows(edge, "fashion")) as served:
        near.told_ms = ()
        ask(served.url, IMAGES[:1], "remote", timeout=8_000_000)
        assert 0 < max(near.told_ms) <= 4_000
