"""R9: everything that the server's description allows, and much that it does not, is answered without a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hinge.server import Server
from hinge.server.openapi import describe
from tests.server.clients import ask

MODELS = ["fashion-local"]
TOKEN = "0123456789abcdef"
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, negative_data_rejection, unsupported_method,
]  # fmt: skip

schema = schemathesis.openapi.from_dict(describe(MODELS, guarded=True))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(MODELS, token=TOKEN, log_level="error") as server:
        yield server.url


@schema.parametrize()
@settings(max_examples=60, suppress_health_check=list(HealthCheck))
def test_r9_the_server_does_as_it_says(case: "schemathesis.Case[Any]", url: str) -> None:
    case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS, timeout=20)


def test_the_description_is_served(url: str) -> None:
    served = ask(url, "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json
    assert served == describe(MODELS, guarded=True)
