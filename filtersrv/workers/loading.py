"""Start of worker processes and loading of classes. After a failure no process is left."""

from __future__ import annotations

from ..filters import REMARK_LENGTH_MAX, FilterCompileError, FilterError
from .inside import frames
from .programs import WorkerProgram
from .sandbox import Report, missing_protections, parse_report
from .upload import clean_text
from .worker_process import WorkerProcess

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
