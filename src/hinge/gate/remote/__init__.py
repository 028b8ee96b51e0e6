"""Remote models: whom a device asks when the local answer is not good enough."""
