"""A connection that is kept: what is said when it fails again and again."""

from contextlib import nullcontext
from threading import Event
from typing import Any

import pytest

from hinge.fleet.broker import Broker, BrokerFailed, Link


@pytest.mark.parametrize(
    ("kind", "lines"),
    [("login", ["refuses"]), ("unreachable", ["no connection", "again", "no connection", "again", "no connection"])],
)
def test_a_topic_that_is_refused_after_every_login_is_told_once(
    kind: str, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    link, ended, uses = Link("cams", Broker("Fleet", "mqtt://edge"), "this device goes on alone"), Event(), []

    def use(_: object) -> None:
        uses.append(link.online)
        if len(uses) == 3:
            ended.set()
        raise BrokerFailed(kind, "that is so")

    def connect() -> Any:
        return nullcontext()

    link.keep(ended, connect, use, lambda _: None)
    assert uses == [True] * 3
    assert link.failures[kind] == 3
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(lines)
    assert all(word in line for word, line in zip(lines, told, strict=True))
