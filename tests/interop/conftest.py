"""The peers, each started when a test first asks for it and stopped when all tests are done."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from hinge import fashion
from tools.peers.environments import PeerUnavailable, PythonTooNew
from tools.peers.kserve import kserve
from tools.peers.llama import ENVIRONMENT, llama
from tools.peers.mlserver import mlserver
from tools.peers.process import Peer
from tools.peers.triton import triton

MODELS = {"remote": fashion.remote_model()}


def _serving(start: Callable[[Mapping[str, Path]], AbstractContextManager[Peer]]) -> Iterator[Peer]:
    with ExitStack() as stack:
        try:
            peer = stack.enter_context(start(MODELS))
        except PythonTooNew as problem:
            pytest.skip(str(problem))
        yield peer


@pytest.fixture(name="triton", scope="session")
def _triton() -> Iterator[Peer]:
    yield from _serving(triton)


@pytest.fixture(name="kserve", scope="session")
def _kserve() -> Iterator[Peer]:
    yield from _serving(kserve)


@pytest.fixture(name="mlserver", scope="session")
def _mlserver() -> Iterator[Peer]:
    yield from _serving(mlserver)


@pytest.fixture(name="llama", scope="session")
def _llama() -> Iterator[Peer]:
    try:
        ENVIRONMENT.prepare()
    except PeerUnavailable as problem:  # its weights are in a package of a stranger's
        pytest.skip(f"not installed: llama.cpp; {problem}")
    yield from _serving(lambda _: llama())


@pytest.fixture(params=["triton", "kserve", "mlserver"])
def peer(request: pytest.FixtureRequest) -> Peer:
    """Each of them in turn."""
    started: Peer = request.getfixturevalue(request.param)
    return started
