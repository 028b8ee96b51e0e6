"""A stand-in for a server of a language model, on 127.0.0.1, that answers chats in OpenAI's form or misbehaves.

with ChatStandIn("yes") as server:
    …  # server.base_url, server.requests
    server.behaviour = "stall"
"""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

from tests.support.loopback import Connection, Http, Loopback

FAILURES = ("stall", "garbage", "no HTTP", "huge", "error", "hang up")
_SENT_BEFORE_WAIT_S = 0.01


class ChatStandIn(Loopback):
    """Answers every chat with the same text, whose one token has a certain log-probability.

    A stream has the pieces `pieces`, of which all but the first wait for `go_on`.
    """

    pieces = (b'data: {"n": 1}\n\n', b'data: {"n": 2}\n\n', b"data: [DONE]\n\n")

    def __init__(self, text: str = "yes", logprob: float = -0.1, behaviour: str = "answer") -> None:
        super().__init__()
        self.text, self.logprob, self.behaviour, self.finish_reason = text, logprob, behaviour, "stop"
        self.retry_after: int | None = None
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.told_ms: list[int] = []  # how long clients said that they would wait for a chat
        self.go_on = Event()
        self.go_on.set()
        self.asked, self.left = Event(), Event()  # for a chat; a client hung up while it waited

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    async def _serve(self, connection: Connection) -> None:
        while (request := await connection.read()) is not None:
            self.keys.append(request.headers.get("authorization"))
            if request.start.startswith("GET /v1/models "):
                models = [{"id": self.text, "object": "model"}]
                await connection.send(_response(200, {"object": "list", "data": models}))
                continue
            assert request.start.startswith("POST /v1/chat/completions "), request.start
            asked = json.loads(request.body)
            self.requests.append(asked)
            self.asked.set()
            if "x-envoy-expected-rq-timeout-ms" in request.headers:
                self.told_ms.append(int(request.headers["x-envoy-expected-rq-timeout-ms"]))
            if not await self._answer(asked, connection):
                return

    async def _answer(self, asked: dict[str, Any], connection: Connection) -> bool:
        """Whether the connection stays open."""
        if self.behaviour.startswith("refuse logprobs") and asked.get("logprobs"):
            await connection.send(_response(400, {"error": {"message": "logprobs are not supported"}}))
            return True
        if self.behaviour in ("answer", "no logprobs", "refuse logprobs", "cut"):
            if asked.get("stream"):
                return await self._stream(connection)
            await connection.send(_response(200, self._completion(asked)))
            return True
        if self.behaviour == "stall":
            await connection.drain()
            self.left.set()
        raw = {
            "garbage": b"HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n<html>\xff\x00\xfehello",
            "no HTTP": b"hello, world\r\n\r\n",
            "huge": b"HTTP/1.1 200 OK\r\ncontent-length: 1099511627776\r\n\r\n{",
            "error": _response(500, {"error": {"message": "out of memory", "type": "server_error"}}),
            "refuse": _response(400, {"error": {"message": "the prompt is too long", "code": "context_length"}}),
            "unknown": _response(404, {"detail": "no such model"}),
            "redirect": b"HTTP/1.1 307 -\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
            "no key": _response(401, {"error": {"message": "wrong API key: sk-12345"}}),
        }
        if self.behaviour == "error, then stall":
            await connection.send(b"HTTP/1.1 500 -\r\ncontent-length: 100\r\n\r\n{")
            await connection.drain()
        if self.behaviour in ("429", "503"):
            head = f"HTTP/1.1 {self.behaviour} -\r\nretry-after: {self.retry_after}\r\ncontent-length: 0\r\n\r\n"
            await connection.send(head.replace("retry-after: None\r\n", "").encode())
            return True
        if self.behaviour.startswith("quote "):
            quoted = {"error": {"message": f"wrong key {self.keys[-1]}", "hint": self.keys[-1], "code": "c"}}
            await connection.send(_response(int(self.behaviour.split()[1]), quoted))
            return True
        if self.behaviour in raw:
            await connection.send(raw[self.behaviour].replace(b"\r\n", b"\r\nconnection: close\r\n", 1))
        return False

    def _completion(self, asked: dict[str, Any]) -> dict[str, Any]:
        token = {"token": self.text, "logprob": self.logprob, "bytes": None}
        logprobs = None
        if asked.get("logprobs") and self.behaviour != "no logprobs":
            logprobs = {"content": [{**token, "top_logprobs": [token][: asked.get("top_logprobs", 0)]}]}
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": self.finish_reason}
        usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6}
        known = {"id": "chat-1", "object": "chat.completion", "created": 1, "model": asked.get("model", "")}
        return {**known, "choices": [choice], "usage": usage}

    async def _stream(self, connection: Connection) -> bool:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
        head += b"set-cookie: a=b\r\naccess-control-allow-origin: *\r\n\r\n"
        await connection.send(head + _chunk(self.pieces[0]))
        while not self.go_on.is_set():
            await asyncio.sleep(_SENT_BEFORE_WAIT_S)
        if self.behaviour == "cut":
            return False
        for piece in self.pieces[1:]:
            await connection.send(_chunk(piece))
        await connection.send(b"0\r\n\r\n")
        return True


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _response(status: int, body: dict[str, Any]) -> bytes:
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json", "content-length": str(len(content))}
    return Http(f"HTTP/1.1 {status} -", headers, content).raw


@contextmanager
def dead_url() -> Iterator[str]:
    """The address of a server that is not there."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}/v1"
