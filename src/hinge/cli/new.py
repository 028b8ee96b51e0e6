"""The command `new`."""

import json
import shlex
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from hinge.cli.app import load
from hinge.cli.console import say
from hinge.cli.options import SECTIONS, Setting, UsageError, settings_of

_HEAD = """\
# Settings of Hinge: 'hinge device --config {file}' reads them; likewise 'hinge serve' and 'hinge gateway'.
# What the command line says goes before them. Paths start from the folder of this file.
# A line such as '#name = value' is what holds without it; take away the '#' to change it.
"""
_FIRST = {"models": ["fashion"]}  # set, as the command cannot run without it
_BLANKS: dict[type, str] = {int: "…", float: "…", list: '["…"]'}  # all else is text


def command(
    file: Annotated[Path, typer.Argument(help="The file to write; one that is there already is left alone.")] = Path(
        "hinge.toml"
    ),
) -> None:
    """It holds every option of 'hinge device', 'hinge serve' and 'hinge gateway', with its default and what it means.

    Example: hinge new hinge.toml
    """
    if not file.name.isprintable():
        raise UsageError(f"FILE must have a printable name, got {file.name!r}")
    text = starter(file.name)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
    say(f"{file} is written; try: hinge device --config {shlex.quote(str(file))}")


def starter(file: str) -> str:
    """The text of such a file."""
    parts = [_HEAD.format(file=file)]
    for section in SECTIONS:
        settings = settings_of(load(section))
        parts.append(f"[{section}]\n" + "\n".join(_entry(name, settings[name]) for name in settings))
    return "\n".join(parts)


def _entry(name: str, setting: Setting) -> str:
    value = _FIRST.get(name, setting.default)
    # text, numbers, booleans and lists are written alike in JSON and TOML
    shown = _BLANKS.get(setting.kind, '"…"') if value is None else json.dumps(value, ensure_ascii=False)
    comment = textwrap.fill(setting.help, 110, initial_indent="# ", subsequent_indent="# ")
    return f"{comment}\n{'' if setting.positional else '#'}{name} = {shown}\n"
