"""A remote behind the Open Inference Protocol, asked over real connections, from threads and from an event loop."""

import asyncio
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import numpy as np
import pytest

from hinge import Device, OpenInference
from hinge.errors import RemoteFailed
from hinge.oip.messages import json_message
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline, Reply
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request
from tests.device.worlds import policy
from tests.support.loopback import Http, OipServer, http_response

SCORES = TensorSpec("scores", "FP32", (-1, 3))


def brightest(inputs: dict[str, Any]) -> dict[str, Any]:
    """Scores that are the sample itself."""
    return {"scores": next(iter(inputs.values())).astype(np.float32)}


def soon(seconds: float = 10.0) -> Deadline:
    return Deadline.after(seconds, time.monotonic())


def in_thread(remote: OpenInference, samples: list[Any]) -> Reply:
    try:
        return remote.ask(samples, soon())
    finally:
        remote.close()


def in_loop(remote: OpenInference, samples: list[Any]) -> Reply:
    async def main() -> Reply:
        try:
            return await remote.ask_async(samples, soon())
        finally:
            await remote.close_async()

    return asyncio.run(main())


@contextmanager
def keeping_thread(remote: OpenInference) -> Iterator[Any]:
    """Asks again and again, on connections that are kept."""
    yield lambda samples: remote.ask(samples, soon())
    remote.close()


@contextmanager
def keeping_loop(remote: OpenInference) -> Iterator[Any]:
    async def ask(samples: list[Any]) -> Reply:
        await asyncio.sleep(0.02)  # in a loop that runs, as in any program, what has arrived is known
        return await remote.ask_async(samples, soon())

    with asyncio.Runner() as runner:
        yield lambda samples: runner.run(ask(samples))
        runner.run(remote.close_async())


def wait_until(condition: Any) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


both_ways_kept = pytest.mark.parametrize("asking", [keeping_thread, keeping_loop])
both_ways = pytest.mark.parametrize("asked", [in_thread, in_loop])


@both_ways
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_labels_come_in_order(asked: Any, binary: bool) -> None:
    with OipServer(brightest, outputs=[SCORES], binary=binary) as server:
        reply = asked(OpenInference(server.url, "remote"), [[0, 9, 1], [5, 4, 3], [0, 0, 7]])
        assert reply.labels == [1, 0, 2]
        assert server.inferences == 1
        assert 300 < reply.bytes < 2000


@both_ways
def test_a_model_without_an_axis_for_samples_is_asked_one_by_one(asked: Any) -> None:
    spec = TensorSpec("sample", "FP64", (3,))
    with OipServer(brightest, inputs=[spec], outputs=[TensorSpec("scores", "FP32", (3,))]) as server:
        assert asked(OpenInference(server.url, "remote"), [[0, 9, 1], [5, 4, 3]]).labels == [1, 0]
        assert server.inferences == 2


@both_ways
def test_samples_of_several_inputs_are_mappings(asked: Any) -> None:
    inputs = [TensorSpec("left", "FP32", (-1, 2)), TensorSpec("right", "INT64", (-1, 2))]

    def added(tensors: dict[str, Any]) -> dict[str, Any]:
        return {"scores": (tensors["left"] + tensors["right"]).astype(np.float32)}

    with OipServer(added, inputs=inputs, outputs=[TensorSpec("scores", "FP32", (-1, 2))]) as server:
        sample = {"left": [0.5, 0.0], "right": [0, 2]}
        assert asked(OpenInference(server.url, "remote"), [sample, sample]).labels == [1, 1]
        with pytest.raises(RemoteFailed, match="the model has 2 inputs, so a sample must be a mapping"):
            asked(OpenInference(server.url, "remote"), [[1, 2]])


@pytest.mark.parametrize(
    ("output", "labels"),
    [
        (np.array([3, 1]), [3, 1]),
        (np.array([[3], [1]], np.int32), [3, 1]),
        (np.array(["cat", "dog"], object), ["cat", "dog"]),
        (np.array([[0.5, 0.25], [0, 1]], np.float16), [0, 1]),
    ],
    ids=["numbers", "a column", "names", "scores"],
)
def test_a_model_may_give_labels_or_scores(output: Any, labels: list[Any]) -> None:
    datatype = {"i8": "INT64", "i4": "INT32", "O": "BYTES", "f2": "FP16"}[output.dtype.str.lstrip("<|")]
    spec = TensorSpec("label", datatype, (-1, *output.shape[1:]))
    with OipServer(lambda _: {"label": output}, outputs=[spec]) as server:
        assert in_thread(OpenInference(server.url, "remote"), [[1, 2], [3, 4]]).labels == labels


@both_ways
@pytest.mark.parametrize(
    ("output", "problem"),
    [
        (np.array([[1, np.nan, 0]], np.float32), "the scores are not finite"),
        (np.array([[1, np.inf, 0]], np.float32), "the scores are not finite"),
        (np.array([[1, 2, 3], [4, 5, 6]], np.float32), "1 samples have an output of shape"),
        (np.array([[[1, 2, 3]]], np.float32), "tensor 'scores': shape must be"),
        (np.array([[1, 2]], np.float32), "tensor 'scores': shape must be"),
        (np.array([[1, 2, 3]], np.float64), "tensor 'scores': datatype must be FP32, got FP64"),
    ],
    ids=["NaN", "infinity", "two rows", "three axes", "two classes", "another type"],
)
def test_outputs_that_make_no_sense_are_invalid(asked: Any, output: Any, problem: str) -> None:
    with OipServer(lambda _: {"scores": output}, outputs=[SCORES], binary=True) as server:
        with pytest.raises(RemoteFailed, match=problem) as caught:
            asked(OpenInference(server.url, "remote"), [[1, 2, 3]])
        assert caught.value.kind == "invalid"


@both_ways
def test_samples_that_do_not_fit_are_not_sent(asked: Any) -> None:
    with OipServer(brightest, inputs=[TensorSpec("sample", "UINT8", (-1, 3))], outputs=[SCORES]) as server:
        bytes_, floats = np.array([1, 2], np.uint8), np.array([0.5, 1, 2])
        for sample, problem in ((bytes_, "shape must be"), (floats, "the model takes uint8, the sample is float64")):
            with pytest.raises(RemoteFailed, match=problem):
                asked(OpenInference(server.url, "remote"), [sample])
        assert server.inferences == 0


@both_ways
def test_what_the_server_reports_is_told(asked: Any) -> None:
    def fails(_: Any) -> Any:
        raise ValueError("out of memory")

    with OipServer(fails) as server:
        with pytest.raises(RemoteFailed, match="HTTP 500, 'ValueError: out of memory'") as caught:
            asked(OpenInference(server.url, "remote"), [[1, 2]])
        assert caught.value.kind == "error"
        with pytest.raises(RemoteFailed, match=r"http://.* has no model 'other': HTTP 404, 'no such page'"):
            asked(OpenInference(server.url, "other"), [[1, 2]])


def test_a_server_that_stopped_and_came_back_as_another_is_asked_again_what_it_takes() -> None:
    """Binary data is refused by the second model; that the first took it is forgotten with the first failure."""
    with OipServer(brightest, outputs=[SCORES], binary=True) as server:
        remote = OpenInference(server.url, "remote")
        assert remote.ask([[1, 2, 3]], soon()).labels == [2]
        server.binary = False
        server._pages.update(OipServer(brightest, outputs=[SCORES])._pages)
        with pytest.raises(RemoteFailed, match="422"):
            remote.ask([[1, 2, 3]], soon())
        assert remote.ask([[1, 2, 3]], soon()).labels == [2]
        remote.close()


class Website(BaseHTTPRequestHandler):
    """Some other server: says hello to everybody, and shows the headers it got."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"<html>{self.headers.get('Authorization')}</html>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def website() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Website)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join(10)
    server.server_close()


@both_ways
def test_a_server_that_speaks_no_such_protocol_is_named(asked: Any, website: str) -> None:
    with pytest.raises(RemoteFailed, match=f"{website} does not speak the Open Inference Protocol: JSON: malformed"):
        asked(OpenInference(website, "remote"), [[1]])
    remote = OpenInference(website, "remote")
    with pytest.raises(RemoteFailed, match="does not speak"):
        remote.check()
    remote.close()


@both_ways
def test_an_answer_that_is_an_error_does_not_tell_the_token(asked: Any) -> None:
    class Quoting(OipServer):
        def _infer(self, request: Http) -> Http:
            return http_response(200, json_message({"error": f"no key {request.headers['authorization']}"}))

    problem = r"the server reports an error: 'no key Bearer \*\*\*'"
    with Quoting(brightest) as server, pytest.raises(RemoteFailed, match=problem):
        asked(OpenInference(server.url, "remote", token="sk-12345"), [[1, 2]])


def test_the_token_is_sent_and_a_prefix_kept(website: str) -> None:
    client = HttpClient(website + "/prefix/", {"Authorization": "Bearer secret"})
    assert b"Bearer secret" in LOOP.run(client.send, Request("GET", "/v2"), soon(), deadline=soon()).body
    LOOP.run(client.close, deadline=soon())
    assert "secret" not in repr(OpenInference(website, "remote", token="secret"))


@both_ways
def test_nobody_there(asked: Any) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(RemoteFailed, match="cannot be reached") as caught:
            asked(OpenInference(url, "remote"), [[1]])
        assert caught.value.kind == "unreachable"
    with pytest.raises(RemoteFailed, match="cannot be reached"):
        asked(OpenInference("http://host.invalid:1", "remote"), [[1]])


def test_a_name_that_is_looked_up_for_ever_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo

    def slow(*arguments: Any, **settings: Any) -> Any:
        if not settings.get("flags"):
            time.sleep(2)
        return real(*arguments, **settings)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with pytest.raises(RemoteFailed, match="no answer in time") as caught:
        OpenInference("http://slow.invalid:1", "remote").ask([[1]], soon(0.05))
    assert caught.value.kind == "late"


@pytest.mark.medium
def test_connections_are_kept_and_shared_by_threads() -> None:
    with OipServer(brightest, outputs=[SCORES], binary=True) as server:
        remote = OpenInference(server.url, "remote")
        samples = [[k % 3 == 0, k % 3 == 1, k % 3 == 2] for k in range(400)]
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(lambda sample: remote.ask([sample], soon()).labels[0], samples))
        assert replies == [k % 3 for k in range(400)]
        assert 1 <= server.accepted <= 8
        wait_until(lambda: 1 <= server.open_connections <= 8)
        remote.close()
        wait_until(lambda: server.open_connections == 0)


@both_ways_kept
def test_a_connection_that_the_server_closed_is_not_used_again(asking: Any) -> None:
    with OipServer(brightest, outputs=[SCORES]) as server:
        remote = OpenInference(server.url, "remote")
        with asking(remote) as ask:
            assert ask([[1, 2, 3]]).labels == [2]
            assert server.accepted == 1
            server.hang_up()
            assert ask([[3, 2, 1]]).labels == [0]
            assert server.accepted == 2


def test_tls_is_checked(website: str) -> None:
    """A server without TLS cannot pass for one with it."""
    with pytest.raises(RemoteFailed) as caught:
        OpenInference(website.replace("http:", "https:"), "remote", tls=ssl.create_default_context()).ask([[1]], soon())
    assert caught.value.kind == "unreachable"


@pytest.mark.parametrize("url", ["edge:8080", "ftp://edge", "http://", ""])
def test_a_url_names_scheme_and_host(url: str) -> None:
    with pytest.raises(ValueError, match="OpenInference: url must start with http:// or https:// and name a host"):
        OpenInference(url, "remote")


def test_a_device_over_http_learns_and_survives_the_server() -> None:
    with OipServer(brightest, outputs=[SCORES], binary=True) as server:
        device = Device(lambda sample: sample, OpenInference(server.url, "remote"), policy(), deadline_s=10)
        assert [answer.source for answer in device.infer_many([[0.0, 1.0, 0.0]] * 40, together=True)] == ["remote"] * 40
        assert device.infer([0.0, 1.0, 0.0]).source == "local"
    answer = device.infer([0.1, 0.0, 0.1])
    assert (answer.source, answer.label) == ("local", 0)
    assert "cannot be reached" in str(answer.fault)
    device.close()
