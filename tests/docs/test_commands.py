"""Every command that a page shows is one that there is, with options that it has and as many arguments as it takes."""

import re
import shlex
from pathlib import Path

import pytest

from hinge.cli.app import COMMANDS, load

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
    name, *words = shlex.split(text.removesuffix("&"))
    assert name in COMMANDS, page
    command = load(name)
    if words and words[0] in getattr(command, "commands", {}):
        name, *words = words
        command = command.commands[name]
    if words:  # else a sentence names the command
        context = command.make_context(name, [], resilient_parsing=True)  # which misses nothing that must be given,
        context.resilient_parsing = False  # but would overlook an option that there is not
        _, left, _ = command.make_parser(context).parse_args(words)
        assert left == []
