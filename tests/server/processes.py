"""Commands that serve, `hinge serve` above all, as processes of their own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

WAIT_S = 30.0


Served = tuple["subprocess.Popen[str]", str]


@contextmanager
def serving(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Run `hinge serve`; yields the process and the address it announces. Whatever happens, it ends with the block."""
    with running("serve", *arguments, environment=environment) as served:
        yield served


@contextmanager
def running(*arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """The same of any command that serves."""
    command = [sys.executable, "-m", "hinge", *arguments, "--port", "0"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if " http" not in line:
            raise AssertionError(f"it did not start: {line} {process.communicate(timeout=WAIT_S)[1]}")
        yield process, line.split()[-1]
    finally:
        process.kill()
        process.communicate(timeout=WAIT_S)


def memory_kib(process: "subprocess.Popen[str]", field: str) -> int:
    """What the system says of a process's memory: VmRSS now, VmHWM at its height."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise AssertionError(field)
