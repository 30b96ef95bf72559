"""TableSaver: saves the broker's tables, some only after the log that they refer to is fsynced.

Java counterpart: the scheduled persist calls of BrokerController.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from ...common.supervision import Supervisor
from ...disk.state_files import StateFiles
from ...store.message_store import MessageStore
from ..part import LogFirst, SavedFile


class TableSaver:
    """Saves changed tables. Owned by the broker's task.

    Args:
      store: its log is synced before tables that refer to it.
    """

    def __init__(self, files: StateFiles, store: MessageStore) -> None:
        self._files = files
        self._store = store

    def start(self, services: Supervisor, saved: Sequence[SavedFile]) -> None:
        """Start the services that save these files while the broker runs."""
        eager = [each.file for each in saved if each.interval_s is None]
        services.start_soon("the saving of topics and groups", self._files.run, eager)
        syncs: dict[LogFirst, Callable[[], Awaitable[bool]]] = {
            LogFirst.NO: self.at_once,
            LogFirst.TRIED: self.sync_log,
            LogFirst.REQUIRED: self.sync_log_or_fail,
        }
        for each in saved:
            if each.interval_s is not None:
                services.start_soon(
                    f"the saving of {each.file.name}",
                    self._files.run_lazy,
                    each.file,
                    each.interval_s,
                    syncs[each.log_first],
                    each.before_save,
                )

    def save_at_end(self, saved: SavedFile) -> None:
        """Save a file at a clean stop; the log was synced, or that has failed.

        Raises: StoreIOError: it could not be saved.
        """
        if saved.log_first is LogFirst.REQUIRED and self._store.flusher.failure is not None:
            return
        saved.before_save()
        if saved.at_end:
            saved.file.persist()
        else:
            saved.file.persist_changed()

    async def at_once(self) -> bool:
        """For tables that do not refer to the log."""
        await trio.lowlevel.checkpoint()
        return True

    async def sync_log(self) -> bool:
        """Sync the log, so that messages are on the device before offsets that are past them.

        After a failed fsync the offsets are saved anyway.

        Returns: False: messages may still be cut from the log, in controller mode. A broker that
          becomes master again must not regard them as delivered.
        """
        end = self._store.max_physical_offset
        await self._store.flusher.flush_in_thread(threaded=self._store.disk.threaded)
        return self._store.durability.is_confirmed(end)

    async def sync_log_or_fail(self) -> bool:
        """The same for offsets that a failed fsync makes wrong.

        Raises: StoreIOError: the fsync failed.
        """
        is_confirmed = await self.sync_log()
        if self._store.flusher.failure is not None:
            raise self._store.flusher.failure
        return is_confirmed
