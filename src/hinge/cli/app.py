"""The commands, and how their errors reach a person."""

import sys
from typing import Any

import typer

from hinge import __version__
from hinge.cli.device.command import device_command
from hinge.cli.listing import list_command
from hinge.cli.reproducing import reproduce_command
from hinge.cli.serving import serve_command
from hinge.cli.simulating import evaluate_command, simulate_command
from hinge.cli.states import states
from hinge.errors import HingeError

# Typer carries its own copy of click, whose base class of usage errors has no public name.
UsageProblem: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")

app = typer.Typer(
    help="Hinge decides when a local answer is good enough, and when to ask the remote model.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("simulate")(simulate_command)
app.command("evaluate")(evaluate_command)
app.command("reproduce")(reproduce_command)
app.command("serve")(serve_command)
app.command("device")(device_command)
app.add_typer(states, name="state")
app.command("list")(list_command)


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
    """Run a command; returns its exit code."""
    try:
        code = app(arguments or ["--help"], prog_name="hinge", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except UsageProblem as error:
        print(f"hinge: {error.format_message()}", file=sys.stderr)
    except OSError as error:
        print(f"hinge: {error.filename}: {error.strerror}" if error.filename else f"hinge: {error}", file=sys.stderr)
    except MemoryError as error:
        print(f"hinge: out of memory: {error}", file=sys.stderr)
    except (HingeError, ValueError, TypeError, ImportError) as error:
        print(f"hinge: {error}", file=sys.stderr)
    return 2
