"""The live page of a device, at a port of its own on this machine."""
