"""R9: everything that the Open Inference Protocol allows, and much that it does not, is answered without a 5xx."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.pytest.lazy import get_all_tests
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hinge.server import Server

PROTOCOL = json.loads(Path(__file__).with_name("open_inference.json").read_text("utf-8"))
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    negative_data_rejection, unsupported_method,
]  # fmt: skip  # several to a line
OPERATIONS = [(method, path) for path, item in PROTOCOL["paths"].items() for method in item if method != "parameters"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(["fashion-local"], log_level="error") as server:
        yield server.url


# What to ask is made up in the test: `schema.parametrize` does so in every worker, to collect the tests.
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_r9_the_server_does_as_the_protocol_says(method: str, path: str, url: str) -> None:
    def check(case: "schemathesis.Case[Any]") -> None:
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=20)

    schema: Any = schemathesis.openapi.from_dict(PROTOCOL)
    chosen = settings(max_examples=60, suppress_health_check=list(HealthCheck))
    (made,) = get_all_tests(
        schema=schema.include(method=method.upper(), path=path), test_func=check, settings=chosen, given_kwargs=None
    )
    assert isinstance(made, Ok)
    _, ask_all = made.ok()
    ask_all()
