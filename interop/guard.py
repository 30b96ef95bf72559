"""The guard process, which cleans up when the harness ends, even by SIGKILL.

Each process of the harness has one guard, started when the first resource is registered. The guard
reads registrations and their removals from a pipe. When the pipe closes, which happens however the
harness ends, it cleans up in this order:

1. kill registered process groups, if the leader's start time is still the registered one: process
   ids are reused;
2. on Linux, kill every process with this guard's token in its environment: children of those
   processes, and processes started just before the harness died, too late to be registered;
3. run registered commands, such as one that removes containers;
4. remove registered folders.

This file is also a program, run by its path without the package: it imports the standard library
only. psutil could read /proc for it, but must not: the guard compares start times read by two
processes, and psutil derives them from the wall clock, which may be set in between. A killed
process is no longer a parent, so psutil cannot find its children either.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

TOKEN_VARIABLE = "TROCKET_INTEROP_GUARD"
"""In the environment of every process of the harness: the token of its guard."""
FOLDER_PREFIX = "trocket-interop-"
END_TIMEOUT_S = 30.0
"""How long the guard waits for killed processes, and an ending harness for its guard."""
COMMAND_TIMEOUT_S = 60.0
PAUSE_S = 0.05

_PROC = Path("/proc")


class Guard:
    """The harness's end of the pipe. Thread-safe; unusable in a forked child."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._watched: dict[str, list[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1  # its writing end

    def watch_process(self, pid: int) -> None:
        """Register the leader of a process group, to be killed with its group."""
        self._watch(f"process {pid}", ["process", pid, start_time_ticks(pid)])

    def forget_process(self, pid: int) -> None:
        """Unregister a process that has ended and was waited for."""
        self._forget(f"process {pid}")

    def watch_folder(self, folder: Path) -> None:
        """Register a folder to be removed; it need not exist yet."""
        self._watch(f"folder {folder}", ["folder", str(folder.absolute())])

    def forget_folder(self, folder: Path) -> None:
        """Unregister a folder that was removed."""
        self._forget(f"folder {folder}")

    def watch_command(self, command: Sequence[str]) -> None:
        """Register a command to be run, never through a shell."""
        self._watch(f"command {json.dumps(command)}", ["command", list(command)])

    def forget_command(self, command: Sequence[str]) -> None:
        """Unregister a command that was run."""
        self._forget(f"command {json.dumps(command)}")

    def environment(self) -> dict[str, str]:
        """Environment variables for a child process, by which the guard recognizes it."""
        with self._lock:
            self._start()
        return {TOKEN_VARIABLE: self.token}

    def close(self) -> None:
        """Close the pipe and wait for the guard, which cleans up what is still registered."""
        with self._lock:
            process = self._process
            self._watched.clear()
            self._close_pipe()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)

    def leave(self) -> None:
        """Close the pipe in a forked child: the guard belongs to its parent."""
        if self._process is not None:
            self._process.returncode = 0  # the guard is not a child of this process
        self._close_pipe()

    def _close_pipe(self) -> None:
        self._process = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _watch(self, key: str, entry: list[Any]) -> None:
        with self._lock:
            self._watched[key] = entry
            self._start()
            self._send(["watch", key, entry])

    def _forget(self, key: str) -> None:
        with self._lock:
            if self._watched.pop(key, None) is not None:
                self._start()
                self._send(["forget", key])

    def _start(self) -> None:
        """Start the guard if it does not run, and send it all registrations."""
        if self._process is not None and self._process.poll() is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        self._close_pipe()
        reading, self._pipe = os.pipe()
        try:
            # -I -S: neither the environment nor site packages change it, and it starts quickly.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self.token],
                cwd="/",
                env=environment,
                stdin=reading,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        finally:
            os.close(reading)
        for key, entry in self._watched.items():
            self._send(["watch", key, entry])

    def _send(self, line: list[Any]) -> None:
        rest = json.dumps(line).encode() + b"\n"
        # If the guard has just ended, the next call starts it again with all registrations.
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._pipe, rest) :]


_guard = Guard()


def guard() -> Guard:
    return _guard


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder that is removed at the end, however this process ends.

    Args:
      parent: an existing folder; None: the system's folder for temporary files.
    Raises: OSError: the folder cannot be created.
    """
    folder = (parent or Path(tempfile.gettempdir())) / f"{FOLDER_PREFIX}{secrets.token_hex(8)}"
    _guard.watch_folder(folder)
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():  # else the guard tries once more
            _guard.forget_folder(folder)


def start_time_ticks(pid: int) -> int | None:
    """Start time of a process, in clock ticks since boot.

    None: there is no such process, or the system has no /proc.

    Source: proc(5), field 22 of /proc/PID/stat.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third (the state) on; [] if there is no such process.

    The second field is the program's name, which may contain blanks and brackets.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _in_child() -> None:
    """Replace the guard in a forked child; the new one starts with the first registration."""
    global _guard
    _guard.leave()
    _guard = Guard()


atexit.register(lambda: _guard.close())
os.register_at_fork(after_in_child=_in_child)


# ---- the guard process -------------------------------------------------------------------


def main(token: str) -> None:
    """Read registrations until the pipe closes, then clean up what is still registered."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched = read_watched(sys.stdin.buffer)
    processes = [entry for entry in watched if entry[0] == "process"]
    end_groups((pid, ticks) for _, pid, ticks in processes)
    end_marked(token)
    for entry in watched:
        if entry[0] == "command":
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(
                    entry[1],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    timeout=COMMAND_TIMEOUT_S,
                    check=False,
                )
    for entry in watched:
        if entry[0] == "folder":
            shutil.rmtree(entry[1], ignore_errors=True)


def read_watched(lines: Iterable[bytes]) -> list[list[Any]]:
    """The registrations left when the lines end; an incomplete last line is ignored."""
    watched: dict[str, list[Any]] = {}
    for line in lines:
        if line.endswith(b"\n"):
            verb, key, *entry = json.loads(line)
            if verb == "watch":
                watched[key] = entry[0]
            else:
                watched.pop(key, None)
    return list(watched.values())


def end_groups(leaders: Iterable[tuple[int, int | None]]) -> None:
    """Kill the process groups of these leaders, given with their start times, and wait for them.

    A leader whose process id was reused meanwhile is left alone.
    """
    killed = []
    for pid, ticks in leaders:
        if start_time_ticks(pid) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed.append(pid)
    _wait_gone(killed)


def end_marked(token: str) -> None:
    """Kill every process with the token in its environment, until none is left; Linux only.

    Scans until three scans found none: a child between fork and exec may be missed by one.
    """
    mark = f"{TOKEN_VARIABLE}={token}".encode()
    deadline_s = time.monotonic() + END_TIMEOUT_S
    clean_count = 0
    while clean_count < 3 and _PROC.is_dir() and time.monotonic() < deadline_s:
        found = _marked(mark)
        clean_count = 0 if found else clean_count + 1
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        _wait_gone(found)
        _pause()


def _marked(mark: bytes) -> list[int]:
    found = []
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The environment of a zombie is empty, so it is never found.
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def _wait_gone(pids: list[int]) -> None:
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while any(_is_alive(pid) for pid in pids) and time.monotonic() < deadline_s:
        _pause()


def _is_alive(pid: int) -> bool:
    """Whether a process can still run; a zombie whose parent does not wait for it cannot."""
    if _PROC.is_dir():
        return _stat(pid)[:1] not in ([], ["Z"], ["X"])
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _pause() -> None:
    select.select([], [], [], PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
