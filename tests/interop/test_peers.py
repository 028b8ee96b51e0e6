"""The protocol as real servers speak it: what they say of themselves, and the scores they compute."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

from hinge import fashion
from hinge.oip.messages import (
    ServerMetadata,
    build_request,
    inference_path,
    parse_model_metadata,
    parse_response,
    parse_server_metadata,
)
from hinge.oip.tensors import TensorSpec
from tools.peers.process import Peer

IMAGES = fashion.labelled_images()[0][:32]


@pytest.fixture
def client(peer: Peer) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=peer.url, timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture(scope="module")
def scores() -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(fashion.remote_model(), providers=["CPUExecutionProvider"])
    computed: NDArray[np.float32] = session.run(["scores"], {"image": IMAGES})[0]
    return computed


def infer(client: httpx2.Client, images: NDArray[np.uint8], *, id: str, binary: bool = False) -> NDArray[np.float32]:
    request = build_request({"image": images}, id=id, binary=binary)
    answer = client.post(inference_path("remote"), content=request.body, headers=dict(request.headers))
    assert answer.status_code == 200, answer.text
    return parse_response(answer.headers, answer.content, id=id, model="remote", expected=["scores"]).outputs["scores"]


def server_metadata(client: httpx2.Client) -> ServerMetadata:
    return parse_server_metadata(client.get("/v2").content)


def test_servers_say_who_they_are_and_only_triton_lists_binary_tensors(peer: Peer, client: httpx2.Client) -> None:
    metadata = server_metadata(client)
    assert metadata.name == peer.name
    assert metadata.binary == (peer.name == "triton")


def test_models_are_described(client: httpx2.Client) -> None:
    metadata = parse_model_metadata(client.get("/v2/models/remote").content)
    assert metadata.name == "remote"
    assert metadata.inputs == (TensorSpec("image", "UINT8", (-1, 28, 28)),)
    assert metadata.outputs == (TensorSpec("scores", "FP32", (-1, 10)),)


def test_scores_are_those_of_the_model(client: httpx2.Client, scores: NDArray[np.float32]) -> None:
    for binary in {False, server_metadata(client).binary}:
        received = infer(client, IMAGES, id="42", binary=binary)
        assert received.dtype == np.float32
        np.testing.assert_allclose(received, scores, rtol=0, atol=1e-5)
        assert (received.argmax(axis=1) == scores.argmax(axis=1)).all()


def test_requests_may_have_no_id(client: httpx2.Client, scores: NDArray[np.float32]) -> None:
    np.testing.assert_allclose(infer(client, IMAGES[:1], id=""), scores[:1], rtol=0, atol=1e-5)


def test_requests_at_once_get_their_own_answers(client: httpx2.Client, scores: NDArray[np.float32]) -> None:
    spans = [slice(start, start + 1 + start % 3) for start in range(24)]  # of several sizes, should they be batched
    with ThreadPoolExecutor(8) as pool:
        received = list(pool.map(lambda span: infer(client, IMAGES[span], id=str(span.start)), spans))
    for span, rows in zip(spans, received, strict=True):
        np.testing.assert_allclose(rows, scores[span], rtol=0, atol=1e-5)


def test_they_listen_on_one_address_only(peer: Peer) -> None:
    for address in (peer.url.removeprefix("http://"), peer.grpc):
        host, port = address.split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):  # one that listens everywhere would answer here too
            socket.create_connection(("127.0.0.2", int(port)), timeout=5)
