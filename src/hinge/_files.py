"""Files that are written whole or not at all."""

import csv
import errno
import io
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import IO, Any


@contextmanager
def replacing(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file beside the old one, which takes its place once all is written and synced to disk (fsync).

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "log.txt")
    >>> with replacing(path) as stream:
    ...     _ = stream.write(b"all of it")
    >>> os.listdir(os.path.dirname(path))
    ['log.txt']
    """
    target = os.path.realpath(path)  # replace what a link points at, not the link
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if os.path.exists(target) and not os.path.isfile(target):  # a device or a pipe is written to, never replaced
        with open(target, "wb") as stream:
            yield stream
        return
    part = os.path.join(os.path.dirname(target), f".hinge-{secrets.token_hex(8)}.part")
    try:
        stream = open(part, "xb")  # noqa: SIM115  # closed before it is renamed, which Windows asks for
    except OSError as error:
        error.filename = os.fspath(path)  # the name that the caller knows
        raise
    try:
        with stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        if os.path.exists(target):
            shutil.copymode(target, part)  # what was private stays so
        os.replace(part, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(part)
        raise


def write_whole(files: Mapping[Path, str | bytes]) -> None:
    """Write files, text in UTF-8: none takes its place before all of them are written.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_whole({folder / "a.txt": "one", folder / "b.txt": "two"})
    >>> sorted(path.name for path in folder.iterdir())
    ['a.txt', 'b.txt']
    """
    with ExitStack() as stack:
        for path, content in files.items():
            stream = stack.enter_context(replacing(path))
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()  # a full disk is found here, before the first is renamed


def write_csv(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole({path: text.getvalue()})
