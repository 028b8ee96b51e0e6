"""KServe's model server, with a model of our own that calls onnxruntime on one thread.

It runs with KServe's defaults: one process, in which requests are answered one after the other; no batching, which
KServe leaves to an agent beside the server; access log and latency log on. HTTP, which takes binary tensor data though
its metadata does not say so, and gRPC.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.peers.environments import Environment
from tools.peers.process import Peer, free_ports, running, workspace

ENVIRONMENT = Environment("kserve", "0.21.0")


@contextmanager
def kserve(models: Mapping[str, Path]) -> Iterator[Peer]:
    """Serve ONNX models, by name."""
    ENVIRONMENT.prepare()
    with workspace("kserve") as folder:
        http, grpc = free_ports(2)
        served = [f"--onnx={name}={path.resolve()}" for name, path in models.items()]
        options = [f"--http_port={http}", f"--grpc_port={grpc}", *served]
        command: list[str | Path] = [ENVIRONMENT.python, "-m", "tools.peers.served.kserve", *options]
        with running("kserve", command, folder=folder, ports=(http, grpc), models=models) as peer:
            yield peer
