"""Disks that forget, fail, or remember all that was done to them."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from hinge.device.storage.disk import Disk


class QuickDisk(Disk):
    """Does not wait for the platter: for tests that crash processes and not machines."""

    def sync(self, handle: int) -> None:
        pass

    def sync_folder(self, folder: Path) -> None:
        pass


class Step(NamedTuple):
    """One thing done to a disk, or a mark that the test left between them."""

    what: str
    name: str = ""
    data: bytes = b""
    mark: int = 0


class RecordingDisk(QuickDisk):
    """Writes down what is done."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.meanwhile: Callable[[], None] = lambda: None  # what goes on while a snapshot is written
        self._names: dict[int, str] = {}

    def open(self, path: Path) -> int:
        handle = super().open(path)
        self._names[handle] = path.name
        self.steps.append(Step("open", path.name))
        return handle

    def write(self, handle: int, data: bytes) -> None:
        super().write(handle, data)
        self.steps.append(Step("write", self._names[handle], data))

    def sync(self, handle: int) -> None:
        self.steps.append(Step("sync", self._names[handle]))
        if self._names[handle].endswith(".tmp"):
            self.meanwhile()

    def rename(self, old: Path, new: Path) -> None:
        super().rename(old, new)
        self.steps.append(Step("rename", old.name, new.name.encode()))

    def remove(self, path: Path) -> None:
        super().remove(path)
        self.steps.append(Step("remove", path.name))

    def sync_folder(self, folder: Path) -> None:
        self.steps.append(Step("sync_folder"))


class Inode:
    """A file's bytes, and how many of them are safe."""

    def __init__(self) -> None:
        self.data, self.safe = b"", 0


class Machine:
    """What a power loss after some steps may leave on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}  # as the running system sees them
        self.safe_names: dict[str, Inode] = {}  # as the disk has them for sure

    def do(self, step: Step) -> None:
        if step.what == "open":
            self.names.setdefault(step.name, Inode())
        elif step.what == "write":
            self.names[step.name].data += step.data
        elif step.what == "sync":
            self.names[step.name].safe = len(self.names[step.name].data)
        elif step.what == "rename":
            self.names[step.data.decode()] = self.names.pop(step.name)
        elif step.what == "remove":
            del self.names[step.name]
        elif step.what == "sync_folder":
            self.safe_names = dict(self.names)

    def leftovers(self, last: Step) -> Iterator[dict[str, bytes]]:
        """Everything, or everything but part of the last write; only what is safe; names without their data."""
        whole = {name: inode.data for name, inode in self.names.items()}
        yield whole
        if last.what == "write":
            for missing in {1, len(last.data) // 2, len(last.data) - 1, len(last.data)}:
                yield {**whole, last.name: whole[last.name][: len(whole[last.name]) - missing]}
        yield {name: inode.data[: inode.safe] for name, inode in self.safe_names.items()}
        yield {name: inode.data[: inode.safe] for name, inode in self.names.items()}
        yield {name: inode.data[: inode.safe].ljust(len(inode.data), b"\0") for name, inode in self.names.items()}
        yield {name: inode.data for name, inode in self.safe_names.items()}


class FailingDisk(QuickDisk):
    """Fails in what `failing` names, and minds that no file is written or synced after it failed."""

    def __init__(self, code: int) -> None:
        self.code, self.failing = code, set[str]()
        self._paths: dict[int, Path] = {}
        self._failed: set[Path] = set()

    def _try(self, what: str, path: Path | None = None) -> None:
        assert path is None or path not in self._failed, f"{what} of {path} after it failed"
        if what in self.failing:
            if path:
                self._failed.add(path)
            raise OSError(self.code, os.strerror(self.code))

    def open(self, path: Path) -> int:
        self._try("open")
        handle = super().open(path)
        self._paths[handle] = path
        return handle

    def write(self, handle: int, data: bytes) -> None:
        if "write" in self.failing and self.code == errno.ENOSPC:
            super().write(handle, data[:5])  # what still fits
        self._try("write", self._paths[handle])
        super().write(handle, data)

    def sync(self, handle: int) -> None:
        self._try("sync", self._paths[handle])

    def rename(self, old: Path, new: Path) -> None:
        self._try("rename")
        super().rename(old, new)

    def sync_folder(self, folder: Path) -> None:
        self._try("sync_folder")
