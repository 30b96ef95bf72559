"""What must be in force before uploaded code may run; what each is good for: docs/security.md."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Final

from ..filters import FilterError
from .inside.seccomp import MACHINES

REQUIRED: Final = ("limits", "privileges", "life", "system calls")
"""No new process, no network and nothing to inherit: without one of these no class runs."""

REQUIRED_ONE_OF: Final = ("files", "user")
"""Either keeps the filter server's own files from the class; so one of them must be there."""


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker said of its protections.

    Attributes:
      in_force: name and what it is.
      lacking: name and why.
    """

    in_force: dict[str, str]
    lacking: dict[str, str]


def parse_report(text: str) -> Report:
    """The content of READY, see `inside.launcher.report`."""
    found: dict[str, dict[str, str]] = {"+": {}, "-": {}}
    for line in text.splitlines():
        name, _, value = line[1:].partition(": ")
        found.setdefault(line[:1], {})[name] = value
    return Report(found["+"], found["-"])


def missing_protections(report: Report) -> str:
    """What uploaded code may not run without, and why it is not there; empty: it may run."""
    missing = [name for name in REQUIRED if name not in report.in_force]
    if not any(name in report.in_force for name in REQUIRED_ONE_OF):
        missing += REQUIRED_ONE_OF
    return ", ".join([f"{name} ({report.lacking.get(name, 'not tried')})" for name in missing])


def check_platform() -> None:
    """Whether there can be workers at all. Raises: FilterError: not on this system."""
    if sys.platform != "linux":
        raise FilterError(
            f"uploaded classes need Linux to lock them in (seccomp, Landlock); this: {sys.platform}"
        )
    machine = os.uname().machine
    if machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise FilterError(f"uploaded classes need a processor of {known}; this is {machine}")
