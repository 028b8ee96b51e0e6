"""The table of contents: every command with a line about it, and where it lives until somebody calls it."""

from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.core
import typer.main

from hinge.cli.commands import Command, Group


class Entry(NamedTuple):
    """A command that need not be loaded to be listed."""

    name: str
    module: str
    what: str  # the command in that module, or the group of commands
    about: str


CHAPTERS = {
    "Try it": (
        Entry("demo", "hinge.cli.demo.command", "demo_command", "Watch a device and an edge server at work."),
        Entry("list", "hinge.cli.listing", "list_command", "List the policies, and the traces that come along."),
    ),
    "Measure": (
        Entry("evaluate", "hinge.cli.simulating", "evaluate_command", "What would every policy have cost on your log?"),
        Entry("simulate", "hinge.cli.simulating", "simulate_command", "Run one policy many times, for its regret."),
        Entry("reproduce", "hinge.cli.reproducing", "reproduce_command", "Every figure, table and claim of the paper."),
    ),
    "Run": (
        Entry("new", "hinge.cli.starting", "new_command", "Write a file of settings to start from."),
        Entry("device", "hinge.cli.device.command", "device_command", "Answer samples, asking the remote at need."),
        Entry("serve", "hinge.cli.serving", "serve_command", "Serve models over HTTP, for devices to ask."),
        Entry("state", "hinge.cli.state", "states", "Look at, move or merge what a device has learned."),
    ),
    "Firmware": (Entry("export", "hinge.cli.exporting", "exports", "Write a policy as C, for a microcontroller."),),
}
ENTRIES = {entry.name: entry for chapter in CHAPTERS.values() for entry in chapter}


class Contents(Group):
    """All commands, of which only the one that is called is loaded."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the chapters."""
        return list(ENTRIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command to be listed: it has a name and a line about it, and cannot run."""
        entry = ENTRIES.get(cmd_name)
        return entry and typer.core.TyperCommand(entry.name, help=entry.about)

    def load(self, ctx: Any, name: str) -> Any:
        """The command itself."""
        return load(ENTRIES[name])

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The chapters, one command to a line, and then what few options there are."""
        width = max(map(len, ENTRIES))
        for heading, chapter in CHAPTERS.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name.ljust(width), entry.about) for entry in chapter])
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Nothing: the chapters have them."""


def load(entry: Entry) -> Any:
    """The command, or the group of them, from its module."""
    found = getattr(import_module(entry.module), entry.what)
    alone = not isinstance(found, typer.Typer)
    shelf = typer.Typer(add_completion=False, rich_markup_mode=None) if alone else found
    if alone:
        shelf.command(entry.name)(found)
    for each in shelf.registered_commands:
        each.cls = Command
    shelf.info.cls = Group
    loaded: Any = typer.main.get_command(shelf) if alone else typer.main.get_group(shelf)
    loaded.name = entry.name
    return loaded
