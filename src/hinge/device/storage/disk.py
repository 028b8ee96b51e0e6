"""The file layer: every touch of the disk that the store makes goes through here, so that tests can let it fail."""

import errno
import os
from pathlib import Path


class Disk:
    """Files as the operating system has them. Every method raises `OSError` when the disk will not do it.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     disk, path = Disk(), Path(folder) / "note"
    ...     handle = disk.open(path)
    ...     disk.write(handle, b"kept")
    ...     disk.sync(handle)
    ...     disk.close(handle)
    ...     disk.read(path)
    b'kept'
    """

    def open(self, path: Path) -> int:
        """Open a file to append to, made if it is not there."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, handle: int, data: bytes) -> None:
        """Append all of the data, by one call: what is cut short is a failure, as the rest would not fit either."""
        if os.write(handle, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self, handle: int) -> None:
        """Return once all that was written is on the disk."""
        os.fdatasync(handle)

    def close(self, handle: int) -> None:
        os.close(handle)

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        os.unlink(path)

    def sync_folder(self, folder: Path) -> None:
        """Return once all that was made, renamed or removed in a folder is on the disk."""
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def names(self, folder: Path) -> list[str]:
        return sorted(os.listdir(folder))
