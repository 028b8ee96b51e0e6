"""Our own server, started as the peers are, so that it can stand beside them."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tools.peers.process import Peer, free_ports, running, workspace


@contextmanager
def hinge(models: Mapping[str, Path]) -> Iterator[Peer]:
    """`hinge serve` with its defaults, from this environment. It serves no gRPC."""
    with workspace("hinge") as folder:
        http, unused = free_ports(2)
        places = [f"{name}={path.resolve()}" for name, path in models.items()]
        command = [sys.executable, "-m", "hinge", "serve", *places, "--port", str(http)]
        with running("hinge", command, folder=folder, ports=(http, unused), models=models) as peer:
            yield peer
