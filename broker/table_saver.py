"""Saves tables from time to time, off the event loop.

Java counterpart: the scheduled persist calls of BrokerController.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

import trio

from ..common.supervision import FailureLog, Supervisor, call_each
from ..store.errors import StoreError
from ..store.message_store import MessageStore
from .saved_table import SavedTable
from .state_files import StateFiles

logger = logging.getLogger(__name__)


SAVE_AGAIN_S: Final = 1.0
"""Before what could not be saved is tried again: a broker that dies before it is saved does not
know a topic any more whose messages it has."""


class AtOnce(Protocol):
    """A table that is saved when it changes, see `TableFile`."""

    def save_again(self) -> None:
        """Save what could not be saved; nothing where all is."""


class TableSaver:
    """Saves what changed. Owned by the broker's task.

    Args:
      files: theirs.
      store: whose log must have what a table says.
    """

    def __init__(self, files: StateFiles, store: MessageStore) -> None:
        self._files = files
        self._store = store
        self._failures = FailureLog(logger)

    def start(
        self,
        services: Supervisor,
        table: SavedTable,
        interval_s: float,
        before: Callable[[], Awaitable[None]],
    ) -> None:
        """Save a table from now on; see `run`."""
        what = f"the saving of {table.file_name}"
        services.start_soon(what, self.run, table, interval_s, before)

    async def run(
        self, table: SavedTable, interval_s: float, before: Callable[[], Awaitable[None]]
    ) -> None:
        """Save a table until cancelled.

        Args:
          before: called when it changed; raises StoreError where it must not be saved then.
        """
        while True:
            await trio.sleep(interval_s)
            try:
                text = await table.take_changed_in_steps()
                if text is None:
                    continue
                await before()
                await self._files.save_off_loop(table.file_name, text)
            except StoreError as error:
                table.note_unsaved()
                logger.error("%s is not saved: %s", table.file_name, error)
            except Exception:
                table.note_unsaved()
                raise

    async def run_files(self, tables: Collection[AtOnce]) -> None:
        """Save what was put off, and what could not be saved, until cancelled.

        Args:
          tables: that are saved when they change.
        """
        async with trio.open_nursery() as nursery:
            services = Supervisor(nursery, logger)
            services.start_soon("the saving of tables that changed", self._files.run)
            while True:
                await self._files.wait_failed()
                await trio.sleep(SAVE_AGAIN_S)
                again = [table.save_again for table in tables]
                meaning = "It is tried again with the next change"
                call_each(again, self._failures, "saving a table again", meaning)

    async def sync_log(self) -> None:
        """What was sent back, and what was consumed, is on the device before the group is noted to
        be past it; after a failed fsync the offsets are saved all the same."""
        await self._store.flusher.flush_in_thread(threaded=self._store.disk.threaded)

    async def sync_log_or_fail(self) -> None:
        """What was delivered is on the device before it is noted so.

        Raises: StoreIOError: it is not.
        """
        await self.sync_log()
        if self._store.flusher.failure is not None:
            raise self._store.flusher.failure
