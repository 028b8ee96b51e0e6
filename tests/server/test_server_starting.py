"""A server that cannot start says why at once, and leaves nothing open."""

import socket
import threading
import time
from typing import Any
from urllib.parse import urlsplit

import pytest

from hinge.server import Server
from hinge.server import server as module
from hinge.server.connections import Listener
from tests.server.clients import ask

SOON_S = 5.0


def fail(*_: Any, **options: Any) -> Any:
    raise OSError("no more threads")


def refused(port: int) -> bool:
    """Whether nobody listens there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize(("owner", "name"), [(module, "App"), (Listener, "start")])
@pytest.mark.parametrize("foreground", [False, True])
def test_an_error_at_the_start_is_raised_at_once_and_the_listener_is_closed(
    owner: Any, name: str, foreground: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, fail)
    server, start = Server(["fashion-local"]), time.monotonic()
    with pytest.raises(OSError, match="no more threads"):
        server.run() if foreground else server.start()
    assert time.monotonic() - start < SOON_S
    port = urlsplit(server.url).port
    assert port is not None
    assert refused(port)
    monkeypatch.undo()
    with server:
        assert ask(server.url, "/v2/health/ready").status == 200


def test_one_that_takes_too_long_is_told_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begin = Listener.start

    def slowly(self: Listener, *arguments: Any) -> Listener:
        time.sleep(0.3)
        return begin(self, *arguments)

    monkeypatch.setattr(Listener, "start", slowly)
    monkeypatch.setattr(module, "START_S", 0.05)
    server = Server(["fashion-local"])
    with pytest.raises(RuntimeError, match="did not start in time"):
        server.start()
    server.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "hinge-server"]


def test_a_server_that_runs_is_not_started_again() -> None:
    server = Server(["fashion-local"], port=0)
    with server:
        with pytest.raises(RuntimeError, match="runs already; close it"):
            server.start()
        assert ask(server.url, "/v2/health/ready").status == 200
    with server:
        assert ask(server.url, "/v2/health/ready").status == 200
