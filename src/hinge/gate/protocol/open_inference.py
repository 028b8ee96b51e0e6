"""Messages of the Open Inference Protocol v2 (KServe V2) over HTTP, for client and server, without any I/O.

A client builds a request and parses the response; a server parses the request and builds the response:

    client   build_request → Message → parse_request   server
    client   parse_response ← Message ← build_response   server

Source: `inference_rest.md` of github.com/kserve/open-inference-protocol, and Triton's binary tensor data extension, in
which the tensors' bytes follow the JSON, whose length a header gives; use `binary` only where the server's metadata
lists it. Whatever is wrong with a message raises `InvalidMessage`; sizes are checked before anything is allocated for
them. NaN can arrive as binary data only, and is the receiver's to judge.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from hinge.errors import InvalidMessage
from hinge.gate.protocol.metadata import (
    MAX_TENSORS,
    ModelMetadata,
    ServerMetadata,
    build_error,
    build_model_metadata,
    build_server_metadata,
    check_unique,
    parse_model_metadata,
    parse_server_metadata,
    refuse_error,
)
from hinge.gate.protocol.tensors import (
    Tensor,
    TensorSpec,
    check_datatype,
    check_tensors,
    checked_shape,
    datatype_of,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)
from hinge.gate.protocol.wire import (
    Message,
    flag,
    json_message,
    limited,
    listing,
    mapping,
    model_name,
    optional_text,
    parameters,
    read_json,
    shown,
    text,
    write_json,
)

__all__ = [
    "InferenceRequest",
    "InferenceResponse",
    "Message",
    "ModelMetadata",
    "ServerMetadata",
    "TensorSpec",
    "build_error",
    "build_model_metadata",
    "build_request",
    "build_response",
    "build_server_metadata",
    "inference_path",
    "model_name",
    "parse_model_metadata",
    "parse_request",
    "parse_response",
    "parse_server_metadata",
]

_JSON_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, eq=False)
class InferenceRequest:
    """What a client asks for."""

    inputs: Mapping[str, Tensor]
    id: str = ""  # empty: none was given
    outputs: Mapping[str, bool] = field(default_factory=dict)  # those asked for, and if as binary; empty: all of them
    binary: bool = False  # whether outputs that are not named are wanted as binary

    def wants_binary(self, name: str) -> bool:
        """Whether that output is to be sent as binary data."""
        return self.outputs.get(name, self.binary)


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
        names = [text("outputs: name", name) for name in listing("outputs", list(outputs), MAX_TENSORS)]
        check_unique("outputs", names)
        form = {"parameters": {"binary_data": True}} if binary else {}
        fields["outputs"] = [{"name": name, **form} for name in names]
    elif binary:
        fields["parameters"] = {"binary_data_output": True}
    return _message(fields, "inputs", inputs, lambda _: binary)


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
    fields, data = _parted(headers, body)
    id = optional_text("request", fields, "id")
    binary = flag(parameters("request", fields), "binary_data_output", False)
    outputs = _requested(fields.get("outputs"), binary)
    inputs = _read_tensors("inputs", fields.get("inputs"), data)
    if expected:
        check_tensors(inputs, expected)
        unknown = inputs.keys() - {spec.name for spec in expected}
        if unknown:
            raise InvalidMessage(f"the model has no input {shown(min(unknown))}")
    return InferenceRequest(inputs, id, outputs, binary)


def build_response(
    request: InferenceRequest, outputs: Mapping[str, Tensor], *, model: str, version: str = ""
) -> Message:
    """Write the answer to a request: its id, and the outputs it asks for, each in the form it asks for.

    >>> import numpy as np
    >>> build_response(InferenceRequest({}, id="42"), {"y": np.array([True])}, model="m").body
    b'{"model_name":"m","id":"42","outputs":[{"name":"y","shape":[1],"datatype":"BOOL","data":[true]}]}'
    """
    fields: dict[str, object] = {"model_name": model_name(model)}
    if version:
        fields["model_version"] = text("response: model_version", version)
    if request.id:
        fields["id"] = text("response: id", request.id)
    check_tensors(outputs, request.outputs)
    wanted = {name: outputs[name] for name in request.outputs} or outputs
    return _message(fields, "outputs", wanted, request.wants_binary)


def parse_response(
    headers: Mapping[str, str],
    body: bytes,
    *,
    id: str,
    model: str = "",
    expected: Collection[str | TensorSpec] = (),
) -> InferenceResponse:
    """Read the response to the request of that id (empty: it had none), which must have the outputs `expected`.

    >>> parse_response({}, b'{"id": "41", "outputs": []}', id="42")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: the response is to request '41', not to '42'
    """
    fields, data = _parted(headers, body)
    refuse_error(fields)
    answered = optional_text("response", fields, "id")
    if id and answered != id:
        raise InvalidMessage(f"the response is to request {shown(answered)}, not to {shown(id)}")
    name = fields.get("model_name")  # the specification's own examples have none
    served = "" if name is None else model_name(name, "response: model_name")
    if model and served and served != model:
        raise InvalidMessage(f"the response is of model {shown(served)}, not of {shown(model)}")
    outputs = _read_tensors("outputs", fields.get("outputs"), data)
    check_tensors(outputs, expected)
    return InferenceResponse(outputs, served, optional_text("response", fields, "model_version"), answered)


def _message(
    fields: dict[str, object], role: str, tensors: Mapping[str, Tensor], is_binary: Callable[[str], bool]
) -> Message:
    listing(role, list(tensors), MAX_TENSORS)
    parts = []
    items = []
    for name, tensor in tensors.items():
        item = _described(role, name, tensor)
        if is_binary(name):
            parts.append(to_bytes(f"tensor {shown(name)}", tensor))
            item["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            item["data"] = to_json(f"tensor {shown(name)}", tensor)
        items.append(item)
    if not items:
        raise InvalidMessage(f"{role} must not be empty")
    fields[role] = items
    if not parts:
        return json_message(fields)
    header = write_json(fields)
    headers = {"Content-Type": "application/octet-stream", _JSON_LENGTH: str(len(header))}
    return Message(headers, limited(b"".join([header, *parts])))


def _described(role: str, name: str, tensor: Tensor) -> dict[str, object]:
    owner = f"tensor {shown(text(f'{role}: name', name))}"
    datatype = datatype_of(owner, tensor)
    return {"name": name, "shape": checked_shape(owner, list(tensor.shape)), "datatype": datatype}


def _parted(headers: Mapping[str, str], body: bytes) -> tuple[dict[str, object], memoryview]:
    """The JSON of a message, and the binary data behind it."""
    limited(body)
    lengths = [value for name, value in headers.items() if name.lower() == _JSON_LENGTH.lower()]
    if not lengths:
        return read_json(body), memoryview(b"")
    if len(lengths) > 1 or not re.fullmatch(r"[0-9]{1,9}", lengths[0]) or int(lengths[0]) > len(body):
        raise InvalidMessage(f"{_JSON_LENGTH} must be one number up to {len(body)}, got {shown(lengths[0])}")
    length = int(lengths[0])
    return read_json(body[:length]), memoryview(body)[length:]


def _read_tensors(role: str, value: object, data: memoryview) -> dict[str, Tensor]:
    """The tensors of a message, which together take all of its binary data."""
    tensors: dict[str, Tensor] = {}
    for item in listing(role, value, MAX_TENSORS):
        fields = mapping(role, item)
        name = text(f"{role}: name", fields.get("name"))
        if name in tensors:
            raise InvalidMessage(f"{role}: two have the same name")
        size = _binary_size(name, fields, len(data))
        tensors[name] = _read_tensor(name, fields, data[:size] if size is not None else None)
        data = data[size or 0 :]
    if len(data):
        raise InvalidMessage(f"{role}: {len(data)} bytes of binary data belong to no tensor")
    if not tensors:
        raise InvalidMessage(f"{role} must not be empty")
    return tensors


def _read_tensor(name: str, fields: Mapping[str, object], data: memoryview | None) -> Tensor:
    owner = f"tensor {shown(name)}"
    datatype = check_datatype(owner, fields.get("datatype"))
    shape = checked_shape(owner, fields.get("shape"))
    if data is None:
        return from_json(owner, fields.get("data"), datatype, shape)
    return from_bytes(owner, data, datatype, shape)


def _binary_size(name: str, fields: Mapping[str, object], left: int) -> int | None:
    """How many bytes of binary data the tensor takes, or None if its data is in the JSON."""
    size = parameters("tensor", fields).get("binary_data_size")
    if size is None:
        return None
    if fields.get("data") is not None:
        raise InvalidMessage(f"tensor {shown(name)} has its data twice, in JSON and as binary data")
    if type(size) is not int or not 0 <= size <= left:
        raise InvalidMessage(f"tensor {shown(name)}: binary_data_size must be from 0 to {left}, got {shown(size)}")
    return size


def _requested(value: object, binary: bool) -> dict[str, bool]:
    """The outputs that a request names, and whether it wants each as binary data."""
    items = [] if value is None else [mapping("outputs", item) for item in listing("outputs", value, MAX_TENSORS)]
    names = [text("outputs: name", fields.get("name")) for fields in items]
    check_unique("outputs", names)
    flags = (flag(parameters("outputs", fields), "binary_data", binary) for fields in items)
    return dict(zip(names, flags, strict=True))
