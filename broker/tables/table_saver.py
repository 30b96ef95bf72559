"""TableSaver: saves the broker's tables, some only after the log that they refer to is fsynced.

Java counterpart: the scheduled persist calls of BrokerController.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ...common.supervision import Supervisor
from ...disk.state_file import StateFile
from ...disk.state_files import StateFiles
from ...store.message_store import MessageStore


async def no_sync() -> None:
    """Sync nothing, for a table that does not refer to the log."""
    await trio.lowlevel.checkpoint()


class TableSaver:
    """Saves changed tables. Owned by the broker's task.

    Args:
      store: its log is synced before tables that refer to it.
    """

    def __init__(self, files: StateFiles, store: MessageStore) -> None:
        self._files = files
        self._store = store

    def start_eager(self, services: Supervisor, *eager: StateFile) -> None:
        """Start a service that saves files whenever their tables change."""
        services.start_soon("the saving of topics and groups", self._files.run, eager)

    def start_lazy(
        self,
        services: Supervisor,
        file: StateFile,
        interval_s: Callable[[], float],
        sync: Callable[[], Awaitable[None]] = no_sync,
        before_save: Callable[[], None] = lambda: None,
    ) -> None:
        """Start a service that saves a file periodically if it changed.

        Args:
          interval_s: gives the seconds until the next check.
          sync: awaited before each save, see `sync_log`.
          before_save: called before each check, for instance to drop old entries.
        """
        what = f"the saving of {file.name}"
        services.start_soon(what, self._files.run_lazy, file, interval_s, sync, before_save)

    async def sync_log(self) -> None:
        """Sync the log, so that messages are on the device before offsets that are past them.

        After a failed fsync the offsets are saved anyway.
        """
        await self._store.flusher.flush_in_thread(threaded=self._store.disk.threaded)

    async def sync_log_or_fail(self) -> None:
        """Sync the log, so that delivered messages are on the device before offsets past them.

        Raises: StoreIOError: the fsync failed.
        """
        await self.sync_log()
        if self._store.flusher.failure is not None:
            raise self._store.flusher.failure
