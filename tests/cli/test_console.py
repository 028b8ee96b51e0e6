"""What commands print."""

import io

import pytest
from rich.console import Console

from hinge.cli import console


@pytest.mark.parametrize(("terminal", "said"), [(True, True), (False, False)])
def test_whoever_watches_is_told_why_it_takes_a_while(
    terminal: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=terminal, width=100))
    with console.progress("isotonic on fashion"):
        pass
    assert ("isotonic on fashion: compiling, the first time" in screen.getvalue()) == said
