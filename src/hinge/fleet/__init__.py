"""Devices that share what they have learned: see docs/fleet.md."""
