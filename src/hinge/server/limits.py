"""How much of the server its clients may take up."""

from dataclasses import dataclass

from hinge._checks import positive, whole
from hinge.oip.json import MAX_BODY_BYTES

MAX_HEAD_BYTES = 16 * 2**10  # of a request's address and headers
MAX_HEADERS = 100
MAX_CHUNKS = 2**14  # of a body that comes in chunks: 4 KiB each would fill the largest
FREE_PIECES = 64  # pieces in which a body may arrive, however small they are
MIN_PIECE_BYTES = 256  # beyond those, how large they must be on average


@dataclass(frozen=True)
class Limits:
    """Bounds on what clients may send; beyond them they are refused.

    >>> Limits(requests=0)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: Limits: requests must be an integer >= 1, got 0
    """

    requests: int = 256  # inferences received, waiting or running
    connections: int = 1024
    held_bytes: int = 4 * MAX_BODY_BYTES  # bodies in memory, all together
    receive_s: float = 30.0  # for a request to arrive, from its first byte to its last
    batch: int = 64  # rows that a model is given at once; 1: requests are never joined

    def __post_init__(self) -> None:
        for name in ("requests", "connections", "held_bytes", "batch"):
            whole("Limits", name, getattr(self, name), 1)
        positive("Limits", "receive_s", self.receive_s)
