"""From a program to a process that has loaded its class. When it fails no process is left."""

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
    """No process is to be had, or none that is locked in: not the class's fault."""


async def open_worker(program: WorkerProgram, timeout_s: float) -> tuple[WorkerProcess, Report]:
    """A process that has locked itself in, and how well; no uploaded code is in it yet.

    Raises:
      NoWorkerError: there is none, or a protection is lacking.
      FilterError: it did not start.
    """
    settings = frames.pack_settings(program.settings())
    try:
        process = WorkerProcess(program)
        _, content = await process.ask(
            frames.START, settings, _READY, timeout_s=timeout_s, what="the start"
        )
    except OSError as error:
        raise NoWorkerError(f"no process is to be had: {error}") from error
    report = parse_report(content.decode("utf-8", "replace"))
    lacking = missing_protections(report)
    if lacking:
        await process.aclose()
        raise NoWorkerError(f"uploaded classes cannot be locked in here, lacking: {lacking}")
    return process, report


async def load(
    process: WorkerProcess, kind: int, class_name: str, content: bytes, *, timeout_s: float
) -> bytes:
    """Hand a class over.

    Args:
      kind: COMPILE or LOAD.
      content: its source, or what COMPILE made of it.
    Returns: what it was compiled to, if it was.
    Raises:
      FilterCompileError: it is no filter.
      FilterError: the process ended over it.
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
