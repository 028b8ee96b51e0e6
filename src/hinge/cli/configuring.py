"""Settings in a file, in TOML: a section for each command that takes one, and in it the command's own options.

What can be set, of which type, and what it is without a file is read off the command's signature.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, NamedTuple, get_args, get_origin

from typer.models import ArgumentInfo

from hinge._checks import did_you_mean

SECTIONS = ("device", "serve")
FILE = "config"  # the option that names the file, which cannot stand in it

_KINDS = {
    bool: ((bool,), "true or false"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    str: ((str,), "text in quotes"),
    Path: ((str,), "a path in quotes"),
    list: ((list,), "a list of texts in quotes"),
}
_NUMBER_OR_WORD = "offload_cost"  # a number, or 'learned'; for the command line both are text
_HEADING = re.compile(r"\s*\[\s*([\w-]+)\s*]")
_KEY = re.compile(r"""\s*(["']?)([\w-]+)\1\s*=""")


class Option(NamedTuple):
    """What a command takes under one name."""

    kind: type
    default: Any
    help: str
    positional: bool


def options_of(command: Callable[..., Any]) -> dict[str, Option]:
    """What can be set of a command, by name."""
    parameters = inspect.signature(command).parameters
    return {name: _option(parameter) for name, parameter in parameters.items() if name != FILE}


def _option(parameter: inspect.Parameter) -> Option:
    annotation, described = get_args(parameter.annotation)  # Annotated[str | None, typer.Option(…)]
    kinds = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    kind = next(get_origin(each) or each for each in kinds if each is not NoneType)
    return Option(kind, parameter.default, described.help, isinstance(described, ArgumentInfo))


@dataclass(frozen=True)
class Settings:
    """What a file says for one command, and on which lines."""

    path: Path
    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def without(self, names: Iterable[str]) -> "Settings":
        """The settings but for these, which the command line has given."""
        return replace(self, values={name: self.values[name] for name in self.values if name not in names})

    def locate(self, problem: str, flags: Mapping[str, str]) -> str:
        """The problem, with the line that it comes from if it is about one of these settings."""
        for name, value in self.values.items():
            where, flag = f"{self.path}, line {self.lines[name]}", flags.get(name)
            named = re.sub(rf"{flag}(?![a-z-])", name, problem) if flag else problem
            if named != problem:
                return f"{where}: {named}"
            texts = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str | Path)]
            if any(repr(str(each)) in problem or problem.startswith(f"{each}:") for each in texts):
                return f"{where}, {name}: {problem}"
        return problem


NOTHING = Settings(Path(), {}, {})


def read_settings(path: Path, section: str, command: Callable[..., Any] | None) -> Settings:
    """What a file says for a command; whatever makes no sense is refused, with its line."""
    text = _text(path)
    content, found = _parsed(path, text), _lines(text)
    for name, part in content.items():
        _check_section(f"{path}, line {_line(found, name)}", name, part)
    own, known = content.get(section, {}), options_of(command) if command else {}
    lines = {name: _line(found, section, name) for name in own}
    values = {name: _checked(f"{path}, line {lines[name]}", name, own[name], known) for name in own}
    return Settings(path, {name: _located(path.parent, known[name], values[name]) for name in values}, lines)


def _check_section(where: str, name: str, part: Any) -> None:
    if name not in SECTIONS and not isinstance(part, dict):
        raise ValueError(f"{where}: {name!r} must stand below [device] or [serve]")
    if name not in SECTIONS:
        raise ValueError(f"{where}: no section is called {name!r}{did_you_mean(name, SECTIONS)}")
    if not isinstance(part, dict):
        raise ValueError(f"{where}: {name!r} must be a section, [{name}]")


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is not text in UTF-8") from None


def _parsed(path: Path, text: str) -> dict[str, Any]:
    toml: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        content: dict[str, Any] = toml.loads(text)
    except toml.TOMLDecodeError as error:
        problem, _, place = str(error).partition(" (at ")
        number = re.match(r"line (\d+)", place)
        line = number[1] if number else text.rstrip().count("\n") + 1
        raise ValueError(f"{path}, line {line}: {problem[:1].lower()}{problem[1:]}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise ValueError(f"{path}: a value is too large to be read") from None
    return content


def _lines(text: str) -> dict[tuple[str, str], int]:
    """The line of each key, by section and key; of each section under an empty key."""
    found: dict[tuple[str, str], int] = {}
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        heading, key = _HEADING.match(line), _KEY.match(line)
        if heading:
            section = heading[1]
            found.setdefault((section, ""), number)
        elif key:
            found.setdefault((section, key[2]), number)
    return found


def _line(found: Mapping[tuple[str, str], int], section: str, name: str = "") -> int:
    """The line of a setting; if that cannot be told, of its section."""
    places = ((section, name), (section, ""), ("", section))
    return next((found[place] for place in places if place in found), 1)


def _checked(where: str, name: str, value: Any, known: Mapping[str, Option]) -> Any:
    if name not in known:
        raise ValueError(f"{where}: no setting is called {name!r}{did_you_mean(name, known)}")
    kind = known[name].kind
    types, words = _KINDS[kind]
    if name == _NUMBER_OR_WORD and type(value) in (int, float):
        return str(value)
    if type(value) not in types or (kind is list and not all(isinstance(each, str) for each in value)):
        raise ValueError(f"{where}: {name} must be {words}, got {value!r}")
    return float(value) if kind is float else value


def _located(folder: Path, option: Option, value: Any) -> Any:
    """A path in the file starts from its folder; what is positional is a path if it looks like one, or is there."""
    if option.kind is Path:
        return folder / value
    if not option.positional or value in ("-", option.default):
        return value
    if isinstance(value, list):  # of models, each of which may be NAME=PATH
        named = [each.rpartition("=") for each in value]
        return [f"{name}{sign}{_beside(folder, path)}" for name, sign, path in named]
    return _beside(folder, value)


def _beside(folder: Path, text: str) -> str:
    path = Path(text)
    return str(folder / path) if path.suffix or len(path.parts) > 1 or (folder / path).exists() else text
