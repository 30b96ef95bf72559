from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from tests.filtersrv.workers.uploads import needs_linux
from trocket.filtersrv.workers.inside import seccomp

pytestmark = needs_linux

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
PID = 4_711
ALLOW, KILL = 0x7FFF_0000, 0x8000_0000
REFUSED, ABSENT = 0x0005_0000 | errno.EPERM, 0x0005_0000 | errno.ENOSYS
NOT_THERE = {
    "x86_64": ["socket", "fork", "vfork", "execve", "ptrace", "process_vm_readv", "connect",
               "memfd_create", "unshare", "setns", "io_uring_setup", "bpf", "openat2", "creat",
               "shmget", "msgget", "prctl_", "setsid", "unlink", "chmod", "truncate", "pidfd_open"],
    "aarch64": ["socket", "execve", "ptrace", "process_vm_readv", "connect", "memfd_create",
                "unshare", "setns", "io_uring_setup", "bpf", "openat2", "shmget", "unlinkat"],
}  # fmt: skip


def run(program: bytes, machine: str, number: int, *arguments: int) -> int:
    """What the kernel would say of a call: the filter's program, interpreted."""
    padded = [argument & (1 << 64) - 1 for argument in (*arguments, *[0] * 6)][:6]
    data = struct.pack("=IIQ6Q", number, seccomp.MACHINES[machine][0], 0, *padded)
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        operation, if_true, if_false, value = code[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x15:
            at += if_true if accumulator == value else if_false
        else:
            assert operation == 0x06
            return value


def header_numbers(machine: str) -> dict[str, int]:
    if not HEADERS[machine].exists():
        pytest.skip(f"no {HEADERS[machine]} (package linux-libc-dev) to compare with")
    text = HEADERS[machine].read_text()
    found = re.findall(r"#define __NR(3264)?_(\w+) (\d+)", text)
    numbers = {name: int(number) for _, name, number in found}
    numbers.setdefault("newfstatat", numbers.get("fstatat", -1))
    return numbers


@pytest.mark.parametrize("machine", HEADERS)
def test_the_table_has_the_kernels_numbers(machine: str) -> None:
    column = seccomp.MACHINES[machine][1]
    known = header_numbers(machine)
    table = {**seccomp.CALLS, "execveat": seccomp.EXECVEAT, "clone3": seccomp._CLONE3}
    for name, numbers in table.items():
        assert numbers[column] == known.get(name), name


@pytest.mark.parametrize("machine", HEADERS)
def test_what_is_in_the_table_may_be_called_and_nothing_else(machine: str) -> None:
    column = seccomp.MACHINES[machine][1]
    program = seccomp.assemble(machine, PID)
    conditional = seccomp._conditions(PID)
    listed = {numbers[column]: name for name, numbers in seccomp.CALLS.items()}
    for number in range(600):
        result = run(program, machine, number)
        name = listed.get(number)
        if number == seccomp._CLONE3[column]:
            assert result == ABSENT
        elif name is None:
            assert result == REFUSED, number
        elif name not in conditional:
            assert result == ALLOW, name


@pytest.mark.parametrize("machine", HEADERS)
def test_what_matters_is_not_in_the_table(machine: str) -> None:
    known = header_numbers(machine)
    program = seccomp.assemble(machine, PID)
    for name in NOT_THERE[machine]:
        if name in known:
            assert run(program, machine, known[name]) == REFUSED, name


CASES = [
    ("openat", (-100, 0, 0o2000000), ALLOW),
    ("openat", (-100, 0, 0o1), REFUSED),
    ("openat", (-100, 0, 0o2), REFUSED),
    ("openat", (-100, 0, 0o100), REFUSED),
    ("openat", (-100, 0, 0o1000), REFUSED),
    ("clone", (0x3D0F00,), ALLOW),
    ("clone", (17,), REFUSED),
    ("clone", (0x1000_0000 | 17,), REFUSED),
    ("mmap", (0, 4_096, 3, 0x22), ALLOW),
    ("mmap", (0, 4_096, 1, 0x01), ALLOW),
    ("mmap", (0, 4_096, 3, 0x21), REFUSED),
    ("kill", (PID, 9), ALLOW),
    ("kill", (1, 9), REFUSED),
    ("kill", (-PID, 9), REFUSED),
    ("tgkill", (PID + 1, PID + 1, 9), REFUSED),
    ("prctl", (15, 0), ALLOW),
    ("prctl", (1, 0), REFUSED),
    ("prlimit64", (0, 7, 0, 1), ALLOW),
    ("prlimit64", (0, 7, 1), REFUSED),
    ("prlimit64", (0, 7, 1 << 32), REFUSED),
    ("ioctl", (0, 0x5401), ALLOW),
    ("ioctl", (0, 0x5412), REFUSED),
    ("fcntl", (0, 8, 1), REFUSED),
    ("socketpair", (1, 1, 0), ALLOW),
    ("socketpair", (2, 1, 0), REFUSED),
]


@pytest.mark.parametrize("machine", HEADERS)
@pytest.mark.parametrize(("name", "arguments", "result"), CASES)
def test_arguments_count(machine: str, name: str, arguments: tuple[int, ...], result: int) -> None:
    number = seccomp.CALLS[name][seccomp.MACHINES[machine][1]]
    assert number is not None
    assert run(seccomp.assemble(machine, PID), machine, number, *arguments) == result


@pytest.mark.parametrize("machine", HEADERS)
def test_only_the_one_program_can_be_executed_and_only_so(machine: str) -> None:
    number = seccomp.EXECVEAT[seccomp.MACHINES[machine][1]]
    descriptor, arguments = 3, 0x7F00_1234_5678
    program = seccomp.assemble(machine, PID, (descriptor, arguments))
    asked = [descriptor, 0x1000, arguments, 0x2000, seccomp.AT_EMPTY_PATH]
    assert run(program, machine, number, *asked) == ALLOW
    for index, other in ((0, 4), (2, arguments + 1), (2, arguments + (1 << 32)), (4, 0)):
        wrong = [*asked[:index], other, *asked[index + 1 :]]
        assert run(program, machine, number, *wrong) == REFUSED
    assert run(seccomp.assemble(machine, PID), machine, number, *asked) == REFUSED


@pytest.mark.parametrize(("machine", "other"), [("x86_64", "aarch64"), ("aarch64", "x86_64")])
def test_calls_with_another_machines_numbers_end_the_process(machine: str, other: str) -> None:
    # A 32-bit call has other numbers, and a bit set, of x32, makes a number unknown.
    assert run(seccomp.assemble(machine, PID), other, 0) == KILL
    assert run(seccomp.assemble("x86_64", PID), "x86_64", 0x4000_0000) == REFUSED


def test_a_filter_fits_what_the_kernel_takes() -> None:
    for machine in HEADERS:
        assert len(seccomp.assemble(machine, PID, (3, 1 << 40))) // 8 <= 4_096
