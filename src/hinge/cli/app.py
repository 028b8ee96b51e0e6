"""The command line as a whole: the table of contents, and how errors reach a person."""

import os
import sys

import typer

from hinge import __version__
from hinge.cli.contents import Contents
from hinge.cli.refusing import REFUSALS, USAGE, line_about

# Typer's word for it: --show-completion takes the name of the shell, rather than guess it from the processes around.
os.environ.setdefault("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")

app = typer.Typer(
    cls=Contents,
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
) -> None:
    pass


def run(arguments: list[str]) -> int:
    """Run a command; returns its exit code: 2 if something is wrong with what it was given, 141 if its reader left."""
    try:
        code = app(arguments, prog_name="hinge", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (USAGE, *REFUSALS, ImportError, MemoryError) as error:
        print(f"hinge: {line_about(error)}", file=sys.stderr)
    return 2
