"""Attacks by hostile filter classes in Python. The same in Java: tests/interop/filtersrv_workers.

`failure_of` checks after each attack that no process is left and that a good message gets through.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.filtersrv.messages import message
from tests.filtersrv.workers.uploads import (
    GOOD,
    HASTY,
    PATIENT,
    PYTHON,
    SHORT_S,
    compiled,
    failure_of,
    make_victim,
    needs_linux,
    pid_of,
    processes_of,
    python_source,
    tagged,
    untouched,
    wait_state,
)
from trocket.filtersrv.filters import REMARK_LENGTH_MAX, FilterCompileError, FilterError
from trocket.filtersrv.workers import WorkerFilter, WorkerLimits
from trocket.filtersrv.workers.inside import frames

pytestmark = [needs_linux, pytest.mark.slow]

NOT_PERMITTED = r"com\.example\.Wanted: (PermissionError|OSError): \[Errno 1\]"
DENIED = r"com\.example\.Wanted: PermissionError: \[Errno (1|13)\]"
"""By seccomp or by Landlock."""


def overran(count: int) -> str:
    return f"com.example.Wanted: took more than {SHORT_S * 1000:.0f} ms for {count} messages"


FOREIGN_PATHS = [
    path
    for path in (
        "/etc/passwd",
        "/etc/shadow",
        "/proc/self/environ",
        "/proc/{pid}/environ",
        "/proc/{pid}/maps",
        __file__,
        sys.executable,
        "/",
        "/tmp",
        "/root",
        "/proc",
        "/dev/sda",
        "/sys/kernel",
    )
    if Path(path).exists() or "{pid}" in path
]
"""`{pid}` is the filter server's."""


async def attack(body: str, before: str = "", limits: WorkerLimits = PATIENT) -> str:
    return await failure_of(PYTHON, python_source(body, before), limits)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    return make_victim(tmp_path)


async def test_an_endless_loop_is_killed() -> None:
    assert await attack("while True: pass", limits=HASTY) == overran(1)


async def test_catching_everything_does_not_save_an_endless_loop() -> None:
    body = """
import signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
while True:
    try:
        while True: pass
    except BaseException: pass
"""
    assert await attack(body, limits=HASTY) == overran(1)


async def test_sleeping_is_overrunning() -> None:
    assert await attack("import time; time.sleep(3600)", limits=HASTY) == overran(1)


async def test_an_endless_loop_in_the_module_is_killed_when_it_is_compiled() -> None:
    limits = WorkerLimits(compile_timeout_s=2 * SHORT_S)
    worker = WorkerFilter(PYTHON, "a.Wanted", b"while True: pass", limits)
    with pytest.raises(FilterError, match="took more than 600 ms for loading the class"):
        await worker.compile()
    assert worker._process is None


async def test_a_list_that_grows_for_ever_runs_out_of_its_own_memory_only() -> None:
    body = "kept = []\nwhile True: kept.append(bytearray(1 << 20))"
    assert re.search(r"Wanted: MemoryError: +\(line \d+\)$", await attack(body))


async def test_memory_that_it_keeps_is_missing_to_read_its_next_messages_and_that_is_reported() -> (
    None
):
    body = "try:\n    while True: kept.append(bytearray(1 << 16))\nexcept MemoryError: return False"
    async with compiled(PYTHON, python_source(body, "kept = []")) as worker:
        large = [message(bytes(1 << 22))]
        assert list(await worker.match(tagged(""), "group")) == [False]
        with pytest.raises(FilterError, match="its process ended with status 1: MemoryError"):
            await worker.match(large, "group")
        assert list(await worker.match(tagged(GOOD), "group")) == [True]


async def test_memory_mapped_without_python_counts_too() -> None:
    body = """
import mmap
kept = []
while len(kept) < 10_000: kept.append(mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANON))
"""
    assert "[Errno 12] Cannot allocate memory" in await attack(body)


async def test_shared_memory_which_no_limit_counts_is_refused() -> None:
    assert re.match(NOT_PERMITTED, await attack("import mmap; mmap.mmap(-1, 1 << 20)"))


@pytest.mark.parametrize(
    "body",
    [
        "os.fork()",
        "while True: os.fork()",
        "os.forkpty()",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv('/bin/true', ['true'])",
        "os.execv(__import__('sys').executable, ['python'])",
        "import subprocess; subprocess.run(['/bin/true'])",
        "import subprocess; subprocess.run('id', shell=True)",
        "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
    ],
)
async def test_no_process_and_no_program_is_started(body: str) -> None:
    outcome = await attack(body)
    # `pipe`, which subprocess makes first, is refused as well.
    assert re.match(NOT_PERMITTED, outcome) or "Operation not permitted" in outcome


async def test_os_system_runs_nothing(victim: Path) -> None:
    body = f"return os.system('rm {victim}') == 0"
    assert await attack(body) == "[False]"
    assert untouched(victim)


async def test_threads_are_few_and_end_with_the_process() -> None:
    body = """
import threading, time
count = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
        count += 1
except (RuntimeError, MemoryError): raise ValueError(f'{count} threads')
"""
    outcome = await attack(body)
    found = re.search(r"(\d+) threads", outcome)
    assert found, outcome
    assert int(found[1]) < 64


@pytest.mark.parametrize("path", FOREIGN_PATHS)
async def test_no_file_or_folder_is_read(path: str) -> None:
    path = path.format(pid=os.getpid())
    body = f"path = {path!r}\ntry: open(path)\nexcept IsADirectoryError: os.listdir(path)"
    assert re.match(DENIED, await attack(body))


@pytest.mark.parametrize(
    "body",
    [
        "open({path!r}, 'w')",
        "open({path!r}, 'a')",
        "open({path!r}, 'r+')",
        "os.truncate({path!r}, 0)",
        "os.unlink({path!r})",
        "os.rename({path!r}, {path!r} + '2')",
        "os.link({path!r}, {path!r} + '2')",
        "os.symlink('/', {path!r} + '2')",
        "os.mkdir({path!r} + '2')",
        "os.mkfifo({path!r} + '2')",
        "os.chmod({path!r}, 0o777)",
        "os.chown({path!r}, 0, 0)",
        "os.utime({path!r})",
        "os.chdir({path!r})",
        "os.memfd_create('x')",
    ],
)
async def test_no_file_is_written_made_or_changed(body: str, victim: Path) -> None:
    assert re.match(DENIED, await attack(body.format(path=str(victim))))
    assert untouched(victim)


@pytest.mark.parametrize(
    "kind", ["AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"]
)
async def test_no_socket_is_opened(kind: str) -> None:
    body = f"import socket; socket.socket(socket.{kind})"
    assert re.match(NOT_PERMITTED, await attack(body))


async def test_no_name_is_looked_up() -> None:
    outcome = await attack("import socket; return bool(socket.getaddrinfo('example.org', 80))")
    assert "gaierror" in outcome


async def test_a_pair_of_sockets_leads_nowhere_else() -> None:
    body = """
import socket
one, other = socket.socketpair()
one.sendmsg([b'x'])
"""
    assert re.match(NOT_PERMITTED, await attack(body))


async def test_sys_exit_is_a_failure_like_another() -> None:
    assert await attack("raise SystemExit(7)") == "com.example.Wanted: SystemExit: 7 (line 8)"


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("os._exit(0)", "its process ended with status 0"),
        ("os._exit(7)", "its process ended with status 7"),
        ("os.abort()", "its process was ended by SIGABRT"),
        ("os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "its process was ended by SIGSEGV"),
    ],
)
async def test_a_class_that_ends_its_process_is_reported(body: str, end: str) -> None:
    assert await attack(body) == f"com.example.Wanted: {end}"


async def test_printing_goes_nowhere_and_harms_nothing() -> None:
    body = """
import sys
for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
    for _ in range(1000): print('x' * 100, file=stream, flush=True)
print(sys.stdin.read())
return True
"""
    assert await attack(body) == "[True]"


async def test_printing_without_end_is_killed() -> None:
    assert await attack("while True: print('x' * 1000)", limits=HASTY) == overran(1)


@pytest.mark.parametrize("descriptor", [1, 2])
async def test_writing_to_standard_descriptors_fills_no_memory_of_ours(descriptor: int) -> None:
    outcome = await attack(f"while True: os.write({descriptor}, b'x' * 1000)")
    assert "BlockingIOError" in outcome


ANSWER = f"import struct\nHEAD = struct.Struct({frames.HEAD.format!r})"
BITS = frames.BITS


@pytest.mark.parametrize(
    "body",
    [
        "os.write(4, b'garbage of some length')",
        "os.write(4, bytes(100)); return True",
        f"os.write(4, HEAD.pack({BITS}, 999, 1) + b'\\1')",
        f"os.write(4, HEAD.pack({BITS}, 2, 4_000_000_000))",
        f"os.write(4, HEAD.pack({BITS}, 2, 2) + b'\\1\\1')",
        f"os.write(4, HEAD.pack({frames.DONE}, 2, 0))",
        "while True: os.write(4, bytes(65536))",
    ],
)
async def test_garbage_in_the_pipe_ends_the_process(body: str) -> None:
    assert await attack(body, ANSWER) == "com.example.Wanted: its process sent an invalid answer"


async def test_an_answer_of_its_own_making_is_only_about_the_messages_it_was_asked_about() -> None:
    forged = f"os.write(4, HEAD.pack({BITS}, 2, 1) + b'\\1')\nreturn False"
    # Taken for the answer, or found out by the second one; in no case taken for the next one.
    outcome = await attack(forged, ANSWER)
    assert outcome in ("[True]", "com.example.Wanted: its process sent an invalid answer")


async def test_half_an_answer_is_not_waited_for_longer_than_a_whole_one() -> None:
    body = f"os.write(4, HEAD.pack({BITS}, 2, 1))\nwhile True: pass"
    assert await failure_of(PYTHON, python_source(body, ANSWER), HASTY) == overran(1)


@pytest.mark.parametrize("body", ["os.close(4)", "os.closerange(0, 16)"])
async def test_closing_the_pipes_ends_the_process(body: str) -> None:
    outcome = await attack(body)
    assert re.search("its process ended with status 1(: OSError.* Bad file descriptor)?$", outcome)


async def test_a_request_that_is_not_read_does_not_hold_us_up() -> None:
    source = python_source("os.read(3, 1)\nwhile True: pass")
    batch = tagged("", *["x"] * 2_000)  # more than the pipe holds
    async with compiled(PYTHON, source, HASTY) as worker:
        with pytest.raises(FilterError, match=re.escape(overran(2_001))):
            await worker.match(batch, "group")
        assert processes_of(worker._process.pid) == []  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "body",
    [
        "os.kill(os.getppid(), 9)",
        "os.kill(os.getppid(), 0)",
        "os.killpg(os.getpgid(os.getppid()), 9)",
        "os.kill(-1, 9)",
        "os.kill(1, 9)",
        "__import__('signal').pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
        "__import__('resource').prlimit(os.getppid(), 7, (0, 0))",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
        "os.sched_setaffinity(os.getppid(), {0})",
    ],
)
async def test_the_filter_server_is_not_to_be_touched(body: str) -> None:
    assert re.match(NOT_PERMITTED, await attack(body))


@pytest.mark.parametrize(
    "call",
    ["ptrace", "process_vm_readv", "unshare", "setns", "mount", "chroot", "setuid", "setsid",
     "bpf", "userfaultfd", "io_uring_setup", "keyctl", "shmget", "msgget", "open_by_handle_at",
     "perf_event_open", "execve", "vfork"],
)  # fmt: skip
async def test_raw_system_calls_are_refused(call: str) -> None:
    numbers = {
        "ptrace": 101, "process_vm_readv": 310, "unshare": 272, "setns": 308, "mount": 165,
        "chroot": 161, "setuid": 105, "setsid": 112, "bpf": 321, "userfaultfd": 323,
        "io_uring_setup": 425, "keyctl": 250, "shmget": 29, "msgget": 68,
        "open_by_handle_at": 304, "perf_event_open": 298, "execve": 59, "vfork": 58,
    }  # fmt: skip
    if os.uname().machine != "x86_64":
        pytest.skip("numbers of x86_64")
    body = f"""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
result = libc.syscall({numbers[call]}, 0, 0, 0, 0, 0, 0)
raise ValueError(f'{{result}}, errno {{ctypes.get_errno()}}')
"""
    assert "ValueError: -1, errno 1" in await attack(body)


async def test_limits_are_not_to_be_raised() -> None:
    body = "import resource; resource.setrlimit(resource.RLIMIT_DATA, (-1, -1))"
    assert re.search(r"not (allowed|permitted)|Operation not permitted", await attack(body))


async def test_it_finds_nothing_of_ours_in_its_environment_and_descriptors() -> None:
    body = """
found = []
for descriptor in range(1024):
    try:
        os.fstat(descriptor)
        found.append(descriptor)
    except OSError: pass
raise ValueError(f'{dict(os.environ)} {found} {os.getcwd()} {__import__("sys").argv[1:]}')
"""
    outcome = await attack(body)
    # LC_CTYPE is Python's own; 3 and 4 are the pipes, 5 leads to /dev/null.
    assert re.search(
        r"ValueError: \{('LC_CTYPE': '[\w.-]+')?\} \[0, 1, 2, 3, 4, 5\] / \[\]", outcome
    )


@pytest.mark.parametrize("module", ["trocket", "inside", "inside.launcher", "trio", "pytest"])
async def test_none_of_our_modules_can_be_imported(module: str) -> None:
    outcome = await attack(f"import importlib; importlib.import_module({module!r}).__file__")
    if module.startswith("inside"):
        # Already there, as in any process its own program is; its file is not to be read.
        assert outcome == "[False]"
    else:
        assert f"No module named '{module}'" in outcome


async def test_a_huge_text_of_an_exception_is_cut_and_makes_no_lines() -> None:
    outcome = await attack("raise ValueError('x\\nERROR ' + 'y' * 10_000_000)")
    assert outcome.startswith("com.example.Wanted: ValueError: x ERROR yyy")
    assert len(outcome) <= REMARK_LENGTH_MAX


async def test_an_exception_whose_text_raises_is_reported() -> None:
    before = "class Odd(BaseException):\n    def __str__(self): raise SystemExit"
    outcome = await attack("raise Odd", before)
    assert "Wanted: Odd, whose str() raises SystemExit" in outcome


async def test_deep_recursion_is_a_failure_and_without_a_limit_the_end() -> None:
    recursion = "def again(): return again()\n"
    assert "RecursionError" in await attack(recursion + "again()")
    deep = "import sys; sys.setrecursionlimit(1 << 30)\nvalue = []\n"
    deep += "for _ in range(1_000_000): value = [value]\nrepr(value)"
    outcome = await attack(deep)
    assert re.search(r"MemoryError|RecursionError|SIGSEGV", outcome)


async def test_between_the_batches_it_does_not_run() -> None:
    before = """
import threading
def spin():
    while True: pass
"""
    source = python_source("threading.Thread(target=spin, daemon=True).start()", before)
    async with compiled(PYTHON, source) as worker:
        assert list(await worker.match(tagged(""), "group")) == [False]
        await wait_state(pid_of(worker), "T")
        assert list(await worker.match(tagged(GOOD), "group")) == [True]


async def test_what_looks_like_a_path_or_a_shells_is_no_class_name_and_starts_nothing() -> None:
    for name in ("../../etc/passwd", "a;id", "$(id)", "a/b", "a b", "x" * 256):
        worker = WorkerFilter(PYTHON, name, b"", PATIENT)
        with pytest.raises(FilterCompileError, match="class name"):
            await worker.compile()
        assert worker._process is None


async def test_a_source_over_64_kib_starts_nothing() -> None:
    worker = WorkerFilter(PYTHON, "a.Wanted", b"#" * 65_537, PATIENT)
    with pytest.raises(FilterCompileError, match="at most 65536 bytes"):
        await worker.compile()
    assert worker._process is None
