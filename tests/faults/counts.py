"""How often each promise is tried: a little by default, and as often as it says when HINGE_FULL is 1."""

import os

FULL = os.environ.get("HINGE_FULL") == "1"


def either(short: int, full: int) -> int:
    """The count for this run."""
    return full if FULL else short


SHIELDED = either(60, 10_000)  # samples per kind of device, behind a breaker that opens
SENT = either(24, 10_000)  # samples per fault and kind of device, really sent, as the breaker never opens
SWITCHED = either(400, 10_000)  # samples by eight threads, while faults come and go
STALLED = either(6, 500)  # samples, each of which waits for its deadline
FAULTY = either(300, 10_000)  # faulty replies, after which the state is looked at
LATE = either(20, 500)  # replies that come after the deadline
OUTAGE_S = either(1, 60)  # how long a real outage lasts
KILLS = either(20, 1_000)
LIVES = 5  # how often a device is killed in the same folder
FAILURES = either(40, 2_000)  # samples on a disk that fails
LIES = either(3_000, 30_000)  # samples per lying remote
