"""Real servers of the Open Inference Protocol, started from their own environments for tests and benchmarks."""
