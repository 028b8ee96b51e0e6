"""The command `hinge`. Each command lives in a module of its own, loaded when it is called."""

import sys


def main() -> None:
    """Run the command line; errors about names, parameters and files are one line, with exit code 2."""
    from hinge.cli.app import run

    sys.exit(run(sys.argv[1:]))
