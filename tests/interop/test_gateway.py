"""The gateway before real servers, asked by the clients of OpenAI, Triton, KServe and MLServer."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai
import pytest

from hinge import FixedCost, Gate, OnnxModel, fashion
from hinge.gateway import ChatGateway, ChatServer, InferenceGateway, ServedRows
from hinge.policies import AlwaysRemote
from hinge.tasks import ShortText
from tests.support.chat_server import ChatStandIn
from tools.peers.environments import cache
from tools.peers.kserve import ENVIRONMENT as KSERVE_ENVIRONMENT
from tools.peers.mlserver import ENVIRONMENT as MLSERVER_ENVIRONMENT
from tools.peers.process import Peer

EXAMPLES = Path(__file__).parents[2] / "examples"
NPM_OPENAI = "6.49.0"
QUESTION: Any = [{"role": "user", "content": "Is water wet? Answer with yes or no alone."}]
GRAMMAR = {"grammar": 'root ::= "yes" | "no"'}  # of llama.cpp: passed on as it is


@pytest.fixture(scope="module")
def served(llama: Peer) -> Iterator[ChatGateway]:
    """A gateway whose remote always says yes."""
    with (
        ChatStandIn("yes") as remote,
        ChatGateway(
            ChatServer(f"{llama.url}/v1"),
            ChatServer(remote.base_url),
            Gate(offload_cost=0.5),
            task=ShortText(options=["yes", "no"]),
            deadline_s=60,
        ) as gateway,
    ):
        yield gateway


@pytest.fixture
def client(served: ChatGateway) -> Iterator[Any]:
    with closing(openai.OpenAI(base_url=f"{served.url}/v1", api_key="unused", timeout=60, max_retries=0)) as made:
        yield made


def test_answers_of_a_real_model_are_gated(client: Any) -> None:
    create = client.chat.completions.with_raw_response.create
    answers = [create(model="any", messages=QUESTION, max_tokens=3, extra_body=GRAMMAR) for _ in range(4)]
    texts = [answer.parse().choices[0].message.content for answer in answers]
    assert {*texts} <= {"yes", "no"}
    assert all(0 < float(answer.headers["hinge-confidence"]) <= 1 for answer in answers)
    assert answers[0].headers["hinge-answered-by"] == "remote"
    wanted = client.chat.completions.create(model="any", messages=QUESTION, max_tokens=1, logprobs=True, top_logprobs=3)
    assert wanted.choices[0].message.content is not None


def test_a_stream_of_a_real_model_passes(client: Any) -> None:
    count: Any = [{"role": "user", "content": "Count from one to ten."}]
    with client.chat.completions.create(
        model="any", messages=count, max_tokens=20, stream=True, temperature=0
    ) as stream:
        pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 2


def test_what_a_real_server_refuses_the_remote_answers(client: Any) -> None:
    too_long: Any = [{"role": "user", "content": "word " * 5000}]
    answer = client.chat.completions.with_raw_response.create(model="any", messages=too_long)
    assert answer.headers["hinge-answered-by"] == "remote"
    assert "refused: HTTP 400" in answer.headers["hinge-reason"]


def test_the_models_are_those_of_the_real_server(client: Any) -> None:
    name = next(iter(client.models.list())).id
    assert "SmolLM2" in name
    assert client.models.retrieve(name).id == name


@pytest.mark.parametrize("language", ["python", "javascript", "curl"])
def test_the_examples_run(language: str, served: ChatGateway, tmp_path: Path) -> None:
    if language == "javascript":
        if shutil.which("npm") is None:
            pytest.skip("not installed: npm")
        _install_openai(tmp_path)
        shutil.copy(EXAMPLES / "chat.mjs", tmp_path)
    commands = {
        "python": [sys.executable, str(EXAMPLES / "chat.py")],
        "javascript": ["node", "chat.mjs"],
        "curl": ["sh", str(EXAMPLES / "chat.sh")],
    }
    environment = {**os.environ, "OPENAI_BASE_URL": f"{served.url}/v1", "OPENAI_API_KEY": "unused"}
    done = subprocess.run(
        commands[language], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "hinge-answered-by: " in done.stdout if language == "curl" else " by " in done.stdout
    if language == "curl":
        assert json.loads(done.stdout.partition("\n\n")[2] or done.stdout.splitlines()[-1])["choices"]


def _install_openai(folder: Path) -> None:
    """OpenAI's client for JavaScript, from a cache outside the checkout."""
    kept = cache() / f"npm-openai-{NPM_OPENAI}"
    if not (kept / "node_modules").exists():
        kept.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--prefix", str(kept), f"openai@{NPM_OPENAI}"]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
    (folder / "node_modules").symlink_to(kept / "node_modules")


# -- the Open Inference Protocol --------------------------------------------------------------------------------------

KSERVE = """
import asyncio, sys
import numpy as np
from kserve import InferInput, InferRequest
from kserve.inference_client import InferenceRESTClient, RESTConfig

async def main(url, path):
    images = np.load(path)
    given = InferInput("image", list(images.shape), "UINT8")
    given.set_data_from_numpy(images, binary_data=sys.argv[3] == "binary")
    client = InferenceRESTClient(RESTConfig(protocol="v2"))
    assert await client.is_model_ready(url, "small")
    answer = await client.infer(url, InferRequest("small", [given]), model_name="small")
    print(answer.outputs[0].as_numpy().argmax(axis=1).tolist())

asyncio.run(main(sys.argv[1], sys.argv[2]))
"""


@pytest.fixture(scope="module")
def gate(triton: Peer) -> Iterator[InferenceGateway]:
    """A gateway between a file and a model on Triton, which offloads everything."""
    local, remote = f"small={fashion.local_model()}", ServedRows(triton.url, "remote")
    price = {"price": FixedCost(0.5)}
    with InferenceGateway(local, remote, AlwaysRemote(bins=16), deadline_s=30, device=price) as made:
        yield made


@pytest.fixture(scope="module")
def expected() -> list[int]:
    images, _ = fashion.labelled_images()
    labels: list[int] = OnnxModel(fashion.remote_model()).many(images[:32]).argmax(axis=1).tolist()
    return labels


@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
def test_tritonclient_is_content_with_the_gateway(gate: InferenceGateway, binary: bool, expected: list[int]) -> None:
    from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput

    given = InferInput("image", [32, 28, 28], "UINT8")
    given.set_data_from_numpy(fashion.labelled_images()[0][:32], binary_data=binary)
    with closing(InferenceServerClient(urlsplit(gate.url).netloc)) as client:
        assert client.get_model_metadata("small")["outputs"][0]["shape"] == [-1, 10]
        wanted = InferRequestedOutput("scores", binary_data=binary)
        result = client.infer("small", [given], outputs=[wanted], timeout=20_000_000)
        assert result.as_numpy("scores").argmax(axis=1).tolist() == expected


@pytest.mark.parametrize("form", ["json", "binary"])
def test_kserves_client_is_content_with_the_gateway(
    gate: InferenceGateway, form: str, expected: list[int], kserve: Peer, tmp_path: Path
) -> None:
    np.save(tmp_path / "images.npy", fashion.labelled_images()[0][:32])
    command = [str(KSERVE_ENVIRONMENT.python), "-c", KSERVE, gate.url, str(tmp_path / "images.npy"), form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == expected


def test_mlservers_client_is_content_with_the_gateway(
    gate: InferenceGateway, expected: list[int], mlserver: Peer, tmp_path: Path
) -> None:
    images = fashion.labelled_images()[0][:32]
    lines = [
        json.dumps({"inputs": [{"name": "image", "shape": [1, 28, 28], "datatype": "UINT8", "data": image.tolist()}]})
        for image in images
    ]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    program = str(MLSERVER_ENVIRONMENT.python.with_name("mlserver"))
    command = [program, "infer", "-u", urlsplit(gate.url).netloc, "-m", "small", "-i", "in.jsonl", "-o", "out.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    found = sorted(int(np.argmax(answer["outputs"][0]["data"])) for answer in answers)
    assert found == sorted(expected)
