"""Whether this process is still the one that it was.

Asking for the process id costs a system call, and every send asks; being told of a fork does not.
"""

from __future__ import annotations

import os

_generation = 0


def generation() -> int:
    """Rises in the child with each fork; where there is no fork it stays 0."""
    return _generation


def _forked() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
