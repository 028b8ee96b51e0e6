"""The operations of the server, and their description by OpenAPI.

`OPERATIONS` is the one list of what the server offers: the application makes its routes from it, and `describe` the
description. Schemas come from the structs that read and write the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import Struct, defstruct

from hinge import __version__
from hinge.device.report import DeviceName, Report
from hinge.oip.messages import ErrorBody, ModelBody, RequestBody, ResponseBody, ServerBody, schemas
from hinge.oip.tensors import MAX_BODY_BYTES
from hinge.server.models import VERSION

Json = dict[str, Any]


Live = defstruct("Live", [("live", bool)])
Ready = defstruct("Ready", [("ready", bool)])
ModelReady = defstruct("ModelReady", [("name", str), ("ready", bool)])
Reported = defstruct("Reported", [("device", DeviceName)])
Description = defstruct("Description", [("openapi", str), ("paths", dict[str, Any])])

PROBLEMS = {
    400: "The request makes no sense, or not to this model; or it is not HTTP.",
    401: "A token is needed.",
    403: "Another address reports under that name, or this one reports too many devices.",
    404: "There is no such model or path.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is compressed, or not of a type that is taken.",
    421: "The Host header does not name this machine.",
    431: "The headers are too large, or too many.",
    500: "The server or the model failed.",
    503: "Too much to do, or shutting down; retry after Retry-After seconds.",
}
ALWAYS = (400, 408, 431, 500, 503)  # whatever is asked for
_FILES = ("style.css", "page.js", "stream.js", "charts.js", "parts.js", "elements.js", "numbers.js")
PAGE = {"/": "index.html"} | {f"/hinge/{name}": name for name in _FILES}


def content_type(name: str) -> str:
    """The type of a file of the live page."""
    return {"html": "text/html", "js": "text/javascript", "css": "text/css"}[name.rpartition(".")[2]]


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    handler: str  # of the application
    summary: str
    result: type[Struct] | str  # a struct of JSON, or a content type
    problems: tuple[int, ...] = ()  # besides those that are always possible
    body: type[Struct] | None = None
    open: bool = False  # needs no token


_OF_A_MODEL = (
    Operation("GET", "", "model", "What the model takes and gives", ModelBody, (404,)),
    Operation("GET", "/ready", "model_ready", "Whether the model takes requests", ModelReady, (404,)),
    Operation("POST", "/infer", "infer", "Run the model", ResponseBody, (404, 413, 415), RequestBody),
)
OPERATIONS = (
    Operation("GET", "/v2", "server", "What the server is", ServerBody),
    Operation("GET", "/v2/", "server", "What the server is", ServerBody),
    Operation("GET", "/v2/health/live", "live", "Whether the server runs", Live, open=True),
    Operation("GET", "/v2/health/ready", "ready", "Whether the server takes requests", Ready, open=True),
    *(
        replace(operation, path=f"/v2/models/{{model}}{version}{operation.path}")
        for version in ("", "/versions/{version}")
        for operation in _OF_A_MODEL
    ),
    Operation("GET", "/metrics", "metrics", "Counts for Prometheus", "text/plain"),
    Operation("GET", "/openapi.json", "openapi", "This description", Description),
    Operation("POST", "/hinge/devices/{device}", "report", "Report on a device", Reported, (403, 413, 415), Report),
    Operation("GET", "/hinge/events", "events", "What the page shows, as it changes", "text/event-stream"),
    *(
        Operation("GET", path, "page", f"The live page: {name}", content_type(name), open=True)
        for path, name in PAGE.items()
    ),
)  # fmt: skip  # several to a line


def describe(models: Sequence[str], *, guarded: bool) -> Json:
    """The description of a server with these models; if it is guarded, most operations need a token.

    >>> sorted(describe(["fashion"], guarded=False)["paths"])[:3]
    ['/', '/hinge/charts.js', '/hinge/devices/{device}']
    """
    components: Json = {"schemas": schemas(Live, Ready, ModelReady, Report, Reported, Description)}
    if guarded:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    paths: Json = {}
    for operation in OPERATIONS:
        described = paths.setdefault(operation.path, {"parameters": list(_parameters(operation.path, models))})
        described[operation.method.lower()] = _operation(operation, guarded)
    what = "ONNX models behind the Open Inference Protocol v2."
    info = {"title": "Hinge edge server", "version": __version__, "description": what}
    security: list[Json] = [{"token": []}] if guarded else []
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": components, "security": security}


def _operation(operation: Operation, guarded: bool) -> Json:
    error = {"application/json": _ref(ErrorBody), "text/plain": {}}  # text where the request is not HTTP
    id = {"X-Request-Id": {"schema": {"type": "string"}, "description": "The request's id in the log."}}
    responses: Json = {"200": {"description": operation.summary, "content": _content(operation), "headers": id}}
    access = () if guarded and operation.open else (401,) if guarded else (421,)
    for status in sorted({*ALWAYS, *operation.problems, *access}):
        responses[str(status)] = {"description": PROBLEMS[status], "content": error}
    if operation.result is Ready:
        either = {"anyOf": [_ref(Ready)["schema"], _ref(ErrorBody)["schema"]]}
        responses["503"] = {"description": "Shutting down.", "content": {"application/json": {"schema": either}}}
    described: Json = {"summary": operation.summary, "responses": responses}
    if operation.open:
        described["security"] = []
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {"application/json": _ref(operation.body)}}
    if operation.handler == "infer":
        described["requestBody"]["description"] = (
            "JSON; or JSON of Inference-Header-Content-Length bytes and, behind it, tensors as binary data."
        )
        length = {"type": "integer", "minimum": 0, "maximum": MAX_BODY_BYTES}
        header = {"name": "Inference-Header-Content-Length", "in": "header", "schema": length}
        described["parameters"] = [{**header, "description": "Where binary data begins."}]
    return described


def _content(operation: Operation) -> Json:
    if isinstance(operation.result, str):
        return {operation.result: {}}
    binary: Json = {"application/octet-stream": {}} if operation.handler == "infer" else {}
    return {"application/json": _ref(operation.result), **binary}


def _ref(struct: type[Struct]) -> Json:
    return {"schema": {"$ref": f"#/components/schemas/{struct.__name__}"}}


def _parameters(path: str, models: Sequence[str]) -> Iterator[Json]:
    name = {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"}  # and some that begin with a dot
    known: Json = {
        "model": {"type": "string", "enum": list(models)},
        "version": {"type": "string", "enum": [VERSION]},
        "device": name,
    }
    for parameter, schema in known.items():
        if f"{{{parameter}}}" in path:
            yield {"name": parameter, "in": "path", "required": True, "schema": schema}
