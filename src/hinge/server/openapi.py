"""What the server offers, in the words of OpenAPI."""

from collections.abc import Sequence
from typing import Any

from hinge import __version__
from hinge.oip.json import MAX_BODY_BYTES, MAX_TEXT
from hinge.oip.tensors import DATATYPES, MAX_RANK
from hinge.server.report import REPORT
from hinge.server.service import VERSION

Json = dict[str, Any]

PROBLEMS = {
    400: "The request makes no sense, or not to this model.",
    401: "A token is needed.",
    404: "There is no such model or path.",
    405: "The path takes another method.",
    408: "The request did not arrive in time.",
    413: "The body is too large.",
    415: "The body is compressed, or not of the type that is taken.",
    500: "The server or the model failed.",
    503: "Too much to do, or shutting down; come back after Retry-After seconds.",
}
_TEXT: Json = {"type": "string", "minLength": 1, "maxLength": MAX_TEXT}
_SHAPE: Json = {"type": "array", "maxItems": MAX_RANK, "items": {"type": "integer", "minimum": 0}}
_PARAMETERS: Json = {"type": "object", "additionalProperties": True}


def describe(models: Sequence[str], *, guarded: bool) -> Json:
    """The description of a server with these models, where all but the health checks need a token if it is guarded.

    >>> sorted(describe(["fashion"], guarded=False)["paths"])[:3]
    ['/hinge/devices/{device}', '/metrics', '/openapi.json']
    """
    components: Json = {"schemas": _SCHEMAS, "parameters": _path_parameters(models)}
    if guarded:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Hinge edge server",
            "version": __version__,
            "description": "ONNX models behind the Open Inference Protocol v2.",
        },
        "paths": _paths(guarded),
        "components": components,
        "security": [{"token": []}] if guarded else [],
    }


def _paths(guarded: bool) -> Json:
    paths: Json = {
        "/v2": {"get": _get("What the server is", "ServerMetadata", guarded)},
        "/v2/health/live": {"get": _health("Whether the server runs", "Live", ())},
        "/v2/health/ready": {"get": _health("Whether the server takes requests", "Ready", (503,))},
        "/metrics": {"get": _answers("Counts for Prometheus", {"text/plain": {}}, _needed(guarded))},
        "/openapi.json": {"get": _get("This description", "Description", guarded)},
        "/hinge/devices/{device}": {"parameters": [_DEVICE], "post": _report(guarded)},
    }
    one, version = ({"$ref": f"#/components/parameters/{name}"} for name in ("Model", "Version"))
    bases = {"/v2/models/{model}": [one], "/v2/models/{model}/versions/{version}": [one, version]}
    for base, where in bases.items():
        problems = (*_needed(guarded), 404)
        about = {"get": _get("What the model takes and gives", "ModelMetadata", guarded, problems)}
        ready = {"get": _get("Whether the model takes requests", "ModelReady", guarded, problems)}
        paths |= {
            base: {"parameters": where, **about},
            f"{base}/ready": {"parameters": where, **ready},
            f"{base}/infer": {"parameters": where, "post": _infer(guarded)},
        }
    return paths


def _infer(guarded: bool) -> Json:
    problems = (400, *_needed(guarded), 404, 408, 413, 415, 500, 503)
    content = {"application/json": _schema("Response"), "application/octet-stream": {}}
    about = "JSON; or JSON of Inference-Header-Content-Length bytes and, behind it, tensors as binary data."
    length = {
        "name": "Inference-Header-Content-Length",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0, "maximum": MAX_BODY_BYTES},
        "description": "Where binary data begins.",
    }
    return {
        **_answers("Run the model", content, problems),
        "parameters": [length],
        "requestBody": {
            "required": True,
            "description": about,
            "content": {"application/json": _schema("Request")},
        },
    }


def _report(guarded: bool) -> Json:
    problems = (400, *_needed(guarded), 408, 413, 415, 503)
    return {
        **_answers("How a device fares, for the live page", {"application/json": _schema("Reported")}, problems),
        "requestBody": {"required": True, "content": {"application/json": _schema("Report")}},
    }


def _needed(guarded: bool) -> tuple[int, ...]:
    return (401,) if guarded else ()


def _get(what: str, schema: str, guarded: bool, problems: tuple[int, ...] | None = None) -> Json:
    return _answers(what, {"application/json": _schema(schema)}, _needed(guarded) if problems is None else problems)


def _health(what: str, schema: str, also: tuple[int, ...]) -> Json:
    content = {"application/json": _schema(schema)}
    answers = {str(status): {"description": what, "content": content} for status in (200, *also)}
    return {"summary": what, "responses": answers, "security": []}


def _answers(what: str, content: Json, problems: tuple[int, ...]) -> Json:
    error = {"application/json": _schema("Error")}
    header = {"X-Request-Id": {"schema": {"type": "string"}, "description": "The request's name in the log."}}
    responses: Json = {"200": {"description": what, "content": content, "headers": header}}
    for status in problems:
        responses[str(status)] = {"description": PROBLEMS[status], "content": error, "headers": header}
    return {"summary": what, "responses": responses}


def _schema(name: str) -> Json:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _path_parameters(models: Sequence[str]) -> Json:
    def parameter(name: str, values: Sequence[str]) -> Json:
        return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "enum": list(values)}}

    return {"Model": parameter("model", models), "Version": parameter("version", [VERSION])}


def _object(required: Sequence[str], **properties: Json) -> Json:
    return {"type": "object", "required": list(required), "properties": properties}


def _list(of: Json) -> Json:
    return {"type": "array", "items": of}


def _tensor(*required: str) -> Json:
    described = {"name": _TEXT, "datatype": {"type": "string", "enum": list(DATATYPES)}}
    return _object(
        ("name", "shape", "datatype", *required), **described, shape=_SHAPE, parameters=_PARAMETERS, data=_list({})
    )


_NAME: Json = {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}$"}  # and more, that begin with a dot
_DEVICE: Json = {"name": "device", "in": "path", "required": True, "schema": _NAME}
_SPECS = _list(_object(("name", "datatype", "shape"), name=_TEXT, datatype=_TEXT, shape=_list({"type": "integer"})))
_SCHEMAS: Json = {
    "Description": _object(("openapi", "paths")),
    "Error": _object(("error",), error={"type": "string"}),
    "Live": _object(("live",), live={"type": "boolean"}),
    "Ready": _object(("ready",), ready={"type": "boolean"}),
    "ModelReady": _object(("name", "ready"), name=_TEXT, ready={"type": "boolean"}),
    "ServerMetadata": _object(
        ("name", "version", "extensions"), name=_TEXT, version=_TEXT, extensions=_list({"type": "string"})
    ),
    "ModelMetadata": _object(
        ("name", "platform", "inputs", "outputs"),
        name=_TEXT,
        platform=_TEXT,
        versions=_list(_TEXT),
        inputs=_SPECS,
        outputs=_SPECS,
    ),
    "Report": REPORT.schema(),
    "Reported": _object(("device",), device=_NAME),
    "Request": _object(
        ("inputs",),
        id={"type": "string", "maxLength": MAX_TEXT},
        parameters=_PARAMETERS,
        inputs=_list(_tensor()),
        outputs=_list(_object(("name",), name=_TEXT, parameters=_PARAMETERS)),
    ),
    "Response": _object(
        ("model_name", "outputs"), model_name=_TEXT, model_version=_TEXT, id=_TEXT, outputs=_list(_tensor())
    ),
}
