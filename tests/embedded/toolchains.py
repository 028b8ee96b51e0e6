"""Toolchains: a test whose own is not installed is skipped and says so, or fails where HINGE_TOOLCHAINS is `all`."""

import os
import shutil

import pytest

from tools.boards.targets import Target

ALL = os.environ.get("HINGE_TOOLCHAINS") == "all"


def need(*programs: str) -> None:
    """Go on only if these programs are there."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        (pytest.fail if ALL else pytest.skip)(f"not installed: {', '.join(missing)}; see docs/microcontrollers.md")


def available(target: Target) -> Target:
    """A target, if its compiler and its emulator are there."""
    need(target.compiler, *target.emulator[:1])
    return target
