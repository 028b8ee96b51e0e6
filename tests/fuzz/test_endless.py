"""R9: a response that never ends is left at the limit, whatever it says about its length."""

import time
from typing import Any

import pytest

from hinge.errors import RemoteFailed
from hinge.oip.json import MAX_BODY_BYTES
from hinge.remotes import Deadline
from hinge.remotes.http import Ask, Http
from tests.fuzz.answers import Answering


class Endless(Answering):
    """A connection on which zeros follow what was said, for ever."""

    given = 0

    def readinto(self, buffer: Any) -> int:
        size = super().readinto(buffer) or len(buffer)  # the buffer is as full of zeros as it needs to be
        self.given += size
        return size


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (b"Content-Length: 100000000000", 2**16),  # it need not even be begun
        (b"Connection: close", MAX_BODY_BYTES + 2**16),
        (b"Transfer-Encoding: chunked\r\n\r\n-1", MAX_BODY_BYTES + 2**21),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff", MAX_BODY_BYTES + 2**16),
        (b"Transfer-Encoding: chunked\r\n\r\n", 2**18),
        (b"Content-Length: -1", MAX_BODY_BYTES + 2**16),
    ],
)
def test_r9_an_endless_response_is_left_at_the_limit(head: bytes, most: int) -> None:
    http: Any = Http("http://127.0.0.1:1", {})
    connection = Endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
    http._connection = lambda _: connection
    with pytest.raises(RemoteFailed) as caught:
        http.send(Ask("GET", "/v2"), Deadline.after(60, now=time.monotonic()))
    assert caught.value.kind == "invalid"
    assert connection.given <= most
