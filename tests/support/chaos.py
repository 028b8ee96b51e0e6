"""A proxy between a client and a server of the Open Inference Protocol that does to inferences what networks do.

    with OipServer(answer) as server, ChaosProxy(server.url) as proxy:
        proxy.fault = Fault.STALL  # holds from here on, for requests on connections old and new
        …  # proxy.url
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from enum import Enum
from urllib.parse import urlsplit

import numpy as np

from hinge.oip.messages import Message, build_response, json_message, parse_request, parse_response
from hinge.oip.tensors import Tensor
from tests.support.loopback import Connection, Http, Loopback, http_response


class Fault(Enum):
    """What happens to an inference."""

    NONE = "it is passed on, and so is the response"
    REFUSE = "nobody listens at the port, and what was open is closed; here metadata cannot be had either"
    STALL = "it is read and never answered"
    DRIP = "the correct response comes, one byte every `byte_s`"
    RESET = "it is read, and the connection reset"
    EMPTY = "it is read, and the connection closed without a byte"
    TRUNCATE = "the response ends in the middle of its body"
    STATUS_500 = "the server reports an internal error"
    GARBAGE = "random bytes come, which are no HTTP"
    GARBAGE_BODY = "status 200, and a body that is no JSON"
    NAN = "all numbers of the response are NaN"
    WRONG_SHAPE = "in turn: a row too many, a row too few, an axis too many, an axis too few"
    WRONG_ID = "the response is to another request"


_SHAPES: list[Callable[[Tensor], Tensor]] = [
    lambda tensor: np.concatenate([tensor, tensor[-1:]]),
    lambda tensor: tensor[:-1],
    lambda tensor: tensor[..., None],
    lambda tensor: tensor[0, ...],
]


class ChaosProxy(Loopback):
    """Passes requests on, or does to inferences what `fault` says."""

    def __init__(self, upstream_url: str, *, byte_s: float = 0.05) -> None:
        super().__init__()
        parts = urlsplit(upstream_url)
        self.byte_s = byte_s
        self.inferences = 0  # that came; those that were refused are not seen
        self._upstream = (parts.hostname or "", parts.port or 80)
        self._fault = Fault.NONE

    @property
    def fault(self) -> Fault:
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        self._fault = fault
        self._call(self._shut() if fault is Fault.REFUSE else self._open())  # when this returns, it holds

    async def _serve(self, client: Connection) -> None:
        with closing(Connection(socket.socket())) as server:
            await asyncio.get_running_loop().sock_connect(server.socket, self._upstream)
            while (request := await client.read()) is not None:
                fault = Fault.NONE
                if request.start.startswith("POST"):
                    fault, self.inferences = self._fault, self.inferences + 1
                if not await self._met(fault, client, server, request) or request.last:
                    return

    async def _met(self, fault: Fault, client: Connection, server: Connection, request: Http) -> bool:
        """Whether the connection goes on."""
        if fault is Fault.STALL:
            await client.drain()
            return False
        if fault is Fault.RESET:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault in (Fault.RESET, Fault.EMPTY):
            return False
        noise = random.Random(self.inferences).randbytes(500)
        if fault is Fault.GARBAGE:
            await client.send(noise)
            return False
        await server.send(request.raw)
        response = await server.read()
        if response is None:
            return False
        if fault is Fault.STATUS_500:
            response = http_response(500, json_message({"error": "internal error"}))
        elif fault is Fault.GARBAGE_BODY:
            response = http_response(200, Message({"Content-Type": "application/json"}, noise))
        elif fault is Fault.TRUNCATE:
            response = response._replace(body=response.body[: len(response.body) // 2])
        elif fault in (Fault.NAN, Fault.WRONG_SHAPE, Fault.WRONG_ID):
            response = self._altered(fault, request, response)
        if fault is Fault.DRIP:
            for byte in response.raw:
                await client.send(bytes([byte]))
                await asyncio.sleep(self.byte_s)
        else:
            await client.send(response.raw)
        return fault is not Fault.TRUNCATE

    def _altered(self, fault: Fault, request: Http, response: Http) -> Http:
        """A sound response which is not the one asked for."""
        asked = parse_request(request.headers, request.body)
        outputs = dict(parse_response(response.headers, response.body, id=asked.id).outputs)
        if fault is Fault.WRONG_ID:
            asked = replace(asked, id=f"not-{asked.id}")
        elif fault is Fault.NAN:
            outputs = {name: np.full_like(tensor, np.nan) for name, tensor in outputs.items()}
        else:
            shape = _SHAPES[self.inferences % len(_SHAPES)]
            outputs = {name: shape(tensor) for name, tensor in outputs.items()}
        return http_response(200, build_response(asked, outputs, model="remote"))
