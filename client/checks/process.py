"""Objects of one process: detection of forks, and the refusal of pickling.

Every send checks for it. `os.getpid` would cost a system call each time, a counter that is raised
at each fork does not.
"""

from __future__ import annotations

import os
from typing import NoReturn

from ..errors import ForkedError

_generation = 0


def generation() -> int:
    """The number of forks between the first process and this one."""
    return _generation


def check_generation(made_in: int, name: object, pid: int) -> None:
    """Check that an object was created in this process.

    Args:
      made_in: the generation in which the object was created.
      name: name of the object for the error message, or the object, whose `str` is used.
      pid: id of the process that created it.

    Raises: ForkedError: it was created in the parent of this process.
    """
    if made_in != _generation:
        raise ForkedError(
            f"{name} belongs to process {pid} and cannot be used in its child {os.getpid()}: create"
            " another one there"
        )


def refuse_pickling(instance: object) -> NoReturn:
    """Raise the error for an object with connections that is pickled or copied.

    Raises: TypeError: always; the text says what to do instead.
    """
    raise TypeError(
        f"a {type(instance).__name__} has connections and tasks of its process, so it cannot be"
        " pickled or copied: send its URL and options, and create one where it is used"
    )


def _after_fork_in_child() -> None:
    global _generation
    _generation += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
