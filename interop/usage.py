"""CPU time and resident memory of a process, read with psutil."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psutil

from .process import PeerError


def cpu_seconds(pid: int) -> float:
    """User plus system CPU seconds of a process and all its threads, in steps of a clock tick.

    Raises: PeerError: there is no such process, or access is denied.
    """
    with _reading("the CPU time", pid):
        times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes.

    Raises: PeerError: as `cpu_seconds`.
    """
    with _reading("the memory", pid):
        return psutil.Process(pid).memory_info().rss


def anonymous_bytes(pid: int) -> int:
    """Resident memory of a process without file pages, in bytes. Linux only.

    `resident_bytes` also counts pages of mapped commit logs, which the kernel may drop.

    Raises: PeerError: as `cpu_seconds`.
    """
    with _reading("the memory", pid):
        memory = psutil.Process(pid).memory_info()
    return memory.rss - memory.shared


@contextlib.contextmanager
def _reading(what: str, pid: int) -> Iterator[None]:
    try:
        yield
    except psutil.Error as error:
        raise PeerError(f"cannot read {what} of process {pid}: {error}") from error
