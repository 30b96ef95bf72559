"""config/*.json of one broker: saved at once, or off the event loop.

Part of the shell: this waits for the disk. A save takes three fsyncs, some 10 ms on a disk and more
on a busy one, during which nobody would be served.

Java counterpart: common/ConfigManager.java persist of 5.3.3, called by whoever changed something.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import TypeVar

import trio

from ..common.supervision import FailureLog
from ..remoting.steps import in_steps
from ..store.disk.json_config import load_newest, save_json
from ..store.disk.os_disk import Disk
from ..store.errors import StoreIOError
from .table_file import TableFile

logger = logging.getLogger(__name__)

T = TypeVar("T")


class StateFiles:
    """The files of one folder.

    `save` is the way of what must be saved when it returns. A table whose save may be put off says
    so with `later`, and `run` writes it in a worker thread; changes that come meanwhile are written
    together. Whatever the way, an older text never replaces a newer one.

    Owner: the broker's task. Only writing happens elsewhere.

    Args:
      disk: where they lie.
      folder: theirs.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._from_spare: dict[str, bytes] = {}
        self._count = 0
        self._newest: dict[str, int] = {}
        self._put_off: list[TableFile] = []
        self._in_work: list[TableFile] = []
        self._wanted = trio.Event()
        self._failed = trio.Event()
        self._failures = FailureLog(logger)

    @property
    def may_put_off(self) -> bool:
        """Whether saving is slow enough to be put off: not on a disk in memory."""
        return self._disk.threaded

    def load(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Read a file; see `load_newest`."""
        used = b""

        def parse(text: bytes) -> T:
            nonlocal used
            used = text
            return decode(text)

        found = load_newest(self._disk, self._path(name), parse)
        if found is None:
            return None
        value, is_spare = found
        if is_spare:
            self._from_spare[name] = used
        return value

    def load_spare(self, name: str, decode: Callable[[bytes], T]) -> T | None:
        """Read the `.bak` of a file that has no entry; `replace_damaged` makes it the file.

        Returns: what `decode` made of it; None: it is not there, or has no entry either.
        """
        spare = f"{name}.bak"
        used = b""

        def parse(text: bytes) -> T:
            nonlocal used
            used = text
            return decode(text)

        found = load_newest(self._disk, self._path(spare), parse)
        if found is None or not found[0]:
            return None
        self._from_spare[name] = used
        return found[0]

    def replace_damaged(self) -> None:
        """Write again the files in whose place a `.bak` was read; a failure is logged.

        To be called once the store is open: before that the folder may be another process's.
        """
        for name, text in self._from_spare.items():
            try:
                self.save(name, text)
            except StoreIOError as error:
                logger.error("%s is still damaged: %s", self._path(name), error)
        self._from_spare.clear()

    def save(self, name: str, text: bytes) -> None:
        """Save a file now.

        Raises: StoreIOError: it could not be; the old text still stands.
        """
        try:
            self._write(name, text, self._next_number())
        except StoreIOError:
            self._failed.set()
            raise

    async def save_off_loop(self, name: str, text: bytes) -> None:
        """Save a file in a worker thread, or now on a disk in memory.

        Raises: StoreIOError: it could not be; the old text still stands.
        """
        await self._save_off_loop(name, text, self._next_number())

    async def _save_off_loop(self, name: str, text: bytes, number: int) -> None:
        try:
            if self._disk.threaded:
                await trio.to_thread.run_sync(self._write, name, text, number)
            else:
                self._write(name, text, number)
        except StoreIOError:
            self._failed.set()
            raise

    async def wait_failed(self) -> None:
        """Wait until a save has failed, or return where one did since the last call."""
        await self._failed.wait()
        self._failed = trio.Event()

    def later(self, table: TableFile) -> None:
        """Have `run` save a table soon."""
        if table not in self._put_off:
            self._put_off.append(table)
            self._wanted.set()

    async def run(self) -> None:
        """Save what was put off, until cancelled; what is under way then is finished."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._wanted.wait()
                self._wanted = trio.Event()
                for table in self._put_off:
                    if table not in self._in_work:
                        self._in_work.append(table)
                        nursery.start_soon(self._save_put_off, table)

    async def _save_put_off(self, table: TableFile) -> None:
        """Save one table until no save of it is wanted any more."""
        while table in self._put_off:
            self._put_off.remove(table)
            # Taken before the steps: what is saved while they are made is newer.
            number = self._next_number()
            try:
                text = await in_steps(table.begin_save())
                await self._save_off_loop(table.name, text, number)
            except StoreIOError as error:
                table.end_save(error)
            except Exception as error:  # noqa: BLE001 - our bug: it is saved again
                meaning = "It is tried again; a crash before that loses its last changes"
                self._failures.note(f"saving {table.name}", meaning, error)
                table.end_save(StoreIOError(table.name, f"{type(error).__name__}: {error}"))
                self._failed.set()
            else:
                table.end_save(None)
        self._in_work.remove(table)

    def _next_number(self) -> int:
        self._count += 1
        return self._count

    def _write(self, name: str, text: bytes, number: int) -> None:
        with self._locks[name]:
            if number > self._newest.get(name, 0):
                save_json(self._disk, self._path(name), text)
                self._newest[name] = number

    def _path(self, name: str) -> str:
        return str(PurePosixPath(self._folder) / name)
