"""R9: a response that never ends is left at the limit, whatever it says about its length."""

import pytest

from hinge.errors import RemoteInvalid
from hinge.remotes import Deadline
from hinge.remotes.calls import LOOP
from hinge.remotes.http import HttpClient, Request
from tests.support.loopback import Connection, Loopback

LIMIT = 2**21
UNREAD = 2**23  # that may lie in the buffers of both ends


class Endless(Loopback):
    """Zeros follow what was said, for ever."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self._said, self.given = said, 0

    async def _serve(self, connection: Connection) -> None:
        await connection.read()
        await connection.send(self._said)
        while True:
            await connection.send(bytes(2**16))
            self.given += 2**16


@pytest.mark.parametrize(
    ("head", "most"),
    [
        (b"Content-Length: 100000000000", 0),  # it need not even be begun
        (b"Connection: close", LIMIT),
        (b"Transfer-Encoding: chunked\r\n\r\n-1", 0),
        (b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffff", LIMIT),
        (b"Transfer-Encoding: chunked\r\n\r\n", 0),
        (b"Content-Length: -1", 0),
    ],
)
def test_r9_an_endless_response_is_left_at_the_limit(head: bytes, most: int) -> None:
    deadline = Deadline.after(60)
    with Endless(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n") as server:
        client = HttpClient(server.url, {})
        with pytest.raises(RemoteInvalid):
            LOOP.run(client.send, Request("GET", "/v2", limit=LIMIT), deadline, deadline=deadline)
        assert server.given <= most + UNREAD
        LOOP.run(client.close, deadline=deadline)
