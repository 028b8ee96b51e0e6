"""Who may reach the server: only this machine, unless callers have to show a token or a certificate."""

import hmac
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

MIN_TOKEN = 16  # characters


@dataclass(frozen=True)
class Tls:
    """The files of a server that speaks TLS; with `client_ca`, clients need a certificate, too (mutual TLS)."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def __post_init__(self) -> None:
        for path in filter(None, (self.cert, self.key, self.client_ca)):
            Path(path).open("rb").close()
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.cert, self.key)
            context.load_verify_locations(self.client_ca or self.cert)
        except ssl.SSLError as error:
            raise ValueError(f"TLS: the files of certificate and key do not fit: {error.reason or error}") from None


def check_token(token: str, source: str = "token") -> str:
    """The token, if it is hard to guess and fits into a header.

    >>> check_token("secret")
    Traceback (most recent call last):
    ValueError: token must be at least 16 visible characters of ASCII
    """
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"{source} must be at least {MIN_TOKEN} visible characters of ASCII")
    return token


def shows(token: str, authorization: bytes) -> bool:
    """Whether a header shows the token; how long the comparison takes says nothing of where they differ.

    >>> shows("0123456789abcdef", b"Bearer 0123456789abcdef"), shows("0123456789abcdef", b"Bearer 0123456789abcdee")
    (True, False)
    """
    scheme, _, shown = authorization.partition(b" ")
    return hmac.compare_digest(shown.strip(), token.encode("ascii")) and scheme.lower() == b"bearer"


def listen(host: str, port: int, *, guarded: bool) -> socket.socket:
    """A socket at that address; one that others can reach only if callers are guarded against.

    >>> listen("0.0.0.0", 0, guarded=False)
    Traceback (most recent call last):
    ValueError: serving at 0.0.0.0 lets others in: give --token-file, HINGE_TOKEN or --client-ca, or accept it with ...
    """
    where = f"{host}:{port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError):
        raise ValueError(f"there is no address {host!r}") from None
    except OverflowError:
        raise ValueError(f"port must be from 0 to 65535, got {port}") from None
    if not guarded and not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        ways = "give --token-file, HINGE_TOKEN or --client-ca, or accept it with --insecure"
        raise ValueError(f"serving at {host} lets others in: {ways}")
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, where) from None
    return listener
