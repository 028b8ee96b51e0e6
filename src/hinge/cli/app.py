"""The command line as a whole: its sub-commands, each imported when it is called, and how errors reach the user.

A mistake of the user's (`HingeError`, Typer's own errors, a file that cannot be opened, a missing extra) is one line on
standard error, with exit code 2. Anything else is a bug: one line that says so, with exit code 1. `--debug` adds the
traceback to both.
"""

import logging
import os
import shlex
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from typing import Any

import typer
import typer.core
import typer.main

from hinge import __version__
from hinge._checks import did_you_mean
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
        "new": "Write a file of settings to start from.",
        "device": "Answer samples, asking the remote at need.",
        "serve": "Serve models over HTTP, for devices to ask.",
        "gateway": "Put a gate before two servers, for any client.",
        "state": "Look at, move or merge what a device has learned.",
    },
    "Firmware": {"export": "Write a policy as C, for a microcontroller."},
}
_HOMES = {  # the modules of commands that share one with another
    **{"list": "evaluate", "simulate": "evaluate", "reproduce": "evaluate"},
    **{"record": "device", "gateway": "serve", "new": "options"},
}
COMMANDS = {name: about for chapter in CHAPTERS.values() for name, about in chapter.items()}

_EXAMPLE = "\n\nExample: "
_LONGEST = 1000  # characters of an error
_FAILED, _REFUSED, _UNREAD = 1, 2, 141  # exit codes; the last is 128 and the number of SIGPIPE


class _Explained:
    """A command whose help ends with an example, and whose errors name the option that the user gave."""

    params: list[Any]
    help: str | None

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.help, _, self.example = (self.help or "").partition(_EXAMPLE)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The example on a line of its own, to be copied."""
        if self.example:
            formatter.write(f"\nExample:\n  {' '.join(self.example.split())}\n")

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A library error about an argument names the option by which the user set it."""
        try:
            return super().invoke(ctx)  # type: ignore[misc]  # that of the class this is mixed into
        except HingeError as error:
            told = self._told(ctx, error)
            if told == str(error):
                raise
            raise HingeError(told) from error

    def _told(self, ctx: Any, error: HingeError) -> str:
        if isinstance(error, InvalidArgument):
            options = {each.name: each for each in self.params}
            ends = [name for name in options if name.endswith(f"_{error.name}")]  # Limits.batch is --max-batch
            name = error.name if error.name in options else ends[0] if len(ends) == 1 else None
            if name is not None:
                return f"{_given_as(ctx, options[name])} {error.problem}"
        read = any(_is_from_file(ctx, each) for each in self.params)
        return f"{error} (with the settings of {ctx.params['config']})" if read else str(error)


class Command(_Explained, typer.core.TyperCommand):
    """One command."""


class Group(_Explained, typer.core.TyperGroup):
    """Commands under one name, which alone shows its help; it may have options of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without arguments, show the help."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not ctx.resilient_parsing:  # shell completion asks about unfinished words
            raise UnknownName(f"no command is called {args[0]!r}{did_you_mean(args[0], known)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands with the first sentence of their help, uncut."""
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        if not commands:
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_LONGEST)) for name, each in commands.items()])


class Root(Group):
    """All commands; only the one that is called is imported."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the chapters."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in that can be listed, with its name and help, but not run."""
        return typer.core.TyperCommand(cmd_name, help=COMMANDS[cmd_name]) if cmd_name in COMMANDS else None

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        return name, load(name) if name else None, rest

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The chapters, one command to a line, and then the options."""
        width = max(map(len, COMMANDS))
        for heading, chapter in CHAPTERS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), about) for name, about in chapter.items()])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Nothing: the chapters have them."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command. A reader that leaves, as `head` does, ends it like the system ends other programs."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            with suppress(OSError, ValueError):  # or Python complains when it flushes at the end
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(_UNREAD) from None


def load(name: str) -> Any:
    """A command, or a group of commands, from its module."""
    found = getattr(import_module(f"hinge.cli.{_HOMES.get(name, name)}"), f"{name}_command")
    if isinstance(found, typer.Typer):
        for each in found.registered_commands:
            each.cls = Command
        own = found.registered_callback
        acts = own is not None and own.invoke_without_command is True  # also without a subcommand
        about = f"{COMMANDS[name]}\n\n{getdoc(own.callback)}" if own and acts else COMMANDS[name]
        found.info.cls, found.info.help = Group, about
        loaded: Any = typer.main.get_group(found)
    else:
        shell = typer.Typer(add_completion=False, rich_markup_mode=None)
        shell.command(name, cls=Command, help=f"{COMMANDS[name]}\n\n{getdoc(found)}")(found)
        loaded = typer.main.get_command(shell)
    loaded.name = name
    return loaded


app = typer.Typer(
    cls=Root,
    help="Hinge decides when a local answer is good enough, and when to ask the remote model.",
    epilog="'hinge COMMAND --help' explains a command and ends with an example.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"hinge {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error."),  # `run` reads it anywhere
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code."""
    words = [each for each in arguments if each != "--debug"]
    if logging.lastResort is not None:  # for warnings before and after a command's own handler
        logging.lastResort.setFormatter(logging.Formatter("hinge: %(message)s"))
    try:
        code = app(words, prog_name="hinge", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except Exception as error:
        debug = words != arguments
        if debug:
            traceback.print_exception(error)
        line, code = _explain(error, "" if debug else f"; '{shlex.join(['hinge', '--debug', *words])}' shows where")
        print(f"hinge: {printable(line, _LONGEST)}", file=sys.stderr)
        return code


def _explain(error: Exception, how: str) -> tuple[str, int]:
    """What to say of an error, and the exit code; `how` to see the traceback of a bug."""
    if isinstance(error, typer.TyperException):
        return _usage(error), _REFUSED
    if isinstance(error, HingeError):
        return str(error), _REFUSED
    if isinstance(error, MemoryError):
        return f"out of memory: {error}", _REFUSED
    if isinstance(error, ImportError) and not (error.name or "").startswith("hinge"):
        extra = "cli" if (error.name or "").startswith("rich") else "all"
        hint = "" if "pip install" in str(error) else f": pip install 'hinge-gate[{extra}]'"
        return f"{error}{hint}", _REFUSED
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}", _REFUSED
    what = f"{type(error).__name__}: {error}{how}"
    if isinstance(error, OSError) and error.errno:
        return what, _FAILED
    return f"this is a bug in Hinge, please report it: {what}", _FAILED


def _usage(error: Any) -> str:
    """What is wrong with the command line, or with the file of settings that stands in for it."""
    ctx, option = getattr(error, "ctx", None), getattr(error, "param", None)
    if ctx is None:
        return str(error.format_message())
    if option is not None and _is_from_file(ctx, option):
        return f"{_given_as(ctx, option)}: {error.message}"
    wrong, options = getattr(error, "option_name", None), [name for each in ctx.command.params for name in each.opts]
    if wrong and wrong not in options:
        known = [name for name in options if name[:2] == "--"]
        near = did_you_mean(wrong, known) if known else "; there are none"
        help = "" if near.endswith("?") else f"; see '{ctx.command_path} --help'"
        return f"no option is called {wrong!r}{near}{help}"
    return f"{error.format_message().rstrip('.')}; see '{ctx.command_path} --help'"


def _given_as(ctx: Any, option: Any) -> str:
    """The option as the user wrote it: on the command line, or in a file of settings."""
    return f"{ctx.params['config']}: {option.name}" if _is_from_file(ctx, option) else str(option.opts[0])


def _is_from_file(ctx: Any, option: Any) -> bool:
    source = ctx.get_parameter_source(option.name)
    return source is not None and source.name == "DEFAULT_MAP"
