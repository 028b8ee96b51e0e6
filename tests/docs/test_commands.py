"""Every command that a page shows is one that there is, with options that it has and as many arguments as it takes."""

import re
import shlex
from contextlib import suppress
from pathlib import Path

import pytest
from cyclopts import MissingArgumentError

from hinge.cli.app import app, check_options, command_of

ROOT = Path(__file__).parents[2]
_SHOWN = re.compile(r"^(?: {4}|\$ )?(?:\w+ \| )?hinge ([a-z][^#\n]*)|`hinge\s+([a-z][^`]*?)`", re.MULTILINE)


def shown() -> list[tuple[str, str]]:
    """The commands of all pages, each once: the page, and what follows `hinge`."""
    found = set()
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for block, inline in _SHOWN.findall(path.read_text("utf-8")):
            found.add((path.name, " ".join((block or inline).split())))
    return sorted(found)


@pytest.mark.parametrize(("page", "text"), shown())
def test_a_command_on_a_page_is_understood(page: str, text: str) -> None:
    words = shlex.split(text.removesuffix("&"))
    command, given = command_of(words)
    if given and "--help" not in given:  # else a sentence names the command
        check_options(command, given, words)
        app.config = ()  # so that no file of settings is read
        with suppress(MissingArgumentError):  # a page may leave out what its reader has to fill in
            app.parse_args(words, print_error=False, exit_on_error=False)
