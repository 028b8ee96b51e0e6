"""One thread writes the log of a server, and what is logged elsewhere in the package joins it."""

import io
import json
import logging
import threading
from contextlib import suppress
from typing import Any

import pytest

from hinge.server.observability import Alarms, EventLog


def test_alarms_are_lines_of_the_log_while_the_block_runs() -> None:
    file = io.StringIO()
    log = EventLog("info", file)
    with Alarms(log):
        logging.getLogger("hinge").warning("the breaker opened: %s", "no answer in time")
        logging.getLogger("hinge.device.record").critical("the disk is full")
    logging.getLogger("hinge").warning("afterwards")
    log.close()
    events = [json.loads(line) for line in file.getvalue().splitlines()]
    assert [(each["level"], each["event"], each["problem"]) for each in events] == [
        ("warning", "alarm", "the breaker opened: no answer in time"),
        ("error", "alarm", "the disk is full"),
    ]


def test_the_first_lines_of_several_threads_are_written_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    file, writers, both = io.StringIO(), list[str](), threading.Barrier(2)

    class Slow(threading.Thread):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            if self.name == "hinge-log":
                writers.append(self.name)
                with suppress(threading.BrokenBarrierError):
                    both.wait(0.3)  # for a second writer, which there should not be

    log = EventLog("info", file)
    threads = [threading.Thread(target=log.write, args=("info", f"line {n}")) for n in range(2)]
    monkeypatch.setattr(threading, "Thread", Slow)
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    log.close()
    assert writers == ["hinge-log"]
    assert sorted(json.loads(line)["event"] for line in file.getvalue().splitlines()) == ["line 0", "line 1"]
