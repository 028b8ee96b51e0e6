"""The live page: files of the package, which may load nothing but each other."""

from functools import cache
from pathlib import Path

from hinge.server.call import Answer

_FOLDER = Path(__file__).with_name("page")
_TYPES = {".html": b"text/html; charset=utf-8", ".js": b"text/javascript; charset=utf-8", ".css": b"text/css"}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FILES = {"/": "index.html"} | {
    f"/hinge/{name}": name
    for name in ("style.css", "page.js", "stream.js", "charts.js", "parts.js", "numbers.js")
}


@cache
def page_file(path: str) -> Answer:
    """The file at that path of the server.

    >>> page_file("/").headers[0]
    (b'content-type', b'text/html; charset=utf-8')
    """
    file = _FOLDER / FILES[path]
    headers = (
        (b"content-type", _TYPES[file.suffix]),
        (b"content-security-policy", _POLICY),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"cache-control", b"no-cache"),
    )
    return Answer(200, headers, file.read_bytes())
