"""The gateway before llama.cpp's own server with a real model, asked by OpenAI's own clients."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import openai
import pytest

from hinge import Gate
from hinge.gateway import ChatGateway, ChatServer
from hinge.tasks import ShortText
from tests.support.chat_server import ChatStandIn
from tools.peers.environments import cache
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
    with client.chat.completions.create(model="any", messages=count, max_tokens=20, stream=True) as stream:
        pieces = [chunk.choices[0].delta.content for chunk in stream if chunk.choices]
    assert len([piece for piece in pieces if piece]) > 2


def test_what_a_real_server_refuses_the_remote_answers(client: Any) -> None:
    too_long: Any = [{"role": "user", "content": "word " * 5000}]
    answer = client.chat.completions.with_raw_response.create(model="any", messages=too_long)
    assert answer.headers["hinge-answered-by"] == "remote"
    assert "refused: HTTP 400" in answer.headers["hinge-reason"]


def test_the_models_are_those_of_the_real_server(client: Any) -> None:
    assert "SmolLM2" in next(iter(client.models.list())).id


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
