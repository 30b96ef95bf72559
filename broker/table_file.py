"""When a table of the broker is written to its file.

What an administrator changes is saved before it is answered, and he hears when that failed. What
happens by itself (a first send makes a topic) is saved too, but clients are served on when the disk
is full. Pure but for the `save` it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..store.errors import StoreIOError
from .config_text import Save

logger = logging.getLogger(__name__)


class TableFile:
    """The file of one table. Owned by the table.

    Args:
      name: of the file.
      what: the table's contents in words, for the log.
      save: writes the file.
      encode: gives its text.
    """

    def __init__(self, name: str, what: str, save: Save, encode: Callable[[], bytes]) -> None:
        self._name = name
        self._what = what
        self._save = save
        self._encode = encode
        self._holding = False
        self._dirty = False

    def changed(self, *, must_save: bool) -> None:
        """Save a change.

        Args:
          must_save: it was asked for. Otherwise a failure is logged, and made good by the next.
        Raises: StoreIOError: it could not be saved, and `must_save`.
        """
        self._dirty = True
        if must_save:
            self.persist()
        elif not self._holding:
            self._persist_or_log()

    @contextmanager
    def saving_once(self) -> Iterator[None]:
        """Inside, what changes by itself is not saved one by one but together at the end."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
            if self._dirty:
                self._persist_or_log()

    def persist(self) -> None:
        """Save the table.

        Raises: StoreIOError: it could not be.
        """
        self._save(self._name, self._encode())
        self._dirty = False

    def _persist_or_log(self) -> None:
        try:
            self.persist()
        except StoreIOError as error:
            logger.error("the %s are saved only with the next change: %s", self._what, error)
