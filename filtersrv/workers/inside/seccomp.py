"""The seccomp filter: a table of permitted system calls; all others fail with EPERM.

So a worker has no sockets, no new processes (only threads), no program except the one that the
launcher executes, no files for writing, no signals to other processes, no ptrace, no namespaces and
no shared memory (which the limit on memory would not count).

Source: Linux, Documentation/userspace-api/seccomp_filter.rst. The numbers are those of
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h (aarch64).
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from . import libc

TYPE_CHECKING = False  # see frames
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Condition = tuple[int, int, Sequence[int]]
    """The index of an argument, a mask, and the permitted values of the masked argument."""

_MODE_FILTER = 2
_ALLOW = 0x7FFF_0000
_ERRNO = 0x0005_0000
_KILL_PROCESS = 0x8000_0000

_DATA_NUMBER, _DATA_MACHINE, _DATA_ARGUMENTS = 0, 4, 16
"""Offsets of the fields of struct seccomp_data."""

_LOAD_WORD = 0x20
_AND = 0x54
_JUMP_IF_EQUAL = 0x15
_RETURN = 0x06
_INSTRUCTION = struct.Struct("=HBBI")

MACHINES = {"x86_64": (0xC000_003E, 0), "aarch64": (0xC000_00B7, 1)}
"""For each `os.uname().machine`, its AUDIT_ARCH and its column in the table."""

CALLS: dict[str, tuple[int | None, int | None]] = {
    # Frequent calls come first, because the filter compares one after the other.
    "futex": (202, 98),
    "read": (0, 63),
    "write": (1, 64),
    "gettid": (186, 178),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "madvise": (28, 233),
    "rt_sigprocmask": (14, 135),
    "sysinfo": (99, 179),
    "close": (3, 57),
    "fstat": (5, 80),
    "newfstatat": (262, 79),
    "lseek": (8, 62),
    "brk": (12, 214),
    "mremap": (25, 216),
    "mincore": (27, 232),
    "membarrier": (324, 283),
    "readv": (19, 65),
    "writev": (20, 66),
    "pread64": (17, 67),
    "preadv": (295, 69),
    "stat": (4, None),
    "lstat": (6, None),
    "statx": (332, 291),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getdents64": (217, 61),
    "getcwd": (79, 17),
    "dup": (32, 23),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "set_robust_list": (273, 99),
    "set_tid_address": (218, 96),
    "rseq": (334, 293),
    "arch_prctl": (158, None),
    "rt_sigaction": (13, 134),
    "rt_sigreturn": (15, 139),
    "rt_sigtimedwait": (128, 137),
    "rt_sigsuspend": (130, 133),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "pause": (34, None),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120),
    "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "getcpu": (309, 168),
    "times": (100, 153),
    "getrusage": (98, 165),
    "uname": (63, 160),
    "getrandom": (318, 278),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getgroups": (115, 158),
    "getrlimit": (97, 163),
    # Permitted under conditions, see `_conditions`.
    "mmap": (9, 222),
    "openat": (257, 56),
    "open": (2, None),
    "clone": (56, 220),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "kill": (62, 129),
    "tgkill": (234, 131),
    "socketpair": (53, 199),
}
"""The numbers on x86_64 and on aarch64; None: the machine does not have the call."""

EXECVEAT = (322, 281)
"""Permitted only if the launcher has to execute another program."""

_CLONE3 = (435, 435)
"""Fails with ENOSYS, so that libraries use `clone`, whose flags a filter can check."""

_AF_UNIX = 1
_SIGCHLD = 17
_CLONE_THREAD = 0x0001_0000
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20
_OPEN_TO_CHANGE = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PR_GET_NAME, _PR_SET_NAME = 16, 15
_F_DUPFD, _F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD_CLOEXEC = 0, 1, 2, 3, 1030
_TCGETS, _FIONREAD, _FIOCLEX, _TIOCGWINSZ = 0x5401, 0x541B, 0x5451, 0x5413
AT_EMPTY_PATH = 0x1000

WORD = 0xFFFF_FFFF


def _conditions(pid: int) -> dict[str, list[Condition]]:
    """The conditions on the arguments of calls; all conditions of a call must hold."""
    return {
        "mmap": [(3, _MAP_SHARED | _MAP_ANONYMOUS, (0, _MAP_SHARED, _MAP_ANONYMOUS))],
        "open": [(1, _OPEN_TO_CHANGE, (0,))],
        "openat": [(2, _OPEN_TO_CHANGE, (0,))],
        "clone": [(0, _CLONE_THREAD, (_CLONE_THREAD,))],
        "prctl": [(0, WORD, (_PR_SET_NAME, _PR_GET_NAME))],
        "prlimit64": [(2, WORD, (0,)), (2, WORD << 32, (0,))],  # to get limits, not to set them
        "fcntl": [(1, WORD, (_F_GETFD, _F_SETFD, _F_GETFL, _F_DUPFD, _F_DUPFD_CLOEXEC))],
        "ioctl": [(1, WORD, (_TCGETS, _FIONREAD, _FIOCLEX, _TIOCGWINSZ))],
        "kill": [(0, WORD, (pid,))],
        "tgkill": [(0, WORD, (pid,))],
        # A pair is only connected to itself. Java 17 and javac need one to read their first file.
        "socketpair": [(0, WORD, (_AF_UNIX,))],
    }


def _only_program(descriptor: int, arguments: int) -> list[Condition]:
    """The conditions on `execveat`. It closes the descriptor, so it can succeed only once."""
    return [
        (0, WORD, (descriptor,)),
        (2, WORD, (arguments & WORD,)),
        (2, WORD << 32, (arguments >> 32,)),
        (4, WORD, (AT_EMPTY_PATH,)),
    ]


def assemble(machine: str, pid: int, program: tuple[int, int] | None = None) -> bytes:
    """Build the BPF program for `install`.

    Args:
      pid: id of this process.
      program: the program that may be executed: its descriptor, which execution closes, and the
        address of its arguments; None: no program.
    """
    audit_machine, column = MACHINES[machine]
    conditions = _conditions(pid)
    code = [
        _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _DATA_MACHINE),
        _INSTRUCTION.pack(_JUMP_IF_EQUAL, 1, 0, audit_machine),
        _INSTRUCTION.pack(_RETURN, 0, 0, _KILL_PROCESS),
        _INSTRUCTION.pack(_LOAD_WORD, 0, 0, _DATA_NUMBER),
    ]
    for name, numbers in CALLS.items():
        number = numbers[column]
        if number is not None:
            code += _for_call(number, _block(conditions.get(name, [])))
    if program is not None:
        code += _for_call(EXECVEAT[column], _block(_only_program(*program)))
    absent = _INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    code += _for_call(_CLONE3[column], [absent])
    code.append(_INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | errno.EPERM))
    return b"".join(code)


def _for_call(number: int, block: list[bytes]) -> list[bytes]:
    """Prefix a block with a test of the call's number; all paths in the block must return."""
    return [_INSTRUCTION.pack(_JUMP_IF_EQUAL, 0, len(block), number), *block]


def _block(conditions: list[Condition]) -> list[bytes]:
    refuse = _INSTRUCTION.pack(_RETURN, 0, 0, _ERRNO | errno.EPERM)
    code: list[bytes] = []
    for argument, mask, allowed in conditions:
        high = mask > WORD
        # Both architectures are little-endian: the low word comes first.
        place = _DATA_ARGUMENTS + 8 * argument + 4 * high
        code.append(_INSTRUCTION.pack(_LOAD_WORD, 0, 0, place))
        code.append(_INSTRUCTION.pack(_AND, 0, 0, mask >> 32 if high else mask))
        for index, value in enumerate(allowed):
            # If equal, jump over the other values and the refusal.
            code.append(_INSTRUCTION.pack(_JUMP_IF_EQUAL, len(allowed) - index, 0, value))
        code.append(refuse)
    return [*code, _INSTRUCTION.pack(_RETURN, 0, 0, _ALLOW)]


class _Program(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


def install(program: bytes) -> None:
    """Enable a filter, irrevocably. Raises: OSError: the kernel does not accept it."""
    instructions = ctypes.create_string_buffer(program, len(program))
    described = _Program(len(program) // _INSTRUCTION.size, ctypes.addressof(instructions))
    libc.prctl(libc.PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(described))


def check(machine: str) -> None:
    """Verify the filter by attempting calls that it must block.

    Raises: OSError: a call was not blocked, so no uploaded code may run.
    """
    attempts: dict[str, Callable[[], int]] = {
        "a socket": lambda: libc.call("socket", 2, 1, 0),
        "a process": lambda: _fork(machine),
        "a program": lambda: libc.call("execve", b"/", None, None),
        "a file to write": lambda: libc.call("open", b"/dev/null", os.O_WRONLY),
        "a namespace": lambda: libc.call("unshare", libc.CLONE_NEWUSER),
    }
    for what, attempt in attempts.items():
        try:
            attempt()
        except OSError as error:
            if error.errno == errno.EPERM:
                continue
            raise OSError(f"the filter did not block {what}, which failed with: {error}") from error
        raise OSError(f"the filter did not block {what}")


def _fork(machine: str) -> int:
    number = CALLS["clone"][MACHINES[machine][1]]
    pid = libc.call("syscall", number, _SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return pid
