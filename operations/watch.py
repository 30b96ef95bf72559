"""A value that is found again and again: once for all viewers, and only while there are some."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

import anyio

from ..client.errors import ClientError, copy_of

T = TypeVar("T")


class Taken(NamedTuple, Generic[T]):
    """The result of one look.

    Attributes:
      number: 1, 2, and so on.
      begun_s: the event loop's clock when the look began.
      at_s: the same when its result was there.
      value: None: there is an error.
      error: why it could not be seen; None: it was.
    """

    number: int
    begun_s: float
    at_s: float
    value: T | None
    error: ClientError | None

    def get(self) -> T:
        """The value. Raises: the error."""
        if self.error is not None:
            raise copy_of(self.error)
        assert self.value is not None
        return self.value


class Watch(Generic[T]):
    """Looks while there are viewers; all get what one look found.

    `run` is to run in a task: without it, `latest` and `next` wait for ever.

    Args:
      look: finds what is to be seen; it has a time limit. A ClientError is seen by all, too.
      interval_s: seconds between the ends of two looks.
      linger_s: seconds after the last call of `latest`, `next` or `want` in which it goes on
        looking. An open page calls `next` again at once.
    """

    def __init__(
        self, look: Callable[[], Awaitable[T]], *, interval_s: float, linger_s: float = 0.0
    ) -> None:
        self._look = look
        self._interval_s = interval_s
        self._linger_s = linger_s
        self._last: Taken[T] | None = None
        self._waiting = 0
        self._wanted = anyio.Event()
        self._seen = anyio.Event()
        self._hurry = anyio.Event()
        self._until_s = -1.0
        self._is_asked = False
        self._expired_s = -1.0

    @property
    def last(self) -> Taken[T] | None:
        """The last result, however old; None: there was no look yet."""
        return self._last

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._interest()
            self._is_asked = False
            self._hurry = anyio.Event()
            await self._look_once()
            with anyio.move_on_after(self._interval_s):
                await self._hurry.wait()

    async def latest(self, max_age_s: float, *, stale_s: float = 0.0) -> T:
        """The value of a look of the last seconds; else it waits for the next look.

        Args:
          max_age_s: seconds since that look, at most.
          stale_s: an older value is given at once, too, if its look is no longer ago than this; a
            look begins in the background.

        Raises: ClientError: of that look.
        """
        self.want()
        last = self._last
        if last is not None and last.begun_s >= self._expired_s:
            age_s = anyio.current_time() - last.at_s
            if age_s <= max_age_s:
                return last.get()
            if last.error is None and age_s <= stale_s:
                self._is_asked = True
                self._wanted.set()
                return last.get()
        number = 0 if last is None else last.number
        while True:
            if last is not None and last.begun_s < self._expired_s:
                self._hurry.set()
            last = await self.next(number)
            if last.begun_s >= self._expired_s:
                return last.get()
            number = last.number

    def expire(self) -> None:
        """What was seen until now is out of date: `latest` gives what is looked at from now on."""
        self._expired_s = anyio.current_time()

    async def next(self, number: int) -> Taken[T]:
        """The result after `number`; it may be there already."""
        self._waiting += 1
        self._wanted.set()
        try:
            while self._last is None or self._last.number <= number:
                await self._seen.wait()
        finally:
            self._waiting -= 1
            self.want()
        return self._last

    def want(self) -> None:
        """Have it look, without waiting for what is found."""
        self._until_s = anyio.current_time() + self._linger_s
        self._wanted.set()

    async def _interest(self) -> None:
        """Wait until there is a viewer."""
        while not (self._waiting or self._is_asked) and anyio.current_time() >= self._until_s:
            self._wanted = anyio.Event()
            await self._wanted.wait()

    async def _look_once(self) -> None:
        begun_s = anyio.current_time()
        value: T | None = None
        failure: ClientError | None = None
        try:
            value = await self._look()
        except ClientError as error:
            failure = error
        number = 1 if self._last is None else self._last.number + 1
        self._last = Taken(number, begun_s, anyio.current_time(), value, failure)
        self._seen.set()
        self._seen = anyio.Event()
