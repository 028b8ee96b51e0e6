"""The tools of the fault tests: the server answers, and the proxy does what each of its faults says."""

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest

from hinge.errors import InvalidMessage
from hinge.oip import messages as oip
from hinge.oip.tensors import MAX_BODY_BYTES, Tensor
from tests.support.chaos import FLOOD_BYTES, ChaosProxy, Fault
from tests.support.loopback import Loopback, OipServer

SAMPLE = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
PATH = oip.inference_path("remote")


def doubled(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {"scores": 2 * inputs["sample"]}


@pytest.fixture
def server() -> Iterator[OipServer]:
    with OipServer(doubled, binary=True) as server:
        yield server


@pytest.fixture
def proxy(server: OipServer) -> Iterator[ChaosProxy]:
    with ChaosProxy(server.url) as proxy:
        yield proxy


def connect(to: Loopback, timeout: float = 5) -> "closing[http.client.HTTPConnection]":
    return closing(http.client.HTTPConnection(*to.address, timeout=timeout))


def raw_connect(to: Loopback, timeout: float = 5) -> socket.socket:
    return socket.create_connection(to.address, timeout)


def raw_request(body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (PATH.encode(), len(body), body)


def get(to: Loopback, path: str) -> tuple[int, bytes]:
    with connect(to) as connection:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()


def posted(connection: http.client.HTTPConnection, binary: bool = False) -> http.client.HTTPResponse:
    message = oip.build_request({"sample": SAMPLE}, id="42", binary=binary)
    connection.request("POST", PATH, message.body, dict(message.headers))
    return connection.getresponse()


def scores(response: http.client.HTTPResponse) -> Tensor:
    assert response.status == 200
    return oip.parse_response(dict(response.getheaders()), response.read(), id="42").outputs["scores"]


def is_answered(connection: http.client.HTTPConnection, binary: bool = False) -> bool:
    return np.array_equal(scores(posted(connection, binary)), 2 * SAMPLE)


def ask(to: Loopback, binary: bool = False) -> Tensor:
    with connect(to) as connection:
        return scores(posted(connection, binary))


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.002)


def test_the_server_describes_itself(server: OipServer) -> None:
    assert oip.parse_server_metadata(get(server, "/v2")[1]).binary
    model = oip.parse_model_metadata(get(server, "/v2/models/remote")[1])
    assert model.inputs == (oip.TensorSpec("sample", "FP32", (-1, -1)),)
    assert [get(server, path)[0] for path in ("/v2/health/ready", "/v2/models/remote/ready", "/v3")] == [200, 200, 404]
    assert server.inferences == 0


def test_a_server_without_binary_refuses_it() -> None:
    with OipServer(doubled) as server, connect(server) as connection:
        response = posted(connection, binary=True)
        assert (response.status, b"not supported" in response.read()) == (422, True)
        assert is_answered(connection)
        assert not oip.parse_server_metadata(get(server, "/v2")[1]).binary


def test_the_server_says_whose_mistake_it_is(server: OipServer) -> None:
    with connect(server) as connection:
        connection.request("POST", PATH, b"{}")
        response = connection.getresponse()
        assert (response.status, b"missing required field `inputs`" in response.read()) == (400, True)
        server.answer = lambda inputs: {"scores": inputs["absent"]}
        response = posted(connection)
        assert (response.status, b"KeyError" in response.read()) == (500, True)


def test_a_server_of_recorded_labels() -> None:
    with OipServer.of_labels([3, 1, 2], classes=4) as server, connect(server) as connection:
        connection.request("POST", PATH, oip.build_request({"sample": np.array([[2], [0]])}, id="42").body)
        assert scores(connection.getresponse()).tolist() == [[0, 0, 1, 0], [0, 0, 0, 1]]


@pytest.mark.parametrize("binary", [False, True])
def test_without_fault_all_passes(server: OipServer, proxy: ChaosProxy, binary: bool) -> None:
    before = time.monotonic()
    with connect(proxy) as connection, connect(server) as direct:
        assert all(is_answered(connection, binary) and is_answered(direct, binary) for _ in range(20))
    assert (len(proxy.attempts), server.inferences) == (20, 40)
    times = [before, *(attempt.at_s for attempt in proxy.attempts), time.monotonic()]
    assert times == sorted(times)


def test_many_clients_at_once(server: OipServer, proxy: ChaosProxy) -> None:
    def client(_: int) -> bool:
        with connect(proxy) as connection:
            return all(is_answered(connection) for _ in range(20))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(client, range(8), timeout=30))
    assert len(proxy.attempts) == server.inferences == 160


@pytest.mark.medium
@pytest.mark.parametrize(
    ("fault", "error", "seen", "served"),
    [
        (Fault.REFUSE, ConnectionRefusedError, 0, 0),
        (Fault.BLACK_HOLE, TimeoutError, 1, 0),
        (Fault.STALL, TimeoutError, 1, 0),
        (Fault.RESET, ConnectionResetError, 1, 0),
        (Fault.EMPTY, http.client.RemoteDisconnected, 1, 0),
        (Fault.TRUNCATE, http.client.IncompleteRead, 1, 1),
        (Fault.GARBAGE, http.client.BadStatusLine, 1, 0),
    ],
)
def test_faults_of_the_connection(
    server: OipServer, proxy: ChaosProxy, fault: Fault, error: type[Exception], seen: int, served: int
) -> None:
    proxy.fault = fault
    with connect(proxy, timeout=0.5) as connection, pytest.raises(error) as caught:
        posted(connection).read()
    assert caught.type is error  # a connection closed in silence raises a kind of the one that is reset
    assert [attempt.fault for attempt in proxy.attempts] == [fault] * seen
    assert server.inferences == served
    proxy.fault = Fault.NONE
    with connect(proxy) as connection:
        assert is_answered(connection)


def test_a_truncated_body_is_cut_in_the_middle(proxy: ChaosProxy) -> None:
    proxy.fault = Fault.TRUNCATE
    with connect(proxy) as connection, pytest.raises(http.client.IncompleteRead) as caught:
        posted(connection).read()
    assert (caught.value.expected or 0) - len(caught.value.partial) in (0, 1)


@pytest.mark.medium
def test_only_a_black_hole_reads_nothing(proxy: ChaosProxy) -> None:
    large = raw_request(bytes(2**25))
    proxy.fault = Fault.STALL
    with raw_connect(proxy) as client:
        client.sendall(large)
    proxy.fault = Fault.BLACK_HOLE
    with raw_connect(proxy, timeout=0.5) as client, pytest.raises(TimeoutError):
        client.sendall(large)


def test_a_response_that_drips(proxy: ChaosProxy) -> None:
    proxy.fault = Fault.DRIP
    with connect(proxy) as connection:
        began = time.monotonic()
        connection.request("POST", PATH, b"{}")
        assert b"".join(connection.sock.recv(100) for _ in range(6)) == b"HTTP/1"
        assert time.monotonic() - began > 0.2
    proxy.byte_s = 0
    with connect(proxy) as connection:
        assert is_answered(connection)


def test_an_internal_error(proxy: ChaosProxy) -> None:
    proxy.fault = Fault.STATUS_500
    with connect(proxy) as connection:
        for _ in range(2):  # on a connection that stays
            response = posted(connection)
            assert (response.status, response.read()) == (500, b'{"error":"internal error"}')


def test_nan_as_binary_data(proxy: ChaosProxy) -> None:
    proxy.fault = Fault.NAN
    assert np.array_equal(ask(proxy, binary=True), np.full_like(SAMPLE, np.nan), equal_nan=True)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [(Fault.GARBAGE_BODY, "JSON"), (Fault.NAN, "JSON: malformed"), (Fault.WRONG_ID, "is to request 'not-42'")],
)
def test_faults_of_the_message(proxy: ChaosProxy, fault: Fault, problem: str) -> None:
    proxy.fault = fault
    with pytest.raises(InvalidMessage, match=problem):
        ask(proxy)


@pytest.mark.parametrize("binary", [False, True])
def test_wrong_shapes(proxy: ChaosProxy, binary: bool) -> None:
    proxy.fault = Fault.WRONG_SHAPE
    assert [ask(proxy, binary).shape for _ in range(5)] == [(3, 3), (1, 3), (2, 3, 1), (3,), (3, 3)]


@pytest.mark.parametrize(("fault", "told"), [(Fault.OVERSIZED, str(FLOOD_BYTES)), (Fault.OVERSIZED_CHUNKS, None)])
def test_oversized_bodies(proxy: ChaosProxy, fault: Fault, told: str | None) -> None:
    proxy.fault = fault
    with connect(proxy) as connection, posted(connection) as response:
        assert response.getheader("content-length") == told
        assert len(response.read(MAX_BODY_BYTES + 1)) == MAX_BODY_BYTES + 1
    wait_for(lambda: not proxy._connections)


@pytest.mark.medium
def test_a_fault_meets_the_next_request_on_an_open_connection(proxy: ChaosProxy) -> None:
    for fault, error in [(Fault.EMPTY, http.client.RemoteDisconnected), (Fault.BLACK_HOLE, TimeoutError)]:
        proxy.fault = Fault.NONE
        with connect(proxy, timeout=0.5) as connection:
            assert is_answered(connection)
            proxy.fault = fault
            with pytest.raises(error):
                posted(connection)
    assert [attempt.fault.name for attempt in proxy.attempts] == ["NONE", "EMPTY", "NONE", "BLACK_HOLE"]


@pytest.mark.parametrize("fault", [Fault.STALL, Fault.BLACK_HOLE])
def test_what_was_lost_stays_lost(server: OipServer, proxy: ChaosProxy, fault: Fault) -> None:
    proxy.fault = fault
    with raw_connect(proxy, timeout=0.4) as client:
        client.sendall(raw_request(b"{}"))
        wait_for(lambda: len(proxy.attempts) == 1)
        proxy.fault = Fault.NONE
        with pytest.raises(TimeoutError):
            client.recv(1)
    wait_for(lambda: not proxy._connections)  # once the client has left
    assert server.inferences == 0


def test_refusing_closes_what_is_open_and_keeps_the_port(proxy: ChaosProxy) -> None:
    for _ in range(3):
        proxy.fault = Fault.NONE
        with connect(proxy) as connection, socket.socket() as stranger:
            assert is_answered(connection)
            proxy.fault = Fault.REFUSE
            assert connection.sock.recv(1) == b""
            with pytest.raises(OSError, match="in use"):
                stranger.bind(proxy.address)
            with pytest.raises(ConnectionRefusedError):
                ask(proxy)


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.REFUSE])
def test_metadata_passes_unless_it_shall_not(proxy: ChaosProxy, fault: Fault) -> None:
    proxy.fault = fault
    assert oip.parse_server_metadata(get(proxy, "/v2")[1]).name == "loopback"
    proxy.faults_metadata, proxy.fault = True, Fault.STATUS_500
    assert get(proxy, "/v2")[0] == 500
    assert proxy.attempts == []


def test_a_fault_that_cannot_be_made_is_told(server: OipServer) -> None:
    server.answer = lambda inputs: {"scores": inputs["sample"].astype(int)}
    proxy = ChaosProxy(server.url)
    proxy.fault = Fault.NAN
    proxy.__enter__()
    with pytest.raises(http.client.RemoteDisconnected):
        ask(proxy, binary=True)
    with pytest.raises(ValueError, match="cannot be NaN"):
        proxy.__exit__(None)


@pytest.mark.parametrize("fault", [Fault.NONE, Fault.STALL, Fault.BLACK_HOLE, Fault.DRIP, Fault.OVERSIZED])
def test_stopping_leaves_nothing(fault: Fault) -> None:
    before = threading.active_count()
    with OipServer(doubled) as server, ChaosProxy(server.url) as proxy:
        proxy.fault = fault
        client = raw_connect(proxy)
        client.sendall(raw_request(b"{}"))
        wait_for(lambda: len(proxy.attempts) == 1)
    with client, pytest.raises(ConnectionRefusedError):
        raw_connect(proxy)
    assert threading.active_count() == before
