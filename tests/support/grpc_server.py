"""A real server of the Open Inference Protocol over gRPC on 127.0.0.1, which can be told to answer badly.

    with GrpcServer() as server:
        …  # server.target, server.requests
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np

from hinge.oip.grpc import MESSAGES, SERVICE

WAIT_S = 20.0  # nothing here takes as long; whatever does is broken
CLASSES = 3
OPTIONS = [("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]

Spoil = Callable[[Any], None]


class GrpcServer:
    """Serves a model whose scores are its samples; `spoil` may change a response before it is sent."""

    def __init__(
        self,
        *,
        typed: bool = False,
        spoil: Spoil | None = None,
        token: str = "",
        credentials: grpc.ServerCredentials | None = None,
        port: int = 0,
    ) -> None:
        self._typed, self._spoil, self._token, self._credentials, self._port = typed, spoil, token, credentials, port
        self.hold, self.released = False, threading.Event()
        self.raw: bytes | None = None  # sent as the response, if there is any
        self.requests: list[Any] = []

    def __enter__(self) -> "GrpcServer":
        self._pool = ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool, options=OPTIONS)
        names = ("ServerMetadata", "ModelMetadata", "ModelInfer")
        handlers = {name: grpc.unary_unary_rpc_method_handler(self._handler(name)) for name in names}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        address = f"127.0.0.1:{self._port}"
        if self._credentials is None:
            port = self._server.add_insecure_port(address)
        else:
            port = self._server.add_secure_port(address, self._credentials)
        self.target = f"127.0.0.1:{port}"
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.released.set()
        assert self._server.stop(grace=0).wait(WAIT_S)
        self._pool.shutdown()

    def _handler(self, name: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
        def handle(body: bytes, context: grpc.ServicerContext) -> bytes:
            sent = dict(context.invocation_metadata())
            if self._token and sent.get("authorization") != f"Bearer {self._token}":
                context.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
            request = MESSAGES[f"{name}Request"].FromString(body)
            response = getattr(self, name)(request, context)
            return response if isinstance(response, bytes) else bytes(response.SerializeToString())

        return handle

    def ServerMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802  # named as the protocol does
        return MESSAGES["ServerMetadataResponse"](name="test", version="1.2", extensions=["model_repository"])

    def ModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802  # the same
        if request.name != "remote":
            context.abort(grpc.StatusCode.NOT_FOUND, f"unknown model {request.name}")
        response = MESSAGES["ModelMetadataResponse"](name="remote", platform="none", versions=["1"])
        response.inputs.add(name="sample", datatype="FP32", shape=[-1, CLASSES])
        response.outputs.add(name="scores", datatype="FP32", shape=[-1, CLASSES])
        return response

    def ModelInfer(self, request: Any, context: Any) -> Any:  # noqa: N802  # the same
        self.requests.append(request)
        if self.hold:
            self.released.wait(WAIT_S)
        if self.raw is not None:
            return self.raw
        response = MESSAGES["ModelInferResponse"](model_name=request.model_name, model_version="1", id=request.id)
        output = response.outputs.add(name="scores", datatype="FP32", shape=request.inputs[0].shape)
        if self._typed:
            output.contents.fp32_contents.extend(np.frombuffer(request.raw_input_contents[0], "<f4").tolist())
        else:
            response.raw_output_contents.append(request.raw_input_contents[0])
        if self._spoil is not None:
            self._spoil(response)
        return response
