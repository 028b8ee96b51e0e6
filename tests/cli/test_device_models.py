"""A remote that was away at the start: when it is checked, and what becomes of the run."""

from typing import Any

import pytest

from hinge import AlwaysRemote, Device, FixedCost
from hinge.cli.device_models import Fit
from hinge.errors import RemoteError, RemoteFailed, RemoteInvalid, RemoteRefused, RemoteUnreachable
from tests.support.commands import Captured

AWAY = RemoteUnreachable("cannot be reached")
STARTING = RemoteError("http://edge has no model 'remote': HTTP 503")
MISFIT = RemoteInvalid("tensor 'image': shape must be [-1, 32, 32], got [1, 28, 28]")


class Checked:
    """A remote whose checks and answers follow a script: an error to raise, or how many classes it has."""

    model = "remote"

    def __init__(self, *outcomes: RemoteFailed | int) -> None:
        self.outcomes = list(outcomes)

    def check(self, sample: Any) -> int:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, RemoteFailed):
            raise outcome
        return outcome


def device(fault: RemoteFailed | None) -> Device:
    """A device whose remote answers, or fails in that way."""

    class Remote:
        def ask(self, samples: Any, deadline: Any) -> Any:
            raise fault or RemoteRefused("never")

        def close(self) -> None:
            pass

    return Device(lambda sample: [0.0, sample], Remote(), AlwaysRemote(bins=4), price=FixedCost(0.5), deadline_s=30)


def arrived(remote: Checked, capsys: Captured) -> Fit:
    fit = Fit(remote, "http://edge", 1.0, 10)
    fit.check_at_start()
    assert capsys.readouterr().err.endswith("answering locally until it comes\n")
    assert not fit.checked
    return fit


def test_a_remote_that_stays_away_is_not_checked_again(capsys: Captured) -> None:
    fit = arrived(Checked(AWAY), capsys)
    with device(AWAY) as away:
        for _ in range(10):
            away.infer(1.0)
            fit.check_again(away.status)
    assert not fit.checked


def test_a_remote_that_comes_is_checked_once(capsys: Captured) -> None:
    remote = Checked(AWAY, 10)
    fit = arrived(remote, capsys)
    with device(None) as refusing:
        refusing.infer(1.0)
        fit.check_again(refusing.status)
    assert fit.checked
    assert remote.outcomes == []


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [(MISFIT, "http://edge: tensor 'image'"), (7, "http://edge: model 'remote' has 7 classes, the local model 10")],
)
def test_one_that_does_not_fit_is_refused(outcome: RemoteFailed | int, problem: str, capsys: Captured) -> None:
    fit = arrived(Checked(AWAY, outcome), capsys)
    with device(MISFIT) as misfit:
        misfit.infer(1.0)
        with pytest.raises(RemoteFailed, match=problem):
            fit.check_again(misfit.status)


def test_one_that_is_about_to_start_is_looked_at_again_when_it_has_said_more(capsys: Captured) -> None:
    remote = Checked(AWAY, STARTING, 10)
    fit = arrived(remote, capsys)
    with device(None) as refusing:
        refusing.infer(1.0)
        fit.check_again(refusing.status)
        fit.check_again(refusing.status)
        assert remote.outcomes == [10]
        refusing.infer(1.0)
        fit.check_again(refusing.status)
    assert fit.checked
