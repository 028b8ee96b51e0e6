"""The sections of `benchmarks/run.py` about regret and cost."""

from hinge.traces import describe, trace_names


def image_traces() -> list[str]:
    """Return the shipped traces of image classifiers."""
    return [name for name in trace_names() if "images" in describe(name)]
