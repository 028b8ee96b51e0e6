"""Hinge on a microcontroller: the C library `hinge.h`, its twin in Python, and what writes it out for a device."""
