"""The command `hinge`. `app` says in which module each sub-command lives."""

import io
import sys

from hinge import __version__


def main() -> None:
    """Run the command line and exit with its code."""
    words = sys.argv[1:]
    if words == ["--version"]:  # asked by scripts, without what it takes to read a command line
        print(f"hinge {__version__}")
        return
    try:
        from hinge.cli.app import run
    except ModuleNotFoundError as error:
        sys.exit(f"hinge: the command needs the extra 'cli' ({error}): pip install 'hinge-gate[cli]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ≈ shows '?' instead of failing
    sys.exit(run(words))
