"""A file of settings, `--config hinge.toml`: what the command line does not say, by command in a section of its own."""

import os
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from cyclopts import App, CoercionError, Token
from cyclopts.argument import Argument, ArgumentCollection

from hinge._checks import did_you_mean
from hinge.errors import HingeError

SECTIONS = ("device", "serve", "gateway")  # of a file of settings
PLACE = "FILE|URL"  # a path, unless it has a scheme
NAMES = "FILE|A,B,C"  # a path, if there is such a file
EDGES = "NUMBER|EDGES"  # of bins
_CONFIG = "config"  # the option that names the file, which cannot be set in it


class UsageError(HingeError):
    """Options that do not go together, or a value that cannot be used."""


class Settings:
    """What cyclopts calls after it has read the command line, to fill in what that does not say."""

    def __init__(self) -> None:
        self.arguments: Sequence[Argument] = ()  # of the command that is called
        self.path: Path | None = None  # of the file, if one was read

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give the settings of the file to the arguments that the command line left out."""
        self.arguments = arguments
        known = named(arguments)
        for argument in known.values():
            _check_whole(argument)
        file = known.pop(_CONFIG, None)
        if file is None or not file.tokens:
            return
        self.path = Path(file.tokens[0].value)
        for name, value in _section(self.path, commands[-1]).items():
            if name not in known:
                problem = f"no setting of [{commands[-1]}] is called {name!r}{did_you_mean(name, known)}"
                raise UsageError(f"{self.path}: {problem}")
            if not known[name].tokens:
                for number, text in enumerate(_texts(self.path, value, known[name])):
                    token = Token(keyword=name, value=text, source=str(self.path), index=number)
                    known[name].append(token)
                _check_whole(known[name])

    def given_as(self, argument: Argument) -> str:
        """Return the option as the user wrote it: on the command line, or in a file of settings."""
        from_file = bool(argument.tokens) and argument.tokens[0].source == str(self.path)
        return f"{self.path}: {_name(argument)}" if from_file else str(argument.name)


def _check_whole(argument: Argument) -> None:
    """Refuse 2.5 for an integer, which cyclopts would round."""
    for token in argument.tokens if int in (argument.hint, *get_args(argument.hint)) else ():
        if not token.value.removeprefix("-").isdecimal():
            raise CoercionError(token=token, argument=argument, target_type=int)


def named(arguments: Iterable[Argument]) -> dict[str, Argument]:
    """Return the options and arguments of a command, by the names that they have in a file."""
    return {_name(each): each for each in arguments if each.parse and not each.children}  # a group is not one


def _name(argument: Argument) -> str:
    return argument.name.lstrip("-").replace("-", "_").lower()


def _section(path: Path, section: str) -> dict[str, Any]:
    """Return the settings of a command."""
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not text in UTF-8") from None
    except tomllib.TOMLDecodeError as error:  # says where
        raise UsageError(f"{path}: {error}") from None
    except (ValueError, RecursionError):  # numbers of thousands of digits, lists in lists in lists
        raise UsageError(f"{path}: a value is too large to be read") from None
    for name, part in content.items():
        if not isinstance(part, dict):
            where = f"be a section, [{name}]" if name in SECTIONS else "stand below [device], [serve] or [gateway]"
            raise UsageError(f"{path}: {name!r} must {where}")
        if name not in SECTIONS:
            raise UsageError(f"{path}: no section is called {name!r}{did_you_mean(name, SECTIONS)}")
    if content and section not in content:
        there = " and ".join(f"[{name}]" for name in content)
        raise UsageError(f"{path}: has no section [{section}], but {there}")
    return dict(content.get(section, {}))


def _texts(path: Path, value: Any, argument: Argument) -> Sequence[str]:
    """Return a value as it would be typed, so that one parser reads both."""
    name, metavar = _name(argument), argument.parameter.metavar
    several = get_origin(argument.hint) is tuple
    if metavar in (NAMES, EDGES) and isinstance(value, list):
        if comma := next((each for each in value if "," in str(each)), None):
            raise UsageError(f"{path}: {name} has {comma!r}, with a comma: name a file of lines instead")
        value = ",".join(map(str, value))
    if isinstance(value, list) != several or isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be {'a list' if several else 'one value'}, got {value!r}")
    return [_located(path.parent, each, argument) for each in (value if several else [value])]


def _located(folder: Path, value: Any, argument: Argument) -> str:
    """Return a value as text. Paths start from the folder of the file."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if Path in (argument.hint, *get_args(argument.hint)) or argument.parameter.metavar in (PLACE, NAMES):
        path = folder / os.path.expanduser(text)
        return text if "://" in text or ("," in text and not path.exists()) else str(path)
    if argument.index is None or text in ("-", argument.field_info.default):
        return text
    name, sign, place = text.rpartition("=")  # a model may be NAME=PATH
    path = Path(os.path.expanduser(place))
    looks_like_one = path.suffix or len(path.parts) > 1 or (folder / path).exists()
    return f"{name}{sign}{folder / path}" if looks_like_one else text
