"""How errors reach a person: in one line, which names what was typed and not what lies behind it."""

import re
from collections.abc import Mapping
from typing import Any

import typer

from hinge._checks import did_you_mean
from hinge.errors import HingeError

# Typer may carry its own copy of click, whose base class of usage errors has no public name.
USAGE: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
REFUSALS = (HingeError, ValueError, TypeError, OSError)

_CHECK = re.compile(r"(?:[\w.-]+: )?(?P<name>[a-z]\w*(?: \w+)?) (?P<rest>must .*)", re.DOTALL)
_WHOLE = re.compile(r"(got -?\d+)\.0$")


def line_about(error: BaseException) -> str:
    """What to say of an error.

    >>> line_about(FileNotFoundError(2, "No such file or directory", "log.csv"))
    'log.csv: No such file or directory'
    """
    if isinstance(error, USAGE):
        return _usage(error)
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"out of memory: {error}" if isinstance(error, MemoryError) else str(error)


def with_option(problem: str, options: Mapping[str, str]) -> str:
    """The problem with the option in place of the parameter that it went to, by the same name or the end of it.

    >>> with_option("HILCB: alpha must be > 0, got -1.0", {"alpha": "--alpha"})
    '--alpha must be > 0, got -1'
    >>> with_option("Limits: batch must be an integer >= 1, got 0", {"max_batch": "--max-batch"})
    '--max-batch must be an integer >= 1, got 0'
    >>> with_option("log.csv: there are no samples", {"samples": "--samples"})
    'log.csv: there are no samples'
    """
    found = _CHECK.fullmatch(problem)
    if not found:
        return problem
    name = found["name"].replace(" ", "_")
    ends = [option for option in options if option.endswith(f"_{name}")]
    option = name if name in options else ends[0] if len(ends) == 1 else None
    rest = _WHOLE.sub(r"\1", found["rest"])
    return f"{options[option]} {rest}" if option else problem


def _usage(error: Any) -> str:
    """What is wrong with the words themselves, and where to look them up."""
    context = getattr(error, "ctx", None)
    wrong = getattr(error, "option_name", None)
    if context is None:
        return str(error.format_message())
    options = [option for each in context.command.get_params(context) for option in each.opts if option[:2] == "--"]
    if wrong and wrong not in options:
        return f"no option is called {wrong!r}{did_you_mean(wrong, options)}"
    return f"{error.format_message().rstrip('.')}; see '{context.command_path} --help'"
