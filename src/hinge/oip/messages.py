"""What servers and models of the Open Inference Protocol say of themselves, read from JSON and written as it.

Messages of the Open Inference Protocol v2 (KServe V2) over HTTP, for client and server, without any I/O.

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
from dataclasses import asdict, dataclass, field
from typing import Any

from hinge.errors import InvalidMessage
from hinge.oip.json import (
    Message as Message,
)
from hinge.oip.json import (
    flag,
    json_message,
    limited,
    listing,
    mapping,
    optional_text,
    parameters,
    read_json,
    shown,
    text,
    write_json,
)
from hinge.oip.json import (
    model_name as model_name,
)
from hinge.oip.tensors import (
    MAX_RANK,
    Tensor,
    check_datatype,
    check_tensors,
    checked_shape,
    datatype_of,
    from_bytes,
    from_json,
    to_bytes,
    to_json,
)
from hinge.oip.tensors import (
    TensorSpec as TensorSpec,
)

MAX_TENSORS = 64  # inputs or outputs of one model
MAX_NAMES = 256  # extensions of a server, versions of a model


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
    fields = read_json(body)
    refuse_error(fields)
    name = text("server: name", fields.get("name"))
    extensions = _texts("server: extensions", fields.get("extensions"))
    return ServerMetadata(name, optional_text("server", fields, "version"), extensions)


def build_server_metadata(metadata: ServerMetadata) -> Message:
    """Write what a server says of itself.

    >>> build_server_metadata(ServerMetadata("hinge", "1.0", ())).body
    b'{"name":"hinge","version":"1.0","extensions":[]}'
    """
    return json_message(asdict(metadata))


def parse_model_metadata(body: bytes) -> ModelMetadata:
    """Read what a server says of a model.

    >>> scores = b'{"name": "scores", "datatype": "FP32", "shape": [-1, 10]}'
    >>> parse_model_metadata(b'{"name": "m", "platform": "onnx", "inputs": [], "outputs": [%s]}' % scores).outputs
    (TensorSpec(name='scores', datatype='FP32', shape=(-1, 10)),)
    """
    fields = read_json(body)
    refuse_error(fields)
    return ModelMetadata(
        name=model_name(fields.get("name"), "model: name"),
        platform=optional_text("model", fields, "platform"),
        inputs=_specs("inputs", fields.get("inputs")),
        outputs=_specs("outputs", fields.get("outputs")),
        versions=_texts("model: versions", fields.get("versions")),
    )


def build_model_metadata(metadata: ModelMetadata) -> Message:
    """Write what a server says of a model.

    >>> build_model_metadata(ModelMetadata("m", "onnx", (), (), ("1",))).body
    b'{"name":"m","platform":"onnx","inputs":[],"outputs":[],"versions":["1"]}'
    """
    return json_message({**asdict(metadata), "name": model_name(metadata.name)})


def build_error(problem: str) -> Message:
    """Write what a server answers, beside an HTTP status of 400 or more, where it cannot do as asked."""
    return json_message({"error": problem})


def refuse_error(fields: Mapping[str, object]) -> None:
    """Refuse a message in which a server reports an error, and show how that starts."""
    if fields.get("error") is not None:
        raise InvalidMessage(f"the server reports an error: {shown(fields['error'], most=80)}")


def check_unique(owner: str, names: Collection[str]) -> None:
    """Refuse names of which two are the same."""
    if len(set(names)) < len(names):
        raise InvalidMessage(f"{owner}: two have the same name")


def _texts(owner: str, value: object) -> tuple[str, ...]:
    return () if value is None else tuple(text(owner, item) for item in listing(owner, value, MAX_NAMES))


def _specs(owner: str, value: object) -> tuple[TensorSpec, ...]:
    specs = []
    for item in listing(owner, value, MAX_TENSORS):
        fields = mapping(owner, item)
        shape = listing(f"{owner}: dimensions", fields.get("shape"), MAX_RANK)
        values: Any = fields.get("name"), fields.get("datatype"), tuple(shape)  # the record checks them
        specs.append(TensorSpec(*values))
    check_unique(owner, [spec.name for spec in specs])
    return tuple(specs)


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
