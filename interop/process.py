"""Child processes that report by lines on stdout: start, wait for a line, stop, kill.

Threads, not trio: the callers are synchronous tests and benchmarks. One reader thread per process;
every wait has a deadline. Processes still running when the interpreter exits are killed; if the
interpreter is killed, the `guard` does so.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from .guard import guard

T = TypeVar("T")

READER_TIMEOUT_S = 10.0
"""How long to wait for the last lines of a process that has ended."""
LINES_KEPT_MAX = 400
"""Lines of stdout kept for error messages; the log file has all of them."""

_alive: weakref.WeakSet[LineProcess] = weakref.WeakSet()
_alive_lock = threading.Lock()
_ending = threading.Event()


class PeerError(Exception):
    """A peer did not start, did not answer as expected in time, or ended unexpectedly."""


class LineProcess:
    """A child process with its stdout read line by line.

    stdout goes to `FOLDER/NAME.out`, stderr to `FOLDER/NAME.err`, both appended to, so that a
    restart under the same name keeps the earlier text.

    Args:
      command: program and arguments; never passed through a shell.
      folder: the working directory, also for the logs; created if missing.
      name: the stem of the logs' names.
      environment: added to the environment of this process.
      on_line: called in the reader thread, under the lock of `wait`, with each line without its
        newline; must not raise.
    Raises: PeerError: the program could not be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        name: str,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.folder = folder
        self._on_line = on_line
        self._lines: deque[str] = deque(maxlen=LINES_KEPT_MAX)
        self._ended = False
        self._changed = threading.Condition()
        self.started_monotonic_s = time.monotonic()
        with (folder / f"{name}.err").open("ab") as errors:
            try:
                self._process = subprocess.Popen(
                    list(command),
                    cwd=folder,
                    env={**os.environ, **(environment or {}), **guard().environment()},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise PeerError(f"{name}: cannot start {command[0]}: {error}") from error
        guard().watch_process(self._process.pid)
        with _alive_lock:
            _alive.add(self)
        if _ending.is_set():
            self._process.kill()
        self._reader = threading.Thread(target=self._read, name=f"read-{name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def read_rest(self, *, timeout_s: float = 10.0) -> None:
        """Wait until all lines of a process that has ended are read."""
        self._reader.join(timeout_s)

    def _read(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        with (self.folder / f"{self.name}.out").open("ab") as log:
            for raw in stdout:
                log.write(raw)
                log.flush()
                line = raw.decode(errors="replace").rstrip("\r\n")
                with self._changed:
                    if self._on_line is not None:
                        self._on_line(line)
                    self._lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def write_line(self, line: str) -> None:
        """Send one line to the process's stdin.

        Raises: PeerError: the process has closed its stdin, or ended.
        """
        stdin = self._process.stdin
        assert stdin is not None
        try:
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        except OSError as error:
            raise PeerError(f"{self.name} no longer reads: {error}\n{self.tail()}") from error

    def wait_line(self, matches: Callable[[str], bool], *, timeout_s: float) -> str:
        """Wait for a line of stdout (one already printed counts) and return it.

        Raises: PeerError: the process ended, or the timeout passed, without such a line.
        """
        return self.wait(lambda: self._find(matches), timeout_s=timeout_s, what="the line")

    def _find(self, matches: Callable[[str], bool]) -> str | None:
        return next((line for line in self._lines if matches(line)), None)

    def wait(self, ready: Callable[[], T | None], *, timeout_s: float, what: str) -> T:
        """Wait until `ready` returns something other than None and return that.

        `ready` is called now and after each line, with the lock held, so it sees consistent results
        of `on_line`.

        Args:
          what: the expected event, for the error text.
        Raises: PeerError: the process ended, or `timeout_s` passed, while `ready` returned None.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while True:
                value = ready()
                if value is not None:
                    return value
                rest_s = deadline_s - time.monotonic()
                if self._ended or rest_s <= 0:
                    break
                self._changed.wait(rest_s)
        reason = "ended" if self._ended else f"ran for {timeout_s} s"
        raise PeerError(f"{self.name} {reason} without {what}\n{self.tail()}")

    def tail(self, line_count_max: int = 15) -> str:
        """The last lines of stdout and stderr, for an error text."""
        out = list(self._lines)[-line_count_max:]
        err: list[str] = []
        with contextlib.suppress(OSError):
            text = (self.folder / f"{self.name}.err").read_text(errors="replace")
            err = text.splitlines()[-line_count_max:]
        return "\n".join([f"stdout of {self.name}:", *out, f"stderr of {self.name}:", *err])

    def stop(self, *, timeout_s: float = 30.0) -> int:
        """Stop the process by SIGTERM, wait, and return its exit code (negative: a signal).

        Raises: PeerError: it did not end within `timeout_s`, and was killed.
        """
        if self.running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise PeerError(f"{self.name} did not stop in {timeout_s} s\n{self.tail()}") from None
        finally:
            self._close()

    def kill(self) -> None:
        """Kill the process and its group (SIGKILL) and wait for it."""
        if self.running:
            # It leads its group and has not been reaped, so the id cannot have been reused.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._process.poll() is None:
            return
        with _alive_lock:
            _alive.discard(self)
        guard().forget_process(self._process.pid)
        self._reader.join(READER_TIMEOUT_S)
        pipes = [self._process.stdin]
        # A child of the process may hold stdout open; closing it would block on the reader.
        if not self._reader.is_alive():
            pipes.append(self._process.stdout)
        for pipe in pipes:
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def end_all() -> None:
    """Kill every running process, and each that is started from now on.

    A thread that waits for one gets a PeerError, which ends the run early.
    """
    _ending.set()
    _kill_all()


@atexit.register
def _kill_all() -> None:
    """Kill the processes that still run when the interpreter exits."""
    with _alive_lock:
        processes = list(_alive)
    for process in processes:
        process.kill()
