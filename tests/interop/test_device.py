"""The same device, at each of the servers, gives the same answers; and NVIDIA's client is content with ours."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from hinge import Classification, Device, Gate, OnnxModel, OpenInference, fashion
from tests.device.worlds import InLoop
from tools.peers.hinge import hinge
from tools.peers.process import Peer

SAMPLES = 1_500
Remote = Callable[[Peer], Any]

REMOTES: dict[str, tuple[str, Remote]] = {
    "hinge, binary": ("served", lambda peer: OpenInference(peer.url, "remote")),
    "hinge, JSON": ("served", lambda peer: OpenInference(peer.url, "remote", binary=False)),
    "triton, binary": ("triton", lambda peer: OpenInference(peer.url, "remote")),
    "triton, JSON": ("triton", lambda peer: OpenInference(peer.url, "remote", binary=False)),
    "kserve, as it offers": ("kserve", lambda peer: OpenInference(peer.url, "remote")),
    "mlserver, as it offers": ("mlserver", lambda peer: OpenInference(peer.url, "remote")),
}


@pytest.fixture(scope="session")
def served() -> Iterator[Peer]:
    """`hinge serve`, in a process of its own."""
    with hinge({"remote": fashion.remote_model()}) as peer:
        yield peer


@pytest.fixture(scope="session")
def expected() -> list[Any]:
    """What the device answers with the remote model in its own process."""
    model = OnnxModel(fashion.remote_model())
    with _device(Device, lambda sample: int(model(sample).argmax())) as device:
        return _answers(device)


def _device(kind: Any, remote: Any) -> Any:
    task = Classification(fashion.CLASSES)
    return kind(OnnxModel(fashion.local_model()), remote, Gate(offload_cost=0.5), task=task, deadline_s=30)


def _answers(device: Any) -> list[Any]:
    """One by one, then in a batch."""
    images, _ = fashion.labelled_images()
    answers = [device.infer(image) for image in images[:SAMPLES]] + device.infer_many(images[SAMPLES : SAMPLES + 300])
    return [(answer.label, answer.source, answer.confidence, answer.fault) for answer in answers]


@pytest.mark.parametrize("kind", [Device, InLoop], ids=["threads", "event loop"])
@pytest.mark.parametrize("name", REMOTES)
def test_the_same_device_gives_the_same_answers_everywhere(
    name: str, kind: Any, expected: list[Any], request: pytest.FixtureRequest
) -> None:
    server, remote = REMOTES[name]
    with _device(kind, remote(request.getfixturevalue(server))) as device:
        assert _answers(device) == expected
        assert device.status.attempts.failed == 0
    assert sum(source == "remote" for _, source, *_ in expected) > 100


def test_batches_travel_as_batches(served: Peer, triton: Peer, expected: list[Any]) -> None:
    images, _ = fashion.labelled_images()
    remote = OnnxModel(fashion.remote_model()).many(images[:200]).argmax(axis=1).tolist()
    for peer in (served, triton):
        with _device(Device, OpenInference(peer.url, "remote")) as device:
            answers = device.infer_many(images[:200], together=True)
            assert [answer.label for answer in answers] == [fashion.CLASSES[label] for label in remote]
            assert device.status.attempts.attempts == 7  # 200 samples in requests of 32


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_tritonclient_is_content_with_our_server(served: Peer, binary: bool) -> None:
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
    from tritonclient.utils import InferenceServerException

    images, _ = fashion.labelled_images()
    client = InferenceServerClient(urlsplit(served.url).netloc, concurrency=2)
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("remote")
        assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
        metadata = client.get_model_metadata("remote")
        assert metadata["inputs"] == [{"name": "image", "datatype": "UINT8", "shape": [-1, 28, 28]}]
        given = InferInput("image", [32, 28, 28], "UINT8")
        given.set_data_from_numpy(images[:32], binary_data=binary)
        wanted = InferRequestedOutput("scores", binary_data=binary)
        result = client.infer("remote", [given], outputs=[wanted], request_id="42")
        assert result.get_response()["id"] == "42"
        scores = OnnxModel(fashion.remote_model()).many(images[:32])
        np.testing.assert_allclose(result.as_numpy("scores"), scores, rtol=0, atol=1e-5)
        pending = [client.async_infer("remote", [given], outputs=[wanted]) for _ in range(4)]
        for each in pending:
            np.testing.assert_allclose(each.get_result().as_numpy("scores"), scores, rtol=0, atol=1e-5)
        with pytest.raises(InferenceServerException, match="no model"):
            client.infer("other", [given])
    finally:
        client.close()
