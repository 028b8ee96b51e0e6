"""One process to a folder."""

import fcntl
import os
from pathlib import Path

from hinge.errors import InvalidState


class FolderLock:
    """Held by the file `lock` in a folder, which is made if need be; the system lets go of it when the process ends.

    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> lock = FolderLock(Path(folder.name))
    >>> FolderLock(Path(folder.name))
    Traceback (most recent call last):
    hinge.errors.InvalidState: /...lock: the folder is in use by process ...
    >>> lock.release()
    >>> folder.cleanup()
    """

    def __init__(self, folder: Path) -> None:
        path = folder / "lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._handle: int | None = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise InvalidState(f"{path}: cannot be opened: {error}") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            process = _process(self._handle)
            self.leave()
            raise InvalidState(f"{path}: the folder is in use by process {process}") from error
        try:
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"{os.getpid()}\n".encode(), 0)
        except OSError:
            pass  # the number is for people; the lock holds without it

    def release(self) -> None:
        """Let others in; the file stays, since to remove it would let two in at once."""
        if self._handle is not None:
            fcntl.flock(self._handle, fcntl.LOCK_UN)  # to close it is not enough while a forked process has it open
            self.leave()

    def leave(self) -> None:
        """Hold it no more, and leave it to the process that this one was forked from."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def holder(folder: Path) -> str | None:
    """The process that uses a folder, if one does. Nothing is written; for an instant, no other can begin to use it.

    >>> from tempfile import TemporaryDirectory
    >>> folder = TemporaryDirectory()
    >>> lock = FolderLock(Path(folder.name))
    >>> holder(Path(folder.name)) == str(os.getpid())
    True
    >>> lock.release()
    >>> holder(Path(folder.name)) is None
    True
    >>> folder.cleanup()
    """
    try:
        handle = os.open(folder / "lock", os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except OSError:
        return _process(handle)
    finally:
        os.close(handle)


def _process(handle: int) -> str:
    return os.pread(handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
