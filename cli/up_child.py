"""One broker of `trocket up` as a process of its own.

What is run is a constant but for the log level. The keys go through the child's standard input,
which stays open: when it ends, because we have ended, however that came, so does the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import trio

from .up_plan import Member

COMMAND: Final = (sys.executable, "-m", "trocket.broker", "--config-from-stdin", "--log-level")
"""And one of the four levels."""

LAST_LINES_MAX: Final = 10
"""Of a child's log, told again when it has ended by itself."""

LINE_SIZE_MAX: Final = 16_384
"""Bytes of a line; a longer one is cut into several."""

LAST_LINES_S: Final = 1.0
"""How long the log of a child that has ended is read on: a process of its own may hold the pipe."""

STOP_GRACE_S: Final = 20.0
"""From SIGTERM to SIGKILL. A broker needs a tenth of a second, and 5 s where name servers are gone;
a slow disk may need longer to take what is left."""

READ_SIZE: Final = 65_536


class Child:
    """A broker that runs.

    Lifecycle: `start`, then `run` in a nursery that outlives `stop`.

    Args:
      member: what it is.
      on_line: called with each line of its log.
      on_end: called when it has ended and its log is read.

    Attributes:
      status: its exit status, or minus the signal that ended it; None: it runs.
      has_booted: set when it says that it serves.
      last_lines: of its log.
    """

    def __init__(
        self,
        member: Member,
        *,
        on_line: Callable[[Child, str], None],
        on_end: Callable[[Child], None],
    ) -> None:
        self.member = member
        self.status: int | None = None
        self.has_booted = trio.Event()
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES_MAX)
        self._on_line = on_line
        self._on_end = on_end
        self._process: trio.Process | None = None

    @property
    def pid(self) -> int:
        """Its process's number; 0: it was not started."""
        return self._process.pid if self._process is not None else 0

    async def start(self, namesrv_addr: str, log_level: str) -> None:
        """Start it.

        Args:
          namesrv_addr: `host:port;host:port`, which it registers with.
        Raises: OSError: it cannot be started.
        """
        self._process = await trio.lowlevel.open_process(
            [*COMMAND, log_level],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,  # a Ctrl-C is ours, and we end our children in order
        )
        assert self._process.stdin is not None
        try:
            properties = self.member.properties(namesrv_addr)
            await self._process.stdin.send_all(properties.encode("ascii"))
        except trio.BrokenResourceError:  # it has ended; why is in its log
            pass

    async def run(self) -> None:
        """Read what it says until it has ended."""
        process = self._process
        assert process is not None, "it was not started"
        log, output = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_log, log)
            nursery.start_soon(self._read_output, output)
            status = await process.wait()
            log.deadline = output.deadline = trio.current_time() + LAST_LINES_S
        self.status = status
        self._on_end(self)

    async def stop(self) -> None:
        """End it, and wait until it has; not cancelled, it always ends."""
        process = self._process
        if process is None:
            return
        process.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            await process.wait()
        if process.returncode is None:
            self._on_line(self, f"does not stop in {STOP_GRACE_S:g} s, and is killed")
            process.kill()
            await process.wait()

    async def _read_output(self, reading: trio.CancelScope) -> None:
        """Its first line says that it serves; it is as good as told by its address."""
        assert self._process is not None
        assert self._process.stdout is not None
        with reading:
            try:
                while await self._process.stdout.receive_some(READ_SIZE):
                    self.has_booted.set()
            except trio.BrokenResourceError:
                pass

    async def _read_log(self, reading: trio.CancelScope) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        begun = b""
        with reading:
            try:
                while data := await self._process.stderr.receive_some(READ_SIZE):
                    *lines, begun = (begun + data).split(b"\n")
                    for line in lines:
                        self._take_line(line)
                    if len(begun) > LINE_SIZE_MAX:
                        self._take_line(begun)
                        begun = b""
            except trio.BrokenResourceError:
                pass
        if begun:
            self._take_line(begun)

    def _take_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self.last_lines.append(text)
        self._on_line(self, text)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Ours; and where Python does not look into the working directory for us, not for it either."""
    here = str(Path.cwd())
    is_safe = here not in sys.path and "" not in sys.path
    return {**environment, **({"PYTHONSAFEPATH": "1"} if is_safe else {})}
