"""The protections that uploaded code requires; docs/security.md explains each."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Final

from ..filters import FilterError
from .inside.seccomp import MACHINES

REQUIRED: Final = ("limits", "privileges", "life", "system calls")
"""Without one of these no class runs: they block new processes, the network and privileges."""

REQUIRED_ONE_OF: Final = ("files", "user")
"""At least one of these is required: each protects the files of the filter server."""


@dataclass(frozen=True, slots=True)
class Report:
    """A worker's report of its protections.

    Attributes:
      in_force: details of the enabled protections, by name.
      lacking: reasons for the others, by name.
    """

    in_force: dict[str, str]
    lacking: dict[str, str]


def parse_report(text: str) -> Report:
    """Parse the content of READY; see `inside.launcher.report`."""
    found: dict[str, dict[str, str]] = {"+": {}, "-": {}}
    for line in text.splitlines():
        name, _, value = line[1:].partition(": ")
        found.setdefault(line[:1], {})[name] = value
    return Report(found["+"], found["-"])


def missing_protections(report: Report) -> str:
    """The required protections that are lacking, with reasons; "" if uploaded code may run."""
    missing = [name for name in REQUIRED if name not in report.in_force]
    if not any(name in report.in_force for name in REQUIRED_ONE_OF):
        missing += REQUIRED_ONE_OF
    return ", ".join([f"{name} ({report.lacking.get(name, 'not tried')})" for name in missing])


def check_platform() -> None:
    """Check that this system supports workers. Raises: FilterError: it does not."""
    if sys.platform != "linux":
        raise FilterError(
            f"uploaded classes need Linux (seccomp, Landlock) as a sandbox; this is {sys.platform}"
        )
    machine = os.uname().machine
    if machine not in MACHINES:
        known = ", ".join(MACHINES)
        raise FilterError(f"uploaded classes need a processor of type {known}; this is {machine}")
