"""The sections of `benchmarks/gate.py`."""
