"""Detects a fork: what belongs to the parent cannot be used in the child.

Asking for the process id costs a system call, and every send asks; being called at a fork does not.
"""

from __future__ import annotations

import os

from .errors import ForkedError

_generation = 0


def generation() -> int:
    """Rises in the child with each fork; where there is no fork it stays 0."""
    return _generation


def check_generation(made_in: int, name: object, pid: int) -> None:
    """Raises: ForkedError: the process has forked since, and this is the child.

    Args:
      made_in: the generation in which the object was made.
      name: of the object, for the text: a string, or the object itself, whose `str` it is.
      pid: of the process that made it.
    """
    if made_in != _generation:
        raise ForkedError(
            f"{name} belongs to process {pid} and cannot be used in its child {os.getpid()}: make"
            " another there"
        )


def _forked() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
