"""The JSON file of one table, and its unsaved changes.

A table reports its changes. An eager file is saved at each change, before the answer of a request
that relies on it: an administrator's request, a send into a new topic. A failed save is tried again
until it succeeds, and requests that need it are refused meanwhile. A lazy file is saved at
intervals, and at the end.

Where a disk is slow, saves are put off to a thread (`state_files.py`): a busy disk takes seconds
for an fsync, and other requests must be served meanwhile. Waiting requests are called back. Pure
except for the given functions.

Java counterpart: common/ConfigManager.java of 5.3.3, whose persist is called after each change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import trio

from ..common.steps import Steps, at_once
from ..common.supervision import FailureLog, call_each
from ..remoting.channel import Postponed
from ..remoting.errors import RequestRefused
from ..remoting.response_codes import ResponseCode
from .errors import StoreIOError

logger = logging.getLogger(__name__)

Save = Callable[[str, bytes], None]
"""Replaces a file atomically: its name, its text in UTF-8. It may raise StoreIOError; the change
then stays in memory, and the next save includes it."""

REFUSED: Final = (
    "requests that need new entries are refused until a save succeeds; it is tried again each "
    "second"
)
"""The consequence of an eager file that is not saved, for the log."""
GOES_BACK: Final = (
    "the save is tried again after the next interval; a crash before that loses the changes"
)
"""The same for a lazy file."""

OnSaved = Callable[[StoreIOError | None], None]
"""Called with None, or with the error of the save."""


class StateFile:
    """The file of one table. Owned by the table.

    Args:
      what: the table's contents in words, for the log.
      encode: returns the steps to the table's text at the time of the call.
      later: requests a save with `begin_save` and `end_save`; None: a change is saved at once.
      is_lazy: changes are saved by `persist_changed` or `StateFiles.run_lazy` only; `later` is
        unused.
      means: the consequence of an unsaved change, for an operator.
      on_saved: called after each save, before the callbacks that wait for it.

    Attributes:
      is_dirty: the table has unsaved changes. A table with a lazy file may set it, as `changed`
        does.
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
        self._logged = ""
        self._is_put_off = self._is_saving = False
        self._waiting: list[OnSaved] = []
        self._begun: list[OnSaved] = []
        self._serve: dict[str, list[Callable[[], None]]] = {}
        self._failures = FailureLog(logger)

    def changed(self) -> None:
        """Save a change, now or soon. A failure is logged, and tried again by `save_again`."""
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
        """`changed`, but after a failed save leave it to `save_again`.

        Clients try again at once, and each attempt would encode the whole table.
        """
        if self.failure is None or self.is_put_off:
            self.changed()
        else:
            self.is_dirty = True

    def save_again(self) -> None:
        """Save changes that could not be saved, if there are any."""
        if self.is_dirty and not self.is_put_off and not self._holding:
            self.changed()

    async def saved(self) -> None:
        """Wait until all changes so far are saved; a failed save is tried again.

        Raises: StoreIOError: they could not be saved.
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
        """A context in which changes are not saved one by one but together at its end."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
            if self.is_dirty:
                self.changed()

    def persist(self) -> None:
        """Save the table.

        Raises: StoreIOError: it could not be saved.
        """
        try:
            self._save(self.name, at_once(self._encode()))
        except StoreIOError as error:
            self.failure = error
            self._on_saved(error)
            raise
        self.is_dirty = False
        self.failure = None
        self._logged = ""
        self._on_saved(None)

    def persist_changed(self) -> bool:
        """Save the table if it changed since the last save.

        Returns: whether it was written.
        Raises: StoreIOError: it could not be saved; the next call tries again.
        """
        if not self.is_dirty:
            return False
        self.persist()
        return True

    @property
    def is_put_off(self) -> bool:
        """Whether a save that was put off is not finished."""
        return self._is_put_off or self._is_saving

    def when_saved(self, callback: OnSaved) -> None:
        """Call back once all changes so far are saved, or could not be; possibly at once."""
        if self._is_put_off:
            self._waiting.append(callback)
        elif self._is_saving:
            self._begun.append(callback)
        else:
            callback(None)

    def wait_for(self, name: str, is_saved: Callable[[], bool]) -> None:
        """Return only when a new entry is saved; otherwise postpone or refuse the request.

        Requests that wait for one name are served again in the order of their arrival.

        Args:
          name: of the new entry, which was not saved before the call.
          is_saved: whether it is saved now.
        Raises:
          Postponed: it is being saved.
          RequestRefused: SERVICE_NOT_AVAILABLE, the last save failed. Producers of RocketMQ then
            send to another broker (DefaultMQProducer.retryResponseCodes), and later here again.
        """
        if not self.is_put_off and self.failure is None:
            self.changed()
        if is_saved():
            return
        if not self.is_put_off:
            raise RequestRefused(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"service not available now: {name} is new, and the {self._what} could not be "
                f"saved ({self.failure}); the broker tries again each second, so send again later",
            )
        if name not in self._serve:
            self._serve[name] = []
            self.when_saved(lambda _: self._serve_again(name))
        raise Postponed(self._serve[name].append)

    def _serve_again(self, name: str) -> None:
        for serve in self._serve.pop(name, ()):
            serve()

    def begin_save(self) -> Steps[bytes]:
        """Steps to the text to be saved; later changes belong to the next save."""
        self.is_dirty = self._is_put_off = False
        self._is_saving = True
        self._begun, self._waiting = self._waiting, []
        return self._encode()

    def abandon_save(self) -> None:
        """End a save that was cancelled; the next one includes its changes."""
        self._is_saving = False
        self.is_dirty = True
        self._begun, self._waiting = [], [*self._begun, *self._waiting]

    def end_save(self, error: StoreIOError | None) -> None:
        """End a save with its result, and call the waiting callbacks."""
        self._is_saving = False
        self.failure = error
        if error is None:
            self._logged = ""
        else:
            self.is_dirty = True
            self._log(error)
        self._on_saved(error)
        begun, self._begun = self._begun, []
        meaning = "Requests that waited for it may stay without an answer, and are sent again"
        what = f"answering requests that waited for {self.name}"
        call_each([partial(callback, error) for callback in begun], self._failures, what, meaning)

    def _persist_or_log(self) -> None:
        try:
            self.persist()
        except StoreIOError as error:
            self._log(error)

    def _log(self, error: StoreIOError) -> None:
        if str(error) != self._logged:
            logger.error(
                "the %(what)s could not be saved: %(error)s; %(means)s (check the disk's free "
                "space and the folder's permissions)",
                {"what": self._what, "error": error, "means": self._means},
            )
        self._logged = str(error)
