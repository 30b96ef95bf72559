"""System calls for which Python has no function, by ctypes. Linux only."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

SIGKILL = 9
"""As in `signal`; importing that would take a quarter of a worker's start."""

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWNET = 0x4000_0000
_CAPABILITY_VERSION_3 = 0x2008_0522


def call(name: str, *arguments: object) -> int:
    """Call a function of the C library.

    Args:
      name: name of the function.
      arguments: ints, which are passed as longs, or ctypes objects.

    Returns: the result.
    Raises: OSError: the call failed.
    """
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    ctypes.set_errno(0)
    # A function that the library lacks is a failure like any other.
    function = getattr(_LIBC, name, None)
    if function is None:
        raise OSError(f"the C library has no {name}")
    function.restype = ctypes.c_long if name == "syscall" else ctypes.c_int
    result = int(function(*values))
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")
    return result


def prctl(option: int, *arguments: object) -> None:
    """Call prctl(2); missing arguments are 0, which some options require."""
    call("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def drop_capabilities() -> None:
    """Drop all capabilities. Raises: OSError: it failed."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(nothing))
