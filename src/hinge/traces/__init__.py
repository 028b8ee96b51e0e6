"""Recorded streams: what a trace and a log are, both in files, and the traces that come with Hinge."""

from hinge.traces.catalog import describe, load_trace, trace_names
from hinge.traces.files import read_log, read_recorded, read_trace, write_trace
from hinge.traces.log import Log
from hinge.traces.trace import Trace

__all__ = [
    "Log", "Trace", "describe", "load_trace", "read_log", "read_recorded", "read_trace", "trace_names", "write_trace",
]
