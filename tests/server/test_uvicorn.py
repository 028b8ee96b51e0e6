"""The connection is uvicorn's, with limits added, and leans on names that uvicorn does not promise: here they are."""

import asyncio
import inspect
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.server import ServerState

CONNECTION = """
    config loop connections pipeline transport flow scope headers cycle server_state
    connection_made connection_lost data_received send_400_response on_response_complete
    on_message_begin on_url on_header on_headers_complete on_message_complete
"""
CYCLE = """
    disconnected keep_alive more_body message_event on_response response_started response_complete
    receive send run_asgi
"""
FLOW = "read_paused write_paused pause_reading resume_reading resume_writing"
SERVER = "config server_state should_exit force_exit started startup on_tick shutdown capture_signals handle_exit run"
CONFIG = """
    app factory http ws lifespan interface log_config log_level access_log proxy_headers server_header date_header
    timeout_keep_alive ssl_certfile ssl_keyfile ssl_ca_certs ssl_cert_reqs
"""


class Transport(asyncio.Transport):
    """Goes nowhere."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def config() -> uvicorn.Config:
    return uvicorn.Config(lambda *_: None, log_config=None, lifespan="off", interface="asgi3")


def connection() -> httptools_impl.HttpToolsProtocol:
    """A connection of uvicorn's own in the middle of a request, of which it has made a cycle."""
    loop = asyncio.new_event_loop()
    made = httptools_impl.HttpToolsProtocol(config(), ServerState(), {}, loop)
    made._start_asgi_task = lambda *_: None  # type: ignore[method-assign]  # no application runs
    made.connection_made(Transport())
    made.data_received(b"POST /path HTTP/1.1\r\nContent-Length: 9\r\n\r\nbody")
    loop.close()
    return made


def missing(what: object, names: str) -> list[str]:
    return [name for name in names.split() if not hasattr(what, name)]


@pytest.mark.parametrize(
    ("kind", "make", "names"),
    [
        ("HttpToolsProtocol", connection, CONNECTION),
        ("RequestResponseCycle", lambda: connection().cycle, CYCLE),
        ("FlowControl", lambda: FlowControl(Transport()), FLOW),
        ("Server", lambda: uvicorn.Server(config()), SERVER),
    ],
)
def test_uvicorn_has_what_our_connection_leans_on(kind: str, make: Any, names: str) -> None:
    lost = missing(make(), names)
    assert not lost, (
        f"uvicorn {uvicorn.__version__} has no {kind}.{', '.join(lost)} any more: "
        "read server/connection.py and server/lifecycle.py against it before raising its bound in pyproject.toml"
    )


def test_uvicorn_takes_the_settings_that_we_give() -> None:
    lost = set(CONFIG.split()) - set(inspect.signature(uvicorn.Config).parameters)
    assert not lost, f"uvicorn {uvicorn.__version__} has no setting {lost}: read server/lifecycle.py against it"
    assert {100, 200, 400, 408, 431, 499, 503} <= httptools_impl.STATUS_LINE.keys()


def test_uvicorn_calls_what_we_change() -> None:
    """A method that is only there, and no longer called, would leave a limit without effect."""
    assert "self.servers.append(server)" in inspect.getsource(uvicorn.Server.startup)
    source = inspect.getsource(httptools_impl)
    leant_on = ("self.send_400_response(", "self.pipeline", "more_body = False", "=self.on_response_complete")
    lost = [text for text in leant_on if text not in source]
    assert not lost, f"uvicorn {uvicorn.__version__} no longer has {lost}: read server/connection.py against it"
