"""Saving of the broker's tables: how often, and what must be on the device before.

Java counterpart: the scheduled persist calls of BrokerController.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from ..common.supervision import Supervisor
from ..store.message_store import MessageStore
from ..store.state.state_file import StateFile
from ..store.state.state_files import StateFiles


async def nothing_before() -> None:
    """What must be on the device before a table that says nothing of the log."""
    await trio.lowlevel.checkpoint()


class TableSaver:
    """Saves what changed. Owned by the broker's task.

    Args:
      files: theirs.
      store: whose log must have what a table says.
    """

    def __init__(self, files: StateFiles, store: MessageStore) -> None:
        self._files = files
        self._store = store

    def start_eager(self, services: Supervisor, *eager: StateFile) -> None:
        """Save files from now on whenever their tables change."""
        services.start_soon("the saving of topics and groups", self._files.run, eager)

    def start_lazy(
        self,
        services: Supervisor,
        file: StateFile,
        interval_s: float,
        before: Callable[[], Awaitable[None]] = nothing_before,
        look: Callable[[], None] = lambda: None,
    ) -> None:
        """Save a file from time to time from now on; see `StateFiles.run_lazy`."""
        what = f"the saving of {file.name}"
        services.start_soon(what, self._files.run_lazy, file, interval_s, before, look)

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
