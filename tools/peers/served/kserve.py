"""A KServe model server of ONNX models, on this machine's own address only.

    python -m tools.peers.served.kserve --http_port 8080 --grpc_port 8081 --onnx NAME=PATH …

KServe reads its own options from the command line. It listens on every address and has no option for that, so the two
places where it says so are replaced.
"""

import argparse
from typing import Any
from uuid import uuid4

import kserve  # type: ignore[import-not-found]  # installed only in the peer's environment
from grpc import aio
from kserve import model_server

from tools.peers.served.onnx_model import OnnxModel, Spec

HOST = "127.0.0.1"

_grpc = aio.server


class Served(kserve.Model):  # type: ignore[misc]  # has no types here
    """A model that KServe calls."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(name)
        self._model = OnnxModel(path)
        self.ready = True

    def get_input_types(self) -> list[Spec]:
        """What KServe shows as the model's inputs."""
        return self._model.inputs

    def get_output_types(self) -> list[Spec]:
        """What KServe shows as the model's outputs."""
        return self._model.outputs

    def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        """Answer one request."""
        results = self._model.run({tensor.name: tensor.as_numpy() for tensor in payload.inputs})
        return kserve.InferResponse(
            response_id=payload.id or str(uuid4()),  # KServe refuses to send a response without
            model_name=self.name,
            infer_outputs=[self._output(spec, results, payload.use_binary_outputs) for spec in self._model.outputs],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )

    def _output(self, spec: Spec, results: dict[str, Any], binary: bool) -> Any:
        result = results[spec["name"]]
        output = kserve.InferOutput(spec["name"], list(result.shape), spec["datatype"])
        output.set_data_from_numpy(result, binary_data=binary)
        return output


class LocalServer(model_server.RESTServer):  # type: ignore[misc]  # has no types here
    """KServe's HTTP server, on this machine's own address only."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.config.host = HOST


def _local_grpc(*args: Any, **options: Any) -> Any:
    server = _grpc(*args, **options)
    listen = server.add_insecure_port
    server.add_insecure_port = lambda address: listen(address.replace("[::]", HOST))
    return server


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(parents=[model_server.parser])
    parser.add_argument("--onnx", action="append", required=True, metavar="NAME=PATH")
    models = [Served(*model.split("=", 1)) for model in parser.parse_args().onnx]
    model_server.RESTServer = LocalServer
    aio.server = _local_grpc
    kserve.ModelServer().start(models)


if __name__ == "__main__":
    main()
