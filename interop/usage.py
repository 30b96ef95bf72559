"""What a process has used, read from /proc: CPU seconds and resident memory. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

from .process import PeerError

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_SIZE_BYTES = os.sysconf("SC_PAGE_SIZE")


def parse_stat_cpu_ticks(text: str) -> int:
    """User plus system time in clock ticks, from the text of /proc/PID/stat.

    The command name (field 2) may hold blanks and brackets: fields are counted after the last ")".

    Raises: ValueError: the text is not such a line.
    Source: proc(5), fields 14 (utime) and 15 (stime).
    """
    fields = text.rpartition(")")[2].split()
    if len(fields) < 13:
        raise ValueError(f"not a /proc/PID/stat line: {text!r}")
    return int(fields[11]) + int(fields[12])


def cpu_seconds(pid: int) -> float:
    """User plus system CPU seconds of a process and all its threads, in steps of a clock tick.

    Raises: PeerError: there is no such process, or no /proc.
    """
    try:
        return parse_stat_cpu_ticks(Path(f"/proc/{pid}/stat").read_text()) / CLOCK_TICKS_PER_S
    except (OSError, ValueError) as error:
        raise PeerError(f"cannot read the CPU time of process {pid}: {error}") from error


def resident_bytes(pid: int) -> int:
    """Resident memory of a process in bytes (field 2 of /proc/PID/statm).

    Raises: PeerError: there is no such process, or no /proc.
    """
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError) as error:
        raise PeerError(f"cannot read the memory of process {pid}: {error}") from error
    return pages * PAGE_SIZE_BYTES


def anonymous_bytes(pid: int) -> int:
    """The part of a process's resident memory that is not file pages, in bytes.

    Mapped commit log pages count in `resident_bytes` though the kernel may drop them; these do not.

    Raises: PeerError: there is no such process, or no /proc.
    """
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError) as error:
        raise PeerError(f"cannot read the memory of process {pid}: {error}") from error
    raise PeerError(f"no RssAnon in /proc/{pid}/status")
