"""Examples in Markdown and in docstrings are set off as code, for the site."""

import re
from typing import Any

from griffe import Extension, Object

_EXAMPLE = re.compile(r"(?:^ {0,3}>>> .*\n(?:^[^\S\n]*\S.*(?:\n|\Z))*)+", re.MULTILINE)
_FENCES = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def fenced(text: str) -> str:
    """Return text with its examples (`>>>`) set off as code, those aside that are already."""
    parts = _FENCES.split(text)
    parts[::2] = [_EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", part) for part in parts[::2]]
    return "".join(parts)


class Examples(Extension):
    """Does so for every docstring that mkdocstrings reads; `[label][,cost]` there is no link."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring in place."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value.replace("][", "]\u200b[") + "\n")
