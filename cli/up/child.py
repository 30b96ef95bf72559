"""A child process of `trocket up` that runs one broker, or the controller.

The command line is constant except for the flags of the log. A broker's settings go through its
standard input, which stays open: when this process ends, for whatever reason, the child reads the
end of its input and stops, too.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

COMMAND: Final = (sys.executable, "-m", "trocket.broker", "--config-from-stdin")
"""The command line of a broker without the flags of the log."""

CONTROLLER: Final = (sys.executable, "-m", "trocket.controller", "--exit-with-parent")
"""The command line of a controller without its file and the flags of the log."""

LAST_LINES_MAX: Final = 10
"""Last lines of a child's log that are repeated when it exits unexpectedly."""

LINE_SIZE_MAX: Final = 16_384
"""Bytes of a line; longer lines are split."""

LAST_LINES_S: Final = 1.0
"""How long a child's log is read after its exit: its own children may keep the pipe open."""

STOP_GRACE_S: Final = 20.0
"""From SIGTERM to SIGKILL. A broker stops in a tenth of a second, and in 5 s if name servers do not
answer; flushing to a slow disk may take longer."""

READ_SIZE: Final = 65_536


class Child:
    """A server in a child process.

    Lifecycle: `start`, then `run` in a nursery that outlives `stop`.

    Args:
      name: of the server, for its log.
      command: the command line without the flags of the log.
      on_line: called with each line of its log.
      on_end: called when it has exited and its log is read.

    Attributes:
      status: its exit status, or minus the signal that ended it; None while it runs.
      has_booted: set when it reports that it serves.
      report: what it printed then.
      last_lines: the last lines of its log.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str] = COMMAND,
        *,
        on_line: Callable[[Child, str], None],
        on_end: Callable[[Child], None],
    ) -> None:
        self.name = name
        self.status: int | None = None
        self.has_booted = trio.Event()
        self.report = b""
        self._command = command
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES_MAX)
        self._on_line = on_line
        self._on_end = on_end
        self._process: trio.Process | None = None

    @property
    def pid(self) -> int:
        """The process id; 0 before `start`."""
        return self._process.pid if self._process is not None else 0

    async def start(self, log_flags: Sequence[str], properties: str = "") -> None:
        """Start the process, and send it its settings.

        Args:
          log_flags: such as `--log-level info`.
          properties: lines of a broker.conf, and an empty one.
        Raises: OSError: the process cannot be started.
        """
        self._process = await trio.lowlevel.open_process(
            [*self._command, *log_flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(os.environ),
            start_new_session=True,  # Ctrl-C must reach this process only, which stops them
        )
        assert self._process.stdin is not None
        # If the pipe is broken, it has exited already; its log has the reason.
        with contextlib.suppress(trio.BrokenResourceError):
            await self._process.stdin.send_all(properties.encode("ascii"))

    async def run(self) -> None:
        """Read its output until it has exited."""
        process = self._process
        assert process is not None, "start() was not called"
        log, output = trio.CancelScope(), trio.CancelScope()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_log, log)
            nursery.start_soon(self._read_output, output)
            status = await process.wait()
            log.deadline = output.deadline = trio.current_time() + LAST_LINES_S
        self.status = status
        self._on_end(self)

    async def stop(self) -> None:
        """Stop it with SIGTERM, after STOP_GRACE_S with SIGKILL, and wait until it has exited."""
        process = self._process
        if process is None:
            return
        process.terminate()
        with trio.move_on_after(STOP_GRACE_S):
            await process.wait()
        if process.returncode is None:
            self._on_line(self, f"did not stop within {STOP_GRACE_S:g} s: killing it")
            process.kill()
            await process.wait()

    async def _read_output(self, reading: trio.CancelScope) -> None:
        """Take its first output as the report that it serves: it prints only that."""
        assert self._process is not None
        assert self._process.stdout is not None
        with reading:
            try:
                while data := await self._process.stdout.receive_some(READ_SIZE):
                    self.report += data
                    self.has_booted.set()
            except trio.BrokenResourceError:
                pass

    async def _read_log(self, reading: trio.CancelScope) -> None:
        assert self._process is not None
        assert self._process.stderr is not None
        partial = b""
        with reading:
            try:
                while data := await self._process.stderr.receive_some(READ_SIZE):
                    *lines, partial = (partial + data).split(b"\n")
                    for line in lines:
                        self._take_line(line)
                    if len(partial) > LINE_SIZE_MAX:
                        self._take_line(partial)
                        partial = b""
            except trio.BrokenResourceError:
                pass
        if partial:
            self._take_line(partial)

    def _take_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self.last_lines.append(text)
        self._on_line(self, text)


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process, and PYTHONSAFEPATH if this process ran without the cwd."""
    here = str(Path.cwd())
    is_safe = here not in sys.path and "" not in sys.path
    return {**environment, **({"PYTHONSAFEPATH": "1"} if is_safe else {})}
