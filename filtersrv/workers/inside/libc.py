"""The system calls that Python has no function for, by ctypes. Linux only."""

from __future__ import annotations

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

SIGKILL = 9
"""As in `signal`, which takes a quarter of a worker's start to import."""

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
      arguments: ints are passed as longs, as system calls take them; ctypes objects as they are.
    Raises: OSError: it failed.
    """
    values = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    ctypes.set_errno(0)
    # AttributeError, where the library lacks it, is no less a failure of this protection.
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
    """prctl(2); what is not given is 0, as some options demand."""
    call("prctl", option, *arguments, *[0] * (4 - len(arguments)))


def drop_capabilities() -> None:
    """Give up all capabilities. Raises: OSError: that failed."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(nothing))
