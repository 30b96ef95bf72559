"""Landlock: restriction of a process to certain files, for reading and execution only.

Source: Linux, Documentation/userspace-api/landlock.rst. The numbers are those of
include/uapi/linux/landlock.h, which are the same on all architectures.
"""

from __future__ import annotations

import ctypes
import os
import stat

from . import libc

TYPE_CHECKING = False  # see frames
if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH = 1

_EXECUTE = 1 << 0
_READ_FILE = 1 << 2
_READ_DIR = 1 << 3

_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 5: 16}
"""The number of rights on files, by the version of the interface that introduced them."""
_NETWORK_RIGHTS = {4: 2}
"""The number of rights on TCP sockets (bind and connect), by version."""
_SCOPES = {6: 2}
"""The number of scopes (abstract Unix sockets and signals of other processes), by version."""


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def _all_bits(known: dict[int, int], version: int) -> int:
    return (1 << max([count for since, count in known.items() if since <= version], default=0)) - 1


def restrict(readable: Iterable[str], executable: Iterable[str]) -> str:
    """Restrict the process to reading files at or below certain paths, and executing some.

    Args:
      readable: files and folders that can be read; missing ones are ignored.
      executable: files that can be read and executed.

    Returns: the version that is in force.
    Raises: OSError: the restriction is not in force.
    """
    version = libc.call("syscall", _CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    attributes = _RulesetAttributes(
        _all_bits(_FILE_RIGHTS, version),
        _all_bits(_NETWORK_RIGHTS, version),
        _all_bits(_SCOPES, version),
    )
    # Older kernels accept the longer structure if the fields that they do not know are 0.
    ruleset = libc.call(
        "syscall", _CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0
    )
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIR)
        for path in executable:
            _allow(ruleset, path, _READ_FILE | _EXECUTE)
        libc.call("syscall", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)
    return f"Landlock {version}"


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= ~_READ_DIR
        rule = _PathBeneath(rights, opened)
        libc.call("syscall", _ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(opened)
