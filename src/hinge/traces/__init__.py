"""Recorded streams: what a trace is, traces in files, and the traces that come with Hinge."""

from hinge.traces.catalog import describe, load_trace, trace_names
from hinge.traces.files import read_trace, write_trace
from hinge.traces.trace import Trace

__all__ = ["Trace", "describe", "load_trace", "read_trace", "trace_names", "write_trace"]
