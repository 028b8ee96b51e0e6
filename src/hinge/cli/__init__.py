"""The command `hinge`. Each command lives in a module of its own."""

import io
import sys


def main() -> None:
    """Run the command line; errors about names, parameters and files are one line, with exit code 2."""
    try:
        from hinge.cli.app import run
    except ModuleNotFoundError as error:
        sys.exit(f"hinge: the command needs the extra 'cli' ({error}): pip install 'hinge-gate[cli]'")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show ≈ is no reason to fail
    sys.exit(run(sys.argv[1:]))
