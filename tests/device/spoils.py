"""What a response over gRPC may have wrong, for `GrpcServer` to send, and how it should be refused."""

from typing import Any

import numpy as np

from tests.support.grpc_server import CLASSES, Spoil


def scores_of(response: Any, *scores: float) -> None:
    response.raw_output_contents[0] = np.array([scores] * 2, "<f4").tobytes()


def other_id(response: Any) -> None:
    response.id = "41"


def other_model(response: Any) -> None:
    response.model_name = "other"


def other_output(response: Any) -> None:
    response.outputs[0].name = "other"


def other_datatype(response: Any) -> None:
    response.outputs[0].datatype = "INT32"


def unknown_datatype(response: Any) -> None:
    response.outputs[0].datatype = "FP12"


def other_shape(response: Any) -> None:
    response.outputs[0].shape[:] = [CLASSES, 2]


def endless_shape(response: Any) -> None:
    response.outputs[0].shape[:] = [2**40, 2**40]


def too_many_axes(response: Any) -> None:
    response.outputs[0].shape[:] = [1] * 1000


def too_few_bytes(response: Any) -> None:
    response.raw_output_contents[0] = response.raw_output_contents[0][:-1]


def too_many_contents(response: Any) -> None:
    response.raw_output_contents.append(b"")


def too_few_elements(response: Any) -> None:
    del response.raw_output_contents[:]
    response.outputs[0].contents.fp32_contents.extend([1.0] * 5)


def twice(response: Any) -> None:
    response.outputs[0].contents.fp32_contents.extend([1.0] * 6)


def same_name(response: Any) -> None:
    response.outputs.add().CopyFrom(response.outputs[0])
    response.raw_output_contents.append(response.raw_output_contents[0])


def nothing(response: Any) -> None:
    del response.outputs[:], response.raw_output_contents[:]


def not_a_number(response: Any) -> None:
    scores_of(response, 0.0, np.nan, 1.0)


def infinite(response: Any) -> None:
    scores_of(response, 0.0, np.inf, 1.0)


def typed_nan(response: Any) -> None:
    del response.raw_output_contents[:]
    response.outputs[0].contents.fp32_contents.extend([np.nan] * 6)


SPOILS: list[tuple[Spoil, str]] = [
    (other_id, "is to request '41', not to '[0-9a-f]{16}'"),
    (other_model, "is of model 'other', not of 'remote'"),
    (other_output, "tensor 'scores' is missing"),
    (other_datatype, "datatype must be FP32, got INT32"),
    (unknown_datatype, "got 'FP12'"),
    (other_shape, r"shape must be \[-1, 3\], got \[3, 2\]"),
    (endless_shape, "shape must have sizes"),
    (too_many_axes, "dimensions may be 32 at most"),
    (too_few_bytes, "6 elements of FP32 are 24 bytes, got 23"),
    (too_many_contents, "1 of them have 2 raw contents"),
    (too_few_elements, "fp32_contents must be 6 elements, got 5"),
    (twice, "has its data twice"),
    (same_name, "two have the same name"),
    (nothing, "tensor 'scores' is missing"),
    (not_a_number, "not finite"),
    (infinite, "not finite"),
    (typed_nan, "not finite"),
]
