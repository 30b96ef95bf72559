"""A thread for fsync that starts a call within about 30 µs.

`trio.to_thread` costs about 170 µs for each call on a virtual machine, which is half of an fsync
there; under group commit every send waits for that. A lock wakes the thread, an eventfd (a pipe
where there is none) wakes the event loop.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import trio


class SyncThread:
    """Runs one slow disk call at a time beside the event loop.

    Call `start` early: a thread takes 8 MiB of address space, and a broker that has run out of
    memory must still be able to sync. Otherwise the first `run` starts it. `close` ends it. Owned
    by one task at a time.
    """

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._go.acquire()
        self._thread: threading.Thread | None = None
        self._call: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._read_fd = self._write_fd = -1

    async def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread and wait for its end, even when cancelled meanwhile.

        Raises: the exception of `call`.
        """
        self.start()
        self._call = call
        self._go.release()
        with trio.CancelScope(shield=True):
            await trio.lowlevel.wait_readable(self._read_fd)
        os.read(self._read_fd, 8)
        error, self._error = self._error, None
        if error is not None:
            raise error

    def close(self) -> None:
        """End the thread, after its current call."""
        if self._thread is None:
            return
        self._call = None
        self._go.release()
        self._thread.join()
        self._thread = None
        os.close(self._read_fd)
        if self._write_fd != self._read_fd:
            os.close(self._write_fd)
        self._read_fd = self._write_fd = -1

    def start(self) -> None:
        """Start the thread, unless it runs.

        Raises:
          RuntimeError: the system cannot start another thread.
          OSError: it has no descriptor left.
        """
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._work, name="trocket-fsync", daemon=True)
        if self._read_fd < 0:
            if hasattr(os, "eventfd"):
                self._read_fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            else:
                self._read_fd, self._write_fd = os.pipe()
        thread.start()
        self._thread = thread

    def _work(self) -> None:
        while True:
            self._go.acquire()
            call = self._call
            if call is None:
                return
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - raised again in the waiting task
                self._error = error
            os.write(self._write_fd, b"\1\0\0\0\0\0\0\0")  # 1 for an eventfd, bytes for a pipe
