from __future__ import annotations

from contextlib import suppress

import pytest
import trio
import trio.testing

from tests.filtersrv.messages import message
from tests.filtersrv.workers.uploads import (
    CLASS_NAME,
    GOOD,
    HASTY,
    PATIENT,
    PYTHON,
    compiled,
    end_process,
    needs_linux,
    pid_of,
    processes_of,
    python_source,
    still_good,
    tagged,
    wait_state,
)
from trocket.filtersrv.filters import FilterCompileError, FilterError
from trocket.filtersrv.workers import WorkerFilter, WorkerLimits, worker_filter
from trocket.filtersrv.workers.programs import WorkerProgram
from trocket.filtersrv.workers.worker_process import WorkerProcess

pytestmark = [needs_linux, pytest.mark.slow]

KEEP_FIFTH = """
class Wanted:
    def match(self, message):
        return int(message.properties["number"]) % 5 == 0
"""
LOOPS = python_source("while True: pass")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The processes of all workers that the test starts."""
    pids: list[int] = []

    class Noted(WorkerProcess):
        def __init__(self, program: WorkerProgram) -> None:
            super().__init__(program)
            pids.append(self.pid)

    monkeypatch.setattr(worker_filter, "WorkerProcess", Noted)
    return pids


async def test_the_class_decides_about_each_message() -> None:
    messages = [message(properties={"number": str(index)}) for index in range(64)]
    async with compiled(PYTHON, KEEP_FIFTH) as worker:
        assert list(await worker.match(messages, "g")) == [not index % 5 for index in range(64)]
        assert list(await worker.match([], "g")) == []
        assert list(await worker.match(messages[:1], "g")) == [True]


async def test_a_function_will_do_and_any_value_is_true_or_false() -> None:
    source = "import json, re, datetime, zoneinfo, hashlib, decimal\n"
    source += "def match(message): return re.findall('a+', message.body.decode())\n"
    async with compiled(PYTHON, source, class_name="a.b.Anything") as worker:
        assert list(await worker.match([message(b"baa"), message(b"b")], "g")) == [True, False]


async def test_a_class_of_dataclasses_can_be_loaded() -> None:
    source = """
from __future__ import annotations
from dataclasses import dataclass
@dataclass
class Wanted:
    tag: str = "a"
    def match(self, message): return message.tags == self.tag
"""
    async with compiled(PYTHON, source) as worker:
        assert list(await worker.match(tagged("a", "b"), "g")) == [True, False]


async def test_a_large_message_passes_whole_and_a_larger_one_is_not_sent() -> None:
    source = "def match(message): return len(set(message.body)) == 1"
    limits = WorkerLimits(memory_max_mib=64, batch_timeout_s=60.0)
    async with compiled(PYTHON, source, limits) as worker:
        most = limits.message_bytes_max
        assert most == 8 << 20
        large = message(b"")
        large.body = bytes(most)
        assert list(await worker.match([large, large], "g")) == [True, True]
        large.body = bytes(most + 1)
        with pytest.raises(FilterError, match=r"8388609 bytes, .* takes at most 8388608"):
            await worker.match([large], "g")
        assert pid_of(worker) in processes_of(pid_of(worker))  # no strike, no new process


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("class Wanted:\n  def match(self, message) return 1", r"SyntaxError: .*line 2"),
        ("\0", "null bytes|source code string"),
        ("# -*- coding: nowhere -*-", "SyntaxError: .*nowhere"),
        ("class Other: pass", r"neither Wanted.match\(self, message\) nor match\(message\)"),
        ("class Wanted: pass", "neither Wanted.match"),
        ("Wanted = 5", "TypeError"),
        ("match = 5", "neither Wanted.match"),
        (
            "class Wanted:\n  def __init__(self): raise ValueError('no')",
            r"ValueError: no \(line 2\)",
        ),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("(" * 60_000, "SyntaxError|MemoryError|RecursionError"),
    ],
)
async def test_what_is_no_filter_is_refused_and_leaves_no_process(source: str, text: str) -> None:
    worker = WorkerFilter(PYTHON, CLASS_NAME, source.encode(), PATIENT)
    with pytest.raises(FilterCompileError, match=text):
        await worker.compile()
    assert worker._process is None


async def test_an_exception_is_reported_with_its_line_and_keeps_the_process() -> None:
    async with compiled(PYTHON, KEEP_FIFTH) as worker:
        before = pid_of(worker)
        with pytest.raises(FilterError, match=r"Wanted: KeyError: 'number' \(line 4\)$"):
            await worker.match(tagged("a", "b", "c"), "g")
        good = [message(properties={"number": "5"})]
        assert list(await worker.match(good, "g")) == [True]
        assert pid_of(worker) == before


async def test_after_an_overrun_the_next_batch_has_a_new_process() -> None:
    async with compiled(PYTHON, LOOPS, HASTY) as worker:
        before = pid_of(worker)
        with pytest.raises(FilterError, match="took more than 300 ms for 2 messages"):
            await worker.match(tagged("", ""), "g")
        assert processes_of(before) == []
        assert await still_good(worker)
        assert pid_of(worker) != before


async def test_three_strikes_in_a_row_disable_the_class() -> None:
    source = python_source("os._exit(1)")
    async with compiled(PYTHON, source, WorkerLimits(batch_timeout_s=60.0)) as worker:
        for _ in range(2):
            for _ in range(2):
                with pytest.raises(FilterError, match="its process ended with status 1"):
                    await worker.match(tagged(""), "g")
            assert list(await worker.match(tagged(GOOD), "g")) == [True]  # the count begins anew
        for _ in range(3):
            with pytest.raises(FilterError, match="ended with status 1"):
                await worker.match(tagged(""), "g")
        for _ in range(2):
            with pytest.raises(FilterError, match="failed 3 times in a row: disabled until it is"):
                await worker.match(tagged(GOOD), "g")


async def test_a_machine_that_has_no_process_to_give_is_not_the_classs_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    async with compiled(PYTHON, python_source(""), WorkerLimits(batch_timeout_s=60.0)) as worker:
        end_process(pid_of(worker))
        with pytest.raises(FilterError, match="SIGKILL"):
            await worker.match(tagged(GOOD), "g")
        with monkeypatch.context() as patched:
            patched.setattr("os.pipe", none_left)
            for _ in range(5):
                with pytest.raises(
                    FilterError, match=r"Wanted: no process could be started: .*many"
                ):
                    await worker.match(tagged(GOOD), "g")
        assert list(await worker.match(tagged(GOOD), "g")) == [True]


async def test_a_disabled_class_holds_no_process_even_if_its_failures_did_not_end_it() -> None:
    source = python_source("raise ValueError")
    async with compiled(PYTHON, source, WorkerLimits(batch_timeout_s=60.0)) as worker:
        pid = pid_of(worker)
        for _ in range(3):
            with pytest.raises(FilterError, match="ValueError"):
                await worker.match(tagged(""), "g")
        assert processes_of(pid) == []


async def test_a_process_that_died_between_two_batches_costs_one_of_them() -> None:
    async with compiled(PYTHON, python_source("")) as worker:
        end_process(pid_of(worker))
        with pytest.raises(FilterError, match="was ended by SIGKILL"):
            await worker.match(tagged(GOOD), "g")
        assert list(await worker.match(tagged(GOOD), "g")) == [True]


async def test_batches_of_many_tasks_queue_and_get_their_own_answers() -> None:
    async with compiled(PYTHON, KEEP_FIFTH) as worker, trio.open_nursery() as nursery:

        async def ask(first: int) -> None:
            batch = [message(properties={"number": str(first + index)}) for index in range(20)]
            decisions = await worker.match(batch, "g")
            assert list(decisions) == [(first + index) % 5 == 0 for index in range(20)]

        for first in range(50):
            nursery.start_soon(ask, first)


async def test_a_cancelled_batch_leaves_no_answer_for_the_next_one() -> None:
    source = python_source("while True: pass")
    async with compiled(PYTHON, source) as worker:
        before = pid_of(worker)
        await wait_state(before, "T")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.match, tagged(""), "g")
            await wait_state(before, "R")
            nursery.cancel_scope.cancel()
        assert processes_of(before) == []
        assert list(await worker.match(tagged(GOOD), "g")) == [True]
        assert list(await worker.match(tagged("x", GOOD)[1:], "g")) == [True]


@pytest.mark.parametrize("checkpoints", range(12))
async def test_a_batch_can_be_cancelled_anywhere(checkpoints: int) -> None:
    """Cancelled after a number of loop steps: answers are not mixed up, whatever was running."""
    async with compiled(PYTHON, KEEP_FIFTH) as worker:
        batch = [message(properties={"number": str(index)}) for index in range(5)]
        for _ in range(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(worker.match, batch, "g")
                for _ in range(checkpoints):
                    await trio.lowlevel.checkpoint()
                nursery.cancel_scope.cancel()
            assert list(await worker.match(batch[1:2], "g")) == [False]
            assert list(await worker.match(batch[:1], "g")) == [True]


async def test_a_cancelled_compilation_leaves_no_process(started: list[int]) -> None:
    worker = WorkerFilter(PYTHON, CLASS_NAME, b"while True: pass", PATIENT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(worker.compile)
        await trio.testing.wait_all_tasks_blocked()
        assert processes_of(started[0]) == started
        nursery.cancel_scope.cancel()
    assert processes_of(started[0]) == []


async def test_closing_fails_what_is_under_way_and_what_waits() -> None:
    worker = WorkerFilter(PYTHON, CLASS_NAME, LOOPS.encode(), PATIENT)
    await worker.compile()
    pid = pid_of(worker)
    await wait_state(pid, "T")
    failures: list[str] = []

    async def ask() -> None:
        with pytest.raises(FilterError) as caught:
            await worker.match(tagged(""), "g")
        failures.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
        await wait_state(pid, "R")
        await worker.aclose()
    assert failures == ["com.example.Wanted is closed"] * 3
    assert processes_of(pid) == []
    await worker.aclose()
    with pytest.raises(FilterError, match="is closed"):
        await worker.compile()


async def test_closing_is_done_even_when_it_is_cancelled() -> None:
    worker = WorkerFilter(PYTHON, CLASS_NAME, python_source("").encode(), PATIENT)
    await worker.compile()
    pid = pid_of(worker)
    with trio.CancelScope() as scope:
        scope.cancel()
        with suppress(trio.Cancelled):
            await worker.aclose()
    assert processes_of(pid) == []


async def test_without_compile_nothing_is_decided() -> None:
    worker = WorkerFilter(PYTHON, CLASS_NAME, b"", PATIENT)
    with pytest.raises(FilterError, match="is not compiled"):
        await worker.match(tagged(""), "g")
    await worker.aclose()


async def test_it_says_what_it_is_locked_in_by() -> None:
    async with compiled(PYTHON, python_source("")) as worker:
        report = worker.protections
    assert report.in_force["system calls"] == "seccomp"
    assert report.in_force["limits"] == "128 MiB"
    assert report.in_force.keys() & {"files", "user"}
    assert report.in_force.keys() | report.lacking.keys() == {
        "limits", "namespaces", "user", "threads", "privileges", "files", "life", "system calls",
    }  # fmt: skip
