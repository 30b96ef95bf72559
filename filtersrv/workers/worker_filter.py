"""The filter for an uploaded class, which runs in a sandboxed process."""

from __future__ import annotations

import enum
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import trio

from ...remoting.message import MessageExt
from ..filters import REMARK_LENGTH_MAX, FilterCompileError, FilterError
from .inside import frames
from .java import find_jdk, our_classes
from .limits import WorkerLimits
from .programs import WorkerProgram, compiler_program, java_program, python_program
from .sandbox import Report, check_platform, missing_protections, parse_report
from .upload import check_class_name, check_source, clean_text
from .worker_process import WorkerProcess

# Start of worker processes and loading of classes. After a failure no process is left.

_READY = {frames.READY: frames.TEXT_BYTES_MAX}
_LOADED = {frames.DONE: frames.CLASSES_BYTES_MAX, frames.REFUSED: frames.TEXT_BYTES_MAX}


class NoWorkerError(FilterError):
    """No process could be started, or a protection is lacking; the class is not the cause."""


async def open_worker(program: WorkerProgram, timeout_s: float) -> tuple[WorkerProcess, Report]:
    """Start a process that has enabled its protections, and has no uploaded code yet.

    Returns: the process, and the report of its protections.
    Raises:
      NoWorkerError: no process could be started, or a required protection is lacking.
      FilterError: the process ended, or did not answer in time.
    """
    settings = frames.pack_settings(program.settings())
    try:
        process = WorkerProcess(program)
        _, content = await process.ask(
            frames.START, settings, _READY, timeout_s=timeout_s, what="the start"
        )
    except OSError as error:
        raise NoWorkerError(f"no process could be started: {error}") from error
    report = parse_report(content.decode("utf-8", "replace"))
    lacking = missing_protections(report)
    if lacking:
        await process.aclose()
        raise NoWorkerError(f"uploaded classes cannot be sandboxed here, lacking: {lacking}")
    return process, report


async def load(
    process: WorkerProcess, kind: int, class_name: str, content: bytes, *, timeout_s: float
) -> bytes:
    """Have a process compile or load a class.

    Args:
      kind: COMPILE or LOAD.
      class_name: full name of the class.
      content: the source, or the result of COMPILE.

    Returns: the compiled classes after COMPILE; empty after LOAD.
    Raises:
      FilterCompileError: the class is not a filter, or does not compile.
      FilterError: the process ended, or did not answer in time.
    """
    answered, answer = await process.ask(
        kind,
        frames.pack_named(class_name, content),
        _LOADED,
        timeout_s=timeout_s,
        what="loading the class",
    )
    if answered == frames.REFUSED:
        await process.aclose()
        text = answer.decode("utf-8", "replace")
        raise FilterCompileError(clean_text(text, length_max=REMARK_LENGTH_MAX, keep="\n"))
    return answer


# Encoding of messages for workers. The layout is declared in `inside.frames`. Pure.


def message_frames(messages: Sequence[MessageExt]) -> Iterator[bytes]:
    """The MESSAGE frames that follow a BATCH, in pieces, so that bodies are not copied."""
    for message in messages:
        topic = message.topic.encode()
        head = frames.MESSAGE_HEAD.pack(
            message.queue_id,
            message.queue_offset,
            message.physical_offset,
            message.flag,
            message.sys_flag,
            message.born_timestamp_ms,
            message.store_timestamp_ms,
            message.reconsume_times,
            message.prepared_transaction_offset,
            message.store_size,
            message.body_crc,
            len(message.born_host),
            len(message.store_host),
            len(topic),
            len(message.properties_bytes),
        )
        rest = (message.born_host, message.store_host, topic, message.properties_bytes)
        size = len(head) + sum(map(len, rest)) + len(message.body)
        yield b"".join((frames.HEAD.pack(frames.MESSAGE, 0, size), head, *rest))
        yield message.body


def message_size(message: MessageExt) -> int:
    """The approximate size of a message in a frame, in bytes: its body and properties."""
    return len(message.body) + len(message.properties_bytes)


logger = logging.getLogger(__name__)


class FilterLanguage(enum.Enum):
    """The language of a source; the values are those of `sourceLanguage` in a request."""

    JAVA = "java"
    PYTHON = "python"


class WorkerFilter:
    """An uploaded class and its process.

    Lifecycle: `compile`, any number of `match`, `aclose`. Any number of tasks of one trio loop can
    call `match`; batches are processed one at a time. A process that answers wrongly or too late,
    or whose batch is cancelled, is killed; the next batch starts a new one.

    Args:
      language: language of the source.
      class_name: full name of the class.
      source: the uploaded source.
      limits: limits of the process.
    """

    def __init__(
        self, language: FilterLanguage, class_name: str, source: bytes, limits: WorkerLimits
    ) -> None:
        self._language = language
        self._class_name = class_name
        self._source = source
        self._limits = limits
        self._program: WorkerProgram | None = None
        self._loadable = b""  # the content of LOAD: the source, or compiled classes
        self._process: WorkerProcess | None = None
        self._report = Report({}, {})
        self._strikes = 0
        self._lock = trio.Lock()
        self._under_way = trio.CancelScope()
        self._closed = False

    @property
    def protections(self) -> Report:
        """The protections of its process; empty before `compile`."""
        return self._report

    @property
    def is_disabled(self) -> bool:
        """Whether it has failed `strikes_max` times in a row."""
        return self._strikes >= self._limits.strikes_max

    async def compile(self) -> None:
        """Start the process and load the class.

        Raises:
          FilterCompileError: the source is not a filter; the text is the compiler's.
          FilterError: this system cannot run classes of this language, or cannot sandbox them.
        """
        check_class_name(self._class_name)
        check_source(self._source)
        check_platform()
        async with self._turn():
            if self._language is FilterLanguage.PYTHON:
                self._loadable = self._source
                self._program = python_program(self._limits.memory_max_mib)
            else:
                await self._compile_java()
            process = self._process = await self._new_process(self._program)
            logger.info(
                "the filter class %(class_name)s runs in process %(pid)d; protections not in "
                "force: %(lacking)s",
                {
                    "class_name": self._class_name,
                    "pid": process.pid,
                    "lacking": "; ".join(
                        [f"{name}: {why}" for name, why in self._report.lacking.items()]
                    )
                    or "-",
                },
            )

    async def match(self, messages: Sequence[MessageExt], group: str) -> Sequence[bool]:
        """Decide for each message whether the group gets it.

        Raises: FilterError: the class raised an exception, took too long or ended its process, or
          is disabled.
        """
        if not messages:
            return []
        self._check_sizes(messages)
        async with self._turn():
            if self.is_disabled:
                raise FilterError(
                    f"{self._class_name} failed {self._strikes} times in a row: "
                    "disabled until it is uploaded again"
                )
            try:
                decisions = await self._decide(messages, group)
            except FilterError as error:
                if not isinstance(error, NoWorkerError):
                    await self._count_strike()
                raise FilterError(f"{self._class_name}: {error}") from error
            self._strikes = 0
            return decisions

    async def aclose(self) -> None:
        """End the process; calls in progress fail."""
        self._closed = True
        self._under_way.cancel()
        with trio.CancelScope(shield=True):  # short: the call that has the lock is cancelled
            async with self._lock:
                if self._process is not None:
                    await self._process.aclose()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Use the process exclusively. Raises: FilterError: the filter is closed."""
        async with self._lock:
            if not self._closed:
                with trio.CancelScope() as self._under_way:
                    yield
                if not self._under_way.cancelled_caught:
                    return
            raise FilterError(f"{self._class_name} is closed")

    async def _compile_java(self) -> None:
        """Compile in another process, because that needs more memory than a filter."""
        jdk = find_jdk()
        classes = await our_classes(jdk)
        timeout_s = self._limits.compile_timeout_s
        process, _ = await open_worker(compiler_program(jdk, classes, timeout_s), timeout_s)
        self._loadable = await load(
            process, frames.COMPILE, self._class_name, self._source, timeout_s=timeout_s
        )
        await process.aclose()
        self._program = java_program(jdk, classes, self._limits.memory_max_mib)

    async def _new_process(self, program: WorkerProgram | None) -> WorkerProcess:
        if program is None:
            raise FilterError("the class is not compiled")
        timeout_s = self._limits.compile_timeout_s
        process, self._report = await open_worker(program, timeout_s)
        await load(process, frames.LOAD, self._class_name, self._loadable, timeout_s=timeout_s)
        return process

    async def _decide(self, messages: Sequence[MessageExt], group: str) -> list[bool]:
        if self._process is None or self._process.ended:
            self._process = await self._new_process(self._program)
        count = len(messages)
        kind, answer = await self._process.ask(
            frames.BATCH,
            frames.COUNT.pack(count) + group.encode(),
            {frames.BITS: frames.bits_size(count), frames.FAILED: frames.TEXT_BYTES_MAX},
            timeout_s=self._limits.batch_timeout_s,
            what=f"{count} messages",
            more=message_frames(messages),
        )
        if kind == frames.FAILED:
            text = answer.decode("utf-8", "replace")
            raise FilterError(clean_text(text, length_max=REMARK_LENGTH_MAX))
        return frames.unpack_bits(answer, count)

    async def _count_strike(self) -> None:
        self._strikes += 1
        if self.is_disabled and self._process is not None:
            await self._process.aclose()  # it is not used any more

    def _check_sizes(self, messages: Sequence[MessageExt]) -> None:
        """Check the sizes before the class is called, so that it does not count as its failure."""
        size = max(map(message_size, messages))
        if size > self._limits.message_bytes_max:
            raise FilterError(
                f"{self._class_name}: a message has {size} bytes, but a filter with "
                f"{self._limits.memory_max_mib} MiB takes at most "
                f"{self._limits.message_bytes_max}: raise filterWorkerMemoryMax"
            )
