"""What is logged elsewhere in the package joins the log of a server."""

import io
import json
import logging

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
