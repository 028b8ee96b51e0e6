"""The edge server of the demo: a process of its own on loopback, which ends with the demo, unless that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from hinge.errors import HingeError

MODEL = "fashion"
_ANNOUNCED = f"Serving {MODEL} at "
_START_S = 60.0
_STOP_S = 10.0
_LOOK_S = 0.02


@contextmanager
def edge_server(port: int) -> Iterator[str]:
    """Serve the remote model while the block runs; yields the address of the server."""
    command = [sys.executable, "-m", "hinge", "serve", MODEL, "--port", str(port), "--log-level", "warning"]
    environment = {name: value for name, value in os.environ.items() if name != "HINGE_TOKEN"}  # it is ours alone
    with tempfile.TemporaryDirectory(prefix="hinge-demo-", ignore_cleanup_errors=True) as folder, _ending_by_signals():
        log = Path(folder, "server.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield _address(process, log)
        finally:
            _stop(process)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Where the server says that it serves, once it does."""
    end = time.monotonic() + _START_S
    while True:
        ended = process.poll() is not None
        lines = log.read_text("utf-8", "replace").splitlines()
        for line in lines:
            if line.startswith(_ANNOUNCED):
                return line.removeprefix(_ANNOUNCED)
        if ended:
            said = lines[-1].removeprefix("hinge: ") if lines else f"it ended with status {process.returncode}"
            raise HingeError(f"the edge server did not start: {said}")
        if time.monotonic() > end:
            raise HingeError(f"the edge server did not start in {_START_S:.0f} s")
        time.sleep(_LOOK_S)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_S)
    finally:  # also when somebody is too impatient to wait
        process.kill()
        process.wait()


@contextmanager
def _ending_by_signals() -> Iterator[None]:
    """While the block runs, a request to terminate and a terminal that closes unwind it, so that nothing is left."""
    kinds = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = {kind: signal.signal(kind, _unwind) for kind in kinds}
    try:
        yield
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def _unwind(kind: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + kind)
