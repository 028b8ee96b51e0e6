"""A remote over gRPC: a real server answers it, raw or number by number, fails it, and comes back."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest

from hinge import AsyncDevice, Device, HILCBLite, RemoteFailed
from hinge.oip.tensors import MAX_BODY_BYTES, TensorSpec
from hinge.remotes import Deadline
from hinge.remotes.grpc import OpenInferenceGrpc
from tests.device.spoils import SPOILS
from tests.support.grpc_server import CLASSES, WAIT_S, GrpcServer, Spoil

SAMPLES = np.random.default_rng(0).normal(size=(10, CLASSES)).astype(np.float32)
LABELS = SAMPLES.argmax(axis=1).tolist()


@pytest.fixture
def server() -> Iterator[GrpcServer]:
    with GrpcServer() as server:
        yield server


class Opened(OpenInferenceGrpc):
    """A remote that is closed at the end of its block."""

    def __enter__(self) -> "Opened":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def remote_of(server: GrpcServer, **options: Any) -> Opened:
    return Opened(server.target, "remote", **options)


def soon(seconds: float = WAIT_S) -> Deadline:
    return Deadline.after(seconds, time.monotonic())


def failure_of(remote: OpenInferenceGrpc, seconds: float = WAIT_S) -> RemoteFailed:
    with pytest.raises(RemoteFailed) as failed:
        remote.ask(list(SAMPLES[:2]), soon(seconds))
    return failed.value


async def asked(remote: OpenInferenceGrpc, seconds: float = WAIT_S) -> Any:
    """What an event loop gets; it closes its connection."""
    try:
        return (await remote.ask_async(list(SAMPLES), soon(seconds))).labels
    except RemoteFailed as failed:
        return failed.kind
    finally:
        await remote.close_async()


def policy() -> HILCBLite:
    return HILCBLite(bins=16, offload_cost=0.5)


# -- what it is for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("typed", [False, True])
def test_the_labels_are_the_servers(typed: bool) -> None:
    with GrpcServer(typed=typed) as server, remote_of(server) as remote:
        reply = remote.ask(list(SAMPLES), soon())
        assert reply.labels == LABELS
        assert reply.bytes > 2 * SAMPLES.nbytes
        assert [remote.ask([sample], soon()).labels[0] for sample in SAMPLES] == LABELS
        assert len({request.id for request in server.requests}) == len(server.requests) == 11
        assert asyncio.run(asked(remote)) == LABELS
        assert asyncio.run(asked(remote)) == LABELS  # in another event loop


def test_devices_ask_over_it(server: GrpcServer) -> None:
    with Device(lambda _: [1.0, 0.0], remote_of(server), policy(), deadline_s=WAIT_S) as device:
        answers = device.infer_many(list(SAMPLES))
        assert [answer.label for answer in answers] == LABELS
        assert {answer.source for answer in answers} == {"remote"}

    async def main() -> list[Any]:
        remote = OpenInferenceGrpc(server.target, "remote")
        async with AsyncDevice(lambda _: [1.0, 0.0], remote, policy(), deadline_s=WAIT_S) as device:
            return [answer.label for answer in await device.infer_many(list(SAMPLES))]

    assert asyncio.run(main()) == LABELS


def test_eight_threads_share_one(server: GrpcServer) -> None:
    with remote_of(server) as remote, ThreadPoolExecutor(8) as pool:
        replies = pool.map(lambda k: remote.ask([SAMPLES[k % 10]], soon()).labels, range(80))
        assert [labels[0] for labels in replies] == LABELS * 8


def test_the_server_is_asked_what_it_has(server: GrpcServer) -> None:
    with remote_of(server) as remote:
        about_server, model = remote.metadata()
        assert (about_server.name, about_server.version) == ("test", "1.2")
        assert model.inputs == (TensorSpec("sample", "FP32", (-1, CLASSES)),)
        assert model.versions == ("1",)
        remote.check(SAMPLES[0])
        with pytest.raises(RemoteFailed, match=r"shape must be \[-1, 3\], got \[1, 2\]"):
            remote.check(SAMPLES[0][:2])


def test_a_model_that_is_not_there(server: GrpcServer) -> None:
    with Opened(server.target, "other") as remote:
        failed = failure_of(remote)
        assert failed.kind == "invalid"
        assert str(failed) == f"{server.target} has no model 'other': gRPC NOT_FOUND, 'unknown model other'"


def test_a_token_is_sent() -> None:
    with GrpcServer(token="open-sesame") as server:
        with remote_of(server, token="open-sesame") as remote:
            assert remote.ask(list(SAMPLES), soon()).labels == LABELS
            assert asyncio.run(asked(remote)) == LABELS
        with remote_of(server, token="wrong") as remote:
            failed = failure_of(remote)
            assert failed.kind == "invalid"
            assert "Protocol, or not to us: gRPC UNAUTHENTICATED, 'who are you?'" in str(failed)


def test_credentials_are_used() -> None:
    with GrpcServer(credentials=grpc.local_server_credentials()) as server:
        with remote_of(server, credentials=grpc.local_channel_credentials()) as remote:
            assert remote.ask(list(SAMPLES), soon()).labels == LABELS
            assert asyncio.run(asked(remote)) == LABELS
        with remote_of(server, credentials=grpc.ssl_channel_credentials()) as remote:
            assert failure_of(remote).kind == "unreachable"


@pytest.mark.parametrize("target", ["", "http://localhost:8001", "https://localhost"])
def test_a_url_is_no_target(target: str) -> None:
    with pytest.raises(ValueError, match="OpenInferenceGrpc: target must be host:port"):
        OpenInferenceGrpc(target, "remote")


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("spoil", "problem"), SPOILS)
def test_a_response_that_makes_no_sense_is_invalid(spoil: Spoil, problem: str) -> None:
    with GrpcServer(spoil=spoil) as server, remote_of(server) as remote:
        with pytest.raises(RemoteFailed, match=problem) as failed:
            remote.ask(list(SAMPLES[:2]), soon())
        assert failed.value.kind == "invalid"


@pytest.mark.parametrize("raw", [b"\xff", b"\x0a\x7f", b"\x2a\x02\x0a\x05", b"HTTP/1.1 200 OK", b"\x1a\x02\xff\xfe"])
def test_a_response_that_is_none_is_invalid(raw: bytes, server: GrpcServer) -> None:
    server.raw = raw
    with remote_of(server) as remote:
        failed = failure_of(remote)
        assert failed.kind == "invalid"
        assert "a damaged one" in str(failed)
        assert asyncio.run(asked(remote)) == "invalid"


def test_a_response_has_a_limit(server: GrpcServer) -> None:
    server.raw = bytes(MAX_BODY_BYTES + 1)
    with remote_of(server) as remote:
        failed = failure_of(remote)
        assert failed.kind == "invalid"
        assert "too large" in str(failed)


def test_an_error_of_the_server_is_told(server: GrpcServer) -> None:
    def fail(request: Any, context: Any) -> Any:
        context.abort(grpc.StatusCode.INTERNAL, "out of\nmemory")

    server.ModelInfer = fail  # type: ignore[method-assign]  # a server that fails
    with remote_of(server) as remote:
        failed = failure_of(remote)
        assert failed.kind == "error"
        assert str(failed) == "gRPC INTERNAL, 'out of\\nmemory'"


def test_a_slow_server_is_late(server: GrpcServer) -> None:
    with remote_of(server) as remote:
        remote.check()
        server.hold = True
        assert failure_of(remote, 0.1).kind == "late"
        assert asyncio.run(asked(remote, 0.1)) == "late"
        assert failure_of(remote, 1e-9).kind == "late"
        server.hold = False
        server.released.set()
        assert remote.ask(list(SAMPLES), soon()).labels == LABELS


def test_a_cancelled_task_leaves_the_remote_usable(server: GrpcServer) -> None:
    async def main() -> Any:
        remote = OpenInferenceGrpc(server.target, "remote")
        await remote.ask_async([SAMPLES[0]], soon())
        server.hold = True
        task = asyncio.create_task(remote.ask_async([SAMPLES[0]], soon()))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.hold = False
        server.released.set()
        return await asked(remote)

    assert asyncio.run(main()) == LABELS


def test_a_server_that_comes_back_is_found_again() -> None:
    with GrpcServer() as server:
        remote = remote_of(server)
        assert remote.ask(list(SAMPLES), soon()).labels == LABELS
    with remote:
        assert [failure_of(remote).kind for _ in range(5)] == ["unreachable"] * 5
        assert asyncio.run(asked(remote)) == "unreachable"
        with GrpcServer(port=int(server.target.rpartition(":")[2])):
            labels, limit = None, time.monotonic() + WAIT_S
            while labels is None and time.monotonic() < limit:
                try:
                    labels = remote.ask(list(SAMPLES), soon()).labels
                except RemoteFailed:
                    time.sleep(0.02)
            assert labels == LABELS


def test_a_closed_remote_connects_anew(server: GrpcServer) -> None:
    remote = remote_of(server)
    for _ in range(2):
        assert remote.ask(list(SAMPLES), soon()).labels == LABELS
        remote.close()
        remote.close()


def test_closing_ends_what_is_under_way(server: GrpcServer) -> None:
    with remote_of(server) as remote, ThreadPoolExecutor(1) as pool:
        remote.check()
        server.hold = True
        waiting = pool.submit(failure_of, remote)
        limit = time.monotonic() + WAIT_S
        while not server.requests and time.monotonic() < limit:
            time.sleep(0.01)
        remote.close()
        assert waiting.result(WAIT_S).kind in ("error", "unreachable")
