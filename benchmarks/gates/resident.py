"""How much memory processes hold."""

import os
from pathlib import Path


def resident_mib(pid: int | None = None) -> float:
    """The resident memory of a process, ours by default, and of all those that it started."""
    root = os.getpid() if pid is None else pid
    own = _status(root).get("VmRSS", "0 kB")
    return int(own.split()[0]) / 1024 + sum(resident_mib(child) for child in _children(root))


def _children(pid: int) -> list[int]:
    found = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in thread.read_text().split()]
    return found


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
