"""Tokens that a client shows a server, in a header of their own."""

import os
import re
from pathlib import Path

MAX_TOKEN = 4096  # characters


def read_token(path: Path | None, variable: str = "HINGE_TOKEN") -> str | None:
    """The token in a file, or else in the environment, if there is one; never from the command line, which others see.

    >>> read_token(None, "NO_SUCH_TOKEN") is None
    True
    """
    if path is None:
        token = os.environ.get(variable)
        return None if token is None else check_token(variable, token.strip())
    with path.open("rb") as file:
        content = file.read(2 * MAX_TOKEN)  # what is longer is refused, however long it is
    return check_token(str(path), content.decode("utf-8", "replace").strip())


def check_token(owner: str, token: object) -> str:
    """The token, if it can stand in a header: printable characters of ASCII, no spaces, no ends of lines.

    >>> check_token("OpenInference", "secret")
    'secret'
    >>> check_token("OpenInference", "secret\\n")
    Traceback (most recent call last):
    ValueError: OpenInference: token must be printable ASCII without spaces
    """
    if not isinstance(token, str):
        raise TypeError(f"{owner}: token must be text, got {type(token).__name__}")
    if not re.fullmatch(r"[!-~]+", token) or len(token) > MAX_TOKEN:
        raise ValueError(f"{owner}: token must be printable ASCII without spaces")  # and it is not shown
    return token
