"""Messages of the Open Inference Protocol v2 (KServe V2) over gRPC, for a client, as bytes and without any I/O.

Source: `open_inference_grpc.proto` of github.com/kserve/open-inference-protocol, whose names and numbers are below.
Tensors go as raw bytes, as the binary extension has them over HTTP; they come as such (from Triton) or number by number
(from KServe, at times). Parameters are left out: Hinge has no use for them, and a reader skips what it does not know.

The messages are made here, in a pool of their own. Modules generated from the protocol's file register its names in the
one pool of the process, where those of a second package clash with them.
"""

import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from hinge._checks import shown
from hinge.errors import InvalidMessage
from hinge.oip import messages, tensors
from hinge.oip.messages import InferenceResponse, ModelMetadata, ServerMetadata
from hinge.oip.protobuf import fields
from hinge.oip.tensors import Tensor, TensorSpec

SERVICE = "inference.GRPCInferenceService"
MAX_METADATA_BYTES = 2**20
MAX_FIELDS = 2**14  # in a response, in which numbers and raw bytes are one field

_MODEL = {1: "string name", 2: "string version"}
_INFERENCE = {1: "string model_name", 2: "string model_version", 3: "string id"}
_FIELDS: dict[str, dict[int, str]] = {  # a star is for fields that repeat
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {1: "string name", 2: "string version", 3: "string* extensions"},
    "ModelMetadataRequest": _MODEL,
    "ModelMetadataResponse": {
        1: "string name", 2: "string* versions", 3: "string platform", 4: "Tensor* inputs", 5: "Tensor* outputs",
    },
    "ModelInferRequest": {**_INFERENCE, 5: "Tensor* inputs", 7: "bytes* raw_input_contents"},
    "ModelInferResponse": {**_INFERENCE, 5: "Tensor* outputs", 6: "bytes* raw_output_contents"},
    "Tensor": {1: "string name", 2: "string datatype", 3: "int64* shape", 5: "Contents contents"},
    "Contents": {
        1: "bool* bool_contents", 2: "int32* int_contents", 3: "int64* int64_contents", 4: "uint32* uint_contents",
        5: "uint64* uint64_contents", 6: "float* fp32_contents", 7: "double* fp64_contents", 8: "bytes* bytes_contents",
    },
}  # fmt: skip  # several to a line
_TYPED = {
    "BOOL": "bool_contents", "INT8": "int_contents", "INT16": "int_contents", "INT32": "int_contents",
    "INT64": "int64_contents", "UINT8": "uint_contents", "UINT16": "uint_contents", "UINT32": "uint_contents",
    "UINT64": "uint64_contents", "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip  # several to a line


def _make_messages() -> dict[str, Any]:
    file = FileDescriptorProto(name="hinge/open_inference.proto", package="inference", syntax="proto3")
    for name, numbered in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (kind, label) in ((number, field.split()) for number, field in numbered.items()):
            field = message.field.add(name=label, number=number)
            field.label = FieldDescriptorProto.LABEL_REPEATED if "*" in kind else FieldDescriptorProto.LABEL_OPTIONAL
            kind = kind.rstrip("*")
            if kind in _FIELDS:
                field.type_name = f".inference.{kind}"
            else:
                field.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _FIELDS}


MESSAGES = _make_messages()


def build_model_request(model: str, version: str = "") -> bytes:
    """Write a request for a model's metadata; one for the server's is no bytes at all.

    >>> build_model_request("m", "1")
    b'\\n\\x01m\\x12\\x011'
    """
    encoded: bytes = MESSAGES["ModelMetadataRequest"](name=model, version=version).SerializeToString()
    return encoded


def build_request(inputs: Mapping[str, Tensor], *, model: str, version: str = "", id: str = "") -> bytes:
    """Write a request to a model for all of its outputs.

    >>> build_request({"x": np.array([7], np.uint8)}, model="m", id="42")
    b'\\n\\x01m\\x1a\\x0242*\\r\\n\\x01x\\x12\\x05UINT8\\x1a\\x01\\x01:\\x01\\x07'
    """
    request = MESSAGES["ModelInferRequest"](model_name=model, model_version=version, id=id)
    messages.check_count("inputs", len(inputs))
    for name, tensor in inputs.items():
        owner = tensors.owner_of("inputs", name)
        shape = tensors.checked_shape(owner, tensor.shape)
        request.inputs.add(name=name, datatype=tensors.datatype_of(owner, tensor), shape=shape)
        request.raw_input_contents.append(messages.limited(tensors.to_bytes(owner, tensor)))
    return messages.limited(request.SerializeToString())


def parse_server_metadata(body: bytes) -> ServerMetadata:
    """Read what a server says of itself.

    >>> parse_server_metadata(b"\\n\\x06triton")
    ServerMetadata(name='triton', version='', extensions=())
    """
    message = _decoded("ServerMetadataResponse", body, MAX_METADATA_BYTES)
    name = tensors.text("server: name", message.name, empty=True)
    version = tensors.text("server: version", message.version, empty=True)
    return ServerMetadata(name, version, messages.texts("server: extensions", message.extensions))


def parse_model_metadata(body: bytes) -> ModelMetadata:
    """Read what a server says of a model.

    >>> parse_model_metadata(b"\\n\\x01m\\x22\\x0b\\n\\x01x\\x12\\x04FP32\\x1a\\x00").inputs
    (TensorSpec(name='x', datatype='FP32', shape=()),)
    """
    return messages.model_metadata(_decoded("ModelMetadataResponse", body, MAX_METADATA_BYTES))


def parse_response(
    body: bytes, *, id: str, model: str = "", expected: Collection[str | TensorSpec] = ()
) -> InferenceResponse:
    """Read the response to the request of that id, which must have the outputs `expected`.

    >>> parse_response(b"\\x1a\\x0241", id="42")
    Traceback (most recent call last):
    hinge.errors.InvalidMessage: the response is to request '41', not to '42'
    """
    _check_fields(messages.limited(body))
    message = _decoded("ModelInferResponse", body, tensors.MAX_BODY_BYTES)
    served = messages.check_answer(id, message.id, model, message.model_name or None)
    outputs = _outputs(message)
    messages.check_names(outputs, expected)
    for spec in expected:
        if isinstance(spec, TensorSpec):
            spec.check(outputs[spec.name])
    version = tensors.text("response: model_version", message.model_version, empty=True)
    return InferenceResponse(outputs, served, version, message.id)


def _outputs(message: Any) -> dict[str, Tensor]:
    count, raw = len(message.outputs), message.raw_output_contents
    if count:
        messages.check_count("outputs", count)
    if raw and len(raw) != count:
        raise InvalidMessage(f"outputs: {count} of them have {len(raw)} raw contents")
    messages.check_unique("outputs", [output.name for output in message.outputs])
    pairs = zip(message.outputs, raw or [None] * count, strict=True)
    return {tensors.text("outputs: name", output.name): _tensor(output, raw) for output, raw in pairs}


def _tensor(output: Any, raw: bytes | None) -> Tensor:
    owner = f"tensor {shown(output.name)}"
    datatype = tensors.check_datatype(owner, output.datatype)
    shape = tensors.checked_shape(owner, output.shape[: tensors.MAX_RANK + 1])
    if raw is None:
        return _from_contents(owner, output.contents, datatype, shape)
    if output.contents.ByteSize():  # MLServer sends empty ones beside the raw
        raise InvalidMessage(f"{owner} has its data twice, raw and number by number")
    return tensors.from_bytes(owner, memoryview(raw), datatype, shape)


def _from_contents(owner: str, contents: Any, datatype: str, shape: tuple[int, ...]) -> Tensor:
    if datatype not in _TYPED:
        raise InvalidMessage(f"{owner}: {datatype} must come as raw contents")
    elements, count = getattr(contents, _TYPED[datatype]), math.prod(shape)
    if len(elements) != count:
        raise InvalidMessage(f"{owner}: {_TYPED[datatype]} must be {count} elements, got {len(elements)}")
    if datatype == "BYTES" and count > tensors.MAX_STRINGS:
        raise InvalidMessage(f"{owner}: BYTES may have {tensors.MAX_STRINGS} elements at most, got {count}")
    tensor = np.empty(count, tensors.dtype_of(datatype))
    try:
        tensor[:] = list(elements)
    except OverflowError:
        raise InvalidMessage(f"{owner}: {_TYPED[datatype]} is out of the range of {datatype}") from None
    return tensor.reshape(shape)


def _decoded(name: str, body: bytes, most: int) -> Any:
    if len(body) > most:
        raise InvalidMessage(f"{name}: may have {most} bytes, got {len(body)}")
    try:
        return MESSAGES[name].FromString(body)
    except (DecodeError, ValueError):
        raise InvalidMessage(f"{name}: no message of Protocol Buffers, or a damaged one") from None


def _check_fields(body: bytes) -> None:
    """Refuse too many fields of a response, its outputs (5) and their contents (5), which would become objects.

    64 MiB of empty outputs would take more than 2 GiB.
    """
    count = 0
    waiting = [(memoryview(body), 0)]
    with suppress(ValueError):  # damage is left to Protocol Buffers to refuse
        while waiting:
            message, depth = waiting.pop()
            for number, value in fields(message):
                if number == 5 and depth < 2 and isinstance(value, memoryview):
                    waiting.append((value, depth + 1))
                count += 1
                if count > MAX_FIELDS:
                    break
    if count > MAX_FIELDS:
        raise InvalidMessage(f"a message may have {MAX_FIELDS} fields, got more")
