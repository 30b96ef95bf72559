"""The tree of processes, and processes left over: on Linux, by /proc.

A filter's worker has an empty environment, a separate session and maybe a namespace: nothing
marks it. So this process becomes the parent of all below it that lose theirs (a "subreaper").
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.interop.guard import guard

from ...kit.waiting import wait_until

END_TIMEOUT_S = 15.0
"""Workers and filter servers whose master was killed end by themselves, in about a second."""
PAUSE_S = 0.05
PR_SET_CHILD_SUBREAPER = 36
"""Source: prctl(2)."""


def _parents() -> dict[int, tuple[int, str]]:
    """Parent and state of every process. Source: proc(5), /proc/PID/stat."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                text = (folder / "stat").read_text(errors="replace")
                state, parent = text.rpartition(")")[2].split()[:2]
                found[int(folder.name)] = int(parent), state
    return found


def descendants(*pids: int) -> list[int]:
    """Children of these, their children and so on, without those that have ended."""
    parents = _parents()
    found: list[int] = []
    below = set(pids)
    while below:
        below = {pid for pid, (parent, _) in parents.items() if parent in below}
        found += [pid for pid in below if parents[pid][1] not in "ZX"]
    return found


def command_line(pid: int) -> str:
    """For choosing and for error texts; "" for one that has ended."""
    try:
        return (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace").replace("\0", " ")
    except OSError:
        return ""


def kill_alone(pid: int) -> None:
    """Kill a process, not its group, and wait until it can do nothing more."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    gone = "ZX"
    wait_until(
        lambda: _parents().get(pid, (0, "X"))[1] in gone,
        timeout_s=END_TIMEOUT_S,
        what=f"the end of {pid}",
    )


class Orphans:
    """What lost its parent since this was made, or was left over. See `watched_processes`."""

    def __init__(self) -> None:
        guard().environment()  # starts the harness's own process, which stays
        self._before = set(descendants(os.getpid()))

    def left(self, *known: int) -> list[int]:
        """Children of ours that were not started here; those that have ended are dropped.

        Args:
          known: started by the test itself.
        """
        mine = os.getpid()
        found = []
        for pid, (parent, state) in _parents().items():
            if parent == mine and pid not in self._before and pid not in known:
                if state in "ZX":
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                else:
                    found.append(pid)
        return found

    def wait_none(self, *known: int) -> None:
        """Wait until none is left; fails with what they are."""
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.left(*known), timeout_s=END_TIMEOUT_S, what="")
        left = {pid: command_line(pid) for pid in self.left(*known)}
        assert not left, f"left over: {left}"


@contextlib.contextmanager
def watched_processes() -> Iterator[Orphans]:
    """What is started below must be gone at the end; a test skips elsewhere."""
    if sys.platform != "linux":
        pytest.skip("whose child is whose is read from /proc")
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        orphans = Orphans()
        yield orphans
        orphans.wait_none()
    finally:
        libc.prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
