"""What to say about a name that nobody knows."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown name.

    >>> did_you_mean("lable", ["label", "cost"])
    "; did you mean 'label'?"
    >>> did_you_mean("weather", ["label", "cost"])
    '; there are cost, label'
    """
    known = sorted(known)
    close = difflib.get_close_matches(str(name), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(known)}"
