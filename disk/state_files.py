"""Loading and saving of the state files of one folder; a `.bak` replaces a damaged file.

Part of the shell: this waits for the disk. A save takes three fsyncs, about 10 ms on a disk and
more on a busy one, for which no request would be served; so it runs in a worker thread.

Java counterpart: common/ConfigManager.java load and persist of 5.3.3, and the scheduled persist
calls of BrokerController.java.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from pathlib import PurePosixPath
from typing import Final, TypeVar

import trio

from ..common.steps import in_steps
from ..common.supervision import FailureLog, call_each
from .errors import StoreIOError
from .json_config import load_newest, read_bytes, save_json, save_secret_json, unsealed, write_copy
from .os_disk import Disk
from .start_warnings import LEFTOVER
from .state_file import StateFile

logger = logging.getLogger(__name__)

T = TypeVar("T")

Write = Callable[[Disk, str, bytes], None]
"""Replaces a file atomically: the disk, the file's path, its text."""

SAVE_AGAIN_S: Final = 1.0
"""Pause before a failed save is tried again. Short: a broker that dies before it has lost the topic
whose messages it stores."""


class StateFiles:
    """The files of one folder.

    `save` returns when the file is saved. `later` puts a save off: `run` writes the file in a
    worker thread, and changes that come meanwhile are written together. `run_lazy` writes a lazy
    file. In each case an older text never replaces a newer one.

    Owned by the server's task. Only the writes run in other threads.

    Args:
      write: replaces a file atomically.
      secret: names of the files that hold secrets, which get mode 0600.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        write: Write = save_json,
        *,
        secret: Collection[str] = (),
    ) -> None:
        self._disk = disk
        self._write_text = write
        self._secret = frozenset(secret)
        self._folder = folder
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._from_spare: dict[str, bytes] = {}
        self._damaged: list[str] = []
        self._count = 0
        self._newest: dict[str, int] = {}
        self._put_off: list[StateFile] = []
        self._in_work: list[StateFile] = []
        self._wanted = trio.Event()
        self._failed = trio.Event()
        self._failures = FailureLog(logger)

    @property
    def may_put_off(self) -> bool:
        """Whether saving is slow enough to be put off: not on a disk in memory."""
        return self._disk.threaded

    def load(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Read a file; see `load_newest`."""
        found = load_newest(self._disk, self._path(name), lambda text: (decode(text), text))
        if found is None:
            return None
        (value, text), is_spare = found
        if is_spare:
            self._from_spare[name] = text
        if name in self._secret:
            self._warn_of_mode(name)
        return value

    def _warn_of_mode(self, name: str) -> None:
        """Warn of files that were copied here with another mode than they were saved with."""
        for path in (self._path(name), self._path(f"{name}.bak")):
            if self._disk.exists(path) and not self._disk.is_private(path):
                logger.warning(
                    "%(path)s holds secrets, and other users of this machine may read it: "
                    "chmod 600",
                    {"path": path},
                    extra=LEFTOVER,
                )

    def salvage(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Read what is left of a file and its `.bak`, neither of which can be used.

        Checksums are ignored. Call `keep_damaged` before the file is saved again.

        Args:
          decode: reads what it can; raises ValueError when that is nothing.
        Returns: its result; None: nothing can be read of either.
        """
        path = self._path(name)
        self._damaged.append(name)
        for candidate in (path, f"{path}.bak"):
            try:
                return decode(unsealed(read_bytes(self._disk, candidate))[0])
            except (StoreIOError, ValueError):
                continue
        return None

    def is_sealed(self, name: str) -> bool:
        """Whether the file has the checksum with which this program saves it."""
        path = self._path(name)
        return self._disk.exists(path) and unsealed(read_bytes(self._disk, path))[1] is True

    def load_spare(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Read the `.bak` of a file without entries; `replace_damaged` makes it the file.

        Returns: the result of `decode`; None if there is no `.bak`, or it has no entries either.
        """
        path = self._path(f"{name}.bak")
        found = load_newest(self._disk, path, lambda text: (decode(text), text))
        if found is None or not found[0][0]:
            return None
        value, self._from_spare[name] = found[0]
        return value

    def replace_damaged(self) -> None:
        """Write the files again whose `.bak` was read instead; a failure is logged.

        Call it once the store is open: before that the folder may be another process's.
        """
        for name, text in self._from_spare.items():
            try:
                self.save(name, text)
            except StoreIOError as error:
                logger.error(
                    "%(file)s is damaged and could not be written again from its .bak: %(error)s",
                    {"file": self._path(name), "error": error},
                )
        self._from_spare.clear()

    def keep_damaged(self) -> None:
        """Keep copies of the files of which `salvage` read what was whole, as `.damaged`."""
        for name in self._damaged:
            self._set_aside(name)
        self._damaged.clear()

    def _set_aside(self, name: str) -> None:
        """Keep a copy of a damaged file as `.damaged`."""
        path = self._path(name)
        try:
            if self._disk.exists(path):
                found = read_bytes(self._disk, path)
                private = name in self._secret
                write_copy(self._disk, f"{path}.damaged", found, private=private)
        except StoreIOError as error:
            logger.error(
                "the damaged %(file)s could not be kept as .damaged: %(error)s",
                {"file": path, "error": error},
            )

    def save(self, name: str, text: bytes) -> None:
        """Save a file now.

        Raises: StoreIOError: it could not be saved; the old file is unchanged.
        """
        try:
            self._write(name, text, self._next_number())
        except StoreIOError:
            self._failed.set()
            raise

    def later(self, file: StateFile) -> None:
        """Request a save of a file by `run`."""
        if file not in self._put_off:
            self._put_off.append(file)
            self._wanted.set()

    async def run(self, eager: Collection[StateFile] = ()) -> None:
        """Save files that were put off, and retry failed saves, until cancelled.

        Args:
          eager: the files that are saved again when a save has failed.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._save_again, eager)
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                for file in self._put_off:
                    if file not in self._in_work:
                        self._in_work.append(file)
                        nursery.start_soon(self._save_put_off, file)

    async def run_lazy(
        self,
        file: StateFile,
        interval_s: Callable[[], float],
        before: Callable[[], Awaitable[bool]],
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        """Save a file at intervals, if its table changed, until cancelled.

        Args:
          interval_s: gives the seconds of the next interval.
          before: called when it changed, with its text already taken; returns whether it may be
            saved now, else the next interval tries again. Raises: StoreIOError: it must not be.
          refresh: called at each interval, before the table is checked for changes.
        """
        while True:
            await trio.sleep(interval_s())
            refresh()
            if file.is_dirty:
                await self._save(file, before)

    async def _save_again(self, eager: Collection[StateFile]) -> None:
        while True:
            await self._failed.wait()
            self._failed = trio.Event()
            await trio.sleep(SAVE_AGAIN_S)
            again = [file.save_again for file in eager]
            meaning = "It is tried again with the next change"
            call_each(again, self._failures, "saving a table again", meaning)

    async def _save_put_off(self, file: StateFile) -> None:
        """Save one file until no further save of it is requested."""
        while file in self._put_off:
            self._put_off.remove(file)
            await self._save(file)
        self._in_work.remove(file)

    async def _save(
        self, file: StateFile, before: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """Save a file in steps, and in a worker thread; on a disk in memory without a thread."""
        # Taken before the steps: a save that begins during them has a newer text.
        number = self._next_number()
        try:
            text = await in_steps(file.begin_save())
            if before is not None and not await before():
                file.abandon_save()
                return
            if self._disk.threaded:
                await trio.to_thread.run_sync(self._write, file.name, text, number)
            else:
                self._write(file.name, text, number)
        except StoreIOError as error:
            file.end_save(error)
            self._failed.set()
        except Exception as error:  # noqa: BLE001 - our bug: it is saved again
            meaning = "It is tried again; a crash before that loses its last changes"
            self._failures.note(f"saving {file.name}", meaning, error)
            file.end_save(StoreIOError(file.name, f"{type(error).__name__}: {error}"))
            self._failed.set()
        except BaseException:
            file.abandon_save()
            raise
        else:
            file.end_save(None)

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _write(self, name: str, text: bytes, number: int) -> None:
        with self._locks[name]:
            if number > self._newest.get(name, 0):
                write = save_secret_json if name in self._secret else self._write_text
                write(self._disk, self._path(name), text)
                self._newest[name] = number

    def _path(self, name: str) -> str:
        return str(PurePosixPath(self._folder) / name)
