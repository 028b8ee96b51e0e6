"""Addresses of servers, and the bearer tokens that are shown to them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import urlsplit

from hinge._checks import shown
from hinge.errors import InvalidType, InvalidValue

MAX_TOKEN = 4096  # characters


def check_url(owner: str, url: str) -> str:
    """The address of a server, perhaps below a path, without a slash at its end.

    >>> check_url("OpenInference", "http://edge:8080/")
    'http://edge:8080'
    >>> check_url("OpenInference", "edge:8080")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: OpenInference: url must start with http:// or https:// and name a host, got 'edge:8080'
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        valid = False
    if not valid:
        problem = f"must start with http:// or https:// and name a host, got {shown(without_password(url), 100)}"
        raise InvalidValue(owner, "url", problem)
    # Nothing in it may be taken for another part of a request.
    if parts.query or parts.fragment or parts.username is not None or not re.fullmatch(r"[!-~]+", url):
        problem = f"must have no spaces, query, fragment, user or password, got {shown(without_password(url), 100)}"
        raise InvalidValue(owner, "url", problem)
    return url.rstrip("/")


def without_password(url: str) -> str:
    """An address that may be shown: what stands before the host may be a password.

    >>> without_password("http://me:secret@edge:8080"), without_password("http://edge")
    ('http://***@edge:8080', 'http://edge')
    """
    return re.sub(r"^([a-z]+://)?.*@", r"\1***@", str(url), flags=re.DOTALL | re.IGNORECASE)


def read_token(path: Path | None, variable: str = "HINGE_TOKEN", *, least: int = 1) -> str | None:
    """The token in a file, or else in the environment, if there is one; never from the command line, which others see.

    >>> read_token(None, "NO_SUCH_TOKEN") is None
    True
    """
    if path is None:
        token = os.environ.get(variable)
        return None if token is None else check_token(variable, token.strip(), least=least)
    with path.open("rb") as file:
        content = file.read(2 * MAX_TOKEN)  # what is longer is refused, however long it is
    return check_token(str(path), content.decode("utf-8", "replace").strip(), least=least)


def check_token(owner: str, token: object, *, least: int = 1) -> str:
    """The token, if it can stand in a header and has at least so many characters; it is never shown.

    >>> check_token("OpenInference", "secret")
    'secret'
    >>> check_token("OpenInference", "secret\\n")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: OpenInference: token must be printable ASCII without spaces
    >>> check_token("hinge serve", "secret", least=16)
    Traceback (most recent call last):
    hinge.errors.InvalidValue: hinge serve: token must be printable ASCII without spaces, at least 16 characters
    """
    if not isinstance(token, str):
        raise InvalidType(owner, "token", f"must be text, got {type(token).__name__}")
    if not re.fullmatch(r"[!-~]+", token) or not least <= len(token) <= MAX_TOKEN:
        enough = f", at least {least} characters" if least > 1 else ""
        raise InvalidValue(owner, "token", f"must be printable ASCII without spaces{enough}")
    return token


def bearer(owner: str, token: object) -> dict[str, str]:
    """The header that shows a token; without one, none.

    >>> bearer("OpenInference", "secret"), bearer("OpenInference", None)
    ({'Authorization': 'Bearer secret'}, {})
    """
    return {} if token is None else {"Authorization": f"Bearer {check_token(owner, token)}"}
