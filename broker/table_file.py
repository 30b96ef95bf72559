"""When a table of the broker is written to its file.

What an administrator changes is saved before he is answered, and he hears when that failed. What
happens by itself (a first send makes a topic) is saved too, but clients are served on when the disk
is full. Where a disk is slow, saves are put off to a thread: a busy one takes seconds for an fsync,
and others must be served meanwhile. Who waits is called back. Pure but for what it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from ..store.errors import StoreIOError
from .config_text import Save

logger = logging.getLogger(__name__)

OnSaved = Callable[[StoreIOError | None], None]
"""Called with None, or with why it could not be saved."""


class TableFile:
    """The file of one table. Owned by the table.

    Args:
      name: of the file.
      what: the table's contents in words, for the log.
      save: writes the file.
      encode: gives its text.
      later: is told of a save that may be put off, and sees to it with `begin_save` and `end_save`;
        None: none is put off.
    """

    def __init__(
        self,
        name: str,
        what: str,
        save: Save,
        encode: Callable[[], bytes],
        later: Callable[[TableFile], None] | None = None,
    ) -> None:
        self.name = name
        self._what = what
        self._save = save
        self._encode = encode
        self._later = later
        self._holding = False
        self._dirty = False
        self._told = ""
        self._is_put_off = self._is_saving = False
        self._waiting: list[OnSaved] = []
        self._begun: list[OnSaved] = []

    def changed(self) -> None:
        """Save a change, now or soon. A failure is logged, and made good by `save_again`."""
        self._dirty = True
        self._is_put_off = self._later is not None
        if self._holding:
            pass
        elif self._later is not None:
            self._later(self)
        else:
            self._persist_or_log()

    def save_again(self) -> None:
        """Save what could not be saved; nothing where all is."""
        if self._dirty and not self.is_put_off and not self._holding:
            self.changed()

    async def saved(self) -> None:
        """Wait until everything so far is saved; what failed before is tried again.

        Raises: StoreIOError: it could not be.
        """
        if self._dirty and not self.is_put_off:
            if self._later is None:
                self.persist()
                return
            self.changed()
        over = trio.Event()
        failures: list[StoreIOError] = []

        def on_saved(error: StoreIOError | None) -> None:
            if error is not None:
                failures.append(error)
            over.set()

        self.when_saved(on_saved)
        await over.wait()
        if failures:
            raise failures[0]

    @contextmanager
    def saving_once(self) -> Iterator[None]:
        """Inside, what changes by itself is not saved one by one but together at the end."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
            if self._dirty:
                self.changed()

    def persist(self) -> None:
        """Save the table.

        Raises: StoreIOError: it could not be.
        """
        self._save(self.name, self._encode())
        self._dirty = False
        self._told = ""

    @property
    def is_put_off(self) -> bool:
        """Whether a save that was put off is not over yet."""
        return self._is_put_off or self._is_saving

    def when_saved(self, callback: OnSaved) -> None:
        """Call back once everything so far was saved, or could not be; at once when it was."""
        if self._is_put_off:
            self._waiting.append(callback)
        elif self._is_saving:
            self._begun.append(callback)
        else:
            callback(None)

    def begin_save(self) -> bytes:
        """The text to be saved; what changes from now on is for the next time."""
        self._dirty = self._is_put_off = False
        self._is_saving = True
        self._begun, self._waiting = self._waiting, []
        return self._encode()

    def end_save(self, error: StoreIOError | None) -> None:
        """Tell how the save came out, and call back who waited for it."""
        self._is_saving = False
        if error is None:
            self._told = ""
        else:
            self._dirty = True
            self._log(error)
        begun, self._begun = self._begun, []
        for callback in begun:
            callback(error)

    def _persist_or_log(self) -> None:
        try:
            self.persist()
        except StoreIOError as error:
            self._log(error)

    def _log(self, error: StoreIOError) -> None:
        if str(error) != self._told:
            logger.error("the %s are not saved yet, that is tried again: %s", self._what, error)
        self._told = str(error)
