"""The server's answers, as a bare ASGI application: the way of an inference is short, and every millisecond counts."""

import asyncio
import ipaddress
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from time import perf_counter
from typing import Any

from hinge import __version__
from hinge.errors import InvalidMessage
from hinge.oip.json import Message, json_message, model_name
from hinge.oip.messages import InferenceRequest, ServerMetadata, build_response, build_server_metadata, parse_request
from hinge.server.access import shows
from hinge.server.call import AT_ONCE, Answer, Call
from hinge.server.events import EVENTS, Send
from hinge.server.limits import Limits
from hinge.server.logs import Log, printable
from hinge.server.metrics import Metrics
from hinge.server.openapi import describe
from hinge.server.pages import page_file
from hinge.server.receiving import Hold, Receive
from hinge.server.refusal import Refusal, ending
from hinge.server.report import MAX_REPORT_BYTES, read_report
from hinge.server.reports import Reports
from hinge.server.routes import Route, find_route
from hinge.server.service import VERSION, Service
from hinge.server.watching import Watcher

LARGE_JSON_BYTES = 32 * 2**10  # reading or writing more would keep the others waiting for milliseconds
LARGE_BYTES = 4 * 2**20  # of binary data
REPORTS = 16  # of devices, received at the same time

_HERE = ("127.0.0.1", "::1", "localhost")  # what this machine calls itself

METADATA = ServerMetadata("hinge", __version__, ("binary_tensor_data",))


class Application:
    """Answers requests for the models that are served."""

    def __init__(
        self,
        services: Mapping[str, Service],
        *,
        token: str | None,
        insecure: bool,
        limits: Limits,
        metrics: Metrics,
        log: Log,
        reports: Reports,
        watcher: Watcher | None,
    ) -> None:
        self.services = services
        self.draining = False
        self.hold = Hold(limits)
        self._reports = reports
        self._reporting = Hold(replace(limits, requests=REPORTS, held_bytes=REPORTS * MAX_REPORT_BYTES))
        self._token = token
        self._checks_host = token is None and not insecure
        self._metrics = metrics
        self._log = log
        self._watcher = watcher
        self._watching: asyncio.Task[None] | None = None
        self._large = asyncio.Lock()  # one large message at a time, or reading them could take all memory
        metrics.watch_requests(lambda: self.hold.requests)
        self._openapi = json.dumps(describe(sorted(services), guarded=token is not None)).encode("ascii")

    def start(self) -> None:
        """Begin what runs beside the requests."""
        self._log.write("info", "started", models=sorted(self.services))
        if self._watcher is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watcher.watch())

    def drain(self) -> None:
        """Take no more inferences, and let those go who would listen for ever."""
        self.draining = True
        self._log.write("info", "ending", under_way=self.hold.requests)
        self._reports.listeners.end()

    def abandon(self) -> None:
        """Give up what is under way: its time is over."""
        for service in self.services.values():
            service.batcher.abandon()

    async def close(self) -> None:
        """End what runs beside the requests."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        for service in self.services.values():
            service.batcher.close()
        self._log.write("info", "ended", unanswered=self.hold.requests)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        start = perf_counter()
        call = Call(scope)
        try:
            if self._checks_host:
                _check_host(scope)
            answer = await self._answer(call, receive)
        except Refusal as refusal:
            self._metrics.refused(refusal.reason)
            answer = Answer.error(refusal)
        except asyncio.CancelledError:
            if not self.draining:
                raise
            answer = Answer.error(ending())  # the time to finish it is over
        except InvalidMessage as error:
            self._metrics.refused("invalid")
            answer = Answer.error(Refusal(400, "invalid", str(error)))
        except Exception as error:
            self._log.write("error", "failed", id=call.id, model=call.model, problem=f"{type(error).__name__}: {error}")
            answer = Answer.error(Refusal(500, "failed", "the server could not do this; its log says why"))
        if answer.listener is not None:
            self._account(call, answer, perf_counter() - start)
            await self._reports.listeners.serve(answer.listener, call.id, receive, send)
            return
        length = (b"content-length", b"%d" % len(answer.body))
        headers = (*answer.headers, length, (b"x-request-id", call.id.encode("ascii")))
        body = b"" if call.method == "HEAD" else answer.body
        at_once = scope.get("extensions", {}).get(AT_ONCE)
        if at_once is None or not at_once["send"](answer.status, headers, body):
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        self._account(call, answer, perf_counter() - start)

    def _account(self, call: Call, answer: Answer, seconds: float) -> None:
        self._metrics.answered(call.model, answer.status, seconds)
        level = "info" if answer.status < 400 else "warning"
        if self._log.writes(level):
            taken = round(1000 * seconds, 3)
            sizes = {"bytes_in": call.bytes, "bytes_out": len(answer.body)}
            wrong = {} if answer.status < 400 else {"path": printable(call.path), "error": printable(answer.problem)}
            known = {"id": call.id, "model": call.model, "status": answer.status}
            self._log.write(level, "request", **known, ms=taken, **sizes, **wrong)

    async def _answer(self, call: Call, receive: Receive) -> Answer:
        route = find_route(call.path)
        if self._token is not None and not (route is not None and route.open):
            self._check_token(call)
        if route is None:
            raise Refusal(404, "unknown", "there is nothing at this path")
        service = self._service(route, call) if route.model else None
        if call.method != route.method and not (call.method == "HEAD" and route.method == "GET"):
            allowed = ((b"allow", b"POST" if route.method == "POST" else b"GET, HEAD"),)
            raise Refusal(405, "method", f"this path takes {route.method}", allowed)
        if route.what == "events":
            return self._listen(call)
        if route.what == "report":
            return await self._take_report(route.device, call, receive)
        if route.what == "page":
            return page_file(call.path)
        if service is None:
            return self._about_server(route)
        if route.what == "infer":
            return await self._infer(service, call, receive)
        if route.what == "ready":
            return Answer.of(json_message({"name": service.name, "ready": True}))
        return Answer.of(service.metadata())

    def _check_token(self, call: Call) -> None:
        if not shows(self._token or "", call.headers.get(b"authorization", b"")):
            challenge = ((b"www-authenticate", b"Bearer"),)
            shown = call.headers.get(b"authorization", b"")[:7].lower() == b"bearer "
            problem = "the token is wrong" if shown else "a token is needed: Authorization: Bearer <token>"
            raise Refusal(401, "unauthorised", problem, challenge)

    def _service(self, route: Route, call: Call) -> Service:
        service = self.services.get(route.model)
        if service is None:
            raise Refusal(404, "unknown", "there is no model of that name")
        call.model = service.name
        if route.version not in ("", VERSION):
            raise Refusal(404, "unknown", f"the model has only version {VERSION}")
        return service

    def _about_server(self, route: Route) -> Answer:
        if route.what == "metrics":
            return Answer(200, ((b"content-type", b"text/plain; version=0.0.4; charset=utf-8"),), self._metrics.page())
        if route.what == "openapi":
            return Answer(200, ((b"content-type", b"application/json"),), self._openapi)
        if route.what == "live":
            return Answer.of(json_message({"live": True}))
        if route.what == "ready":
            return Answer.of(json_message({"ready": not self.draining}), 503 if self.draining else 200)
        return Answer.of(build_server_metadata(METADATA))

    def _listen(self, call: Call) -> Answer:
        if self.draining:
            raise ending()
        return Answer(200, EVENTS, b"", None if call.method == "HEAD" else self._reports.listeners.add())

    async def _take_report(self, device: str, call: Call, receive: Receive) -> Answer:
        call.check_headers()
        call.check_json()
        name = model_name(device, "device")
        if self.draining:
            raise ending()
        with self._reporting.request(MAX_REPORT_BYTES) as held:
            body = await held.receive(receive, call.declared)
            call.bytes = len(body)
            if len(body) <= LARGE_JSON_BYTES:
                figures = read_report(name, body)
            else:
                figures = await asyncio.to_thread(read_report, name, body)
            self._reports.put(name, figures)
        return Answer.of(json_message({"device": name}))

    async def _infer(self, service: Service, call: Call, receive: Receive) -> Answer:
        call.check_headers()
        if self.draining:
            raise ending()
        with self.hold.request() as held:
            body = await held.receive(receive, call.declared)
            call.bytes = len(body)
            request = await self._read(service, call, body)
            del body
            unknown = request.outputs.keys() - service.output_names
            if unknown:
                raise InvalidMessage(f"the model has no output {min(unknown)!r}")
            return Answer.of(await self._run(service, call, request))

    async def _read(self, service: Service, call: Call, body: bytes) -> InferenceRequest:
        specs, headers = service.model.inputs, call.protocol_headers
        if call.json_bytes(body) <= LARGE_JSON_BYTES and len(body) <= LARGE_BYTES:
            return parse_request(headers, body, expected=specs)
        async with self._large:
            call.client.check()
            return await asyncio.to_thread(parse_request, headers, body, expected=specs)

    async def _run(self, service: Service, call: Call, request: InferenceRequest) -> Message:
        try:
            call.client.check()
            outputs = await call.client.wait(service.batcher.run(request.inputs))
        except Refusal:
            raise
        except Exception as error:
            # What the runtime says may show what the model is made of, so it stays in the log.
            problem = f"{type(error).__name__}: {error}"[:500]
            self._log.write("error", "model failed", id=call.id, model=service.name, problem=problem)
            if type(error).__name__ == "InvalidArgument":
                raise Refusal(400, "model failed", "the model does not take these inputs") from None
            raise Refusal(500, "model failed", "the model failed on these inputs") from None
        if sum(tensor.nbytes for tensor in outputs.values()) <= LARGE_JSON_BYTES:
            return build_response(request, outputs, model=service.name, version=VERSION)
        async with self._large:
            call.client.check()
            return await asyncio.to_thread(build_response, request, outputs, model=service.name, version=VERSION)


def _check_host(scope: Any) -> None:
    """Refuse who reached this machine by another's name: a page can have its own name lead here (DNS rebinding)."""
    bound = (scope.get("server") or ("",))[0]
    if not _is_loopback(bound):
        return
    for name, value in scope["headers"]:
        if name == b"host" and _host(value) not in (*_HERE, bound):
            raise Refusal(421, "host", "the Host header must name this machine, such as 127.0.0.1 or localhost")


def _host(header: bytes) -> str:
    """The host of a Host header, without its port."""
    host = header.decode("latin-1").strip().lower()
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host).strip("[]")


@lru_cache(maxsize=64)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
