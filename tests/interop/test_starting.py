"""How peers are installed, started and stopped."""

import os
import subprocess
from pathlib import Path

import pytest

from hinge import fashion
from tools.peers.environments import Environment, PeerUnavailable, PythonTooNew
from tools.peers.kserve import ENVIRONMENT, kserve
from tools.peers.process import Peer


def test_an_environment_is_made_once(kserve: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(subprocess, "run")
    ENVIRONMENT.prepare()


def test_a_python_that_is_too_new_is_named() -> None:
    with pytest.raises(PythonTooNew, match=r"kserve 1\.0 needs Python < 3\.9, this is 3\.\d+"):
        Environment("kserve", "1.0", python_below=(3, 9)).prepare()


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(PeerUnavailable, match=r"(?s)kserve 1\.0 could not be installed.*No matching distribution"):
        Environment("kserve", "1.0").prepare()
    assert not list(tmp_path.rglob("complete"))


def test_a_server_that_fails_shows_its_log_and_leaves_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"not a model")
    with pytest.raises(PeerUnavailable, match=r"(?s)kserve ended with status 1:.*broken\.onnx"), kserve({"m": broken}):
        pass


def test_a_stopped_server_leaves_no_process() -> None:
    with kserve({"remote": fashion.remote_model()}) as peer:
        os.killpg(peer.pid, 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(peer.pid, 0)
    assert not peer.log.exists()
