"""What commands print."""

import io

import pytest
from rich.console import Console

from hinge.cli import console
from tests.support.commands import Captured


@pytest.mark.parametrize(("terminal", "said"), [(True, True), (False, False)])
def test_whoever_watches_is_told_why_it_takes_a_while(
    terminal: bool, said: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(console, "err", Console(file=screen, force_terminal=terminal, width=100))
    with console.progress("isotonic on fashion"):
        pass
    assert ("isotonic on fashion: compiling, the first time" in screen.getvalue()) == said


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 9.0, 10.0, 10.0, 19.0, 21.0, 21.0])
    monkeypatch.setattr(console, "EVERY_S", 10.0)
    monkeypatch.setattr("hinge.cli.console.time.monotonic", lambda: next(clock))
    with console.progress("policies on log.csv") as report:
        report(1, 20)
        report(2, 20)
        report(3, 20)
        report(40, None, "at every price")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["policies on log.csv: 2 of 20", "policies on log.csv, at every price: 40"]


def test_without_a_terminal_what_is_being_done_is_said_now_and_then(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.0)
    with console.status("compiling") as report:
        report("hi-lcb on fashion")
    assert capsys.readouterr().err == "hi-lcb on fashion\n"
