"""A worker's process and its pipes. What goes through them is declared in `inside.frames`."""

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
"""About what a pipe holds. A batch may be large, and is not copied as a whole."""

END_TIMEOUT_S: Final = 5.0
"""How long a killed process is waited for: the kernel has its memory to clear away."""

COMPLAINT_LENGTH_MAX: Final = 200
"""Characters of what a process wrote to standard error before it died: the first ones, where a JVM
says what it crashed of, and as many of the last ones, where Python does."""


class WorkerEnded(FilterError):
    """The process is gone, by itself or killed; the text says why."""


class WorkerProcess:
    """One process, which one task at a time asks. Between the questions it is stopped: what was
    uploaded runs only while somebody waits for it, and for no longer than that.

    Whenever an answer does not come as it should, in time, or is not waited for to the end, the
    process is killed: it is never left with an answer under way.
    """

    def __init__(self, program: WorkerProgram) -> None:
        """Start it. Raises: OSError: no process, or no descriptors, are to be had."""
        self._number = -1
        with contextlib.ExitStack() as on_failure:

            def pipe() -> tuple[int, int]:
                ends = os.pipe()
                for end in ends:
                    on_failure.callback(os.close, end)
                return ends

            requests, requests_in = pipe()
            answers_out, answers = pipe()
            complaints_out, complaints = pipe()
            # By this thread, not trio's for processes: a worker dies with the thread that made it.
            self._popen = subprocess.Popen(
                LAUNCHER,
                stdin=requests,
                stdout=answers,
                stderr=complaints,
                env={},
                cwd="/",
                start_new_session=True,
            )
            self._pidfd = os.pidfd_open(self._popen.pid)
            on_failure.pop_all()
        for end in (requests, answers, complaints):
            os.close(end)
        os.set_blocking(complaints_out, False)
        self._complaints = complaints_out
        self._requests = trio.lowlevel.FdStream(requests_in)
        self._answers = trio.lowlevel.FdStream(answers_out)
        self._ended = False
        self._complaint = ""

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    @property
    def ended(self) -> bool:
        """Whether it is gone."""
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
        """Send a request and take its answer.

        Args:
          answers: the kinds that there may be, and the bytes that each may have at most.
          what: the request, for errors: "... ms for WHAT".
          more: frames that follow, in pieces.
        Returns: the answer's kind and content.
        Raises:
          WorkerEnded: the process is no more.
          PermissionError: we may not stop it, so it is no more either.
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
                    await trio.lowlevel.wait_readable(self._pidfd)  # how it ends is worth knowing
                self._signal(signal.SIGSTOP)
                answer = answered
        finally:
            if answer is None:
                await self.aclose()
        if answer is not None:
            return answer
        if scope.cancelled_caught:
            raise WorkerEnded(f"took more than {timeout_s * 1000:.0f} ms for {what}")
        raise WorkerEnded(self._last_words())

    async def _read_answer(self, answers: Mapping[int, int]) -> tuple[int, bytes] | None:
        """The next frame; None: the process has closed its pipe."""
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
                    raise WorkerEnded("wrote to its pipe what is no answer")
        return kind, bytes(received[frames.HEAD.size :])

    async def aclose(self) -> None:
        """Kill it and wait for its end, which takes next to no time, cancelled or not."""
        if self._ended:
            return
        for stream in (self._requests, self._answers):
            stream.close()
        # It is all there is to kill: it could start no other process. One that we may not kill has
        # loaded nothing yet (`ask` would have failed), and ends with its pipe.
        with contextlib.suppress(PermissionError):
            self._signal(signal.SIGKILL)
        with trio.CancelScope(shield=True), trio.move_on_after(END_TIMEOUT_S):
            await trio.lowlevel.wait_readable(self._pidfd)
        self._ended = True
        if self._popen.poll() is None:
            logger.error("the worker %d does not end though it was killed", self.pid)
        self._complaint = self._read_complaint()
        for end in (self._complaints, self._pidfd):
            os.close(end)

    def _signal(self, number: int) -> None:
        signal.pidfd_send_signal(self._pidfd, number)

    def _read_complaint(self) -> str:
        try:
            said = os.read(self._complaints, RECEIVE_BYTES).decode("utf-8", "replace")
        except BlockingIOError:
            return ""
        said = " ".join(said.split())
        if len(said) > 2 * COMPLAINT_LENGTH_MAX:
            said = f"{said[:COMPLAINT_LENGTH_MAX]} ... {said[-COMPLAINT_LENGTH_MAX:]}"
        return clean_text(said, length_max=len(said))

    def _last_words(self) -> str:
        status = self._popen.returncode
        if status is None or status >= 0:
            text = f"its process ended with status {status}"
        else:
            text = f"its process was ended by {signal.Signals(-status).name}"
        return f"{text}: {self._complaint}" if self._complaint else text


def _chunks(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The pieces, joined until they are worth a system call."""
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
