"""R9: a response that never ends is left at the limit, whatever it says about its length."""

from unittest import mock

import pytest

from hinge.errors import RemoteInvalid
from hinge.remotes import Deadline
from hinge.remotes.http import HttpClient, Request
from tests.fuzz.answers import _STREAM, Answering

LIMIT = 2**21
READ = 2**16


class Endless(Answering):
    """A connection on which zeros follow what was said, for ever."""

    given = 0

    def read(self, deadline: Deadline | None = None) -> bytes:
        data = super().read() or bytes(READ)
        self.given += len(data)
        return data


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (b"Content-Length: 100000000000", READ),  # it need not even be begun
        (b"Connection: close", LIMIT + 2 * READ),
        (b"Transfer-Encoding: chunked\r\n\r\n-1", 2 * READ),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff", LIMIT + 2 * READ),
        (b"Transfer-Encoding: chunked\r\n\r\n", 2 * READ),
        (b"Content-Length: -1", 2 * READ),
    ],
)
def test_r9_an_endless_response_is_left_at_the_limit(head: bytes, most: int) -> None:
    connection = Endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
    with mock.patch(_STREAM, return_value=connection), pytest.raises(RemoteInvalid):
        HttpClient("http://127.0.0.1:1", {}).send(Request("GET", "/v2", limit=LIMIT), Deadline.after(60))
    assert connection.given <= most
