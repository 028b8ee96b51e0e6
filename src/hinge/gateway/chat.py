"""A gateway for chat completions: a device between two servers, behind OpenAI's interface.

    request ──can be checked──→ local server → gate ──accept──→ the local answer
       │                                        └─offload→ the remote's answer, or the local one if that fails
       └──everything else, streams included──→ the server of `otherwise`, or the other if that fails

A local server that fails, or tells no log-probabilities, leaves the request to the remote, and nothing is learned. One
that was late several times in a row is left alone for a while, and asked again only if the remote fails, too.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hinge._checks import shown
from hinge.device.async_device import AsyncDevice
from hinge.errors import BreakerOpen, RemoteFailed, RemoteInvalid, RemoteLate, RemoteRefused
from hinge.gate import Gate
from hinge.gateway.application import NAME, START_S, GatedApp, Gateway, because
from hinge.gateway.openai import (
    ChatServer,
    Completion,
    Json,
    Refused,
    error_body,
    model_in,
    passed_on,
    read_request,
    why_not_gated,
    with_logprobs,
)
from hinge.policies.policy import Policy
from hinge.remotes import Deadline, Reply
from hinge.server.app import App, Exchange
from hinge.server.connections import Listener
from hinge.server.limits import Refusal
from hinge.server.observability import Metrics
from hinge.server.openapi import OPERATIONS, Operation
from hinge.tasks import ShortText

Source = Literal["local", "remote"]
_JSON = "application/json"
_NOT_OURS = ("/v2/models", "/openapi.json")  # operations of a server of models


class Chat:
    """A sample: a request that is gated, and the answers of both servers as they come."""

    __slots__ = ("local", "remote", "request")

    def __init__(self, request: Json, local: Completion) -> None:
        self.request, self.local = request, local
        self.remote: Completion | None = None


class _Remote:
    """The remote server as a device asks it; the answer stays with its sample."""

    def __init__(self, server: ChatServer, task: ShortText) -> None:
        self._server, self._task = server, task

    async def ask_async(self, samples: Sequence[Chat], deadline: Deadline) -> Reply:
        (chat,) = samples
        chat.remote = remote = await self._server.ask(chat.request, deadline)
        lacks, local_lacks = remote.lacks(self._task), chat.local.lacks(self._task)
        if lacks and not local_lacks:
            # Cut off are answers to this request; what no task can read may be all that this remote has to say.
            raise RemoteRefused(lacks) if remote.cut else RemoteInvalid(lacks)
        return Reply([remote.text], remote.response.bytes, compared=not (lacks or chat.local.cut_by(self._task)))

    async def close_async(self) -> None:
        await self._server.close()


class ChatGateway(Gateway):
    """Serves `/v1/chat/completions` and `/v1/models` in front of a local and a remote server.

    A request whose answer can be checked is gated (see `why_not_gated`), and has `deadline_s` in all, of which the
    local server may take half. All others go to the server of `otherwise`. `device` has settings of the `AsyncDevice`,
    such as `state` or `shadow`; the rest are those of every server, such as `port` and `token`.
    """

    def __init__(
        self,
        local: ChatServer,
        remote: ChatServer,
        gate: Gate | Policy,
        *,
        task: ShortText,
        otherwise: Source = "local",
        deadline_s: float = 30.0,
        **settings: Any,
    ) -> None:
        super().__init__(gate, deadline_s=deadline_s, **settings)
        self.servers: dict[Source, ChatServer] = {"local": local, "remote": remote}
        self.order: tuple[Source, Source] = ("local", "remote") if otherwise == "local" else ("remote", "local")
        self.task = task

    def load(self) -> None:
        """See which of the servers answer."""
        for name, server in self.servers.items():
            try:
                server.check(Deadline.after(START_S))
            except RemoteFailed as failure:
                self.away[name] = failure

    def make_app(self, metrics: Metrics, listener: Listener) -> App:
        """The application, with its device."""
        remote = _Remote(self.servers["remote"], self.task)
        device = self.make_device(lambda chat: chat.local.output, remote, self.task)
        return ChatApp(self, device, metrics, listener)


class ChatApp(GatedApp):
    """Answers chat requests."""

    operations: ClassVar[Sequence[Operation]] = (
        Operation("POST", "/v1/chat/completions", "chat", "Answer a chat", _JSON),
        Operation("GET", "/v1/models", "models", "The models of the server that answers", _JSON),
        Operation("GET", "/v1/models/{model:path}", "models", "One of these models", _JSON),
        *(each for each in OPERATIONS if not each.path.startswith(_NOT_OURS)),
    )

    def __init__(self, gateway: ChatGateway, device: AsyncDevice, metrics: Metrics, listener: Listener) -> None:
        super().__init__(gateway, {}, device, metrics=metrics, listener=listener)
        self._gateway, self._servers = gateway, gateway.servers
        self._refused = 0  # requests in a row that the local server refused, and the remote answered

    def error_body(self, refusal: Refusal) -> bytes:
        """A refusal in OpenAI's form."""
        where = "; a gateway has /v1/chat/completions and /v1/models" if refusal.reason == "unknown" else ""
        return error_body(refusal.status, refusal.reason, f"{refusal}{where}")

    async def close(self) -> None:
        """Close the device, then the connections to the local server."""
        await super().close()
        await self._servers["local"].close()

    async def models(self, request: Request) -> Response:
        """The models of the first server that tells them, or the one of them that is named."""
        order, failures = self._order()
        model: str | None = request.path_params.get("model")
        for name in order:
            try:
                found = await self._servers[name].models(Deadline.after(self._gateway.deadline_s))
                body = found.body if model is None else model_in(found, model)
            except RemoteFailed as failure:
                failures[name] = failure
                continue
            headers = because(name, "asked first" if not failures else _told(failures))
            if body is None:
                problem = f"the model {shown(model)} does not exist; GET /v1/models lists those that do"
                return _response(error_body(404, "model_not_found", problem, "model"), headers, 404)
            return _response(body, headers)
        return _unanswered(request.scope["hinge.exchange"], failures)

    async def chat(self, request: Request) -> ASGIApp:
        """The answer to a chat: gated, or of the server that it goes to otherwise."""
        return partial(self._chat, request.scope["hinge.exchange"])

    async def _chat(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        exchange.model = NAME
        self._check_message(exchange)
        with self.inferences.request() as exchange.body:
            body = await exchange.body.receive(receive, exchange.declared, lambda: exchange.connection.received)
            request = read_request(body)
            reason = why_not_gated(request, self._gateway.task)

            async def answer() -> None:
                if reason is None:
                    deadline = exchange.deadline(self._gateway.deadline_s)
                    await (await self._gated(request, exchange, deadline))(scope, receive, send)
                else:
                    await self._pass_on(request, exchange, f"Not gated: {reason}", scope, receive, send)

            await self.until_gone(exchange, answer())

    # -- gated --------------------------------------------------------------------------------------------------------

    async def _gated(self, request: Json, exchange: Exchange, deadline: Deadline) -> Response:
        failures = dict[Source, RemoteFailed]()
        local = None
        try:
            with self.asking_local():
                local = await self._servers["local"].ask(with_logprobs(request), deadline.split(0.5))
                if local.logprobs is None:
                    raise RemoteInvalid("it tells no log-probabilities, without which no answer is gated")
                try:
                    self._gateway.task.confidence(local.output)
                except (TypeError, ValueError) as error:
                    raise RemoteInvalid(error) from None
            self._refused = 0
            return await self._decided(Chat(request, local), deadline)
        except RemoteFailed as failure:
            failures["local"] = failure
        self._log.write("warning", "not gated", id=exchange.id.decode(), problem=_told(failures))
        try:
            remote = await self._servers["remote"].ask(request, deadline)
            self._count(failures["local"])
            return _response(remote.response.body, because("remote", f"Not gated: {_told(failures)}."))
        except RemoteFailed as failure:
            failures["remote"] = failure
        if isinstance(failures["local"], RemoteRefused | BreakerOpen):  # it may be back, or take no log-probabilities
            try:
                local = await self._servers["local"].ask(request, deadline)
            except RemoteFailed as failure:
                failures["local"] = failure
        if local is not None:
            return _response(local.body(request), because("local", f"Not gated: {_told(failures)}."))
        return _unanswered(exchange, failures)

    async def _decided(self, chat: Chat, deadline: Deadline) -> Response:
        answer = await self.device.infer(chat, deadline)
        headers = self.gated([answer])
        if answer.source == "remote" and chat.remote is not None:
            return _response(chat.remote.response.body, headers)
        return _response(chat.local.body(chat.request), headers)

    def _count(self, failure: RemoteFailed) -> None:
        """The remote answered in place of the local server; one that refuses a request is not down, or not at once."""
        refused = isinstance(failure, RemoteRefused)
        self._refused = self._refused + 1 if refused else 0
        few = refused and self._refused < self.local_breaker.failures
        problem = f"it refused {self._refused} requests in a row, the last by: {failure}" if refused else str(failure)
        self.device.local_failed(1, None if few else problem)

    def _order(self) -> tuple[tuple[Source, ...], dict[Source, RemoteFailed]]:
        """Whom to ask for what is not gated, one after the other, and why not the local server first, if that is so."""
        if self._gateway.order[0] == "local" and self.local_breaker.refuse(time.monotonic()):
            return ("remote", "local"), {"local": self.left_alone()}
        return self._gateway.order, {}

    # -- everything else ----------------------------------------------------------------------------------------------

    async def _pass_on(
        self, request: Json, exchange: Exchange, reason: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """The answer of the first server that gives one, piece by piece as it comes."""
        (order, failures), begun = self._order(), False
        for name in order:
            try:
                connected = Deadline.after(self._gateway.deadline_s)
                async with self._servers[name].stream(request, connected) as (head, pieces):
                    told = f"; {_told(failures)}" if failures else ""
                    headers = passed_on(head.headers) | because(name, f"{reason}{told}.")
                    raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers.items()]
                    await send({"type": "http.response.start", "status": head.status, "headers": raw})
                    begun = True
                    if name == "remote" and "local" in failures:
                        self._count(failures["local"])
                    async for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await send({"type": "http.response.body", "body": b""})
                return
            except RemoteFailed as failure:
                if begun:  # the client sees the stream end where it did, as cut
                    raise
                failures[name] = failure
        await _unanswered(exchange, failures)(scope, receive, send)


def _response(body: bytes, headers: Mapping[str, str], status: int = 200) -> Response:
    return Response(body, status, headers, media_type=_JSON)


def _told(failures: Mapping[Source, RemoteFailed]) -> str:
    """What went wrong with each server.

    >>> _told({"local": RemoteLate("no answer in time")})
    'the local server failed (late: no answer in time)'
    """
    return ", ".join(f"the {name} server failed ({each.kind}: {each})" for name, each in failures.items())


def _unanswered(exchange: Exchange, failures: Mapping[Source, RemoteFailed]) -> Response:
    """The answer where there is none: the refusal of a server, if there is one, as the client can mend that."""
    exchange.problem = f"no answer: {_told(failures)}"
    for name, failure in failures.items():
        if isinstance(failure, Refused):
            return _response(failure.body, because(name, _told(failures)), failure.status)
    late = any(isinstance(failure, RemoteLate) for failure in failures.values())
    status, code = (504, "late") if late else (502, "unavailable")
    return _response(error_body(status, code, exchange.problem), {}, status)
