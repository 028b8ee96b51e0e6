"""Hinge, the Hierarchical INference Gate for the Edge.

A small local model answers every sample; a policy looks at its confidence and either accepts the answer or offloads the
sample to a large remote model, and learns from the offloads alone when accepting is cheaper.

The public names are listed once, in `__init__.pyi`. Each is imported when first used, so that a policy runs where numpy
is not installed and a command starts without waiting for parts that it does not need.
"""

import ast
from importlib import import_module
from importlib.resources import files
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    name.name: statement.module
    for statement in ast.parse(files(__name__).joinpath("__init__.pyi").read_text("utf-8")).body
    if isinstance(statement, ast.ImportFrom) and statement.module
    for name in statement.names
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hinge' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
