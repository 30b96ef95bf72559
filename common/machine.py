"""This machine: its name, its address, and the memory it lets this process use.

For what a configuration does not say. A shell around system calls and a few files; nothing is sent.

Java counterpart: common/utils/NetworkUtil.java, BrokerIdentity.java.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

_ELSEWHERE: Final = ("192.0.2.1", 9)
"""An address that is reserved for documentation (RFC 5737), so never this machine's."""

CGROUPS: Final = Path("/sys/fs/cgroup")
OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_DIGITS_MAX: Final = 19


def host_name() -> str:
    """This machine's name; "" if it has none."""
    return socket.gethostname()


def local_address() -> str:
    """The IPv4 address that this machine would send from, or 127.0.0.1.

    RocketMQ takes the first address of a network card that is not private, otherwise the last one;
    on machines with several (containers, VPN) that is often not the one clients reach. Here the
    routing table decides. Where that is wrong too, set brokerIP1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # a datagram socket: looks up the route, sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def usable_memory(own_groups: Path = OWN_CGROUPS, groups: Path = CGROUPS) -> int | None:
    """Bytes that this process may use: the least of the machine's memory, the limits of its control
    groups, RLIMIT_AS and RLIMIT_DATA; None: unknown.

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


FILES_RESERVE: Final = 1_000
"""Descriptors that connections must leave: those of the store's files, up to 900, and some for
slaves, name servers and the metrics port."""


def connection_places() -> int:
    """Connections that the limit of open files leaves room for.

    All but FILES_RESERVE; where that is little, three eighths: 384 of the usual hard limit 1,024,
    whose other 640 are enough for the files of some hundred queues.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return sys.maxsize
    return max(limit - FILES_RESERVE, limit * 3 // 8, 1)
