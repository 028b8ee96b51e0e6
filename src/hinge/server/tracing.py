"""Names for requests, by which an answer and its line in the log are found again."""

import re
import secrets
from itertools import count

_BOOT = secrets.token_hex(4)
_COUNT = count(1)
_OWN = re.compile(rb"[A-Za-z0-9_.-]{1,64}")


def new_id() -> str:
    """A name that no other request has."""
    return f"{_BOOT}-{next(_COUNT):x}"


def id_from(header: bytes | None) -> str:
    """The client's own name for its request, if it is one that may stand in a log; else a new one.

    >>> id_from(b"order-17")
    'order-17'
    """
    if header is not None and _OWN.fullmatch(header):
        return header.decode("ascii")
    return new_id()
