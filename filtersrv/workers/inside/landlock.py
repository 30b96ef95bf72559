"""Landlock: from here on the process can open only the files it was given, and those to read.

Source: Linux, Documentation/userspace-api/landlock.rst; the numbers are of
include/uapi/linux/landlock.h and the same for all machines.
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
"""From which version of the interface on how many rights on files there are."""
_NETWORK_RIGHTS = {4: 2}
"""To bind and to connect TCP sockets."""
_SCOPES = {6: 2}
"""Abstract Unix sockets and signals of those outside."""


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
    """Allow nothing more than to read what is at or below these paths, and to execute.

    Args:
      readable: files and folders; those that are not there are passed over.
      executable: files that may be executed, besides.
    Returns: which version is in force.
    Raises: OSError: it is not.
    """
    version = libc.call("syscall", _CREATE_RULESET, None, 0, _CREATE_RULESET_VERSION)
    attributes = _RulesetAttributes(
        _all_bits(_FILE_RIGHTS, version),
        _all_bits(_NETWORK_RIGHTS, version),
        _all_bits(_SCOPES, version),
    )
    # Older kernels take the longer structure as long as what they do not know is 0.
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
