"""What servers and models of the Open Inference Protocol say of themselves, read from JSON and written as it."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hinge.errors import InvalidMessage
from hinge.gate.protocol.tensors import MAX_RANK, TensorSpec
from hinge.gate.protocol.wire import (
    Message,
    json_message,
    listing,
    mapping,
    model_name,
    optional_text,
    read_json,
    shown,
    text,
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
