"""R9: everything that the server's description allows, and much that it does not, is answered without a 5xx."""

from collections.abc import Iterator
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
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from hinge.server import Server
from hinge.server.openapi import describe
from tests.server.clients import HOST, ask, send_raw

MODELS = ["fashion-local"]
TOKEN = "0123456789abcdef"
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, negative_data_rejection, unsupported_method,
]  # fmt: skip  # several to a line

OPERATIONS = [
    (method.upper(), path)
    for path, methods in describe(MODELS, guarded=True)["paths"].items()
    for method in methods
    if method != "parameters" and path != "/hinge/events"  # which never ends
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Server(MODELS, token=TOKEN, log_level="error") as server:
        yield server.url


@pytest.fixture(scope="module")
def schema() -> Any:
    return schemathesis.openapi.from_dict(describe(MODELS, guarded=True))


# What to ask is made up in the test: `schema.parametrize` does so in every worker, to collect the tests.
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_r9_the_server_does_as_it_says(method: str, path: str, schema: Any, url: str) -> None:
    def check(case: "schemathesis.Case[Any]") -> None:
        case.call_and_validate(base_url=url, headers={"Authorization": f"Bearer {TOKEN}"}, checks=CHECKS, timeout=20)

    chosen = settings(max_examples=60, suppress_health_check=list(HealthCheck))
    (made,) = get_all_tests(
        schema=schema.include(method=method, path=path), test_func=check, settings=chosen, given_kwargs=None
    )
    assert isinstance(made, Ok)
    _, ask_all = made.ok()
    ask_all()


def test_every_route_is_described_and_no_other() -> None:
    described = describe(MODELS, guarded=False)["paths"]
    with Server(MODELS, log_level="error") as server:
        for path, methods in described.items():
            known = path.format(model=MODELS[0], version="1", device="hall")
            allowed = ask(server.url, known, "PATCH").headers["allow"].replace("GET, HEAD", "GET")
            assert {allowed.lower()} == methods.keys() - {"parameters"}
        assert ask(server.url, "/hinge/other", "PATCH").status == 404


def answers(url: str, token: str | None) -> Iterator[tuple[str, str, int]]:
    """A path, method and status each of all that a client can bring about alone."""
    shown = {} if token is None else {"Authorization": f"Bearer {token}"}
    headers: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer x"}, shown, {**shown, "Host": "evil.example"}, {**shown, "X": "x" * 17_000},
        {**shown, "Content-Encoding": "gzip"}, {**shown, "Content-Type": "application/json"},
    ]  # fmt: skip  # several to a line
    for path, methods in describe(MODELS, guarded=token is not None)["paths"].items():
        for method in methods.keys() - {"parameters"}:
            if path != "/hinge/events":
                for sent in headers:
                    known = path.format(model=MODELS[0], version="1", device="hall")
                    yield path, method, ask(url, known, method.upper(), b"", sent).status


@pytest.mark.parametrize("token", [None, TOKEN])
def test_every_status_is_described(token: str | None) -> None:
    paths = describe(MODELS, guarded=token is not None)["paths"]
    seen = set()
    with Server(MODELS, token=token, log_level="error") as server:
        for path, method, status in answers(server.url, token):
            assert str(status) in paths[path][method]["responses"], (path, method, status)
            seen.add(status)
        length = f"Content-Length: {2**40}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        path = f"/v2/models/{MODELS[0]}/infer"
        large = send_raw(server.url, f"POST {path} HTTP/1.1\r\n{HOST}{length}".encode()).status
        assert str(large) in paths["/v2/models/{model}/infer"]["post"]["responses"]
    assert seen | {large} == {200, 400, 413, 415, 431, 421 if token is None else 401}


def test_the_description_is_served(url: str) -> None:
    served = ask(url, "/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json
    assert served == describe(MODELS, guarded=True)
