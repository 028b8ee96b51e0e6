"""Who sent a request, and whether they still wait for its answer."""

import asyncio
from typing import TypeVar

from hinge.server.refusal import hung_up

CLIENT = "hinge.client"  # the name of an extension to ASGI: the `Client` at the other end of the connection

Outcome = TypeVar("Outcome")


class Client:
    """The other end of a connection, which asks for one thing at a time."""

    __slots__ = ("_awaited", "gone")

    def __init__(self) -> None:
        self.gone = False
        self._awaited: asyncio.Future[object] | None = None

    def check(self) -> None:
        """Raise the refusal that nobody will read, if the client has hung up."""
        if self.gone:
            raise hung_up()

    async def wait(self, answer: "asyncio.Future[Outcome]") -> Outcome:
        """What the answer is; it is cancelled, and refused, if the client hangs up before it is there."""
        self._awaited = answer  # type: ignore[assignment]  # it is only cancelled
        try:
            return await answer
        except asyncio.CancelledError:
            self.check()
            raise
        finally:
            self._awaited = None

    def leave(self) -> None:
        """The connection has ended."""
        self.gone = True
        if self._awaited is not None:
            self._awaited.cancel()
