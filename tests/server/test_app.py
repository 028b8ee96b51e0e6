"""What clients see: metadata, readiness, and answers that are those of the model itself."""

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import OpenInference, __version__
from hinge.fashion import labelled_images, remote_model
from hinge.models.onnx import open_session
from hinge.oip.messages import build_request, parse_model_metadata, parse_response, parse_server_metadata
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.server import Server
from tests.models.exports import PROBABILITIES, SAMPLES, linear_classifier
from tests.server import models
from tests.server.clients import HOST, ask, connect, images, infer, read_reply


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("models")
    made = [
        models.choosing(folder / "choosing.onnx"),
        models.echoing(folder / "echoing.onnx"),
        models.dividing(folder / "dividing.onnx"),
        models.adding(folder / "adding.onnx"),
        models.summing(folder / "summing.onnx"),
    ]
    with Server(["fashion", "fashion-local", *made], log_level="error") as server:
        yield server.url


def test_the_server_says_what_it_is(url: str) -> None:
    for path in ("/v2", "/v2/"):
        metadata = parse_server_metadata(ask(url, path).body)
        assert metadata.name == "hinge"
        assert metadata.version == __version__
        assert metadata.binary
    assert ask(url, "/v2/health/live").json == {"live": True}
    assert ask(url, "/v2/health/ready").json == {"ready": True}


def test_a_model_says_what_it_is(url: str) -> None:
    for path in ("/v2/models/fashion", "/v2/models/fashion/versions/1"):
        metadata = parse_model_metadata(ask(url, path).body)
        assert metadata.name == "fashion"
        assert metadata.versions == ("1",)
        assert metadata.inputs == (TensorSpec("image", "UINT8", (-1, 28, 28)),)
        assert metadata.outputs == (TensorSpec("scores", "FP32", (-1, 10)),)
        assert ask(url, f"{path}/ready").json == {"name": "fashion", "ready": True}


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("rows", [1, 3, 100])
def test_answers_are_those_of_the_model(url: str, binary: bool, rows: int) -> None:
    pictures = labelled_images()[0][:rows]
    reply = infer(url, "fashion", images(pictures, id="42", binary=binary))
    assert reply.status == 200
    response = parse_response(reply.headers, reply.body, id="42", model="fashion", expected=["scores"])
    assert response.version == "1"
    (expected,) = open_session(remote_model()).run(None, {"image": pictures})
    np.testing.assert_allclose(response.outputs["scores"], expected, rtol=1e-4, atol=1e-4)


def test_a_body_may_come_in_chunks(url: str) -> None:
    body = images().body
    with connect(url) as connection:
        head = f"POST /v2/models/fashion-local/infer HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        for start in range(0, len(body), 500):
            piece = body[start : start + 500]
            connection.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        connection.sendall(b"0\r\n\r\n")
        assert read_reply(connection).status == 200


def test_outputs_can_be_chosen(url: str) -> None:
    reply = infer(url, "fashion-local", images(outputs=["scores"], binary=True))
    assert parse_response(reply.headers, reply.body, id="").outputs["scores"].shape == (1, 10)
    reply = infer(url, "fashion-local", images(outputs=["labels"]))
    assert (reply.status, reply.json) == (400, {"error": "the model has no output 'labels'"})


def test_text_goes_in_and_out(url: str) -> None:
    words = np.array(["Grüße", "", "b'x'"], object)
    for binary in (False, True):
        reply = infer(url, "echoing", build_request({"x": words}, binary=binary))
        answer = parse_response(reply.headers, reply.body, id="").outputs["y"]
        assert [element.decode() for element in answer.tolist()] == words.tolist()
    reply = infer(url, "echoing", build_request({"x": np.array([b"\xff"], object)}, binary=True))
    assert reply.status == 400
    assert reply.json["error"] == "the model does not take these inputs"


def test_infinity_is_sent_as_binary_data_only(url: str) -> None:
    zero = np.zeros(1, np.float32)
    reply = infer(url, "dividing", build_request({"x": zero}, binary=True))
    assert np.isinf(parse_response(reply.headers, reply.body, id="").outputs["y"]).all()
    reply = infer(url, "dividing", build_request({"x": zero}))
    assert reply.status == 400
    assert "binary" in reply.json["error"]


def test_inputs_that_the_model_cannot_use_are_answered_without_internals(url: str) -> None:
    sides = {"a": np.ones((1, 2), np.float32), "b": np.ones((1, 3), np.float32)}
    for reply in (infer(url, "adding", build_request(sides)), infer(url, "choosing", index(7))):
        assert reply.status in (400, 500)
        assert set(reply.json) == {"error"}
        assert reply.json["error"] in ("the model does not take these inputs", "the model failed on these inputs")


def index(value: int) -> Any:
    return build_request({"x": np.array([value])})


def test_a_model_that_sums_its_rows_is_right_for_each_request(url: str) -> None:
    replies = {}

    def client(number: int) -> None:
        replies[number] = infer(url, "summing", build_request({"x": np.full((1, 2), number, np.float32)}))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: reply.json["outputs"][0]["data"] for number, reply in replies.items()} == {
        number: [2.0 * number] for number in range(20)
    }


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/nothing", "GET", 404),
        ("/v2/models", "GET", 404),
        ("/v2/models/nobody", "GET", 404),
        ("/v2/models/nobody/infer", "POST", 404),
        ("/v2/models/fashion/versions/2", "GET", 404),
        ("/v2/models/fashion/versions/2/infer", "POST", 404),
        ("/v2/models/fashion/other", "GET", 404),
        ("/v2/models/fashion", "POST", 405),
        ("/v2/models/fashion/infer", "GET", 405),
        ("/v2", "DELETE", 405),
    ],
)
def test_what_is_not_there_is_said_so(url: str, path: str, method: str, status: int) -> None:
    reply = ask(url, path, method)
    assert reply.status == status
    assert set(reply.json) == {"error"}
    assert ("allow" in reply.headers) == (status == 405)


def test_head_is_get_without_its_body(url: str) -> None:
    reply = ask(url, "/v2/health/ready", "HEAD")
    assert (reply.status, reply.body) == (200, b"")


def test_an_answer_has_the_name_of_its_request(url: str) -> None:
    assert ask(url, "/v2", headers={"X-Request-Id": "order-17"}).headers["x-request-id"] == "order-17"
    made = {ask(url, "/v2", headers={"X-Request-Id": id}).headers["x-request-id"] for id in ("", "a b", "x" * 65)}
    assert len(made) == 3
    assert not made & {"", "a b", "x" * 65}


def test_the_metrics_count(tmp_path: Path) -> None:
    with Server([models.scaling(tmp_path / "m.onnx", 2.0)]) as server:
        message = build_request({"x": np.ones((2, 3), np.float32)})
        for _ in range(3):
            assert infer(server.url, "m", message).status == 200
        assert infer(server.url, "m", images()).status == 400
        assert infer(server.url, "other", message).status == 404
        page = ask(server.url, "/metrics").body.decode()
    for line in (
        'hinge_requests_total{code="200",model="m"} 3.0',
        'hinge_requests_total{code="400",model="m"} 1.0',
        'hinge_requests_total{code="404",model=""} 1.0',
        'hinge_request_seconds_count{model="m"} 4.0',
        'hinge_batch_rows_bucket{le="1.0",model="m"} 0.0',
        'hinge_batch_rows_bucket{le="2.0",model="m"} 3.0',
        'hinge_queued_requests{model="m"} 0.0',
        'hinge_refused_total{reason="invalid"} 1.0',
        'hinge_refused_total{reason="unknown"} 1.0',
        "hinge_in_flight_requests 0.0",
    ):
        assert line in page.splitlines()


@pytest.mark.parametrize("zipmap", [True, False])
@pytest.mark.parametrize("classes", [{"classlabels_ints": [5, 7, 9]}, {"classlabels_strings": ["a", "b", "c"]}])
def test_what_skl2onnx_exports_is_served(tmp_path: Path, zipmap: bool, classes: dict[str, Any]) -> None:
    path = linear_classifier(tmp_path / "m.onnx", zipmap, classes).path
    names = next(iter(classes.values()))
    best = PROBABILITIES.argmax(axis=1)
    scores = "output_probability" if zipmap else "probabilities"
    with Server([path]) as server:
        for output, labels in ((None, [names[k] for k in best]), (scores, best.tolist())):
            with closing(OpenInference(server.url, "m", output=output)) as remote:
                assert remote.ask(list(SAMPLES), Deadline.after(30)).labels == labels
                assert remote.ask(list(SAMPLES[:1]), Deadline.after(30)).labels == labels[:1]
