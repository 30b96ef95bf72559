"""Errors of `trocket up` that are one line for people."""


class ConsoleError(Exception):
    """The console did not start."""
