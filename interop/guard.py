"""Nothing stays behind when the harness ends, not even when it is killed (SIGKILL).

One small process for each process of the harness, started with the first thing to be watched. It
reads from a pipe what is to be ended and removed, and what no longer is; when the pipe ends, which
no way of dying prevents, it does so:

1. process groups that are still registered, if their leader is the one that was registered: process
   ids are given again, start times are not;
2. on Linux, whatever has this guard's token in its environment: what those processes started, and
   what was started a moment before the harness died, too late to be registered;
3. commands, such as one that removes containers;
4. folders.

This file is a program too, run by its path without the package: it imports the standard library
only. psutil could read /proc for it, but must not: the guard compares start times that two
processes have read, and psutil counts them from the wall clock, which may be set in between. A
parent that was killed is no parent any more, so psutil does not know its children either.
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
"""In the environment of every process of the harness: whose it is."""
FOLDER_PREFIX = "trocket-interop-"
END_TIMEOUT_S = 30.0
"""How long the guard waits for what it has killed, and a harness at its end for its guard."""
COMMAND_TIMEOUT_S = 60.0
PAUSE_S = 0.05

_PROC = Path("/proc")


class Guard:
    """The harness's end of the pipe. For several threads; of no use in a forked child."""

    def __init__(self) -> None:
        self.token = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._watched: dict[str, list[Any]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1  # its writing end

    def watch_process(self, pid: int) -> None:
        """End this process and its group, which it leads, if we do not come to it ourselves."""
        self._watch(f"process {pid}", ["process", pid, start_time_ticks(pid)])

    def forget_process(self, pid: int) -> None:
        """It has ended, and has been waited for."""
        self._forget(f"process {pid}")

    def watch_folder(self, folder: Path) -> None:
        """Remove this folder if we do not come to it ourselves; it need not be there yet."""
        self._watch(f"folder {folder}", ["folder", str(folder.absolute())])

    def forget_folder(self, folder: Path) -> None:
        """It has been removed."""
        self._forget(f"folder {folder}")

    def watch_command(self, command: Sequence[str]) -> None:
        """Run this, never through a shell, if we do not come to it ourselves."""
        self._watch(f"command {json.dumps(command)}", ["command", list(command)])

    def forget_command(self, command: Sequence[str]) -> None:
        """It has been done."""
        self._forget(f"command {json.dumps(command)}")

    def environment(self) -> dict[str, str]:
        """What a process of ours has in its environment, so that it is known as ours."""
        with self._lock:
            self._start()
        return {TOKEN_VARIABLE: self.token}

    def close(self) -> None:
        """End the guard, which ends what is still registered, and wait for it."""
        with self._lock:
            process = self._process
            self._watched.clear()
            self._let_go()
        if process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_TIMEOUT_S)

    def leave(self) -> None:
        """Let go of the pipe in a forked child: the guard is its parent's."""
        if self._process is not None:
            self._process.returncode = 0  # not the child's to wait for
        self._let_go()

    def _let_go(self) -> None:
        self._process = None
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _watch(self, key: str, entry: list[Any]) -> None:
        with self._lock:
            self._watched[key] = entry
            self._start()
            self._tell(["watch", key, entry])

    def _forget(self, key: str) -> None:
        with self._lock:
            if self._watched.pop(key, None) is not None:
                self._start()
                self._tell(["forget", key])

    def _start(self) -> None:
        """Start the guard when there is none, or none any more, and tell it everything."""
        if self._process is not None and self._process.poll() is None:
            return
        environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
        self._let_go()
        reading, self._pipe = os.pipe()
        try:
            # -I -S: nothing in the environment or beside it changes it, and it starts soon.
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
            self._tell(["watch", key, entry])

    def _tell(self, line: list[Any]) -> None:
        rest = json.dumps(line).encode() + b"\n"
        # A guard that has just ended is started again, and told everything, by the next call.
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[os.write(self._pipe, rest) :]


_guard = Guard()


def guard() -> Guard:
    """The guard of this process."""
    return _guard


@contextlib.contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder that is removed at the end, however this process ends.

    Args:
      parent: where, an existing folder; None: where temporary files go.
    Raises: OSError: it cannot be made.
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
    """When a process started, in clock ticks since the machine did.

    None: there is no such process, or the system has no /proc.

    Source: proc(5), field 22 of /proc/PID/stat.
    """
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, its state, on; [] if there is none.

    The second is the program's name, which may hold blanks and brackets.
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _in_child() -> None:
    """A forked child has no guard yet; it gets its own with the first thing to be watched."""
    global _guard
    _guard.leave()
    _guard = Guard()


atexit.register(lambda: _guard.close())
os.register_at_fork(after_in_child=_in_child)


# ---- the guard itself --------------------------------------------------------------------


def main(token: str) -> None:
    """Read what is registered until the pipe ends, then end and remove what still is."""
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
    """What is registered when the lines end; a last line that was cut off is passed over."""
    watched: dict[str, list[Any]] = {}
    for line in lines:
        if line.endswith(b"\n"):
            what, key, *entry = json.loads(line)
            if what == "watch":
                watched[key] = entry[0]
            else:
                watched.pop(key, None)
    return list(watched.values())


def end_groups(leaders: Iterable[tuple[int, int | None]]) -> None:
    """Kill the groups of these leaders, given with their start times, and wait until they are gone.

    One whose id has been given to another process since is left alone.
    """
    killed = []
    for pid, ticks in leaders:
        if start_time_ticks(pid) == ticks:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                killed.append(pid)
    _wait_gone(killed)


def end_marked(token: str) -> None:
    """Kill whatever has the token in its environment, until nothing has; Linux only.

    Looked for once more after a pause: a child on its way to its program still has its parent's
    environment.
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
                # None of a process that has ended: a zombie has no environment.
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
    return found


def _wait_gone(pids: list[int]) -> None:
    deadline_s = time.monotonic() + END_TIMEOUT_S
    while any(_is_there(pid) for pid in pids) and time.monotonic() < deadline_s:
        _pause()


def _is_there(pid: int) -> bool:
    """Whether a process can still do anything: a zombie that nobody waits for cannot."""
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
