"""What commands print."""

import io
import re
import time

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
    assert ("isotonic on fashion: a first run, which may have to compile" in screen.getvalue()) == said


def test_without_a_terminal_a_line_now_and_then_says_how_far_it_is(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.01)

    def printed(text: str) -> bool:
        line = re.compile(rf"^{re.escape(text)} \(\d+ s\)$", re.MULTILINE)
        end, said = time.monotonic() + 30, ""
        while not line.search(said) and time.monotonic() < end:
            time.sleep(0.01)
            said += capfd.readouterr().err
        return line.search(said) is not None

    with console.progress("policies on log.csv") as report:
        assert printed("policies on log.csv: a first run, which may have to compile")
        report(2, 20)
        assert printed("policies on log.csv: 2 of 20")
        report(40, None, "at every price")
        assert printed("policies on log.csv, at every price: 40")
        report(1, 1)
        assert printed("policies on log.csv: a first run, which may have to compile")
    with console.progress("recording images", compiles=False):
        assert printed("recording images")
    with console.status("compiling") as say:
        say("hi-lcb on fashion")
        assert printed("hi-lcb on fashion")


def test_a_program_reads_no_lines_of_progress(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY_S", 0.001)
    with console.progress("policies on log.csv", lines=False) as report:
        report(2, 20)
        time.sleep(0.05)
    assert capfd.readouterr().err == ""
