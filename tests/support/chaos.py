"""A proxy between a client and a server of the Open Inference Protocol that does to requests what networks do.

    with OipServer(answer) as server, ChaosProxy(server.url) as proxy:
        proxy.fault = Fault.STALL  # holds from here on, for requests on connections old and new
        …  # proxy.url, proxy.attempts

What a fault has got hold of stays lost, whatever comes next: a stalled request is not answered after all.
"""

import asyncio
import json
import math
import random
import select
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple
from urllib.parse import urlsplit

import numpy as np

from hinge.oip.messages import (
    InferenceRequest,
    InferenceResponse,
    Message,
    build_response,
    json_message,
    parse_request,
    parse_response,
)
from hinge.oip.tensors import MAX_BODY_BYTES, Tensor
from tests.support.loopback import Connection, Http, Loopback, http_response

FLOOD_BYTES = MAX_BODY_BYTES + 32 * 2**20
_ZEROS = bytes(2**18)
_PATIENCE_S = 0.05  # how soon it is seen that a client has left a black hole


class Fault(Enum):
    """What happens to a request."""

    NONE = "it is passed on, and so is the response"
    REFUSE = "nobody listens at the port, and what was open is closed; here metadata cannot be had either"
    BLACK_HOLE = "the connection is made, and then nothing is read nor answered"
    STALL = "it is read and never answered"
    DRIP = "the correct response comes, one byte every `byte_s`"
    RESET = "it is read, and the connection reset"
    EMPTY = "it is read, and the connection closed without a byte"
    TRUNCATE = "the response ends in the middle of its body"
    STATUS_500 = "the server reports an internal error"
    GARBAGE = "random bytes come, which are no HTTP"
    GARBAGE_BODY = "status 200, and a body that is no JSON"
    NAN = "all numbers of the response are NaN, as binary data or as a literal in JSON"
    WRONG_SHAPE = "in turn: a row too many, a row too few, an axis too many, an axis too few"
    WRONG_ID = "the response is to another request"
    OVERSIZED = "a body over the limit, of which Content-Length tells"
    OVERSIZED_CHUNKS = "a body over the limit, in chunks, so that nothing tells"


class Attempt(NamedTuple):
    """An inference request that reached the proxy."""

    at_s: float  # of time.monotonic
    fault: Fault


@dataclass
class Exchange:
    """A request, and all that a fault needs to deal with it."""

    client: Connection
    server: Connection
    request: Http
    number: int  # of inference requests before it
    byte_s: float

    async def response(self) -> Http:
        """What the server says."""
        await self.server.send(self.request.raw)
        response = await self.server.read()
        if response is None:
            raise ConnectionError("the server hung up")
        return response


class ChaosProxy(Loopback):
    """Passes requests on, or does to them what `fault` says. Metadata always passes, unless `faults_metadata`."""

    def __init__(self, upstream_url: str, *, byte_s: float = 0.05) -> None:
        super().__init__()
        parts = urlsplit(upstream_url)
        self.byte_s = byte_s
        self.faults_metadata = False
        self.attempts: list[Attempt] = []  # those that were refused are not seen, and missing
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._fault = Fault.NONE

    @property
    def fault(self) -> Fault:
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        if self._loop is None:
            self._fault = fault
        else:
            self._call(self._switch(fault))  # when this returns, it holds

    async def _open(self) -> None:
        await self._switch(self._fault)

    async def _switch(self, fault: Fault) -> None:
        self._fault = fault
        if fault is Fault.REFUSE:
            await self._shut()
        else:
            await super()._open()

    async def _serve(self, client: Connection) -> None:
        with closing(Connection(socket.socket())) as server:
            await asyncio.get_running_loop().sock_connect(server.socket, self._upstream)
            while not client.closed:
                start = await client.peek()
                if self._meets(start) is Fault.BLACK_HOLE:
                    self._count(start)
                    await _swallow(client)
                    return
                request = await client.read()
                if request is None:
                    return
                exchange = Exchange(client, server, request, len(self.attempts), self.byte_s)
                self._count(start)
                await _FAULTS[self._meets(start)](exchange)
                if request.last:
                    return

    def _meets(self, start: str) -> Fault:
        return self._fault if self.faults_metadata or _is_inference(start) else Fault.NONE

    def _count(self, start: str) -> None:
        if _is_inference(start):
            self.attempts.append(Attempt(time.monotonic(), self._fault))


def _is_inference(start: str) -> bool:
    return start.startswith("POST")


async def _swallow(client: Connection) -> None:
    poll = select.poll()
    poll.register(client.socket, select.POLLRDHUP)
    while not poll.poll(0):
        await asyncio.sleep(_PATIENCE_S)


async def _pass(exchange: Exchange) -> None:
    await exchange.client.send((await exchange.response()).raw)


async def _stall(exchange: Exchange) -> None:
    await exchange.client.drain()
    exchange.client.close()


async def _drip(exchange: Exchange) -> None:
    for byte in (await exchange.response()).raw:
        await exchange.client.send(bytes([byte]))
        await asyncio.sleep(exchange.byte_s)


async def _reset(exchange: Exchange) -> None:
    exchange.client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    exchange.client.close()


async def _empty(exchange: Exchange) -> None:
    exchange.client.close()


async def _truncate(exchange: Exchange) -> None:
    response = await exchange.response()
    await exchange.client.send(response._replace(body=response.body[: len(response.body) // 2]).raw)
    exchange.client.close()


async def _status_500(exchange: Exchange) -> None:
    await exchange.client.send(http_response(500, json_message({"error": "internal error"})).raw)


async def _garbage(exchange: Exchange) -> None:
    await exchange.client.send(_noise(exchange))
    exchange.client.close()


async def _garbage_body(exchange: Exchange) -> None:
    message = Message({"Content-Type": "application/json"}, _noise(exchange))
    await exchange.client.send(http_response(200, message).raw)


def _noise(exchange: Exchange) -> bytes:
    return random.Random(exchange.number).randbytes(500)


async def _oversized(exchange: Exchange) -> None:
    await _flood(exchange.client, {"content-length": str(FLOOD_BYTES)}, _ZEROS)


async def _oversized_chunks(exchange: Exchange) -> None:
    await _flood(exchange.client, {"transfer-encoding": "chunked"}, b"%x\r\n%b\r\n" % (len(_ZEROS), _ZEROS))


async def _flood(client: Connection, headers: dict[str, str], part: bytes) -> None:
    await client.send(Http("HTTP/1.1 200 -", headers, b"").raw)
    for _ in range(FLOOD_BYTES // len(_ZEROS)):
        await client.send(part)
    client.close()


Alter = Callable[[InferenceRequest, InferenceResponse, int], Message]


def _altered(alter: Alter) -> Callable[[Exchange], Awaitable[None]]:
    """A fault that sends a sound response which is not the one asked for; errors and metadata stay as they are."""

    async def meet(exchange: Exchange) -> None:
        request, response = exchange.request, await exchange.response()
        if _is_inference(request.start) and response.start.split()[1] == "200":
            asked = parse_request(request.headers, request.body)
            answered = parse_response(response.headers, response.body, id=asked.id)
            response = http_response(200, alter(asked, answered, exchange.number))
        await exchange.client.send(response.raw)

    return meet


def _nan(request: InferenceRequest, response: InferenceResponse, number: int) -> Message:
    if any(request.outputs.get(name, request.binary) for name in response.outputs):
        outputs = {name: _nan_like(tensor) for name, tensor in response.outputs.items()}
        return build_response(request, outputs, model=response.model)
    message = build_response(request, response.outputs, model=response.model)
    fields = json.loads(message.body)
    for output in fields["outputs"]:
        output["data"] = [math.nan] * len(output["data"])
    return Message(message.headers, json.dumps(fields).encode())


def _nan_like(tensor: Tensor) -> Tensor:
    if tensor.dtype.kind != "f":
        raise ValueError("chaos: integers as binary data cannot be NaN")
    return np.full_like(tensor, math.nan)


_SHAPES: list[Callable[[Tensor], Tensor]] = [
    lambda tensor: np.concatenate([tensor, tensor[-1:]]),
    lambda tensor: tensor[:-1],
    lambda tensor: tensor[..., None],
    lambda tensor: tensor[0, ...],
]


def _wrong_shape(request: InferenceRequest, response: InferenceResponse, number: int) -> Message:
    shape = _SHAPES[number % len(_SHAPES)]
    outputs = {name: shape(tensor) for name, tensor in response.outputs.items()}
    return build_response(request, outputs, model=response.model)


def _wrong_id(request: InferenceRequest, response: InferenceResponse, number: int) -> Message:
    return build_response(replace(request, id=f"not-{request.id}"), response.outputs, model=response.model)


_FAULTS: dict[Fault, Callable[[Exchange], Awaitable[None]]] = {
    Fault.NONE: _pass,
    Fault.BLACK_HOLE: _stall,  # where the request was being read when it opened
    Fault.STALL: _stall,
    Fault.DRIP: _drip,
    Fault.RESET: _reset,
    Fault.EMPTY: _empty,
    Fault.TRUNCATE: _truncate,
    Fault.STATUS_500: _status_500,
    Fault.GARBAGE: _garbage,
    Fault.GARBAGE_BODY: _garbage_body,
    Fault.NAN: _altered(_nan),
    Fault.WRONG_SHAPE: _altered(_wrong_shape),
    Fault.WRONG_ID: _altered(_wrong_id),
    Fault.OVERSIZED: _oversized,
    Fault.OVERSIZED_CHUNKS: _oversized_chunks,
}
