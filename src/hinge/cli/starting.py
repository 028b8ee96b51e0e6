"""The command `new`."""

import json
import shlex
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer

from hinge.cli.configuring import SECTIONS, Option, options_of
from hinge.cli.contents import ENTRIES, load

_HEAD = """\
# Settings of Hinge: 'hinge device --config {file}' and 'hinge serve --config {file}' read them.
# What the command line says goes before them. Paths start from the folder of this file.
# A line such as '#name = value' is what holds without it; take away the '#' to change it.
"""
_FIRST = {"models": ["fashion"]}  # where a command must be told something, so that the file works as it is
_BLANKS: dict[type, str] = {str: '"…"', Path: '"…"', list: '["…"]'}


def new_command(
    file: Annotated[Path, typer.Argument(help="The file to write; one that is there already is left alone.")] = Path(
        "hinge.toml"
    ),
) -> None:
    """Write a file of settings to start from, for 'hinge device' and 'hinge serve'.

    It holds every option of the two, with its default and what it means.

    Example: hinge new hinge.toml
    """
    if not file.name.isprintable():
        raise ValueError(f"file must have a printable name, got {file.name!r}")
    text = starter(file.name)
    with file.open("x", encoding="utf-8") as stream:
        stream.write(text)
    print(f"{file} is written; try: hinge device --config {shlex.quote(str(file))}")


def starter(file: str) -> str:
    """The text of such a file."""
    parts = [_HEAD.format(file=file)]
    for section in SECTIONS:
        options = options_of(load(ENTRIES[section]).callback)
        parts.append(f"[{section}]\n" + "\n".join(_entry(name, options[name]) for name in options))
    return "\n".join(parts)


def _entry(name: str, option: Option) -> str:
    value = _FIRST.get(name, option.default)
    shown = _BLANKS.get(option.kind, "…") if value is None else _toml(value)
    comment = textwrap.fill(option.help, 110, initial_indent="# ", subsequent_indent="# ")
    return f"{comment}\n{'' if option.positional else '#'}{name} = {shown}\n"


def _toml(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)  # text, numbers, truths and lists read the same in both
