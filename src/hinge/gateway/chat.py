"""A gateway for chat completions: a device between two servers, behind OpenAI's interface.

    request ──can be checked──→ local server → gate ──accept──→ the local answer
       │                                        └─offload→ the remote's answer, or the local one if that fails
       └──everything else, streams included──→ the server of `otherwise`, or the other if that fails

A local server that fails, or tells no log-probabilities, leaves the request to the remote, and nothing is learned. One
that was late several times in a row is left alone for a while, and asked again only if the remote fails, too.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from hinge._checks import shown
from hinge.device.answer import Source
from hinge.device.async_device import AsyncDevice
from hinge.errors import (
    BreakerOpen,
    InvalidMessage,
    RemoteFailed,
    RemoteInvalid,
    RemoteRefused,
)
from hinge.gate import Gate
from hinge.gateway.gateway import NAME, START_S, GatedApp, Gateway, Unanswered, because, deadline_of, unanswered
from hinge.oip.messages import MAX_JSON_BYTES, Message, decoded
from hinge.policies.policy import Policy
from hinge.remotes import Deadline, Reply, http
from hinge.remotes.address import bearer, check_url
from hinge.remotes.calls import LOOP
from hinge.server.app import App, Exchange, Refusal, exchange_of, until_gone
from hinge.server.observability import Metrics
from hinge.tasks import ShortText

Json = dict[str, Any]
CHAT, MODELS = "/chat/completions", "/models"
MAX_ANSWER_BYTES, MAX_ERROR_BYTES = 2**24, 2**20
MAX_SHORT = 64  # tokens of a text that is compared as a whole
MAX_FIELDS = 2**18  # of a request, and of what is in it
_SHORT_BYTES = 256  # of a field that the gateway reads
STALL_S = 600.0  # for the first byte of an answer that is passed on, and for each piece after it
ERROR_S = 1.0  # for the body of an error to what is passed on
_REFUSED = {400, 404, 413, 415, 422}  # statuses by which a server refuses this request, and not the client or all
_UNAUTHORISED = {*range(300, 400), 401, 403}  # of the gateway, or sent elsewhere: no client hears what it says of that
_CODES = {429: "overloaded", 502: "unavailable", 503: "overloaded", 504: "late"}  # where no server answers
_PASSED_ON = {"cache-control", "content-encoding", "content-type"}  # and no cookie, nor who else may read it


# -- requests ---------------------------------------------------------------------------------------------------------


class _Message(Struct):
    content: msgspec.Raw = msgspec.Raw(b"null")


class _Part(Struct):
    type: str | None = None


class _Format(Struct):
    type: str | None = None


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MESSAGES = msgspec.json.Decoder(list[_Message])
_PARTS = msgspec.json.Decoder(list[_Part])
_FORMAT = msgspec.json.Decoder(_Format)
_LONG = object()  # what a field holds that is too long to be of use here


class ChatRequest:
    """A request, read as far as the gateway needs: all else is for the servers to judge, and goes to them as it came.

    So a large one takes neither long nor much memory, whatever is in it.

    >>> request = ChatRequest(b'{"model": "m", "messages": [{"content": "Hi"}], "seed": 1e2}')
    >>> request.value("model"), request.value("stream"), request.only_text
    ('m', None, True)
    >>> request.changed(model="other").body
    b'{"model":"other","messages":[{"content": "Hi"}],"seed":1e2}'
    >>> ChatRequest(b'{"model": "m", "messages": []}')
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: 'messages' must be a list of messages, and not empty
    """

    def __init__(self, body: bytes) -> None:
        if body.count(b":") > MAX_FIELDS:  # one in each field, and some in texts
            raise InvalidMessage(f"JSON: more than {MAX_FIELDS} fields")
        self._fields: dict[str, Any] = decoded(body, _FIELDS, MAX_JSON_BYTES)
        try:
            messages = decoded(bytes(self._fields["messages"]), _MESSAGES, MAX_JSON_BYTES)
        except (KeyError, InvalidMessage):
            messages = []
        if not messages:
            raise InvalidMessage("'messages' must be a list of messages, and not empty")
        self.only_text = all(_is_text(bytes(message.content)) for message in messages)

    def value(self, name: str) -> Any:
        """What a field holds, if it is short: None where there is no such field."""
        field = self._fields.get(name)
        if not isinstance(field, msgspec.Raw):
            return field
        try:
            return decoded(bytes(field), msgspec.json.Decoder(), _SHORT_BYTES)
        except InvalidMessage:  # or no number, say, that we could read
            return _LONG

    @property
    def form(self) -> str | None:
        """The type of its `response_format`."""
        try:
            return decoded(bytes(self._fields.get("response_format", b"")), _FORMAT, MAX_JSON_BYTES).type
        except InvalidMessage:
            return None

    def changed(self, **fields: Any) -> ChatRequest:
        """The request with other fields, or others in them."""
        other = copy(self)
        other._fields = {**self._fields, **fields}
        return other

    @property
    def body(self) -> bytes:
        return msgspec.json.encode(self._fields)


def why_not_gated(request: ChatRequest, task: ShortText) -> str | None:
    """Why the answer to a request cannot be checked against another; None if it can.

    >>> asked = ChatRequest(b'{"messages": [{"role": "user", "content": "What is 6 x 7?"}]}')
    >>> task = ShortText("number")
    >>> why_not_gated(asked, task) is None, why_not_gated(asked.changed(stream=True), task)
    (True, 'it is a stream')
    >>> why_not_gated(asked.changed(max_tokens=500), ShortText("text"))
    'it may be longer than 64 tokens (max_tokens)'
    """
    if request.value("stream"):
        return "it is a stream"
    if request.value("n") not in (None, 1):
        return "it wants several answers (n)"
    if any(request.value(name) for name in ("tools", "functions", "audio")):
        return "it has tools or audio"
    if not request.only_text:
        return "a message is more than text"
    if task.form == "json" and request.form not in ("json_object", "json_schema"):
        return "it does not ask for JSON (response_format)"
    most = request.value("max_completion_tokens") or request.value("max_tokens")
    if task.form == "text" and not task.options and not (isinstance(most, int) and 0 < most <= MAX_SHORT):
        return f"it may be longer than {MAX_SHORT} tokens (max_tokens)"
    return None


def with_logprobs(request: ChatRequest) -> ChatRequest:
    """The request for an answer whose confidence can be told.

    >>> with_logprobs(ChatRequest(b'{"messages": [{}], "logprobs": true, "top_logprobs": 5}')).body
    b'{"messages":[{}],"logprobs":true,"top_logprobs":5}'
    """
    top = request.value("top_logprobs")
    return request.changed(logprobs=True, top_logprobs=max(2, top) if isinstance(top, int) else 2)


def _is_text(content: bytes) -> bool:
    if content.startswith(b"["):
        try:
            return all(part.type == "text" for part in decoded(content, _PARTS, MAX_JSON_BYTES))
        except InvalidMessage:
            return False
    return content.startswith((b'"', b"null"))


# -- answers ----------------------------------------------------------------------------------------------------------


class _Top(Struct):
    logprob: float


class _Token(Struct):
    logprob: float
    top_logprobs: list[_Top] | None = None


class _Logprobs(Struct):
    content: list[_Token] | None = None


class _Text(Struct):
    content: str | None


class _Choice(Struct):
    message: _Text
    logprobs: msgspec.Raw = msgspec.Raw(b"null")  # read of a local answer only, and never a reason to discard one
    finish_reason: str | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


_DECODER = msgspec.json.Decoder(_Completion)
_LOGPROBS = msgspec.json.Decoder(_Logprobs | None)


class Completion:
    """A server's answer: the text of its first choice, the log-probabilities of its tokens, and the response.

    >>> response = http.Response(200, {}, b'{"choices": [{"message": {"content": "yes"}}]}', 0)
    >>> Completion(response).text, Completion(response).logprobs
    ('yes', None)
    """

    def __init__(self, response: http.Response) -> None:
        try:
            choice = decoded(response.body, _DECODER, MAX_ANSWER_BYTES).choices[0]
        except InvalidMessage as error:
            raise RemoteInvalid(f"no chat completion: {error}") from error
        self.response, self.text = response, choice.message.content or ""  # None: only a refusal
        self.cut = choice.finish_reason == "length"
        self._logprobs = choice.logprobs

    @cached_property
    def _tokens(self) -> list[_Token]:
        """The tokens with their log-probabilities; none, if there is one that has none."""
        try:
            found = decoded(bytes(self._logprobs), _LOGPROBS, MAX_ANSWER_BYTES)
        except InvalidMessage:
            return []
        return (found and found.content) or []

    @property
    def logprobs(self) -> list[float] | None:
        return [token.logprob for token in self._tokens] or None

    @property
    def top(self) -> list[float]:
        """Of the likeliest first tokens."""
        return [top.logprob for token in self._tokens[:1] for top in token.top_logprobs or ()]

    def cut_by(self, task: ShortText) -> bool:
        """Whether it was cut off before it was an answer; an option is one, however it ended."""
        return self.cut and not (task.options and task.confidence(self.text))

    def lacks(self, task: ShortText) -> str:
        """Why it is no answer such as the task compares; empty if it is one."""
        if self.cut_by(task):
            return "its answer is cut off (finish_reason: length)"
        return "" if task.confidence(self.text) else f"no answer to such a question: {shown(self.text, 50)}"

    @property
    def output(self) -> Json:
        found: Json = {"text": self.text, "logprobs": self.logprobs, "top": self.top}
        return found | {"cut": True} if self.cut else found

    def body(self, request: ChatRequest) -> bytes:
        """The answer as a client wants it: without the log-probabilities for which only the gateway has asked."""
        wanted, top = request.value("logprobs"), request.value("top_logprobs")
        top = max(0, top) if isinstance(top, int) else 0
        if self.logprobs is None or (wanted and top >= 2):
            return self.response.body
        answer = msgspec.json.decode(self.response.body)
        for choice in answer["choices"]:
            if not wanted:
                choice["logprobs"] = None
            for token in (choice.get("logprobs") or {}).get("content") or ():  # of another choice there may be none
                token["top_logprobs"] = (token.get("top_logprobs") or [])[:top]
        return msgspec.json.encode(answer)


class _Models(Struct):
    data: list[Json]


_MODELS = msgspec.json.Decoder(_Models)


def model_in(response: http.Response, name: str) -> bytes | None:
    """The model of that name in a server's list of models, if it is there.

    >>> model_in(http.Response(200, {}, b'{"data": [{"id": "small"}]}', 0), "small")
    b'{"id":"small"}'
    """
    try:
        listed = decoded(response.body, _MODELS, MAX_ANSWER_BYTES).data
    except InvalidMessage as error:
        raise RemoteInvalid(f"no list of models: {error}") from error
    return next((msgspec.json.encode(model) for model in listed if model.get("id") == name), None)


class Refused(RemoteRefused):
    """A server refuses the request: with which status, and how it says so in OpenAI's form."""

    def __init__(self, response: http.Response) -> None:
        problem, complaint = _complaint(response)
        super().__init__(complaint)
        self.status = response.status
        self.body = error_body(response.status, "refused", complaint) if problem is None else response.body


def error_body(status: int, code: str, problem: str, param: str | None = None) -> bytes:
    """An error in OpenAI's form.

    >>> error_body(404, "unknown", "there is nothing here")
    b'{"error":{"message":"there is nothing here","type":"invalid_request_error","param":null,"code":"unknown"}}'
    """
    kind = "invalid_request_error" if status < 500 else "server_error"
    return msgspec.json.encode({"error": {"message": problem, "type": kind, "param": param, "code": code}})


async def _error_of(pieces: AsyncIterator[bytes]) -> bytes:
    """The body of an error, as much of it as comes in a short time: the status alone says that it is one."""
    body = b""
    with suppress(RemoteFailed, TimeoutError):
        async with asyncio.timeout(ERROR_S):
            async for piece in pieces:
                body += piece
                if len(body) > MAX_ERROR_BYTES:
                    break
    return body


def _admitted(response: http.Response) -> http.Response:
    if response.status == 200:
        return response
    raise Refused(response) if response.status in _REFUSED else http.error_of(response, _complaint(response)[1])


def _complaint(response: http.Response) -> tuple[str | None, str]:
    """What a server says of an error, if it does so in OpenAI's form, and what to say of it."""
    told = f"HTTP {response.status}"
    try:
        problem = str(msgspec.json.decode(response.body)["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, RecursionError):
        return None, told
    return (None, told) if response.status in _UNAUTHORISED else (problem, f"{told}, {problem}")


# -- servers ----------------------------------------------------------------------------------------------------------


class ChatServer:
    """A server with an OpenAI-compatible interface: llama.cpp, vLLM, Ollama, OpenAI and the like.

    `url` is what clients call the base URL, up to `/v1`. `model` is what requests name there in place of their own.
    """

    def __init__(
        self, url: str, model: str | None = None, *, key: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.url, self._model = check_url("ChatServer", url), model
        headers = {"Content-Type": "application/json", **bearer("ChatServer", key)}
        self._http = http.HttpClient(self.url, headers, tls)

    def __repr__(self) -> str:
        return f"ChatServer({self.url!r})"

    async def ask(self, request: ChatRequest, deadline: Deadline) -> Completion:
        """The answer, by the deadline; raises `RemoteFailed`."""
        return Completion(_admitted(await self._http.send(self._post(request), deadline)))

    @asynccontextmanager
    async def stream(
        self, request: ChatRequest, deadline: Deadline
    ) -> AsyncIterator[tuple[http.Response, AsyncIterator[bytes]]]:
        """The head of the answer, and its body as it comes; the deadline is for connecting. Raises `RemoteFailed`."""
        async with self._http.stream(self._post(request), deadline, STALL_S) as (head, pieces):
            if head.status != 200:  # nor is a client sent elsewhere
                _admitted(self._http.safe(head._replace(body=await _error_of(pieces))))
            yield head, pieces

    async def models(self, deadline: Deadline) -> http.Response:
        return _admitted(await self._http.send(http.Request("GET", MODELS), deadline))

    def check(self, deadline: Deadline) -> None:
        """Raise `RemoteFailed` unless the server lists its models, and among them the one that it is asked for."""
        LOOP.run(self._check, deadline, deadline=deadline)

    async def _check(self, deadline: Deadline) -> None:
        try:
            listed = await self.models(deadline)
            if self._model is not None and model_in(listed, self._model) is None:
                raise RemoteInvalid(f"it lists no model {shown(self._model)}")
        finally:
            await self.close()

    async def close(self) -> None:
        await self._http.close()

    def _post(self, request: ChatRequest) -> http.Request:
        renamed = request if self._model is None else request.changed(model=self._model)
        return http.Request("POST", CHAT, Message({}, renamed.body), MAX_ANSWER_BYTES)


_JSON = "application/json"


@dataclass(slots=True, eq=False)
class Chat:
    """A sample: a request that is gated, and the answers of both servers as they come."""

    request: ChatRequest
    local: Completion
    remote: Completion | None = None


class _RemoteChats:
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
        for name, server in self.servers.items():
            try:
                server.check(Deadline.after(START_S))
            except RemoteFailed as failure:
                self.away[name] = failure

    def make_app(self, metrics: Metrics) -> App:
        remote = _RemoteChats(self.servers["remote"], self.task)
        device = self.make_device(lambda chat: chat.local.output, remote, self.task)
        return ChatApp(self, device, metrics)


class ChatApp(GatedApp):
    """Answers chat requests."""

    asked_again = (BreakerOpen, RemoteRefused)  # it may take the request without log-probabilities
    body_bytes = MAX_JSON_BYTES

    def __init__(self, gateway: ChatGateway, device: AsyncDevice, metrics: Metrics) -> None:
        super().__init__(gateway, {}, device, metrics)
        self._gateway, self._servers = gateway, gateway.servers

    def routes(self) -> list[Route]:
        return [
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/v1/models", self.models),
            Route("/v1/models/{model:path}", self.models),
            Route("/v2", self.server),
            Route("/v2/", self.server),
            *self.own_routes(),
        ]

    def told(self, failures: Mapping[Source, RemoteFailed]) -> str:
        return _told(failures)

    def error_body(self, refusal: Refusal) -> bytes:
        where = "; a gateway has /v1/chat/completions and /v1/models" if refusal.reason == "unknown" else ""
        return error_body(refusal.status, refusal.reason, f"{refusal}{where}")

    async def close(self) -> None:
        await super().close()
        await self._servers["local"].close()

    async def models(self, request: Request) -> Response:
        """The models of the first server that tells them, or the one of them that is named."""
        exchange = exchange_of(request)
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
                exchange.problem = f"the model {shown(model)} does not exist; GET /v1/models lists those that do"
                return _response(error_body(404, "model_not_found", exchange.problem, "model"), headers, 404)
            return _response(body, headers)
        return _unanswered(exchange, failures)

    async def chat(self, request: Request) -> ASGIApp:
        return partial(self._chat, request)

    async def _chat(self, request: Request, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = exchange_of(request)
        exchange.model = NAME
        async with self.admitted(request) as body:
            deadline = deadline_of(exchange, self._gateway.deadline_s)  # reading it takes of that
            chat = await self.read_large(len(body), partial(ChatRequest, body))
            reason = why_not_gated(chat, self._gateway.task)

            async def answer() -> None:
                response: Response | None
                if reason is None:
                    response = await self._gated(chat, exchange, deadline)
                else:
                    response = await self._pass_on(chat, exchange, f"Not gated: {reason}", send)
                if response is not None:
                    await response(scope, receive, send)

            await until_gone(request, answer())

    # -- gated --------------------------------------------------------------------------------------------------------

    async def _gated(self, request: ChatRequest, exchange: Exchange, deadline: Deadline) -> Response:
        local: Completion | None = None

        async def gated(half: Deadline) -> tuple[bytes, dict[str, str]]:
            nonlocal local
            with self.asking_local(half):
                local = await self._servers["local"].ask(with_logprobs(request), half)
                if local.logprobs is None:
                    raise RemoteInvalid("it tells no log-probabilities, without which no answer is gated")
                try:
                    self._gateway.task.confidence(local.output)
                except (TypeError, ValueError) as error:
                    raise RemoteInvalid(error) from None
            chat = Chat(request, local)
            answer = await self.device.infer(chat, deadline)
            remote = chat.remote if answer.source == "remote" else None
            return remote.response.body if remote else local.body(request), self.gated([answer])

        async def ask_remote(left: Deadline) -> bytes:
            return (await self._servers["remote"].ask(request, left)).response.body

        async def ask_local(left: Deadline) -> bytes:
            return (await self._servers["local"].ask(request, left)).body(request)

        try:
            return _response(*await self.answer(exchange, deadline, gated=gated, remote=ask_remote, local=ask_local))
        except Unanswered as error:
            if local is None:
                return _unanswered(exchange, error.failures)
            return _response(local.body(request), because("local", f"Not gated: {_told(error.failures)}."))

    def _order(self) -> tuple[tuple[Source, ...], dict[Source, RemoteFailed]]:
        """Whom to ask for what is not gated, one after the other, and why not the local server first, if that is so."""
        if self._gateway.order[0] == "local" and self.local_breaker.refuse(time.monotonic()):
            return ("remote", "local"), {"local": self.left_alone()}
        return self._gateway.order, {}

    # -- everything else ----------------------------------------------------------------------------------------------

    async def _pass_on(self, request: ChatRequest, exchange: Exchange, reason: str, send: Send) -> Response | None:
        """Send the answer of the first server that gives one, piece by piece as it comes; or return a refusal."""
        (order, failures), begun = self._order(), False
        for name in order:
            try:
                connected = Deadline.after(self._gateway.deadline_s)
                async with self._servers[name].stream(request, connected) as (head, pieces):
                    told = f"; {_told(failures)}" if failures else ""
                    headers = {key: value for key, value in head.headers.items() if key in _PASSED_ON}
                    headers |= because(name, f"{reason}{told}.")
                    raw = [(key.encode("latin-1"), value.encode("latin-1")) for key, value in headers.items()]
                    await send({"type": "http.response.start", "status": head.status, "headers": raw})
                    begun = True
                    if name == "remote" and "local" in failures:
                        self.local_failed(1, failures["local"])
                    async for piece in pieces:
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                    await send({"type": "http.response.body", "body": b""})
                return None
            except RemoteFailed as failure:
                if begun:  # the client sees the stream end where it did
                    raise Refusal(unanswered([failure])[0], "cut off", _told({name: failure})) from None
                failures[name] = failure
        return _unanswered(exchange, failures)


def _response(body: bytes, headers: Mapping[str, str], status: int = 200) -> Response:
    return Response(body, status, headers, media_type=_JSON)


def _told(failures: Mapping[Source, RemoteFailed]) -> str:
    """What went wrong with each server.

    >>> _told({"local": RemoteInvalid("no chat completion")})
    'the local server failed (invalid: no chat completion)'
    """
    return ", ".join(f"the {name} server failed ({each.kind}: {each})" for name, each in failures.items())


def _unanswered(exchange: Exchange, failures: Mapping[Source, RemoteFailed]) -> Response:
    """The answer where there is none: the refusal of a server, if there is one, as the client can mend that."""
    exchange.problem = f"no answer: {_told(failures)}"
    for name, failure in failures.items():
        if isinstance(failure, Refused):
            return _response(failure.body, because(name, _told(failures)), failure.status)
    status, headers = unanswered(failures.values())
    return _response(error_body(status, _CODES[status], exchange.problem), headers, status)
