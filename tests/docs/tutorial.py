"""The tutorial as a program: its shell blocks in one bash script, and what each is to print."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
WAIT_S = 120.0  # bounds what hangs; all of it takes some 40 s of a core
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "--- the next block ---"


@dataclass(frozen=True)
class Block:
    """What a person types, and what the page says that they see; nothing, if it does not say."""

    commands: str
    shown: str


def blocks() -> list[Block]:
    """The page's blocks of shell commands, in order. A block of text behind one is what it prints."""
    fences = [*_FENCE.findall(PAGE.read_text("utf-8")), ("", "")]
    return [
        Block(text, after if kind == "text" else "")
        for (language, text), (kind, after) in pairwise(fences)
        if language == "sh"
    ]


def by_hand() -> list[str]:
    """The commands that the page shows and that want more than a clone: those behind a prompt."""
    fences = _FENCE.findall(PAGE.read_text("utf-8"))
    return [line.removeprefix("$ ") for language, text in fences if language == "console" for line in text.splitlines()]


def clone(folder: Path) -> Path:
    """A folder that looks like a clone to whoever follows the page. What is written there stays there."""
    for name in ("pyproject.toml", "README.md", "LICENSE", "src"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "examples").mkdir()
    for path in (ROOT / "examples").glob("*.py"):
        (folder / "examples" / path.name).write_bytes(path.read_bytes())
    return folder


def run(commands: list[str], folder: Path, programs: Path | None = None) -> list[str]:
    """Run blocks in one shell that stops at the first failure; returns what each printed.

    `programs` are those of an environment to install into. Without them it is this one, where everything is installed
    already: pip then has only to see that it would do.
    """
    programs = programs or _this_environment(folder)
    (folder / "tutorial.sh").write_text(f'\necho "{_MARK}"\n'.join(commands), "utf-8")
    out, errors = folder / "out.txt", folder / "errors.txt"  # files, as a server left behind would hold a pipe open
    with out.open("wb") as stdout, errors.open("wb") as stderr:
        process = subprocess.Popen(
            ["bash", "-e", "tutorial.sh"],
            cwd=folder,
            env=_environment(programs),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
        try:
            code = process.wait(WAIT_S if programs.parent == folder else 5 * WAIT_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    printed = out.read_text("utf-8")
    assert code == 0, f"{printed}\n{errors.read_text('utf-8')}"
    return printed.split(_MARK + "\n")


def _this_environment(folder: Path) -> Path:
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    pip = programs / "pip"
    options = "--dry-run --no-index --no-build-isolation"
    pip.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pip --disable-pip-version-check "$@" {options}\n')
    pip.chmod(0o755)
    return programs


def _environment(programs: Path) -> dict[str, str]:
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "COLUMNS": "120", "no_proxy": "127.0.0.1", "PYTHONDONTWRITEBYTECODE": "1"}
