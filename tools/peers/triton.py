"""NVIDIA's Triton, on the processor: the binary inside nvidia-pytriton, with its Python backend.

It runs as a sensible user would set it up: one instance of the model, which calls onnxruntime on one thread; dynamic
batching with Triton's defaults, which never waits for a batch but runs together what has queued up meanwhile, up to 64
samples; metrics off. HTTP, with binary tensor data, and gRPC.
"""

import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.peers.environments import Environment, PeerUnavailable
from tools.peers.process import HOST, ROOT, Peer, free_ports, running, workspace

# The version is nvidia-pytriton's. With numpy 2 its backend starts and answers, but outputs are empty; the last numpy 1
# is for Python 3.12.
ENVIRONMENT = Environment("triton", "0.7.0", python_below=(3, 13))

_CONFIGURATION = """\
backend: "python"
max_batch_size: 64
dynamic_batching {{}}
instance_group [{{ count: 1, kind: KIND_CPU }}]
parameters {{ key: "path" value {{ string_value: "{path}" }} }}
"""
# the interpreter inside the backend ignores PYTHONPATH
_MODEL = """\
import sys

sys.path[:0] = {paths}
from tools.peers.served.triton import TritonPythonModel as TritonPythonModel
"""


@contextmanager
def triton(models: Mapping[str, Path]) -> Iterator[Peer]:
    """Serve ONNX models whose first dimension is the batch, by name."""
    ENVIRONMENT.prepare()
    libraries = _interpreter_libraries()
    with workspace("triton") as folder:
        _write_repository(folder / "models", models)
        _copy_backend(folder / "backends" / "python")
        http, grpc = free_ports(2)
        packages = ENVIRONMENT.site_packages
        variables: dict[str, str | Path] = {
            "LD_LIBRARY_PATH": f"{libraries}:{packages / 'nvidia_pytriton.libs'}",
            "PYTHONHOME": sys.base_prefix,  # the backend embeds an interpreter, which knows no virtual environment
        }
        command: list[str | Path] = [_installed() / "bin" / "tritonserver", *_options(folder, http, grpc)]
        started = running("triton", command, folder=folder, ports=(http, grpc), models=models, variables=variables)
        with started as peer:
            yield peer


def _interpreter_libraries() -> Path:
    folder = Path(sysconfig.get_config_var("LIBDIR"))
    if not sysconfig.get_config_var("Py_ENABLE_SHARED"):
        raise PeerUnavailable("triton needs a Python that is built with --enable-shared")
    return folder


def _installed() -> Path:
    return ENVIRONMENT.site_packages / "pytriton" / "tritonserver"


def _write_repository(folder: Path, models: Mapping[str, Path]) -> None:
    model = _MODEL.format(paths=[str(ROOT), str(ENVIRONMENT.site_packages)])
    for name, path in models.items():
        version = folder / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(model)
        (folder / name / "config.pbtxt").write_text(_CONFIGURATION.format(path=path.resolve()))


def _copy_backend(folder: Path) -> None:
    """The backend expects the stub for this Python beside itself."""
    x, y = sys.version_info[:2]
    shutil.copytree(_installed() / "backends" / "python", folder)
    shutil.copy2(_installed() / "python_backend_stubs" / f"{x}.{y}" / "triton_python_backend_stub", folder)


def _options(folder: Path, http: int, grpc: int) -> list[str]:
    return [
        f"--model-repository={folder / 'models'}",
        f"--backend-directory={folder / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={folder.name}",  # two servers must not share memory
        f"--http-address={HOST}",
        f"--http-port={http}",
        f"--grpc-address={HOST}",
        f"--grpc-port={grpc}",
        "--allow-metrics=false",
    ]
