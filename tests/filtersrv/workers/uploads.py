"""Uploaded classes to try, and what must be so after each of them."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.filtersrv.messages import message
from trocket.filtersrv.filters import FilterError
from trocket.filtersrv.workers import FilterLanguage, WorkerFilter, WorkerLimits
from trocket.remoting.message import MessageExt

PYTHON, JAVA = FilterLanguage.PYTHON, FilterLanguage.JAVA

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="workers are for Linux")

CLASS_NAME = "com.example.Wanted"

GOOD = "good"
"""The tag of a message that a class under test answers as a decent one would."""

PATIENT = WorkerLimits(batch_timeout_s=60.0, compile_timeout_s=120.0, strikes_max=1_000)
"""Nothing in a test with them hangs on how busy the machine is."""

SHORT_S = 0.3
"""For a class that is to overrun it: however busy the machine is, it does."""

HASTY = WorkerLimits(batch_timeout_s=SHORT_S, compile_timeout_s=120.0, strikes_max=1_000)

ENDS_TIMEOUT_S = 30.0


def tagged(*tags: str) -> list[MessageExt]:
    """Messages that differ in their tag."""
    return [
        message(b"body", properties={"TAGS": tag}, offset=index) for index, tag in enumerate(tags)
    ]


def python_source(body: str, before: str = "") -> str:
    """A filter that runs a body for each message that is not good."""
    indented = "\n        ".join(body.strip().splitlines())
    return f"""
import os
{before}
class Wanted:
    def match(self, message):
        if message.tags == "{GOOD}":
            return True
        {indented}
"""


def java_source(body: str, before: str = "", imports: str = "") -> str:
    """The same in Java; the body may throw anything, and need not return."""
    return f"""
package com.example;

import org.apache.rocketmq.common.filter.FilterContext;
import org.apache.rocketmq.common.filter.MessageFilter;
import org.apache.rocketmq.common.message.MessageExt;
{imports}

public class Wanted implements MessageFilter {{
    {before}

    @Override
    public boolean match(MessageExt msg, FilterContext context) {{
        if ("{GOOD}".equals(msg.getTags())) {{
            return true;
        }}
        try {{
            return attack(msg, context);
        }} catch (RuntimeException | Error failure) {{
            throw failure;
        }} catch (Exception failure) {{
            throw new IllegalStateException(failure);
        }}
    }}

    private boolean attack(MessageExt msg, FilterContext context) throws Exception {{
        {body}
    }}
}}
"""


@asynccontextmanager
async def compiled(
    language: FilterLanguage,
    source: str,
    limits: WorkerLimits = PATIENT,
    class_name: str = CLASS_NAME,
) -> AsyncIterator[WorkerFilter]:
    """A filter that has been compiled; when it is closed no process is left."""
    worker = WorkerFilter(language, class_name, source.encode(), limits)
    pid = None
    try:
        await worker.compile()
        pid = pid_of(worker)
        yield worker
    finally:
        await worker.aclose()
    assert processes_of(pid) == []


def pid_of(worker: WorkerFilter) -> int:
    """The process that a filter has now."""
    process = worker._process
    assert process is not None
    return process.pid


async def failure_of(
    language: FilterLanguage,
    source: str,
    limits: WorkerLimits = PATIENT,
    batch: Sequence[str] = ("",),
) -> str:
    """What comes of an attack, as a text or as what the filter answered.

    After it no process of it but the filter's own is left, and a good message is let through.
    """
    async with compiled(language, source, limits) as worker:
        before = pid_of(worker)
        try:
            outcome = str(await worker.match(tagged(*batch), "group"))
        except FilterError as error:
            outcome = str(error)
        ended = worker._process is not None and worker._process.ended
        assert processes_of(before) == ([] if ended else [before])
        assert await still_good(worker)
        return outcome


async def still_good(worker: WorkerFilter) -> bool:
    """Whether it lets a good message through, by a new process if need be.

    It may overrun its time on a busy machine; not for ever.
    """
    with trio.fail_after(ENDS_TIMEOUT_S):
        while True:
            with contextlib.suppress(FilterError):
                return list(await worker.match(tagged(GOOD), "group")) == [True]


def processes_of(pid: int | None) -> list[int]:
    """All processes of the session that a worker leads; a worker can leave neither it nor /proc."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
                if int(stat[3]) == pid:
                    found.append(int(folder.name))
    return sorted(found)


def state_of(pid: int) -> str:
    """The letter in /proc/PID/stat: R, S, T (stopped), Z."""
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]


async def wait_state(pid: int, letter: str) -> None:
    """Until a process is in a state."""
    with trio.fail_after(ENDS_TIMEOUT_S):
        while state_of(pid) != letter:
            await trio.lowlevel.checkpoint()


def end_process(pid: int) -> None:
    """As the kernel does when memory runs out."""
    os.kill(pid, signal.SIGKILL)


def make_victim(folder: Path) -> Path:
    """A file that anybody may change, were it not for what is tested here."""
    folder.chmod(0o777)
    path = folder / "victim"
    path.write_text("untouched")
    path.chmod(0o666)
    os.utime(path, (1_000, 1_000))
    return path


def untouched(victim: Path) -> bool:
    """Whether nothing was done to it, and nothing made beside it."""
    status = victim.stat()
    return (
        list(victim.parent.iterdir()) == [victim]
        and victim.read_text() == "untouched"
        and (status.st_mode & 0o7777, status.st_mtime) == (0o666, 1_000)
    )
