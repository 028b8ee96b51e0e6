"""The command line as a whole: its sub-commands, each imported when it is called, and how errors reach the user.

A mistake of the user's (`HingeError`, cyclopts' own errors, a file that cannot be opened, a missing extra) is one line
on standard error, with exit code 2. Anything else is a bug: one line that says so, with exit code 1. `--debug` adds the
traceback to both.
"""

import logging
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from inspect import getdoc
from itertools import takewhile

from cyclopts import (
    App,
    CoercionError,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    UnusedCliTokensError,
    ValidationError,
)

from hinge import __version__
from hinge._checks import did_you_mean
from hinge.cli.settings import Settings, named
from hinge.errors import HingeError, InvalidArgument, UnknownName, printable

CHAPTERS = {  # what `hinge --help` lists; the first line of each command's own help, too
    "Try it": {
        "demo": "Watch a device and an edge server at work.",
        "list": "List the policies, and the traces that come along.",
    },
    "Measure": {
        "record": "Ask two models about your samples, for a log.",
        "evaluate": "What would every policy have cost on your log?",
        "simulate": "Run one policy many times, for its regret.",
        "reproduce": "Every figure, table and claim of the paper.",
    },
    "Run": {
        "device": "Answer samples, asking the remote at need.",
        "serve": "Serve models over HTTP, for devices to ask.",
        "gateway": "Put a gate in front of two servers, for any client.",
        "state": "Show, move or merge what a device has learned.",
    },
    "Firmware": {"export": "Write a policy as C, for a microcontroller."},
}
COMMANDS = {name: about for chapter in CHAPTERS.values() for name, about in chapter.items()}
_MODULES = {"list": "simulate", "reproduce": "simulate"}  # of commands that share one with another
_KINDS: dict[type, str] = {int: "an integer", float: "a number", bool: "true or false"}
_OPTION = re.compile("-[-a-zA-Z]")
_MAX_LENGTH = 1000  # characters of an error
_FAILED, _REFUSED, _UNREAD = 1, 2, 141  # exit codes; the last is 128 and the number of SIGPIPE


app = App(
    name="hinge",
    help="Hinge decides when a local answer is good enough, and when to ask the remote model.\n\n"
    "'hinge COMMAND --help' explains a command and ends with an example.",
    help_format="plaintext",
    version=f"hinge {__version__}",
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)
for _place, (_heading, _chapter) in enumerate(CHAPTERS.items()):
    _group = Group(_heading, sort_key=_place)
    for _name, _about in _chapter.items():
        _home = f"hinge.cli.{_MODULES.get(_name, _name)}:{_name}_command"
        app.command(_home, name=_name, help=_about, group=_group)


def run(words: Sequence[str]) -> int:
    """Run a command and return its exit code."""
    typed = [each for each in words if each != "--debug"]
    if logging.lastResort is not None:  # for warnings before and after a command's own handler
        logging.lastResort.setFormatter(logging.Formatter("hinge: %(message)s"))
    settings = Settings()
    try:
        _call(typed, settings)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    except BrokenPipeError:  # the reader has left, as `head` does: end as the system ends other programs
        with suppress(OSError, ValueError):  # or Python complains when it flushes at the end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _UNREAD
    except Exception as error:
        debug = len(typed) < len(words)
        if debug:
            traceback.print_exception(error)
        how = "" if debug else f"; '{shlex.join(['hinge', '--debug', *typed])}' shows where"
        line, code = _explain(error, settings, how)
        print(f"hinge: {printable(line, _MAX_LENGTH)}", file=sys.stderr)
        return code
    return 0


def command_of(words: Sequence[str]) -> tuple[App, list[str]]:
    """Import the command that the first words name, and return it with the words that follow."""
    found, rest = app, list(words)
    while found.default_command is None and rest and not rest[0].startswith("-"):
        known = [name for name in found if not name.startswith("-")]
        if rest[0] not in known:
            raise UnknownName(f"no command is called {rest[0]!r}{did_you_mean(rest[0], known)}")
        try:
            found = found[rest.pop(0)]
        except ImportError as error:
            raise error.__cause__ or error from None  # the one of the package that is missing
    return found, rest


def _call(words: list[str], settings: Settings) -> None:
    command, rest = command_of(words)
    path = words[: len(words) - len(rest)]
    if not {*rest}.isdisjoint(("--help", "-h")):
        _print_help(command, path)
        return
    check_options(command, rest, path)
    app.config = (settings,)
    function, bound, _ = app.parse_args(words, print_error=False, exit_on_error=False)
    function(*bound.args, **bound.kwargs)


def _print_help(command: App, path: Sequence[str]) -> None:
    """Print what a command does, its options, and an example in a line of its own, to be copied."""
    about, _, example = (getdoc(command.default_command) or "").partition("Example: ")
    if example:
        command.help = f"{COMMANDS.get(path[0], '') if len(path) == 1 else ''}\n\n{about}"
    app.help_print(path)
    if example:
        print(f"Example:\n  {' '.join(example.split())}")


def check_options(command: App, words: Sequence[str], path: Sequence[str]) -> None:
    """Refuse an option that the command has not."""
    known = command.assemble_argument_collection() if command.default_command else ()
    names = [each.name for each in known if each.name.startswith("--")]
    names += [name for name in command if command is app and name.startswith("--")]
    for word in takewhile(lambda word: word != "--", words):
        name = word.partition("=")[0]
        if _OPTION.match(name) and name not in names:
            near = did_you_mean(name, names) if names else "; there are none"
            help = "" if near.endswith("?") else f"; see '{' '.join(('hinge', *path))} --help'"
            raise UnknownName(f"no option is called {name!r}{near}{help}")


# -- errors -----------------------------------------------------------------------------------------------------------


def _explain(error: Exception, settings: Settings, how: str) -> tuple[str, int]:
    """Return what to say of an error, and the exit code; `how` to see the traceback of a bug."""
    if isinstance(error, CycloptsError):
        return _usage(error, settings), _REFUSED
    if isinstance(error, HingeError):
        return _named(error, settings), _REFUSED
    if isinstance(error, MemoryError):
        return f"out of memory: {error}", _REFUSED
    if isinstance(error, ImportError) and not (error.name or "").startswith("hinge"):
        extra = "cli" if (error.name or "").startswith(("rich", "cyclopts")) else "all"
        hint = "" if "pip install" in str(error) else f": pip install 'hinge-gate[{extra}]'"
        return f"{error}{hint}", _REFUSED
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}", _REFUSED
    what = f"{type(error).__name__}: {error}{how}"
    if isinstance(error, OSError) and error.errno:
        return what, _FAILED
    return f"this is a bug in Hinge, please report it: {what}", _FAILED


def _usage(error: CycloptsError, settings: Settings) -> str:
    """Return what is wrong with the command line, or with the file of settings that stands in for it."""
    error.verbose = False
    help = f"; see '{' '.join(('hinge', *(error.command_chain or ())))} --help'"
    argument, given = error.argument, "" if error.argument is None else settings.given_as(error.argument)
    if isinstance(error, UnusedCliTokensError):
        return f"there are more words than this command takes: {shlex.join(error.unused_tokens or ())}{help}"
    if isinstance(error, MissingArgumentError) and argument is not None:
        return f"{given} {'needs a value' if error.keyword else 'must be given'}{help}"
    if isinstance(error, ValidationError) and argument is not None:
        return f"{given} must {error.exception_message.removeprefix('Must ').rstrip('.')}, got {argument.value}{help}"
    if isinstance(error, CoercionError) and argument is not None and error.token is not None:
        choices = argument.get_choices()
        kind = f"one of {', '.join(choices)}" if choices else _KINDS.get(error.target_type or str, "of another kind")
        return f"{given} must be {kind}, got {error.token.value!r}{help}"
    return f"{' '.join(str(error).split()).rstrip('.')}{help}"


def _named(error: HingeError, settings: Settings) -> str:
    """Return what an error of the library says, with the option by which the user set the argument that it names."""
    if isinstance(error, InvalidArgument):
        known = named(settings.arguments)
        ends = [name for name in known if name.endswith(f"_{error.name}")]  # Limits.batch is --max-batch
        name = error.name if error.name in known else ends[0] if len(ends) == 1 else None
        if name is not None:
            return f"{settings.given_as(known[name])} {error.problem}"
        if "set" in known and any(token.value.startswith(f"{error.name}=") for token in known["set"].tokens):
            return f"{settings.given_as(known['set'])}: {error.name} {error.problem}"
    said = str(error)
    return (
        said
        if settings.path is None or str(settings.path) in said
        else f"{said} (with the settings of {settings.path})"
    )
