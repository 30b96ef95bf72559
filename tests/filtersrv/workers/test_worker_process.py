from __future__ import annotations

import dataclasses
import gc
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.filtersrv.workers.uploads import needs_linux, processes_of
from trocket.filtersrv.filters import FilterError
from trocket.filtersrv.workers.inside import frames
from trocket.filtersrv.workers.programs import LAUNCHER, python_program
from trocket.filtersrv.workers.worker_filter import NoWorkerError, open_worker
from trocket.filtersrv.workers.worker_process import WorkerEnded, WorkerProcess

pytestmark = [needs_linux, pytest.mark.slow]

TIMEOUT_S = 60.0
PROGRAM = python_program(64)

FILTER_SERVER = """
import sys, trio
from tests.filtersrv.workers.uploads import PATIENT, PYTHON, pid_of, tagged
from trocket.filtersrv.workers import WorkerFilter

async def main():
    source = b"import os\\ndef match(message):\\n while message.tags == 'loop': pass"
    worker = WorkerFilter(PYTHON, "a.Match", source, PATIENT)
    await worker.compile()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.match, tagged(sys.argv[1]), "g")
        await trio.sleep(0)
        print(pid_of(worker), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


def open_count() -> int:
    gc.collect()  # another test's garbage may have descriptors
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("doing", ["loop", "nothing"])
def test_a_worker_ends_when_its_filter_server_is_killed(doing: str) -> None:
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", FILTER_SERVER, doing], stdout=subprocess.PIPE, cwd=root
    ) as server:
        assert server.stdout is not None
        pid = int(server.stdout.readline())
        worker = os.pidfd_open(pid)
        try:
            assert processes_of(pid) == [pid]
            server.kill()
            ended, _, _ = select.select([worker], [], [], TIMEOUT_S)
            assert ended, "the worker has outlived its filter server"
        finally:
            os.close(worker)


async def test_a_worker_of_another_process_starts_nothing() -> None:
    """A program whose parent ended before it could ask for the death signal."""

    class Orphan(type(PROGRAM)):  # type: ignore[misc]
        def settings(self):
            return [
                (name, "1" if name == "parent" else value) for name, value in super().settings()
            ]

    values = {field.name: getattr(PROGRAM, field.name) for field in dataclasses.fields(PROGRAM)}
    with pytest.raises(FilterError, match="ended with status 1"):
        await open_worker(Orphan(**values), TIMEOUT_S)


def test_a_worker_that_is_not_sent_a_start_ends() -> None:
    for sent in (b"", b"\0" * 20, frames.frame(frames.LOAD, 0), frames.frame(frames.START, 0)[:-1]):
        done = subprocess.run(
            LAUNCHER, input=sent, capture_output=True, env={}, check=False, timeout=TIMEOUT_S
        )
        assert (done.returncode, done.stdout) == (1, b"")


async def test_what_a_program_says_as_it_dies_is_part_of_the_error() -> None:
    program = dataclasses.replace(
        PROGRAM, arguments=["/bin/ls", "/nowhere"], execute=["/bin/ls"], read=["/lib", "/lib64"]
    )
    process, _ = await open_worker(program, TIMEOUT_S)
    with pytest.raises(WorkerEnded, match=r"ended with status \d+: .*[Pp]ermission"):
        await process.ask(frames.LOAD, b"", {}, timeout_s=TIMEOUT_S, what="it")
    assert process.ended


async def test_a_program_that_is_not_there_is_an_error() -> None:
    program = dataclasses.replace(PROGRAM, arguments=["/nowhere/java"])
    with pytest.raises(WorkerEnded, match=r"ended with status 1: .*No such file"):
        await open_worker(program, TIMEOUT_S)


async def test_an_answer_with_anothers_number_or_size_is_none() -> None:
    for answers in ({frames.DONE: 0}, {frames.REFUSED: 3}, {}):
        process, _ = await open_worker(PROGRAM, TIMEOUT_S)
        content = frames.pack_named("a.A", b"raise ValueError('long')")
        with pytest.raises(WorkerEnded, match="sent an invalid answer"):
            await process.ask(frames.LOAD, content, answers, timeout_s=TIMEOUT_S, what="it")
        assert process.ended
        await process.aclose()


async def test_descriptors_are_given_back() -> None:
    before = open_count()
    for _ in range(3):
        process, _ = await open_worker(PROGRAM, TIMEOUT_S)
        await process.aclose()
    assert open_count() == before


async def test_no_descriptors_left_is_an_error_of_the_filter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    before = open_count()
    monkeypatch.setattr(os, "pipe", none_left)
    with pytest.raises(NoWorkerError, match=r"no process could be started: .*Too many open files"):
        await open_worker(PROGRAM, TIMEOUT_S)
    assert open_count() == before


def test_nothing_uploaded_and_nothing_configured_is_in_the_command_line() -> None:
    assert LAUNCHER[:-1] == (sys.executable, "-I", "-S", "-E", "-B")
    assert Path(LAUNCHER[-1]).is_file()
    assert all(isinstance(each, str) for each in LAUNCHER)
    assert WorkerProcess.__init__.__code__.co_argcount == 2  # the program goes through the pipe
