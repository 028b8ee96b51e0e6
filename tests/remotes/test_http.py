"""The HTTP client: connections that end when they are used again, tokens in what servers say, limits, and no aiohttp;
`test_open_inference.py` has it at work.
"""

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from hinge.errors import RemoteFailed
from hinge.oip.messages import Message
from hinge.remotes import Deadline
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request, Response
from tests.support.loopback import Connection, Http, Loopback, OipServer

ASKED = Request("POST", "/", Message({}, b"{}"))
WAIT_S = 20.0


@pytest.mark.medium
def test_without_aiohttp_the_package_is_imported_and_a_client_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['aiohttp'] = None\n"
        "from hinge import *\n"
        "try:\n    OpenInference('http://localhost:1', 'm')\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "a remote over HTTP needs aiohttp: pip install 'hinge-gate[device]'\n"


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


async def sent_many(client: HttpClient, times: int) -> list[Response]:
    try:
        return [await client.send(ASKED, Deadline.after(WAIT_S)) for _ in range(times)]
    finally:
        await client.close()


def in_thread(client: HttpClient, times: int) -> list[Response]:
    return LOOP.run(sent_many, client, times, deadline=Deadline.after(WAIT_S))


def in_loop(client: HttpClient, times: int) -> list[Response]:
    return asyncio.run(sent_many(client, times))


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


@both_ways
@pytest.mark.parametrize(
    ("headers", "body"),
    [({"content-length": str(2**20 + 1)}, b""), ({"connection": "close"}, bytes(2**20 + 1))],
    ids=["announced", "as it comes"],
)
def test_a_body_beyond_the_limit_is_not_read(sent: Any, headers: dict[str, str], body: bytes) -> None:
    too_long = pytest.raises(RemoteFailed, match="the response is longer than 1048576 bytes")
    with Closing(answers=0, last=Http("HTTP/1.1 200 -", headers, body).raw) as server, too_long:
        sent(HttpClient(server.url, {}), 1)


class Tempting(Loopback):
    """Answers with what a browser would act upon, and notes what it is asked with."""

    asked: list[Http]

    async def _serve(self, connection: Connection) -> None:
        while (request := await connection.read()) is not None:
            self.asked.append(request)
            tempting = {"content-encoding": "gzip", "location": "/elsewhere", "set-cookie": "a=1"}
            await connection.send(Http("HTTP/1.1 307 -", tempting | {"content-length": "2"}, b"ok").raw)


@both_ways
def test_nothing_is_decompressed_followed_or_remembered(sent: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    with Tempting() as server:
        server.asked = []
        responses = sent(HttpClient(server.url, {}), 2)
    assert [(response.status, response.body) for response in responses] == [(307, b"ok")] * 2
    assert [request.start for request in server.asked] == ["POST / HTTP/1.1"] * 2
    assert not any({"cookie", "accept-encoding"} & request.headers.keys() for request in server.asked)


def test_a_client_asks_again_after_it_was_closed() -> None:
    with Closing(answers=3) as server:
        client = HttpClient(server.url, {})
        assert [response.body for response in in_thread(client, 1) + in_loop(client, 2)] == [b"ok"] * 3


def test_a_device_that_nobody_closes_ends_with_the_program_and_says_nothing() -> None:
    program = (
        "import sys\nfrom hinge import OpenInference\nfrom hinge.remotes import Deadline\n"
        "remote = OpenInference(sys.argv[1], 'remote')\n"
        "print(remote.ask([[0.0, 1.0]], Deadline.after(20)).labels)"
    )
    with OipServer(lambda inputs: {"scores": inputs["sample"]}) as server:
        command = [sys.executable, "-X", "dev", "-c", program, server.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("[1]\n", "")
