"""A table whose file is written from time to time, if it changed meanwhile.

`TableFile` is for what must be saved at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ..remoting.steps import Steps, in_steps
from .config_text import Save


class SavedTable(ABC):
    """What such tables share; the subclass sets `_dirty` whenever it changes.

    Args:
      save: writes the file.

    Attributes:
      file_name: of the file.
    """

    file_name: ClassVar[str]

    def __init__(self, save: Save) -> None:
        self._save = save
        self._dirty = False

    @abstractmethod
    def encode(self) -> bytes:
        """The file's text."""

    def persist(self) -> bool:
        """Save the table if it changed since the last time.

        Returns: whether anything was written.
        Raises: StoreIOError: it could not be; the next call tries again.
        """
        text = self.take_changed()
        if text is None:
            return False
        self.note_unsaved()
        self._save(self.file_name, text)
        self._dirty = False
        return True

    def take_changed(self) -> bytes | None:
        """The file's text if it changed since the last time, which then counts as saved."""
        if not self._dirty:
            return None
        self._dirty = False
        return self.encode()

    def encode_in_steps(self) -> Steps[bytes]:
        """Steps to the file's text; one step, unless the subclass divides it."""
        return self.encode()
        yield  # what makes it a generator

    async def take_changed_in_steps(self) -> bytes | None:
        """`take_changed`, while others are served."""
        if not self._dirty:
            return None
        self._dirty = False
        try:
            return await in_steps(self.encode_in_steps())
        except BaseException:
            self._dirty = True
            raise

    def note_unsaved(self) -> None:
        """What `take_changed` gave could not be saved: the next call gives it again."""
        self._dirty = True
