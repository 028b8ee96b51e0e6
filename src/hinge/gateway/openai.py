"""OpenAI's chat completions, as far as a gate must understand them, and the servers that speak them.

Requests and answers are passed on as they are. Read is what a decision needs: whether an answer can be checked, its
text, and the log-probabilities of its tokens.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from hinge._checks import shown
from hinge.errors import InvalidMessage, RemoteError, RemoteInvalid, RemoteRefused
from hinge.oip.access import bearer, check_url
from hinge.oip.messages import Message, decoded
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.remotes import Deadline
from hinge.remotes.http import HttpClient, Request, Response
from hinge.tasks import ShortText

Json = dict[str, Any]
CHAT, MODELS = "/chat/completions", "/models"
MAX_ANSWER_BYTES, MAX_ERROR_BYTES = 2**24, 2**20
MAX_SHORT = 64  # tokens of a text that is compared as a whole
STALL_S = 600.0  # for the first byte of an answer that is passed on, and for each piece after it
_REFUSED = {400, 404, 413, 415, 422}  # statuses by which a server refuses this request, and not the client or all
_UNAUTHORISED = {401, 403}  # of the gateway, by its key, which a server may quote: no client hears what it says
_PASSED_ON = {"cache-control", "content-encoding", "content-type"}  # and no cookie, nor who else may read it


# -- requests ---------------------------------------------------------------------------------------------------------


def read_request(body: bytes) -> Json:
    """The request, if it is one; what it holds besides `messages` is for the servers to judge.

    >>> read_request(b'{"model": "m", "messages": []}')
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: 'messages' must be a list of messages, and not empty
    """
    request = decoded(body, msgspec.json.Decoder(), MAX_BODY_BYTES)
    if not isinstance(request, dict):
        raise InvalidMessage("the body must be a JSON object")
    messages = request.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise InvalidMessage("'messages' must be a list of messages, and not empty")
    return request


def why_not_gated(request: Json, task: ShortText) -> str | None:
    """Why the answer to a request cannot be checked against another; None if it can.

    >>> task, messages = ShortText("number"), [{"role": "user", "content": "What is 6 × 7?"}]
    >>> why_not_gated({"messages": messages}, task) is None, why_not_gated({"messages": messages, "stream": True}, task)
    (True, 'it is a stream')
    >>> why_not_gated({"messages": messages, "max_tokens": 500}, ShortText("text"))
    'it may be longer than 64 tokens (max_tokens)'
    """
    if request.get("stream"):
        return "it is a stream"
    if request.get("n") not in (None, 1):
        return "it wants several answers (n)"
    if any(request.get(name) for name in ("tools", "functions", "audio")):
        return "it has tools or audio"
    if not all(_is_text(message.get("content")) for message in request["messages"]):
        return "a message is more than text"
    form = request.get("response_format")
    if task.form == "json" and (not isinstance(form, dict) or form.get("type") not in ("json_object", "json_schema")):
        return "it does not ask for JSON (response_format)"
    most = request.get("max_completion_tokens") or request.get("max_tokens")
    if task.form == "text" and not task.options and not (isinstance(most, int) and 0 < most <= MAX_SHORT):
        return f"it may be longer than {MAX_SHORT} tokens (max_tokens)"
    return None


def with_logprobs(request: Json) -> Json:
    """The request for an answer whose confidence can be told.

    >>> with_logprobs({"model": "m"}), with_logprobs({"logprobs": True, "top_logprobs": 5})
    ({'model': 'm', 'logprobs': True, 'top_logprobs': 2}, {'logprobs': True, 'top_logprobs': 5})
    """
    top = request.get("top_logprobs")
    return {**request, "logprobs": True, "top_logprobs": max(2, top) if isinstance(top, int) else 2}


def _is_text(content: Any) -> bool:
    parts = content if isinstance(content, list) else []
    return content is None or (
        isinstance(content, str | list) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    )


# -- answers ----------------------------------------------------------------------------------------------------------


class _Top(Struct):
    logprob: float


class _Token(Struct):
    logprob: float
    top_logprobs: list[_Top] = []


class _Logprobs(Struct):
    content: list[_Token] | None = None


class _Text(Struct):
    content: str | None


class _Choice(Struct):
    message: _Text
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Completion(Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]


_DECODER = msgspec.json.Decoder(_Completion)


class Completion:
    """A server's answer: the text of its first choice, the log-probabilities of its tokens, and the response.

    >>> response = Response(200, {}, b'{"choices": [{"message": {"content": "yes"}}]}', 0)
    >>> Completion(response).text, Completion(response).logprobs
    ('yes', None)
    """

    def __init__(self, response: Response) -> None:
        try:
            choice = decoded(response.body, _DECODER, MAX_ANSWER_BYTES).choices[0]
        except InvalidMessage as error:
            raise RemoteInvalid(f"no chat completion: {error}") from error
        self.response, self.text = response, choice.message.content or ""  # None: only a refusal
        self.cut = choice.finish_reason == "length"
        tokens = None if choice.logprobs is None else choice.logprobs.content
        self.logprobs = [token.logprob for token in tokens] if tokens else None
        self.top = [top.logprob for top in tokens[0].top_logprobs] if tokens else []

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
        """What a task reads."""
        found: Json = {"text": self.text, "logprobs": self.logprobs, "top": self.top}
        return found | {"cut": True} if self.cut else found

    def body(self, request: Json) -> bytes:
        """The answer as a client wants it: without the log-probabilities for which only the gateway has asked."""
        wanted, top = request.get("logprobs"), request.get("top_logprobs")
        top = max(0, top) if isinstance(top, int) else 0
        if self.logprobs is None or (wanted and with_logprobs(request)["top_logprobs"] == top):
            return self.response.body
        answer = msgspec.json.decode(self.response.body)
        for choice in answer["choices"]:
            if not wanted:
                choice["logprobs"] = None
            for token in (choice.get("logprobs") or {}).get("content") or ():  # of another choice there may be none
                token["top_logprobs"] = token.get("top_logprobs", [])[:top]
        return msgspec.json.encode(answer)


class _Models(Struct):
    data: list[Json]


_MODELS = msgspec.json.Decoder(_Models)


def model_in(response: Response, name: str) -> bytes | None:
    """The model of that name in a server's list of models, if it is there.

    >>> model_in(Response(200, {}, b'{"data": [{"id": "small"}]}', 0), "small")
    b'{"id":"small"}'
    """
    try:
        listed = decoded(response.body, _MODELS, MAX_ANSWER_BYTES).data
    except InvalidMessage as error:
        raise RemoteInvalid(f"no list of models: {error}") from error
    return next((msgspec.json.encode(model) for model in listed if model.get("id") == name), None)


class Refused(RemoteRefused):
    """A server refuses the request: with which status, and how it says so in OpenAI's form."""

    def __init__(self, response: Response) -> None:
        super().__init__(_complaint(response))
        self.status = response.status
        named = _problem(response)
        self.body = error_body(response.status, "refused", str(self)) if named is None else response.body


def error_body(status: int, code: str, problem: str, param: str | None = None) -> bytes:
    """An error in OpenAI's form.

    >>> error_body(404, "unknown", "there is nothing here")
    b'{"error":{"message":"there is nothing here","type":"invalid_request_error","param":null,"code":"unknown"}}'
    """
    kind = "invalid_request_error" if status < 500 else "server_error"
    return msgspec.json.encode({"error": {"message": problem, "type": kind, "param": param, "code": code}})


def _admitted(response: Response) -> Response:
    if response.status == 200:
        return response
    raise Refused(response) if response.status in _REFUSED else RemoteError(_complaint(response))


def _complaint(response: Response) -> str:
    problem = _problem(response)
    return f"HTTP {response.status}" + ("" if problem is None else f", {problem}")


def _problem(response: Response) -> str | None:
    """What a server says of an error, if it does so in OpenAI's form."""
    if response.status in _UNAUTHORISED:
        return None
    try:
        return str(msgspec.json.decode(response.body)["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError, RecursionError):
        return None


# -- servers ----------------------------------------------------------------------------------------------------------


class ChatServer:
    """A server with an OpenAI-compatible interface: llama.cpp, vLLM, Ollama, OpenAI and the like.

    `url` is what clients call the base URL, up to `/v1`. `model` is what requests name there in place of their own.
    """

    def __init__(
        self, url: str, model: str | None = None, *, key: str | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self.url, self._model = check_url("ChatServer", url), model
        self._http = HttpClient(self.url, {"Content-Type": "application/json", **bearer("ChatServer", key)}, tls)

    def __repr__(self) -> str:
        return f"ChatServer({self.url!r})"

    async def ask(self, request: Json, deadline: Deadline) -> Completion:
        """The answer, by the deadline; raises `RemoteFailed`."""
        return Completion(_admitted(await self._http.send_async(self._post(request), deadline)))

    @asynccontextmanager
    async def stream(self, request: Json, deadline: Deadline) -> AsyncIterator[tuple[Response, AsyncIterator[bytes]]]:
        """The head of the answer, and its body as it comes; the deadline is for connecting. Raises `RemoteFailed`."""
        async with self._http.stream_async(self._post(request), deadline, STALL_S) as (head, pieces):
            if head.status != 200:  # nor is a client sent elsewhere
                body = b""
                async for piece in pieces:
                    body += piece
                    if len(body) > MAX_ERROR_BYTES:
                        break
                _admitted(head._replace(body=body))
            yield head, pieces

    async def models(self, deadline: Deadline) -> Response:
        """The server's list of models."""
        return _admitted(await self._http.send_async(Request("GET", MODELS), deadline))

    def check(self, deadline: Deadline) -> None:
        """Raise `RemoteFailed` unless the server lists its models."""
        try:
            _admitted(self._http.send(Request("GET", MODELS), deadline))
        finally:
            self._http.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close_async()

    def _post(self, request: Json) -> Request:
        renamed = request if self._model is None else {**request, "model": self._model}
        return Request("POST", CHAT, Message({}, msgspec.json.encode(renamed)), MAX_ANSWER_BYTES)


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a server's response that are meant for the client."""
    return {name: value for name, value in headers.items() if name in _PASSED_ON}
