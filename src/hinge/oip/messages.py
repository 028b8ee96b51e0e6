"""Messages of the Open Inference Protocol v2 (KServe V2) over HTTP, for client and server, without any I/O.

A client builds a request and parses the response; a server parses the request and builds the response:

    client   build_request → Message → parse_request   server
    client   parse_response ← Message ← build_response   server

Source: `inference_rest.md` of github.com/kserve/open-inference-protocol, and Triton's binary tensor data extension, in
which the tensors' bytes follow the JSON, whose length a header gives; use `binary` only where the server's metadata
lists it. Whatever is wrong with a message raises `InvalidMessage`. The structs whose names end in `Body` are what goes
over the wire; `schemas` describes them for OpenAPI. NaN can arrive as binary data only, and is the receiver's to judge.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from hinge._checks import shown
from hinge.errors import InvalidMessage
from hinge.oip.tensors import (
    MAX_BODY_BYTES,
    MAX_RANK,
    MAX_TEXT,
    MODEL_NAME,
    Datatype,
    Name,
    Tensor,
    TensorBody,
    json_problem,
    owner_of,
    read_tensor,
    text,
    write_tensor,
)
from hinge.oip.tensors import TensorSpec as TensorSpec
from hinge.oip.tensors import model_name as model_name

MAX_JSON_BYTES = 16 * 2**20  # large tensors are for binary data; reading JSON takes more time and memory
MAX_SMALL_BYTES = 2**20  # of metadata and of errors
MAX_OBJECTS = 2**14  # opening braces in a message, of which one with the most tensors has some hundred
MAX_TENSORS = 64  # inputs or outputs of one model
MAX_NAMES = 256  # extensions of a server, versions of a model

_JSON_LENGTH = "Inference-Header-Content-Length"
_LENGTH = re.compile(r"[0-9]{1,9}")

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
ModelName = Annotated[str, Meta(max_length=MAX_TEXT, extra_json_schema={"pattern": f"^{MODEL_NAME}$"})]

T = TypeVar("T")


@dataclass(frozen=True)
class Message:
    """What goes over HTTP: the headers that the format needs, and the body."""

    headers: dict[str, str]
    body: bytes


def json_message(value: object) -> Message:
    """A message of JSON alone. KServe refuses it without its content type.

    >>> json_message({"error": "no such model"})
    Message(headers={'Content-Type': 'application/json'}, body=b'{"error":"no such model"}')
    """
    return Message({"Content-Type": "application/json"}, limited(msgspec.json.encode(value)))


def limited(body: bytes) -> bytes:
    """The body, unless it is larger than any message may be."""
    if len(body) > MAX_BODY_BYTES:
        raise InvalidMessage(f"a message may have {MAX_BODY_BYTES} bytes, got {len(body)}")
    return body


def decoded(body: bytes, decoder: msgspec.json.Decoder[T], most: int = MAX_SMALL_BYTES) -> T:
    """What a decoder makes of JSON; whatever is wrong with it raises `InvalidMessage`.

    >>> decoded(b'{"id": 7}', msgspec.json.Decoder(dict[str, str]))
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: JSON: Expected `str`, got `int` - at `$[...]`
    """
    if len(body) > most:
        raise InvalidMessage(f"JSON: {len(body)} bytes, more than {most}")
    if body.count(b"{") > MAX_OBJECTS:  # msgspec limits the length of a list only once it is read
        raise InvalidMessage(f"JSON: more than {MAX_OBJECTS} objects")
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        problem = json_problem(error)
    except RecursionError:
        problem = "nested too deep"
    raise InvalidMessage(f"JSON: {problem}")  # out here, so that the error does not hold on to the body


class OutputParameters(Struct, gc=False):
    """Parameters of an output that a request names."""

    binary_data: bool | None = None


class OutputBody(Struct, gc=False):
    """An output that a request names."""

    name: Name
    parameters: OutputParameters | None = None


class RequestParameters(Struct, gc=False):
    """Parameters of a request; Triton's `timeout` is in microseconds, and 0 is none."""

    binary_data_output: bool | None = None
    timeout: Annotated[int, Meta(ge=0)] | None = None


class RequestBody(Struct):
    """A request for an inference; with no outputs named, for all of them."""

    inputs: Annotated[list[TensorBody], Meta(min_length=1, max_length=MAX_TENSORS)]
    id: Text | None = None
    parameters: RequestParameters | None = None
    outputs: Annotated[list[OutputBody], Meta(max_length=MAX_TENSORS)] | None = None


class ResponseBody(Struct):
    """The response to a request."""

    outputs: Annotated[list[TensorBody], Meta(max_length=MAX_TENSORS)] | None = None
    model_name: ModelName | None = None  # the specification's own examples have none
    model_version: Text | None = None
    id: Text | None = None
    error: str | None = None


class ErrorBody(Struct):
    """What a server answers, beside an HTTP status of 400 or more, where it cannot do as asked."""

    error: str | None = None
    detail: str | None = None  # where FastAPI answers in place of the server


class ServerBody(Struct):
    """What a server says of itself."""

    name: Name | None = None
    version: Text | None = None
    extensions: Annotated[list[Name], Meta(max_length=MAX_NAMES)] | None = None
    error: str | None = None


class SpecBody(Struct):
    """What a server says of an input or output of a model; in a shape, -1 stands for any size."""

    name: Name
    datatype: Datatype
    shape: Annotated[list[Annotated[int, Meta(ge=-1)]], Meta(max_length=MAX_RANK)]


class ModelBody(Struct):
    """What a server says of a model."""

    name: ModelName | None = None
    versions: Annotated[list[Name], Meta(max_length=MAX_NAMES)] | None = None
    platform: Text | None = None
    inputs: Annotated[list[SpecBody], Meta(max_length=MAX_TENSORS)] | None = None
    outputs: Annotated[list[SpecBody], Meta(max_length=MAX_TENSORS)] | None = None
    error: str | None = None


BODIES = (RequestBody, ResponseBody, ErrorBody, ServerBody, ModelBody)

_REQUEST = msgspec.json.Decoder(RequestBody)
_RESPONSE = msgspec.json.Decoder(ResponseBody)
_ERROR = msgspec.json.Decoder(ErrorBody)
_SERVER = msgspec.json.Decoder(ServerBody)
_MODEL = msgspec.json.Decoder(ModelBody)


def schemas(*more: type[Struct]) -> dict[str, Any]:
    """The JSON Schemas of all messages, and of more structs, by name, as components of an OpenAPI description.

    >>> schemas()["RequestBody"]["required"]
    ['inputs']
    """
    return msgspec.json.schema_components((*BODIES, *more), ref_template="#/components/schemas/{name}")[1]


# -- what servers and models say of themselves ------------------------------------------------------------------------


@dataclass(frozen=True)
class ServerMetadata:
    """What a server says of itself."""

    name: str
    version: str
    extensions: tuple[str, ...]

    @property
    def binary(self) -> bool:
        """Whether the server takes tensors as binary data; one that does not may answer such a request with 422."""
        return "binary_tensor_data" in self.extensions


@dataclass(frozen=True)
class ModelMetadata:
    """What a server says of a model: its inputs and outputs, none where it does not know."""

    name: str
    platform: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    versions: tuple[str, ...] = ()


def parse_server_metadata(body: bytes) -> ServerMetadata:
    """Read what a server says of itself.

    >>> parse_server_metadata(b'{"name": "triton", "version": "2.5", "extensions": ["binary_tensor_data"]}').binary
    True
    """
    server = decoded(body, _SERVER)
    _refuse_error(server.error)
    version = text("server: version", server.version or "", empty=True)
    return ServerMetadata(text("server: name", server.name), version, texts("server: extensions", server.extensions))


def build_server_metadata(metadata: ServerMetadata) -> Message:
    """Write what a server says of itself.

    >>> build_server_metadata(ServerMetadata("hinge", "1.0", ())).body
    b'{"name":"hinge","version":"1.0","extensions":[]}'
    """
    return json_message(metadata)


def parse_model_metadata(body: bytes) -> ModelMetadata:
    """Read what a server says of a model.

    >>> scores = b'{"name": "scores", "datatype": "FP32", "shape": [-1, 10]}'
    >>> parse_model_metadata(b'{"name": "m", "platform": "onnx", "inputs": [], "outputs": [%s]}' % scores).outputs
    (TensorSpec(name='scores', datatype='FP32', shape=(-1, 10)),)
    """
    model = decoded(body, _MODEL)
    _refuse_error(model.error)
    return model_metadata(model)


def model_metadata(model: Any) -> ModelMetadata:
    """The same of a message that is decoded."""
    return ModelMetadata(
        name=model_name(model.name, "model: name"),
        platform=text("model: platform", model.platform or "", empty=True),
        inputs=specs("inputs", model.inputs),
        outputs=specs("outputs", model.outputs),
        versions=texts("model: versions", model.versions),
    )


def build_model_metadata(metadata: ModelMetadata) -> Message:
    """Write what a server says of a model.

    >>> build_model_metadata(ModelMetadata("m", "onnx", (), (), ("1",))).body
    b'{"name":"m","platform":"onnx","inputs":[],"outputs":[],"versions":["1"]}'
    """
    model_name(metadata.name)
    return json_message(metadata)


def parse_error(body: bytes) -> str:
    """What a server says is wrong, beside an HTTP status of 400 or more; empty where it does not say.

    >>> parse_error(b'{"error": "no such model"}'), parse_error(b"<html>")
    ('no such model', '')
    """
    try:
        problem = decoded(body, _ERROR)
    except InvalidMessage:
        return ""
    return problem.error or problem.detail or ""


def check_unique(owner: str, names: Collection[str]) -> None:
    """Refuse names of which two are the same."""
    if len(set(names)) < len(names):
        raise InvalidMessage(f"{owner}: two have the same name")


def check_names(names: Collection[str], expected: Collection[str | TensorSpec]) -> None:
    """Refuse names of tensors among which an expected one is missing."""
    for item in expected:
        name = item if isinstance(item, str) else item.name
        if name not in names:
            there = "; there is " + ", ".join(shown(other) for other in list(names)[:3]) if names else ""
            raise InvalidMessage(f"tensor {shown(name)} is missing{there}")


def _refuse_error(error: str | None) -> None:
    if error is not None:
        raise InvalidMessage(f"the server reports an error: {shown(error, most=80)}")


def texts(owner: str, values: Sequence[str] | None) -> tuple[str, ...]:
    """The names in a list, which may be missing."""
    if values and len(values) > MAX_NAMES:
        raise InvalidMessage(f"{owner} may be {MAX_NAMES} at most, got {len(values)}")
    return tuple(text(owner, value) for value in values or ())


def specs(owner: str, bodies: Sequence[SpecBody] | None) -> tuple[TensorSpec, ...]:
    """What metadata says of the inputs or outputs of a model."""
    if bodies is None:
        raise InvalidMessage(f"{owner} must be a list, got null")
    if bodies:
        check_count(owner, len(bodies))
    check_unique(owner, [body.name for body in bodies])
    return tuple(TensorSpec(body.name, body.datatype, tuple(body.shape)) for body in bodies)


# -- inference --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """What a client asks for."""

    inputs: Mapping[str, Tensor]
    id: str = ""  # empty: none was given
    outputs: Mapping[str, bool] = field(default_factory=dict)  # those asked for, and if as binary; empty: all of them
    binary: bool = False  # whether outputs that are not named are wanted as binary
    timeout_s: float | None = None  # in which the client wants its answer


@dataclass(frozen=True, eq=False)
class InferenceResponse:
    """What a server answers."""

    outputs: Mapping[str, Tensor]
    model: str  # empty where the server does not say
    version: str
    id: str


def inference_path(model: str, version: str = "") -> str:
    """Where requests to a model are sent.

    >>> inference_path("resnet", "3")
    '/v2/models/resnet/versions/3/infer'
    """
    versions = f"/versions/{model_name(version, 'model version')}" if version else ""
    return f"/v2/models/{model_name(model)}{versions}/infer"


def build_request(
    inputs: Mapping[str, Tensor], *, id: str = "", outputs: Collection[str] = (), binary: bool = False
) -> Message:
    """Write a request for these outputs (all, if none are named); with `binary`, tensors go and come as binary data.

    >>> import numpy as np
    >>> build_request({"x": np.array([[1, 2]], np.uint8)}, id="42").body
    b'{"id":"42","inputs":[{"name":"x","shape":[1,2],"datatype":"UINT8","data":[1,2]}]}'
    >>> build_request({"x": np.array([[1, 2]], np.uint8)}, binary=True).body[-22:]
    b'ary_data_size":2}}]}\\x01\\x02'
    """
    fields: dict[str, object] = {"id": text("request: id", id)} if id else {}
    if outputs:
        check_count("outputs", len(outputs))
        check_unique("outputs", outputs)
        form = {"parameters": {"binary_data": True}} if binary else {}
        fields["outputs"] = [{"name": text("outputs: name", name), **form} for name in outputs]
    elif binary:
        fields["parameters"] = {"binary_data_output": True}
    return _message(fields, "inputs", inputs, {}, binary)


def parse_request(
    headers: Mapping[str, str], body: bytes, *, expected: Collection[TensorSpec] = ()
) -> InferenceRequest:
    """Read a request; with `expected`, it must have these inputs and no others.

    >>> import numpy as np
    >>> message = build_request({"x": np.array([[1.5, 2]])}, outputs=["y"], binary=True)
    >>> request = parse_request(message.headers, message.body)
    >>> request.inputs["x"].tolist(), request.outputs
    ([[1.5, 2.0]], {'y': True})
    """
    text_part, data = _parted(headers, body)
    request = decoded(text_part, _REQUEST, MAX_JSON_BYTES)
    id = _id("request", request.id)
    binary = request.parameters is not None and bool(request.parameters.binary_data_output)
    outputs = _requested(request.outputs, binary) if request.outputs else {}
    inputs = _read_tensors("inputs", request.inputs, data, expected, others=not expected)
    timeout_us = None if request.parameters is None else request.parameters.timeout
    timeout_s = timeout_us / 1e6 if timeout_us else None  # 0, of clients that set it always: no timeout
    return InferenceRequest(inputs, id, outputs, binary, timeout_s)


def build_response(
    request: InferenceRequest, outputs: Mapping[str, Tensor], *, model: str, version: str = ""
) -> Message:
    """Write the answer to a request: its id, and the outputs it asks for, each in the form it asks for.

    >>> import numpy as np
    >>> build_response(InferenceRequest({}, id="42"), {"y": np.array([True])}, model="m").body
    b'{"model_name":"m","id":"42","outputs":[{"name":"y","shape":[1],"datatype":"BOOL","data":[true]}]}'
    """
    fields: dict[str, object] = {"model_name": _served_name(model)}
    if version:
        fields["model_version"] = version
    if request.id:
        fields["id"] = request.id
    if request.outputs:
        check_names(outputs, request.outputs)
        outputs = {name: outputs[name] for name in request.outputs}
    return _message(fields, "outputs", outputs, request.outputs, request.binary)


def parse_response(
    headers: Mapping[str, str], body: bytes, *, id: str, model: str = "", expected: Collection[str | TensorSpec] = ()
) -> InferenceResponse:
    """Read the response to the request of that id (empty: it had none), which must have the outputs `expected`.

    >>> parse_response({}, b'{"id": "41", "outputs": []}', id="42")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: the response is to request '41', not to '42'
    """
    text_part, data = _parted(headers, body)
    response = decoded(text_part, _RESPONSE, MAX_JSON_BYTES)
    _refuse_error(response.error)
    answered = id if id and response.id == id else _id("response", response.id)
    served = check_answer(id or answered, answered, model, response.model_name)  # without an id, any
    outputs = _read_tensors("outputs", response.outputs or (), data, expected)
    version = text("response: model_version", response.model_version or "", empty=True)
    return InferenceResponse(outputs, served, version, answered)


def check_answer(id: str, answered: str, model: str, served: str | None) -> str:
    """The model that has served a response, if that and the id are those of the request; "" where it does not say."""
    if answered != id:
        raise InvalidMessage(f"the response is to request {shown(answered)}, not to {shown(id)}")
    name = "" if served is None else _served_name(served, "response: model_name")
    if model and name and name != model:
        raise InvalidMessage(f"the response is of model {shown(name)}, not of {shown(model)}")
    return name


def check_count(role: str, count: int) -> None:
    """Refuse more tensors than a model may have, or none."""
    if not 1 <= count <= MAX_TENSORS:
        raise InvalidMessage(f"{role} must be 1 to {MAX_TENSORS}, got {count}")


def _message(
    fields: dict[str, object], role: str, tensors: Mapping[str, Tensor], binary: Mapping[str, bool], others: bool
) -> Message:
    """A message with these tensors; `binary` says which of them go as binary data, and `others` of all other ones."""
    check_count(role, len(tensors))
    parts = list[bytes]()
    fields[role] = [
        write_tensor(owner_of(role, name), name, tensor, parts if binary.get(name, others) else None)
        for name, tensor in tensors.items()
    ]
    if not parts:
        return json_message(fields)
    header = msgspec.json.encode(fields)
    headers = {"Content-Type": "application/octet-stream", _JSON_LENGTH: str(len(header))}
    return Message(headers, limited(b"".join([header, *parts])))


_served_name = lru_cache(maxsize=256)(model_name)


def _id(role: str, id: str | None) -> str:
    return text(f"{role}: id", id) if id else ""


def _parted(headers: Mapping[str, str], body: bytes) -> tuple[bytes, memoryview]:
    """The JSON of a message, and the binary data behind it."""
    limited(body)
    lengths = [value for name, value in headers.items() if name.lower() == _JSON_LENGTH.lower()]
    if not lengths:
        return body, memoryview(b"")
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]) or int(lengths[0]) > len(body):
        raise InvalidMessage(f"{_JSON_LENGTH} must be one number up to {len(body)}, got {shown(lengths[0])}")
    length = int(lengths[0])
    return body[:length], memoryview(body)[length:]


def _read_tensors(
    role: str,
    bodies: Sequence[TensorBody],
    data: memoryview,
    expected: Collection[str | TensorSpec],
    *,
    others: bool = True,
) -> dict[str, Tensor]:
    """The tensors of a message, which together take all of its binary data; unless `others`, only those expected."""
    check_count(role, len(bodies))
    by_name = {body.name: body for body in bodies}
    if len(by_name) < len(bodies):
        check_unique(role, [body.name for body in bodies])
    if expected:
        check_names(by_name, expected)
    known = {spec.name: spec for spec in expected if isinstance(spec, TensorSpec)}
    if not others and len(by_name) > len(known):
        raise InvalidMessage(f"the model has no input {shown(min(by_name.keys() - known.keys()))}")
    tensors: dict[str, Tensor] = {}
    for name, body in by_name.items():
        tensors[name], data = read_tensor(owner_of(role, name), body, data, known.get(name))
    if len(data):
        raise InvalidMessage(f"{role}: {len(data)} bytes of binary data belong to no tensor")
    return tensors


def _requested(bodies: Sequence[OutputBody], binary: bool) -> dict[str, bool]:
    """The outputs that a request names, and whether it wants each as binary data."""
    check_unique("outputs", [body.name for body in bodies])
    requested = {}
    for body in bodies:
        flag = None if body.parameters is None else body.parameters.binary_data
        owner_of("outputs", body.name)  # which checks the name
        requested[body.name] = binary if flag is None else flag
    return requested
