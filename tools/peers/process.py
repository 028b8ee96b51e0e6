"""A peer's processes: started in a group of their own, watched until ready, and stopped by that group."""

import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tools.peers.environments import PeerUnavailable

HOST = "127.0.0.1"

ROOT = Path(__file__).parents[2]  # peers import tools.peers.served from here
_READY_S = 90.0  # the first start compiles what it imports
_STOP_S = 10.0
# what is set for our own interpreter would mislead the peer's
_OURS = {
    "LD_LIBRARY_PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSAFEPATH",
    "PYTHONWARNINGS",
    "VIRTUAL_ENV",
}


@dataclass(frozen=True)
class Peer:
    """A server that is running."""

    name: str
    url: str  # of its HTTP endpoint
    grpc: str  # address of its gRPC endpoint
    pid: int
    log: Path


@contextmanager
def workspace(name: str) -> Iterator[Path]:
    """A folder for a peer's configuration and log, gone when it stops."""
    with tempfile.TemporaryDirectory(prefix=f"hinge-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens on, all different."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def running(
    name: str,
    command: Sequence[str | Path],
    *,
    folder: Path,
    ports: tuple[int, int],
    models: Collection[str] = (),
    ready: Collection[str] = (),
    variables: Mapping[str, str | Path] | None = None,
) -> Iterator[Peer]:
    """Run a server, whose ports are HTTP's and gRPC's, while the block runs, which starts once all models are ready.

    For another protocol, `ready` has paths at which the server answers once it is.
    """
    log = folder / "log.txt"
    with started(command, folder, log, variables) as process:
        http, grpc = ports
        peer = Peer(name, f"http://{HOST}:{http}", f"{HOST}:{grpc}", process.pid, log)
        _await_ready(peer, process, [*(f"/v2/models/{model}/ready" for model in models), *ready])
        yield peer


@contextmanager
def started(
    command: Sequence[str | Path], folder: Path, log: Path, variables: Mapping[str, str | Path] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a folder while the block runs; the log gets what it prints."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=folder,
            env=_environment(variables or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _stop(process)


def _environment(variables: Mapping[str, str | Path]) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name not in _OURS}
    return {**inherited, "PYTHONPATH": str(ROOT), **{name: str(value) for name, value in variables.items()}}


def _await_ready(peer: Peer, process: subprocess.Popen[bytes], paths: Collection[str]) -> None:
    end = time.monotonic() + _READY_S
    while not all(_answers(f"{peer.url}{path}") for path in paths):
        if process.poll() is not None:
            raise PeerUnavailable(f"{peer.name} ended with status {process.returncode}:\n{_tail(peer.log)}")
        if time.monotonic() > end:
            raise PeerUnavailable(f"{peer.name} is not ready after {_READY_S:.0f} s:\n{_tail(peer.log)}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(url, timeout=2) as response:
            return bool(response.status == 200)
    except OSError:  # refused, or an error status
        return False


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-20_000:]


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(_STOP_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the group's workers too, whether or not the server has ended
    process.wait(_STOP_S)
