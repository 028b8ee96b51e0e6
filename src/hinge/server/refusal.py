"""Why a request is not answered as asked: an HTTP status, what the client is told, and a word for the metrics."""

from hinge.errors import HingeError

Headers = tuple[tuple[bytes, bytes], ...]


class Refusal(HingeError):
    """A request that is refused. Nothing in it may come from inside the server."""

    def __init__(self, status: int, reason: str, problem: str, headers: Headers = ()) -> None:
        super().__init__(problem)
        self.status = status
        self.reason = reason
        self.headers = headers


def overloaded(problem: str) -> Refusal:
    """The server has too much to do; the client may come back in a second."""
    return Refusal(503, "overloaded", problem, ((b"retry-after", b"1"),))


def ending() -> Refusal:
    """The server is about to end."""
    return overloaded("the server is shutting down")


def hung_up() -> Refusal:
    """Nobody waits for the answer any more; the status is for the log."""
    return Refusal(499, "disconnected", "the client closed the connection")


def too_large(limit: int) -> Refusal:
    """The body is larger than any may be."""
    return Refusal(413, "too large", f"a body may have {limit} bytes")
