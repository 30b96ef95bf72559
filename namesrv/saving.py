"""Writing a state that changed to its file, off the event loop.

Part of the shell: this waits for the disk.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ..store.disk.json_config import save_text
from ..store.disk.os_disk import Disk


class Saver:
    """Writes one file whenever somebody says that its content changed.

    Changes that come while it writes are written together, once.

    Args:
      disk: where the file is.
      path: the file; it needs a folder in it.
      content: the whole content as it is to be now; called on the event loop.
      write: puts it there, whole or not at all.
    """

    def __init__(
        self,
        disk: Disk,
        path: str,
        content: Callable[[], bytes],
        write: Callable[[Disk, str, bytes], None] = save_text,
    ) -> None:
        self._disk = disk
        self._write = write
        self._path = path
        self._content = content
        self._lock = trio.Lock()
        self._changes_made = 0
        self._changes_saved = 0

    async def save(self) -> None:
        """Return when all changes made so far survive a crash.

        Raises: StoreIOError: they could not be written; the file is as it was.
        """
        self._changes_made += 1
        await self._save_until(self._changes_made)

    async def save_rest(self) -> None:
        """Write the changes whose `save` was cancelled or failed, if there are any.

        Raises: StoreIOError: they could not be written.
        """
        await self._save_until(self._changes_made)

    async def _save_until(self, change: int) -> None:
        async with self._lock:
            if self._changes_saved >= change:
                return
            written = self._changes_made
            content = self._content()
            if self._disk.threaded:
                await trio.to_thread.run_sync(self._write, self._disk, self._path, content)
            else:
                self._write(self._disk, self._path, content)
            self._changes_saved = written
