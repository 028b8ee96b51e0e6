"""Emulated microcontrollers: how to build a program for one, and how to run it."""
