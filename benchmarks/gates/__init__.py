"""The sections of `benchmarks/run.py` about the running system."""
