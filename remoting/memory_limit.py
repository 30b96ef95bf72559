"""Memory limit: how much memory this process may use, and the memory budget that follows from it.

A shell around a few files and system calls. Where the machine says nothing, no limit is assumed.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from .memory_budget import BUDGET_DEFAULT_MAX, BUDGET_MIN

BUDGET_PARTS: Final = 4
"""A server's connections get this part of the memory: the rest is for its tables, for what one turn
allocates (the largest frame three times), and for the kernel's cache of the log."""

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_DIGITS_MAX: Final = 19


def default_budget() -> int:
    """Bytes of a server's memory budget where its configuration names none.

    A quarter of what the process may use, from BUDGET_MIN to BUDGET_DEFAULT_MAX.
    """
    return budget_of(usable_memory())


def budget_of(memory: int | None) -> int:
    """The default budget on a machine that lets the process use `memory` bytes; None: unknown."""
    if memory is None:
        return BUDGET_DEFAULT_MAX
    return min(max(memory // BUDGET_PARTS, BUDGET_MIN), BUDGET_DEFAULT_MAX)


def usable_memory(own_groups: Path = OWN_CGROUPS, groups: Path = CGROUPS) -> int | None:
    """Bytes that this process may use: the least of the machine's memory, the limits of its control
    groups, RLIMIT_AS and RLIMIT_DATA; None: nothing is known.

    Args:
      own_groups: file that names the process's control groups.
      groups: folder where control groups are mounted.
    """
    limits = [*_machine_memory(), *_cgroup_limits(own_groups, groups), *_resource_limits()]
    return min(limits, default=None)


def _machine_memory() -> Iterator[int]:
    try:
        yield os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):  # the system does not say
        return


def _resource_limits() -> Iterator[int]:
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        soft, _ = resource.getrlimit(kind)
        if soft != resource.RLIM_INFINITY:
            yield soft


def _cgroup_limits(own: Path, mounted: Path) -> Iterator[int]:
    """Limits of this process's control groups and of all above them, versions 2 and 1.

    Source: Linux, Documentation/admin-guide/cgroup-v2.rst (memory.max) and cgroup-v1/memory.rst.
    """
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            root, name = mounted, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = mounted / "memory", "memory.limit_in_bytes"
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:
            continue
        for folder in (inside, *inside.parents):
            yield from _number_in(root / folder / name)


def _number_in(file: Path) -> Iterator[int]:
    try:
        text = file.read_text(encoding="ascii", errors="replace").strip()
    except (OSError, ValueError):  # not there, or no path at all
        return
    if text.isdecimal() and len(text) <= _DIGITS_MAX:  # else "max": no limit
        yield int(text)
