"""The HTTP client: connections that end when they are used again, tokens in what servers say, closing, and h11 missing;
`test_open_inference.py` has it at work.
"""

import asyncio
import json
import subprocess
import sys
import time
from threading import Event
from typing import Any

import pytest

from hinge import OpenInference
from hinge.errors import RemoteFailed
from hinge.oip.messages import Message
from hinge.oip.tensors import TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.http import HttpClient, Request, Response
from tests.support.loopback import Connection, Http, Loopback, OipServer

ASKED = Request("POST", "/", Message({}, b"{}"))
WAIT_S = 20.0


@pytest.mark.medium
def test_without_h11_the_package_is_imported_and_a_client_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['h11'] = None\n"
        "from hinge import *\n"
        "try:\n    OpenInference('http://localhost:1', 'm')\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "a remote over HTTP needs h11: pip install 'hinge-gate[device]'\n"


class Closing(Loopback):
    """Answers the first requests of a connection, and closes it at the next, after these bytes."""

    def __init__(self, answers: int = 1, last: bytes = b"") -> None:
        super().__init__()
        self._answers, self._last, self.requests = answers, last, 0

    async def _serve(self, connection: Connection) -> None:
        for _ in range(self._answers):
            if await connection.read() is None:
                return
            self.requests += 1
            await connection.send(Http("HTTP/1.1 200 -", {"content-length": "2"}, b"ok").raw)
        if await connection.read() is not None:
            self.requests += 1
            await connection.send(self._last)


def in_thread(client: HttpClient, times: int) -> list[Response]:
    try:
        return [client.send(ASKED, Deadline.after(WAIT_S)) for _ in range(times)]
    finally:
        client.close()


def in_loop(client: HttpClient, times: int) -> list[Response]:
    async def main() -> list[Response]:
        try:
            return [await client.send_async(ASKED, Deadline.after(WAIT_S)) for _ in range(times)]
        finally:
            await client.close_async()

    return asyncio.run(main())


both_ways = pytest.mark.parametrize("sent", [in_thread, in_loop])


@both_ways
def test_a_request_on_a_connection_that_ends_before_the_response_is_sent_on_a_new_one(sent: Any) -> None:
    with Closing() as server:
        assert [response.body for response in sent(HttpClient(server.url, {}), 4)] == [b"ok"] * 4
        assert (server.accepted, server.requests) == (4, 7)


@both_ways
def test_a_request_is_not_repeated_on_a_new_connection_or_once_a_response_has_begun(sent: Any) -> None:
    with Closing(answers=0) as server, pytest.raises(RemoteFailed, match="without a response"):
        sent(HttpClient(server.url, {}), 1)
    assert (server.accepted, server.requests) == (1, 1)
    with Closing(last=b"HTTP/1.1") as server, pytest.raises(RemoteFailed):
        sent(HttpClient(server.url, {}), 2)
    assert (server.accepted, server.requests) == (1, 2)


@both_ways
@pytest.mark.parametrize("status", [302, 400, 401, 429, 500, 503])
def test_a_token_is_not_told_by_an_error_that_quotes_it(sent: Any, status: int) -> None:
    token = 'sk-"1/2+3'
    body = json.dumps({"error": {"message": f"no key {token}", token: token.replace("/", "@")}}).replace("@", "\\/")
    raw = Http(f"HTTP/1.1 {status} -", {"content-length": str(len(body))}, body.encode()).raw
    with Closing(answers=0, last=raw) as server:
        (response,) = sent(HttpClient(server.url, {"Authorization": f"Bearer {token}"}), 1)
    assert json.loads(response.body) == {"error": {"message": "no key ***", "***": "***"}}


@both_ways
def test_a_token_is_not_told_by_what_is_no_http(sent: Any) -> None:
    with Closing(answers=0, last=b"No, Bearer sk-12345!\r\n\r\n") as server:
        with pytest.raises(RemoteFailed, match=r"no HTTP: .*\*\*\*") as raised:
            sent(HttpClient(server.url, {"Authorization": "Bearer sk-12345"}), 1)
        assert "12345" not in str(raised.value)


def test_a_response_after_closing_leaves_no_connection_open() -> None:
    closed = Event()

    def answer(inputs: dict[str, Any]) -> dict[str, Any]:
        assert closed.wait(10)
        return {"scores": inputs["sample"]}

    async def until(condition: Any) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)

    async def main(server: OipServer) -> None:
        remote = OpenInference(server.url, "remote")
        asked = asyncio.create_task(remote.ask_async([[0.0, 1.0]], Deadline.after(10, time.monotonic())))
        await until(lambda: server.inferences)
        await remote.close_async()
        closed.set()
        assert (await asked).labels == [1]
        await until(lambda: server.open_connections == 0)
        assert (await remote.ask_async([[1.0, 0.0]], Deadline.after(10, time.monotonic()))).labels == [0]
        await until(lambda: server.open_connections == 0)

    with OipServer(answer, outputs=[TensorSpec("scores", "FP32", (-1, 2))]) as server:
        asyncio.run(main(server))
