"""Hostile filter classes in Java; see tests/filtersrv/workers/test_attacks.py.

`failure_of` checks after each attack that no process is left and that a good message gets through.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.filtersrv.workers.uploads import (
    GOOD,
    HASTY,
    JAVA,
    PATIENT,
    SHORT_S,
    compiled,
    failure_of,
    java_source,
    make_victim,
    pid_of,
    tagged,
    untouched,
    wait_state,
)
from trocket.filtersrv.filters import REMARK_LENGTH_MAX, FilterCompileError, FilterError
from trocket.filtersrv.workers import WorkerFilter, WorkerLimits

from ...kit.matrix import first_of

pytestmark = [pytest.mark.interop, pytest.mark.slow, pytest.mark.usefixtures("java")]


DENIED = "Permission denied|Operation not permitted|AccessDeniedException|Not permitted"
OVERRAN = f"com.example.Wanted: took more than {SHORT_S * 1000:.0f} ms for 1 messages"
GARBAGE = "com.example.Wanted: its process sent an invalid answer"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    return make_victim(tmp_path)


def crash_files() -> list[Path]:
    return [path for folder in ("/", "/tmp") for path in Path(folder).glob("hs_err*")]


async def attack(body: str, before: str = "", limits: WorkerLimits = PATIENT) -> str:
    imports = "import java.io.*; import java.net.*; import java.nio.file.*; import java.util.*;"
    return await failure_of(JAVA, java_source(body, before, imports), limits)


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            "while (true) { }",
            "while (true) { try { while (true) { } } catch (Throwable t) { } }",
            "Thread.sleep(3_600_000); return true;",
            "while (true) { System.out.println(System.nanoTime()); }",
            "synchronized (this) { wait(); } return true;",
        ]
    ),
)
async def test_what_does_not_end_is_killed(body: str) -> None:
    assert await attack(body, limits=HASTY) == OVERRAN


@pytest.mark.matrix
async def test_an_endless_loop_at_loading_is_killed() -> None:
    source = java_source("return true;", "static { while (System.nanoTime() != 0) { } }")
    worker = WorkerFilter(JAVA, "com.example.Wanted", source.encode(), WorkerLimits(128, 1.0, 5.0))
    with pytest.raises(FilterError, match="took more than 5000 ms for loading the class"):
        await worker.compile()


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            "List<byte[]> kept = new ArrayList<>(); while (true) { kept.add(new byte[1 << 20]); }",
            "Object o = new long[Integer.MAX_VALUE - 2]; return o == null;",
            (
                "Set<Object> s = new HashSet<>();"
                " for (;;) try { s.add(new int[9]); } catch (Error e) { }"
            ),
        ]
    ),
)
async def test_a_heap_that_is_full_ends_the_process(body: str) -> None:
    outcome = await attack(body)
    assert re.match(r"com\.example\.Wanted: its process ended with status \d+: .*OutOfMem", outcome)


@pytest.mark.matrix
async def test_memory_beside_the_heap_is_limited_too() -> None:
    body = "List<Object> kept = new ArrayList<>(); while (true) {"
    body += " kept.add(java.nio.ByteBuffer.allocateDirect(1 << 20)); }"
    outcome = await attack(body)
    assert re.search("Cannot reserve|OutOfMemory|its process", outcome)


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            'Runtime.getRuntime().exec("id"); return true;',
            'while (true) { Runtime.getRuntime().exec(new String[] {"/bin/true"}); }',
            'new ProcessBuilder("/bin/sh", "-c", "id").inheritIO().start().waitFor(); return true;',
            (
                'new ProcessBuilder(System.getProperty("java.home") + "/bin/java").start();'
                " return true;"
            ),
        ]
    ),
)
async def test_no_process_and_no_program_is_started(body: str) -> None:
    assert re.search(r"IOException: (Cannot run program|error=)", await attack(body))


@pytest.mark.matrix
async def test_threads_are_few_and_end_with_the_process() -> None:
    body = """
        int count = 0;
        try {
            while (true) {
                Thread t = new Thread(() -> { while (true) { } });
                t.setDaemon(true);
                t.start();
                count++;
            }
        } catch (Throwable full) {
            throw new IllegalStateException(count + " threads");
        }
    """
    outcome = await attack(body)
    found = re.search(r"(\d+) threads", outcome)
    if found:
        assert int(found[1]) < 200
    else:
        assert "unable to create native thread" in outcome


@pytest.mark.parametrize(
    "path",
    first_of(["/etc/passwd", "/etc/shadow", "/proc/self/environ", "/proc/{pid}/environ", __file__]),
)
async def test_no_file_is_read(path: str) -> None:
    path = path.format(pid=os.getpid())
    assert re.search(DENIED, await attack(f'new FileInputStream("{path}").read(); return true;'))
    outcome = await attack(f'Files.readAllBytes(Paths.get("{path}")); return true;')
    assert re.search(DENIED, outcome)


@pytest.mark.matrix
async def test_no_folder_is_listed() -> None:
    body = 'return new File("/etc").list() != null || new File("/").list() != null;'
    assert await attack(body) == "[False]"


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            'new FileOutputStream("{path}").write(1); return true;',
            'new RandomAccessFile("{path}", "rw").setLength(0); return true;',
            'Files.delete(Paths.get("{path}")); return true;',
            'Files.createDirectory(Paths.get("{path}2")); return true;',
            'Files.createSymbolicLink(Paths.get("{path}2"), Paths.get("/")); return true;',
            'File.createTempFile("abc", "b", new File("{path}").getParentFile()); return true;',
        ]
    ),
)
async def test_no_file_is_written_made_or_changed(body: str, victim: Path) -> None:
    assert re.search(DENIED, await attack(body.replace("{path}", str(victim))))
    assert untouched(victim)


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            'new Socket("127.0.0.1", 9876); return true;',
            "new ServerSocket(0); return true;",
            "new DatagramSocket(); return true;",
            "java.nio.channels.DatagramChannel.open(); return true;",
            (
                'java.nio.channels.SocketChannel.open(UnixDomainSocketAddress.of("/tmp/x"));'
                " return true;"
            ),
            "java.nio.channels.Selector.open(); return true;",
        ]
    ),
)
async def test_no_socket_is_opened(body: str) -> None:
    assert re.search(rf"{DENIED}|SocketException|UnsupportedOperation", await attack(body))


@pytest.mark.matrix
async def test_no_name_is_looked_up() -> None:
    body = 'InetAddress.getByName("example.org"); return true;'
    assert re.search("UnknownHostException", await attack(body))


@pytest.mark.parametrize(
    ("body", "status"),
    first_of(
        [
            ("System.exit(0); return true;", 0),
            ("System.exit(7); return true;", 7),
            ("Runtime.getRuntime().halt(3); return true;", 3),
        ]
    ),
)
async def test_a_class_that_ends_its_process_is_reported(body: str, status: int) -> None:
    outcome = await attack(body)
    assert outcome == f"com.example.Wanted: its process ended with status {status}"


@pytest.mark.matrix
async def test_a_crash_of_the_jvm_is_told_of_and_writes_no_file() -> None:
    body = """
        java.lang.reflect.Field field = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        ((sun.misc.Unsafe) field.get(null)).putAddress(0, 0);
        return true;
    """
    outcome = await attack(body)
    assert re.search("its process (was )?ended (with status 1|by SIGABRT): .*bug report", outcome)
    assert not crash_files()


@pytest.mark.matrix
async def test_printing_goes_nowhere_and_harms_nothing() -> None:
    body = "for (int i = 0; i < 10_000; i++) { System.out.println(i); System.err.println(i); }"
    assert await attack(body + "return System.in.read() == -1;") == "[True]"


TO_PIPE = """
    java.lang.reflect.Field field = FileDescriptor.class.getDeclaredField("fd");
    field.setAccessible(true);
    FileDescriptor pipe = new FileDescriptor();
    field.setInt(pipe, 4);
    FileOutputStream out = new FileOutputStream(pipe);
"""


@pytest.mark.parametrize(
    "body",
    first_of(
        [
            'out.write("garbage of some length".getBytes());',
            "out.write(new byte[9]);",
            "out.write(new byte[1 << 20]);",
        ]
    ),
)
async def test_garbage_in_the_pipe_ends_the_process(body: str) -> None:
    assert await attack(f"{TO_PIPE} {body} return true;") == GARBAGE


async def test_closing_the_pipe_ends_the_process() -> None:
    outcome = await attack(f"{TO_PIPE} out.close(); return true;")
    assert re.search("Wanted: its process ended with status 1: java.io.IOException", outcome)


@pytest.mark.matrix
async def test_the_standard_descriptors_are_not_the_pipes() -> None:
    body = """
        for (int i = 0; i < 100_000; i++) {
            try {
                new FileOutputStream(FileDescriptor.out).write(new byte[9]);
                new FileOutputStream(FileDescriptor.err).write(new byte[9]);
            } catch (IOException full) {
            }
        }
        return new FileInputStream(FileDescriptor.in).read() == -1;
    """
    assert await attack(body) == "[True]"


async def test_the_filter_server_is_not_to_be_touched() -> None:
    body = """
        ProcessHandle self = ProcessHandle.current();
        boolean hit = ProcessHandle.of(%d).map(ProcessHandle::destroyForcibly).orElse(false);
        return hit || self.parent().map(ProcessHandle::destroyForcibly).orElse(false);
    """
    assert await attack(body % os.getpid()) == "[False]"


@pytest.mark.matrix
async def test_native_code_is_not_loaded_from_where_it_could_be_written(tmp_path: Path) -> None:
    library = tmp_path / "evil.so"
    library.write_bytes(b"\x7fELF")
    body = f'System.load("{library}"); return true;'
    assert "UnsatisfiedLinkError" in await attack(body)


async def test_it_finds_nothing_of_ours_in_its_environment() -> None:
    body = (
        'throw new IllegalStateException(System.getenv() + " " + System.getProperty("user.dir"));'
    )
    assert "IllegalStateException: {} / (line" in await attack(body)


@pytest.mark.matrix
async def test_a_huge_text_of_an_exception_is_cut_and_makes_no_lines() -> None:
    body = 'throw new IllegalStateException("x\\nERROR " + "y".repeat(1_000_000));'
    outcome = await attack(body)
    assert outcome.startswith("com.example.Wanted: java.lang.IllegalStateException: x ERROR yyy")
    assert len(outcome) <= REMARK_LENGTH_MAX


@pytest.mark.matrix
async def test_an_exception_whose_text_throws_is_told_of() -> None:
    before = "static class Odd extends Error { public String toString() { throw new Odd(); } }"
    outcome = await attack("throw new Odd();", before)
    assert outcome.endswith("Wanted$Odd, whose text throws com.example.Wanted$Odd")


@pytest.mark.matrix
async def test_deep_recursion_is_a_failure() -> None:
    outcome = await attack("return again(1) > 0;", "int again(int n) { return again(n + 1) + n; }")
    assert "java.lang.StackOverflowError" in outcome


@pytest.mark.matrix
async def test_between_the_batches_it_does_not_run() -> None:
    body = "Thread t = new Thread(() -> { while (true) { } }); t.setDaemon(true); t.start();"
    async with compiled(JAVA, java_source(body + "return false;")) as worker:
        assert list(await worker.match(tagged("x"), "group")) == [False]
        await wait_state(pid_of(worker), "T")
        assert list(await worker.match(tagged(GOOD), "group")) == [True]


@pytest.mark.parametrize("name", ["../../etc/Wanted", "a;id", "-version", "@args", "a/b", "a b"])
async def test_what_looks_like_a_path_or_a_shells_is_no_class_name(name: str) -> None:
    worker = WorkerFilter(JAVA, name, b"", PATIENT)
    with pytest.raises(FilterCompileError, match="not a class name"):
        await worker.compile()
