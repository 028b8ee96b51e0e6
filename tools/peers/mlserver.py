"""Seldon's MLServer, with a runtime of our own that calls onnxruntime on one thread.

It runs with MLServer's defaults: one worker process beside the one that answers, adaptive batching off
(`max_batch_size` and `max_batch_time` are 0), access log on; metrics off. With `workers=0` models run in the process
that answers, which about halves the time of a request to a small model. HTTP and gRPC.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.peers.environments import Environment
from tools.peers.process import HOST, Peer, free_ports, running, workspace

ENVIRONMENT = Environment("mlserver", "1.7.1", python_below=(3, 13))


@contextmanager
def mlserver(models: Mapping[str, Path], workers: int = 1) -> Iterator[Peer]:
    """Serve ONNX models, by name."""
    ENVIRONMENT.prepare()
    with workspace("mlserver") as folder:
        http, grpc = free_ports(2)
        _write(folder / "settings.json", _server(http, grpc, workers))
        for name, path in models.items():
            _write(folder / name / "model-settings.json", _model(name, path))
        command: list[str | Path] = [ENVIRONMENT.python.with_name("mlserver"), "start", folder]
        with running("mlserver", command, folder=folder, ports=(http, grpc), models=models) as peer:
            yield peer


def _server(http: int, grpc: int, workers: int) -> dict[str, object]:
    listening = {"host": HOST, "http_port": http, "grpc_port": grpc}
    return {**listening, "parallel_workers": workers, "metrics_endpoint": None}


def _model(name: str, path: Path) -> dict[str, object]:
    parameters = {"uri": str(path.resolve())}
    return {"name": name, "implementation": "tools.peers.served.mlserver.Served", "parameters": parameters}


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))
