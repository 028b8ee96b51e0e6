"""One HTTP request as the application sees it, and what is answered."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from hinge.oip.json import Message
from hinge.oip.messages import build_error
from hinge.server.client import CLIENT, Client
from hinge.server.events import Listener
from hinge.server.refusal import Headers, Refusal
from hinge.server.tracing import id_from

AT_ONCE = "hinge.at_once"  # the name of an extension to ASGI: an answer in one call

_WANTED = {
    b"authorization", b"content-encoding", b"content-length", b"content-type", b"inference-header-content-length",
    b"x-request-id",
}  # fmt: skip


class Answer(NamedTuple):
    """A status, headers and a body."""

    status: int
    headers: Headers
    body: bytes
    listener: Listener | None = None  # who is sent events from now on, where there is no body
    problem: str = ""  # what is wrong, for the log

    @classmethod
    def of(cls, message: Message, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()) -> Answer:
        """A message of the protocol as an answer."""
        written = ((name.lower().encode("ascii"), value.encode("ascii")) for name, value in message.headers.items())
        return cls(status, (*written, *headers), message.body)

    @classmethod
    def error(cls, refusal: Refusal) -> Answer:
        """What a client is told that is refused."""
        answer = cls.of(build_error(str(refusal)), refusal.status, refusal.headers)
        return answer._replace(problem=str(refusal))


class Call:
    """A request's method and path, the few headers that matter, and what becomes known of it on the way."""

    __slots__ = ("ambiguous", "bytes", "client", "headers", "id", "method", "model", "path")

    def __init__(self, scope: Any) -> None:
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.headers: dict[bytes, bytes] = {}
        self.ambiguous = False  # a header that matters is there twice
        for name, value in scope["headers"]:
            if name in _WANTED:
                self.ambiguous = self.ambiguous or name in self.headers
                self.headers[name] = value
        self.id = id_from(self.headers.get(b"x-request-id"))
        self.model = ""  # the one it concerns, once it is found among those that are served
        self.bytes = 0
        self.client: Client = scope.get("extensions", {}).get(CLIENT, {}).get("client") or Client()

    def check_headers(self) -> None:
        """Refuse headers that could be read in two ways, and compressed bodies, which grow when they are read."""
        if self.ambiguous:
            raise Refusal(400, "invalid", "a header is there twice")
        if self.headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Refusal(415, "compressed", "compressed bodies are not taken")

    def check_json(self) -> None:
        """Refuse what is not said to be JSON: other pages may make a browser send that, unasked, and nothing else."""
        kind = self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind != b"application/json":
            raise Refusal(415, "no JSON", "the content type must be application/json")

    @property
    def declared(self) -> int | None:
        """The length of the body, as the client declares it."""
        length = self.headers.get(b"content-length")
        if length is None:
            return None
        if not length.isdigit():
            raise Refusal(400, "invalid", "Content-Length must be a number")
        return int(length[:20])

    @property
    def protocol_headers(self) -> dict[str, str]:
        """The header that says where binary data begins, for the codec."""
        length = self.headers.get(b"inference-header-content-length")
        return {} if length is None else {"Inference-Header-Content-Length": length.decode("latin-1")}

    def json_bytes(self, body: bytes) -> int:
        """How much of a body is JSON, as the client declares it; what it declares is checked when the body is read."""
        length = self.headers.get(b"inference-header-content-length", b"")
        return int(length) if length.isdigit() and len(length) < 10 else len(body)
