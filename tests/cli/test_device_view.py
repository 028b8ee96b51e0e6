"""A device while it runs: the view in a terminal, metrics, and how it is ended."""

import io

import pytest
from rich.console import Console

from hinge import Device, FixedCost, Isotonic, Policy, Thompson, at_most, fashion
from hinge.cli import console as output
from hinge.cli.app import run
from hinge.cli.device_samples import Case
from hinge.cli.device_view import Display, Figures, JsonLines, ProgressLines, View, print_summary
from hinge.policies import AlwaysRemote
from tests.support.commands import Captured

WAIT_S = 30
IMAGES, _ = fashion.labelled_images()


def terminal(width: int, height: int) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def viewed(policy: Policy, console: Console, samples: int = 100, failing: bool = False) -> list[str]:
    """The lines of a view after so many samples."""

    def remote(sample: float) -> int:
        if failing:
            raise OSError("away")
        return 1

    with Device(lambda sample: [0.0, sample], remote, policy, price=FixedCost(0.5)) as device:
        figures = Figures(policy.bins)
        for number in range(samples):
            sample = number % 40 / 10
            figures.add(Case(sample), device.infer(sample), 1.0)
        console.print(View(device, figures, f"hinge device {'x' * 200}", samples))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (60, 16), (200, 60)])
@pytest.mark.parametrize("bins", [1, 16, 1024])
def test_the_view_fits_its_terminal(width: int, height: int, bins: int) -> None:
    lines = viewed(at_most(Isotonic(bins=bins, offload_cost=0.5), 0.5), terminal(width, height))
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    for part in ("100 of 100", "offloads", "confidence", "licence", "99 "):
        assert part in text
    if width >= 80:
        assert all(part in text for part in ("per second", "local agreed", "of remote's answers", "in memory only"))


def test_the_view_tells_of_licences_faults_and_alarms() -> None:
    lines = viewed(Isotonic(bins=4, offload_cost=0.5), terminal(120, 40))
    assert any("samples left" in line and "0.75 – 1.00" in line for line in lines)
    failing = "\n".join(viewed(Isotonic(bins=4, offload_cost=0.5), terminal(120, 40), failing=True))
    for part in ("fails: breaker open", "breaker 9", "alarms: the breaker opened 1", "in memory only"):
        assert part in failing
    spent = "\n".join(viewed(at_most(AlwaysRemote(bins=4), 0.01), terminal(120, 40)))
    assert "none; the budget is spent" in spent
    assert "for good" not in spent
    chance = "\n".join(viewed(Thompson(bins=4, offload_cost=0.5), terminal(120, 40)))
    assert "offloaded by chance, " in chance


def test_an_outage_fits_in_80_columns() -> None:
    failing = "\n".join(viewed(Isotonic(bins=4, offload_cost=0.5), terminal(80, 24), failing=True))
    assert "fails: breaker open; OSError: away" in failing
    assert "breaker 97, unreachable 3" in failing


def test_in_a_terminal_the_view_gives_way_to_the_summary(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    console = terminal(80, 24)
    monkeypatch.setattr(output, "out", console)
    assert run(["device", "--limit", "50", "--policy", "always-remote", "--at-most", "0.01"]) == 0
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "alarms: the offload budget is exhausted 1" in shown
    assert "milliseconds, 99 % within" in shown.rpartition("\x1b")[2]
    assert capsys.readouterr().err == ""


EVIL = "\x1b]0;owned\x07\x1b[2J [red]text[/red] " + "x" * 100_000


def test_what_a_remote_says_is_escaped_and_cut(capsys: Captured, caplog: pytest.LogCaptureFixture) -> None:
    def remote(sample: float) -> int:
        raise OSError(EVIL)

    console = terminal(120, 40)
    with Device(lambda sample: [0.0, sample], remote, AlwaysRemote(bins=4), price=FixedCost(0.5)) as device:
        figures = Figures(4)
        outputs: list[Display] = [ProgressLines(device, figures, 0.0), JsonLines()]
        for output in outputs:
            with output:
                for _ in range(10):
                    output.show(figures.add(Case(1.0, name=EVIL), device.infer(1.0), 1.0))
        console.print(View(device, figures, f"hinge device {EVIL}", None))
        print_summary(figures.as_dict(device.status, 1.0), behind=False)
    assert isinstance(console.file, io.StringIO)
    captured = capsys.readouterr()
    for shown in (console.file.getvalue(), captured.out, captured.err):
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert r"\x1b]0;owned\x07" in console.file.getvalue()
    assert "[red]text[/red]" in captured.err, "it is no markup"
    assert max(map(len, captured.err.splitlines())) < 1200
