"""What all commands share: their help ends with an example, and what they refuse is said in a person's words."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import typer
import typer.core

from hinge._checks import did_you_mean
from hinge.cli.configuring import NOTHING, Settings, read_settings
from hinge.cli.refusing import REFUSALS, line_about, with_option
from hinge.errors import UnknownName

_EXAMPLE = "\n\nExample: "
_SENTENCE = 200  # characters at most
_UNREAD = 141  # 128 and the number of SIGPIPE


class Command(typer.core.TyperCommand):
    """A command."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.help, _, self.example = (self.help or "").partition(_EXAMPLE)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """The example on a line of its own, to be copied."""
        if self.example:
            formatter.write(f"\nExample:\n  {' '.join(self.example.split())}\n")

    def invoke(self, ctx: Any) -> Any:
        """Run the command; where it refuses a value, the option or the line of the file that gave it is named."""
        settings = self._configure(ctx)
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise typer.Exit(_unread()) from None
        except REFUSALS as error:
            options = {each.name: each.opts[0] for each in self.params if each.param_type_name == "option"}
            problem = line_about(error)
            better = settings.locate(with_option(problem, options), options)
            if better == problem:
                raise
            raise ValueError(better) from error

    def _configure(self, ctx: Any) -> Settings:
        """Take from the file what the command line leaves open."""
        path = ctx.params.get("config")
        if path is None:
            return NOTHING
        settings = read_settings(Path(path), self.name or "", self.callback)
        given = [name for name in settings.values if _is_given(ctx, name)]
        ctx.params.update({name: value for name, value in settings.values.items() if name not in given})
        return settings.without(given)


def _is_given(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source.name == "COMMANDLINE" and ctx.params[name] not in (None, (), [])  # a list counts as given if empty


def _unread() -> int:
    """Whoever read our output has seen enough, as `head` does: end as a program does that the system ends for it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes
    return _UNREAD


class Group(typer.core.TyperGroup):
    """Commands under one name, which alone shows its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Without a word, ask for help."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command that the first word names; the shell asks about words that are not whole yet."""
        name, *rest = args
        known = self.list_commands(ctx)
        if name in known:
            return name, self.load(ctx, name), rest
        if ctx.resilient_parsing:
            return None, None, rest
        raise UnknownName(f"no command is called {name!r}{did_you_mean(name, known)}")

    def load(self, ctx: Any, name: str) -> Any:
        """The command of that name."""
        return self.get_command(ctx, name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands with their first sentences, in full."""
        commands = {name: self.load(ctx, name) for name in self.list_commands(ctx)}
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.get_short_help_str(_SENTENCE)) for name, each in commands.items()])
