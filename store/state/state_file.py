"""State file: the JSON file of one table, and how far the table is saved in it.

A table says what changed. An eager file is saved at each change, before anything is answered that
relies on it: an administrator's request, a send into a new topic. Where a save fails it is tried
again until it succeeds, and what waits for it is refused meanwhile. A lazy file is saved from time
to time, and at the end.

Where a disk is slow, saves are put off to a thread (`state_files.py`): a busy one takes seconds for
an fsync, and others must be served meanwhile. Who waits is called back. Pure but for what it is
given.

Java counterpart: common/ConfigManager.java of 5.3.3, whose persist is called by those that changed
something.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio

from ...common.supervision import FailureLog, call_each
from ...remoting.channel import Postponed
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ...remoting.steps import Steps, at_once
from ..errors import StoreIOError

logger = logging.getLogger(__name__)

Save = Callable[[str, bytes], None]
"""Writes a file, whole or not at all: its name, its text in UTF-8. It may raise StoreIOError; then
the change stands in memory and the next save has it, too."""

REFUSED: Final = (
    "what is new in them is refused until a save succeeds, which is tried again each second"
)
"""What it means that an eager file is not saved."""
GOES_BACK: Final = (
    "it is tried again after the next interval; after a crash it counts as it was saved last"
)
"""The same for a lazy file."""

OnSaved = Callable[[StoreIOError | None], None]
"""Called with None, or with why it could not be saved."""


class StateFile:
    """The file of one table. Owned by the table.

    Args:
      name: of the file.
      what: the table's contents in words, for the log.
      save: writes the file.
      encode: gives the steps to its text as it is when this is called.
      later: has the file saved soon, with `begin_save` and `end_save`; None: a change is saved at
        once.
      is_lazy: whether a change waits until somebody saves the file; `later` does not count then.
      means: what it means to an operator that a change is not saved.
      on_saved: called after each save, before those who wait for it.

    Attributes:
      is_dirty: the table has changes that no save has. A table with a lazy file may set it, as
        `changed` does.
      failure: why the last save failed; None: it succeeded.
    """

    def __init__(
        self,
        name: str,
        what: str,
        save: Save,
        encode: Callable[[], Steps[bytes]],
        later: Callable[[StateFile], None] | None = None,
        *,
        is_lazy: bool = False,
        means: str = REFUSED,
        on_saved: OnSaved = lambda error: None,
    ) -> None:
        self.name = name
        self.failure: StoreIOError | None = None
        self._on_saved = on_saved
        self._is_lazy = is_lazy
        self._means = GOES_BACK if is_lazy else means
        self._what = what
        self._save = save
        self._encode = encode
        self._later = later
        self._holding = False
        self.is_dirty = False
        self._told = ""
        self._is_put_off = self._is_saving = False
        self._waiting: list[OnSaved] = []
        self._begun: list[OnSaved] = []
        self._serve: dict[str, list[Callable[[], None]]] = {}
        self._failures = FailureLog(logger)

    def changed(self) -> None:
        """Save a change, now or soon. A failure is logged, and made good by `save_again`."""
        self.is_dirty = True
        if self._is_lazy:
            return
        self._is_put_off = self._later is not None
        if self._holding:
            pass
        elif self._later is not None:
            self._later(self)
        else:
            self._persist_or_log()

    def changed_by_client(self) -> None:
        """As `changed`, but `save_again` saves it where the last save failed.

        Clients try again at once, and each try encodes the whole table.
        """
        if self.failure is None or self.is_put_off:
            self.changed()
        else:
            self.is_dirty = True

    def save_again(self) -> None:
        """Save what could not be saved; nothing where all is."""
        if self.is_dirty and not self.is_put_off and not self._holding:
            self.changed()

    async def saved(self) -> None:
        """Wait until everything so far is saved; what failed before is tried again.

        Raises: StoreIOError: it could not be.
        """
        if self.is_dirty and not self.is_put_off:
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
            if self.is_dirty:
                self.changed()

    def persist(self) -> None:
        """Save the table.

        Raises: StoreIOError: it could not be.
        """
        try:
            self._save(self.name, at_once(self._encode()))
        except StoreIOError as error:
            self.failure = error
            self._on_saved(error)
            raise
        self.is_dirty = False
        self.failure = None
        self._told = ""
        self._on_saved(None)

    def persist_changed(self) -> bool:
        """Save the table if it changed since the last save.

        Returns: whether anything was written.
        Raises: StoreIOError: it could not be; the next call tries again.
        """
        if not self.is_dirty:
            return False
        self.persist()
        return True

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

    def wait_for(self, name: str, is_saved: Callable[[], bool]) -> None:
        """Let a request go on only when something new is saved.

        Requests that wait for one name are served again in the order in which they came.

        Args:
          name: of what is new; it was not saved when this was called.
          is_saved: whether it is now.
        Raises:
          Postponed: it is being saved.
          RequestRefused: SERVICE_NOT_AVAILABLE, the last save failed. Producers of RocketMQ send to
            another broker then (DefaultMQProducer.retryResponseCodes), and here again later.
        """
        if not self.is_put_off and self.failure is None:
            self.changed()
        if is_saved():
            return
        if not self.is_put_off:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: {name} is new, and the {self._what} could not be "
                f"saved ({self.failure}); that is tried again each second, and then this is "
                "served again",
            )
        if name not in self._serve:
            self._serve[name] = []
            self.when_saved(lambda _: self._serve_again(name))
        raise Postponed(self._serve[name].append)

    def _serve_again(self, name: str) -> None:
        for serve in self._serve.pop(name, ()):
            serve()

    def begin_save(self) -> Steps[bytes]:
        """Steps to the text to be saved; what changes from now on is for the next time."""
        self.is_dirty = self._is_put_off = False
        self._is_saving = True
        self._begun, self._waiting = self._waiting, []
        return self._encode()

    def give_up_save(self) -> None:
        """A save that was begun does not come to its end; the next one has its changes, too."""
        self._is_saving = False
        self.is_dirty = True
        self._begun, self._waiting = [], [*self._begun, *self._waiting]

    def end_save(self, error: StoreIOError | None) -> None:
        """Tell how the save came out, and call back who waited for it."""
        self._is_saving = False
        self.failure = error
        if error is None:
            self._told = ""
        else:
            self.is_dirty = True
            self._log(error)
        self._on_saved(error)
        begun, self._begun = self._begun, []
        meaning = "Requests that waited for it may stay without an answer, and are sent again"
        what = f"answering what waited for {self.name}"
        call_each([partial(callback, error) for callback in begun], self._failures, what, meaning)

    def _persist_or_log(self) -> None:
        try:
            self.persist()
        except StoreIOError as error:
            self._log(error)

    def _log(self, error: StoreIOError) -> None:
        if str(error) != self._told:
            logger.error(
                "the %s are not saved yet: %s; %s (see to room on the disk, and to the rights of "
                "the folder)", self._what, error, self._means,
            )  # fmt: skip
        self._told = str(error)
