"""A user's decoder of bodies, `--decoder package:function`, in separate processes.

The function takes the topic, the properties and the body, and returns text, bytes, or what JSON
can say. It may raise, loop, take all memory, print, or end its process: the console gets an answer
in time that says so.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from typing import Any, Final, Self

import anyio
import anyio.abc
import msgspec

from ...client.errors import ConfigurationError
from . import decoder_child

TIMEOUT_S: Final = 2.0
"""Seconds of a call, with the start of a process if there is none."""
START_TIMEOUT_S: Final = 30.0
"""Seconds of the first start, in which a package may compile itself."""
MEMORY_SIZE: Final = 64 * 1024 * 1024
"""Bytes that a decoder may take beyond what its import took."""
RESULT_LENGTH_MAX: Final = 4 * 1024 * 1024
"""Characters of a result: that of the largest body by default."""
PROCESSES_MAX: Final = 2
"""Processes at the same time: a console has a few viewers, and a decoder takes milliseconds."""
_KILL_S: Final = 2.0
_SPEC: Final = re.compile(r"\w+(\.\w+)*:\w+(\.\w+)*")
_FRAME_SIZE_MAX: Final = 12 * RESULT_LENGTH_MAX + 1024
"""Bytes: JSON may write a character in twelve."""


class DecoderFailure(StrEnum):
    """The reasons why there is no result of a decoder."""

    RAISED = decoder_child.RAISED
    """The detail is the end of its traceback."""
    TIMED_OUT = "timed_out"
    TOO_MUCH_MEMORY = decoder_child.TOO_MUCH_MEMORY
    NO_RESULT = decoder_child.NO_RESULT
    """It returned None."""
    WRONG_RESULT = decoder_child.WRONG_RESULT
    """It is neither text nor bytes nor can JSON say it; the detail names its type."""
    TOO_LARGE = decoder_child.TOO_LARGE
    """The detail is its length in characters."""
    NOT_IMPORTABLE = decoder_child.NOT_IMPORTABLE
    """There is no such function (any more)."""
    ENDED = "ended"
    """Its process ended; the detail is the exit status, or minus the signal."""
    BUSY = "busy"
    """All processes have been busy for the whole time."""


class Decoded(msgspec.Struct, frozen=True, kw_only=True):
    """What a decoder makes of a body.

    Attributes:
      text: the result, or the JSON of it; None: it is bytes, or there is none.
      body: the result if it is bytes, to be shown as any body.
      failure: why there is no result; None: there is one.
      detail: see the failure; it is as hostile as a body.
    """

    text: str | None = None
    body: bytes | None = None
    failure: DecoderFailure | None = None
    detail: str = ""


class _Process:
    """A process of the decoder's, that is ready."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._read = bytearray()

    async def ask(self, request: Any) -> tuple[str, str]:
        """The outcome of a request. Raises: EndOfStream, BrokenResourceError, ValueError."""
        assert self._process.stdin is not None  # a pipe
        raw = json.dumps(request).encode()
        await self._process.stdin.send(decoder_child.LENGTH.pack(len(raw)) + raw)
        return await self.answer()

    async def answer(self) -> tuple[str, str]:
        head = decoder_child.LENGTH
        (size,) = head.unpack(await self._take(head.size))
        if size > _FRAME_SIZE_MAX:
            raise ValueError(f"an answer of {size} bytes")
        outcome, text = json.loads(await self._take(size))
        return str(outcome), str(text)

    async def _take(self, size: int) -> bytes:
        assert self._process.stdout is not None  # a pipe
        while len(self._read) < size:
            self._read += await self._process.stdout.receive()
        found = bytes(self._read[:size])
        del self._read[:size]
        return found

    async def kill(self) -> int | None:
        """End it and what it started, whatever it does. Returns: its exit status."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + _KILL_S):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.aclose()
        return self._process.returncode


class Decoder:
    """A user's decoder. Use: `async with Decoder("shop.bodies:decode") as decoder:`.

    Args:
      spec: `package:function`.
      timeout_s, memory_size: of each call.

    Raises: ConfigurationError: `spec` has another form; on entry: there is no such function.
    """

    def __init__(
        self, spec: str, *, timeout_s: float = TIMEOUT_S, memory_size: int = MEMORY_SIZE
    ) -> None:
        if _SPEC.fullmatch(spec) is None:
            raise ConfigurationError(
                f"the decoder {spec[:100]!a} is not of the form package:function"
            )
        self._spec = spec
        self._timeout_s = timeout_s
        self._memory_size = memory_size
        self._idle: list[_Process] = []
        self._limiter = anyio.Semaphore(PROCESSES_MAX)

    async def __aenter__(self) -> Self:
        with anyio.move_on_after(START_TIMEOUT_S):
            process, detail = await self._started()
            if process is None:
                raise ConfigurationError(f"the decoder {self._spec} cannot be imported: {detail}")
            self._idle.append(process)
            return self
        raise ConfigurationError(f"the decoder {self._spec} takes too long to be imported")

    async def __aexit__(self, *_: object) -> None:
        while self._idle:
            await self._idle.pop().kill()

    async def decode(self, topic: str, properties: Mapping[str, str], body: bytes) -> Decoded:
        """What the decoder makes of a body, in `timeout_s`.

        Args:
          topic: of the message, without namespace.
          properties: all of them.
          body: what is inside of it, masked.
        """
        request = [topic, dict(properties), base64.b64encode(body).decode()]
        is_ours = False
        with anyio.move_on_after(self._timeout_s):
            async with self._limiter:
                is_ours = True
                return await self._answered(request)
        return Decoded(
            failure=DecoderFailure.TIMED_OUT if is_ours else DecoderFailure.BUSY,
            detail=f"{self._timeout_s:g}",
        )

    async def _answered(self, request: Any) -> Decoded:
        process = self._idle.pop() if self._idle else None
        if process is None:
            process, detail = await self._started()
            if process is None:
                return Decoded(failure=DecoderFailure.NOT_IMPORTABLE, detail=detail)
        async with self._kept(process) as keep:
            try:
                outcome, text = await process.ask(request)
            except (anyio.EndOfStream, anyio.BrokenResourceError, ValueError):
                status = await process.kill()
                return Decoded(failure=DecoderFailure.ENDED, detail=str(status))
            keep.append(outcome != DecoderFailure.TOO_MUCH_MEMORY)
        if outcome == decoder_child.BYTES:
            return Decoded(body=base64.b64decode(text))
        if outcome in (decoder_child.TEXT, decoder_child.JSON):
            return Decoded(text=text)
        return Decoded(failure=DecoderFailure(outcome), detail=text)

    @asynccontextmanager
    async def _kept(self, process: _Process) -> AsyncIterator[list[bool]]:
        """Keep a process if the block says so; end it otherwise, as when the block is late."""
        keep: list[bool] = []
        try:
            yield keep
        finally:
            if keep == [True]:
                self._idle.append(process)
            else:
                await process.kill()

    async def _started(self) -> tuple[_Process | None, str]:
        """A process that is ready, or why there is none."""
        command = [sys.executable, "-m", decoder_child.__name__, self._spec]
        limits = [self._memory_size, RESULT_LENGTH_MAX, self._timeout_s + 1]
        opened = await anyio.open_process(
            [*command, *map(str, limits)], stderr=subprocess.DEVNULL, start_new_session=True
        )
        process = _Process(opened)
        is_ready = False
        try:
            outcome, text = await process.answer()
            is_ready = outcome == decoder_child.READY
        except (anyio.EndOfStream, anyio.BrokenResourceError, ValueError):
            text = "its process ended"
        finally:
            if not is_ready:
                await process.kill()
        return (process, "") if is_ready else (None, text)
