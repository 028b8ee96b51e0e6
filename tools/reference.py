"""The reference: every public name with its signature and docstring, every command with its options.

    python -m tools.reference FOLDER         # writes the pages there; for the site, tools/site.py takes them from here

The names are those of `hinge`, and those of the modules listed below: what they put into `__all__`, or else the classes
and functions that they define. A name without a docstring is an error.
"""

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import hinge

# page: title, what it begins with, where names of `hinge` on it come from, and modules of which all names are on it
PAGES: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "gate": (
        "Gate, confidence, bins, costs",
        "From scores to a decision, from milliseconds or money to a cost; see [costs and bins](../costs.md).",
        ("hinge.gate", "hinge.confidence", "hinge.bins", "hinge.costs"),
        ("hinge.confidence", "hinge.bins", "hinge.costs"),
    ),
    "device": (
        "Devices",
        "A local model, a gate and a remote; see [the device](../device.md).",
        ("hinge.device",),
        (),
    ),
    "tasks": (
        "Tasks",
        "What models answer, how sure they are, and how far two answers agree; see [any task](../tasks.md).",
        ("hinge.tasks",),
        ("hinge.tasks",),
    ),
    "models": (
        "Local and remote models",
        "What a device asks, and what you write to have it ask something else; see [the device](../device.md).",
        ("hinge.models", "hinge.remotes"),
        (),
    ),
    "policies": (
        "Policies",
        "What decides; see [the policies](../policies.md) and [how to choose one](../choose.md).",
        ("hinge.policies",),
        ("hinge.policies",),
    ),
    "simulation": (
        "Traces and simulation",
        "Recorded streams, synthetic ones, and the loops that policies run in; see [simulation](../simulation.md).",
        ("hinge.traces", "hinge.simulation"),
        ("hinge.traces", "hinge.simulation", "hinge.simulation.sources"),
    ),
    "theory": ("Theory", "The paper's bounds; see [the theory](../theory.md).", (), ("hinge.theory",)),
    "server": ("Server", "`hinge serve` from Python; see [the edge server](../server.md).", (), ("hinge.server",)),
    "gateway": ("Gateway", "`hinge gateway` from Python; see [the gateway](../gateway.md).", (), ("hinge.gateway",)),
    "testing": (
        "Testing",
        "The conformance suite; see [how to add a policy](../add-a-policy.md).",
        (),
        ("hinge.testing",),
    ),
    "errors": (
        "Errors",
        "Failures of remotes, files and messages. A wrong argument is a `ValueError` or a `TypeError` besides.",
        ("hinge.errors",),
        ("hinge.errors",),
    ),
}
_HOMES = {name: thing.__module__ for name in dir(hinge) if hasattr(thing := getattr(hinge, name), "__module__")}
_EXAMPLE = re.compile(r"(?:^ {0,3}>>> .*\n(?:^[^\S\n]*\S.*(?:\n|\Z))*)+", re.MULTILINE)
_SECTION = re.compile(r"^(\w[\w ]*):\n((?:  .+\n?)+)", re.MULTILINE)
_LISTED = re.compile(r"^  ([a-z-]+)(?:  .*)?$", re.MULTILINE)
_FENCES = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class Undocumented(Exception):
    """A public name says nothing about itself."""


def pages() -> dict[str, str]:
    """All pages of the reference, by their paths on the site."""
    names = {page: list(_names(homes, modules)) for page, (_, _, homes, modules) in PAGES.items()}
    written = {
        f"reference/{page}.md": _page(title, begins, names[page]) for page, (title, begins, _, _) in PAGES.items()
    }
    return {"reference/index.md": _contents(names), **written, "reference/commands.md": _commands()}


def fenced(text: str) -> str:
    """Text with its examples (`>>>`) set off as code, those aside that are already.

    >>> fenced("So:\\n\\n>>> 1 + 1\\n2\\n")
    'So:\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    parts = _FENCES.split(text)
    parts[::2] = [_EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", part) for part in parts[::2]]
    return "".join(parts)


def _names(homes: Iterable[str], modules: Iterable[str]) -> Iterator[tuple[str, Any]]:
    """Public names and what they mean, in the order of the alphabet, the names of `hinge` first."""
    for name, home in sorted(_HOMES.items()):
        if any(home == start or home.startswith(start + ".") for start in homes):
            yield name, getattr(hinge, name)
    for module in map(import_module, modules):
        for name in sorted(_listed(module)):
            thing = getattr(module, name)
            if name not in _HOMES and (inspect.isclass(thing) or inspect.isfunction(thing)):  # no aliases, no constants
                yield f"{module.__name__}.{name}", thing


def _listed(module: ModuleType) -> list[str]:
    defined = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module.__name__]
    listed: list[str] = getattr(module, "__all__", [name for name in defined if not name.startswith("_")])
    return listed


def _contents(names: dict[str, list[tuple[str, Any]]]) -> str:
    lines = [
        "# Reference",
        "",
        "Every public name, from its docstring. Those without a module are names of `hinge` itself.",
        "",
        "The [commands](commands.md) are on a page of their own.",
        "",
    ]
    for page, (title, *_) in PAGES.items():
        lines += [f"## [{title}]({page}.md)", "", "| name | what it is |", "|---|---|"]
        for name, thing in names[page]:
            what = _docstring(name, thing).partition("\n\n")[0]
            cell = " ".join(what.split()).replace("|", "\\|")
            lines.append(f"| [`{name}`]({page}.md#{_anchor(name)}) | {cell} |")
        lines.append("")
    return "\n".join(lines)


def _page(title: str, begins: str, names: Iterable[tuple[str, Any]]) -> str:
    return "\n".join([f"# {title}", "", begins, "", *(line for name, thing in names for line in _entry(name, thing))])


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"## `{name}` {{ #{_anchor(name)} }}\n"
    yield from _described(name, thing)
    for member, what in _members(thing) if inspect.isclass(thing) else ():
        short = f"{name.rpartition('.')[2]}.{member}"
        yield f"### `{short}` {{ #{_anchor(name)}-{_anchor(member)} }}\n"
        yield from _described(short, what)


def _described(name: str, thing: Any) -> Iterator[str]:
    signature = _signature(name.rpartition(".")[2], thing)
    if signature:
        yield f"```python\n{signature}\n```\n"
    yield fenced(_docstring(name, thing)) + "\n"


def _anchor(name: str) -> str:
    return name.replace(".", "-").lower()


def _docstring(name: str, thing: Any) -> str:
    # a class that says nothing inherits what its parent said, which is about another
    text = inspect.cleandoc(thing.__doc__) if getattr(thing, "__doc__", None) else ""
    if not text:
        raise Undocumented(f"{name} has no docstring")
    return text


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class and of its parents that are not public; what public ones have is said there."""
    public = {getattr(hinge, name) for name in _HOMES} - {kind}
    said = {name for parent in kind.__mro__ if parent in public for name in dir(parent)}
    found: dict[str, Any] = {}
    for parent in kind.__mro__:
        for name, member in vars(parent).items() if parent.__module__.startswith("hinge") else ():
            plain = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
            if not name.startswith("_") and name not in said and _is_documented(plain):
                found.setdefault(name, plain)
    yield from found.items()


def _is_documented(member: Any) -> bool:
    return (inspect.isfunction(member) or isinstance(member, property)) and bool(member.__doc__)


def _signature(name: str, thing: Any) -> str:
    """As it is written in the source; of a class, what its constructor takes."""
    if isinstance(thing, property):
        return ""
    of_class = inspect.isclass(thing)
    function = _definition(thing.__init__ if of_class else thing)
    if function is None:  # a record's constructor has no source, and an error's is not ours
        fields = getattr(thing, "_fields", None) or getattr(thing, "__dataclass_fields__", ())
        return _call(name, list(fields), "") if fields else ""
    positional = function.args.posonlyargs + function.args.args
    if positional and positional[0].arg in ("self", "cls"):
        (function.args.posonlyargs or function.args.args).pop(0)
    word = "async " if isinstance(function, ast.AsyncFunctionDef) else ""
    returns = "" if of_class or function.returns is None else f" -> {ast.unparse(function.returns)}"
    return word + _call(name, list(_arguments(function.args)), returns)


def _definition(function: Any) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return None
    # not textwrap.dedent: a docstring may have lines that start further left
    tree = ast.parse(f"if True:\n{source}").body[0].body[0] if source[0].isspace() else ast.parse(source).body[0]  # type: ignore[attr-defined]  # an if has a body
    return tree if isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)) else None


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    plain = arguments.posonlyargs + arguments.args
    defaults = [None] * (len(plain) - len(arguments.defaults)) + list(arguments.defaults)
    yield from map(_argument, plain, defaults)
    if arguments.vararg:
        yield "*" + _argument(arguments.vararg)
    elif arguments.kwonlyargs:
        yield "*"
    yield from map(_argument, arguments.kwonlyargs, arguments.kw_defaults)
    if arguments.kwarg:
        yield "**" + _argument(arguments.kwarg)


def _argument(argument: ast.arg, default: ast.expr | None = None) -> str:
    kind = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    equals = " = " if kind else "="
    return argument.arg + kind + ("" if default is None else equals + ast.unparse(default))


def _call(name: str, arguments: list[str], returns: str) -> str:
    line = f"{name}({', '.join(arguments)}){returns}"
    return line if len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(arguments) + f",\n){returns}"


def _commands() -> str:
    lines = ["# Commands", "", "What `--help` prints, for all of them.", ""]
    for name, text in _helps(()):
        lines += [f"## `{' '.join(('hinge', *name))}`", "", "```text", text, "```", ""]
    return "\n".join(lines)


def _helps(name: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """What a command and all below it say of themselves."""
    text = _help(name)
    yield name, text
    for heading, listed in _SECTION.findall(text):
        for below in _LISTED.findall(listed) if heading not in ("Options", "Arguments") else ():
            yield from _helps((*name, below))


def _help(name: tuple[str, ...]) -> str:
    from hinge.cli.app import run

    printed = StringIO()
    with redirect_stdout(printed), patch.dict(os.environ, COLUMNS="100", NO_COLOR="1", TERM="dumb"):
        code = run([*name, "--help"])
    if code:
        raise Undocumented(f"hinge {' '.join(name)} --help ended with {code}")
    return printed.getvalue().rstrip()


if __name__ == "__main__":
    for uri, text in pages().items():
        path = Path(sys.argv[1]) / uri
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
