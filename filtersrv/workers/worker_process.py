"""A worker's process and its pipes. Their protocol is declared in `inside.frames`."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

import trio

from ..filters import FilterError
from .inside import frames
from .programs import LAUNCHER, WorkerProgram
from .upload import clean_text

logger = logging.getLogger(__name__)

RECEIVE_BYTES: Final = 65_536

SEND_BYTES: Final = 65_536
"""Size of a write, about the capacity of a pipe. A large batch is never copied as a whole."""

END_TIMEOUT_S: Final = 5.0
"""Longest wait for the end of a killed process, whose memory the kernel has to free."""

STDERR_LENGTH_MAX: Final = 200
"""Number of characters of standard error to report: that many of the beginning, where a JVM has the
cause of a crash, and as many of the end, where Python has it."""


class WorkerEnded(FilterError):
    """The process has ended or was killed; the text has the reason."""


class WorkerProcess:
    """A process that answers the requests of one task at a time.

    Between requests the process is stopped (SIGSTOP), so that uploaded code runs only while an
    answer is awaited. If an answer is wrong or late, or the wait is cancelled, the process is
    killed: an answer is never left in the pipe.

    Raises: OSError: no process, or no descriptors, are available.
    """

    def __init__(self, program: WorkerProgram) -> None:
        self._number = -1
        with contextlib.ExitStack() as on_failure:

            def pipe() -> tuple[int, int]:
                ends = os.pipe()
                for end in ends:
                    on_failure.callback(os.close, end)
                return ends

            requests, requests_in = pipe()
            answers_out, answers = pipe()
            stderr_out, stderr = pipe()
            # Not in another thread: a worker is killed when the thread that started it ends.
            self._popen = subprocess.Popen(
                LAUNCHER,
                stdin=requests,
                stdout=answers,
                stderr=stderr,
                env={},
                cwd="/",
                start_new_session=True,
            )
            self._pidfd = os.pidfd_open(self._popen.pid)
            on_failure.pop_all()
        for end in (requests, answers, stderr):
            os.close(end)
        os.set_blocking(stderr_out, False)
        self._stderr = stderr_out
        self._requests = trio.lowlevel.FdStream(requests_in)
        self._answers = trio.lowlevel.FdStream(answers_out)
        self._ended = False
        self._stderr_text = ""

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> bool:
        return self._ended

    async def ask(
        self,
        kind: int,
        content: bytes,
        answers: Mapping[int, int],
        *,
        timeout_s: float,
        what: str,
        more: Iterable[bytes] = (),
    ) -> tuple[int, bytes]:
        """Send a request and wait for its answer.

        Args:
          kind: kind of the request.
          content: content of the request.
          answers: permitted kinds of the answer, each with its largest size in bytes.
          what: name of the request for error messages: "... ms for WHAT".
          more: frames that follow the request, in pieces.

        Returns: the kind and the content of the answer.
        Raises:
          WorkerEnded: the process has ended.
          PermissionError: the process could not be signalled, so it was given up.
        """
        self._number += 1
        answer: tuple[int, bytes] | None = None
        try:
            with trio.move_on_after(timeout_s) as scope:
                self._signal(signal.SIGCONT)
                with contextlib.suppress(trio.BrokenResourceError):
                    for chunk in _chunks(chain([frames.frame(kind, self._number, content)], more)):
                        await self._requests.send_all(chunk)
                answered = await self._read_answer(answers)
                if answered is None:
                    await trio.lowlevel.wait_readable(self._pidfd)  # for the exit status
                self._signal(signal.SIGSTOP)
                answer = answered
        finally:
            if answer is None:
                await self.aclose()
        if answer is not None:
            return answer
        if scope.cancelled_caught:
            raise WorkerEnded(f"took more than {timeout_s * 1000:.0f} ms for {what}")
        raise WorkerEnded(self._exit_reason())

    async def _read_answer(self, answers: Mapping[int, int]) -> tuple[int, bytes] | None:
        """Read the next frame; None: the process has closed its pipe."""
        received = bytearray()
        wanted = frames.HEAD.size
        while len(received) < wanted:
            more = await self._answers.receive_some(RECEIVE_BYTES)
            if not more:
                return None
            received += more
            if len(received) >= frames.HEAD.size:
                kind, number, size = frames.HEAD.unpack_from(received)
                wanted = frames.HEAD.size + size
                allowed = number == self._number and size <= answers.get(kind, -1)
                if not allowed or len(received) > wanted:
                    raise WorkerEnded("its process sent an invalid answer")
        return kind, bytes(received[frames.HEAD.size :])

    async def aclose(self) -> None:
        """Kill the process and wait until it has ended, which takes a moment, even if cancelled."""
        if self._ended:
            return
        for stream in (self._requests, self._answers):
            stream.close()
        # It cannot have started other processes. If it may not be killed, it has no uploaded code
        # yet (`ask` would have failed), and ends when its pipe is closed.
        with contextlib.suppress(PermissionError):
            self._signal(signal.SIGKILL)
        with trio.CancelScope(shield=True), trio.move_on_after(END_TIMEOUT_S):
            await trio.lowlevel.wait_readable(self._pidfd)
        self._ended = True
        if self._popen.poll() is None:
            logger.error(
                "the worker process %(pid)d was killed but has not ended within "
                "%(end_timeout_s)g s; check it by hand",
                {"pid": self.pid, "end_timeout_s": END_TIMEOUT_S},
            )
        self._stderr_text = self._read_stderr()
        for end in (self._stderr, self._pidfd):
            os.close(end)

    def _signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def _read_stderr(self) -> str:
        try:
            text = os.read(self._stderr, RECEIVE_BYTES).decode("utf-8", "replace")
        except BlockingIOError:
            return ""
        text = " ".join(text.split())
        if len(text) > 2 * STDERR_LENGTH_MAX:
            text = f"{text[:STDERR_LENGTH_MAX]} ... {text[-STDERR_LENGTH_MAX:]}"
        return clean_text(text, length_max=len(text))

    def _exit_reason(self) -> str:
        status = self._popen.returncode
        if status is None or status >= 0:
            text = f"its process ended with status {status}"
        else:
            text = f"its process was ended by {signal.Signals(-status).name}"
        return f"{text}: {self._stderr_text}" if self._stderr_text else text


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join pieces until they are large enough for a system call."""
    pending: list[bytes] = []
    size = 0
    for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if size >= SEND_BYTES:
            yield b"".join(pending)
            pending.clear()
            size = 0
    if pending:
        yield b"".join(pending)
