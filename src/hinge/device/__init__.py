"""A device: local model, gate and remote in one, with its deadline, breaker, state, status, metrics and live page."""
