"""Tails of topics, each for all who follow the same."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import anyio
import msgspec
from anyio.abc import TaskGroup, TaskStatus

from ..client import Admin, ClientError
from ..client.admin.asking import BrokerFailure
from ..client.errors import copy_of
from ..operations.message_search.criteria import Criteria, Mask
from ..operations.message_search.live_tail import LiveTail, TailBatch
from ..operations.message_search.problems import SearchError
from ..operations.message_search.search import search
from .errors import PageError
from .message_rows import MessageRow, row_of

TAILS_MAX: Final = 10
"""Different tails at one time: each costs a broker at most two requests a second."""
ROWS_MAX: Final = 100
"""Messages of a page, the newest."""
PAUSE_S: Final = 1.0
"""Between two changes of a page: a person reads no faster."""
LINGER_S: Final = 10.0
"""How long a tail is read after its last viewer: one who opens the page has it followed then."""
_IGNORED: Final = anyio.TASK_STATUS_IGNORED

_Place = tuple[str, int, int]


class Tail:
    """The newest messages of a topic, while there are viewers.

    Args:
      admin: open.
      criteria: which messages; see `LiveTail`.
      mask: hides what no one may see.

    Attributes:
      since_ms: when it began, ms since 1970.
      rows: the newest ROWS_MAX, the newest first; at the beginning what a step of a search finds.
      left_out: messages that came since then and are in no row: they came faster than they were
        read, or newer ones took their place.
      failures: brokers that give no answer now.
      has_ended: nothing changes any more.
    """

    def __init__(self, admin: Admin, criteria: Criteria, mask: Mask) -> None:
        self._admin = admin
        self._criteria = criteria
        self._mask = mask
        self._live = LiveTail(admin, criteria, mask=mask)
        self._error: ClientError | SearchError | None = None
        self._ready = anyio.Event()
        self._changed = anyio.Event()
        self._left = anyio.Event()
        self._number = 1
        self._viewers = 0
        self._until_s = 0.0
        self._came = 0
        self._of_search: frozenset[_Place] = frozenset()
        self.since_ms = admin.client.wall_ms()
        self.rows: deque[MessageRow] = deque(maxlen=ROWS_MAX)
        self.failures: tuple[BrokerFailure, ...] = ()
        self.has_ended = False

    @property
    def viewers(self) -> int:
        """Open event streams of it."""
        return self._viewers

    @property
    def left_out(self) -> int:
        shown = sum(_place(row) not in self._of_search for row in self.rows)
        return self._came - shown

    async def ready(self) -> None:
        """Wait for the first rows. Raises: SearchError, ClientError: it cannot be read."""
        self._until_s = anyio.current_time() + LINGER_S
        await self._ready.wait()
        if isinstance(self._error, SearchError):
            raise SearchError(self._error.problem, **self._error.data)
        if self._error is not None:
            raise copy_of(self._error)

    @asynccontextmanager
    async def viewing(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """View it; what it gives waits for the next change, at first for none."""
        self._viewers += 1
        number = 0

        async def following() -> None:
            nonlocal number
            while self._number == number:
                await self._changed.wait()
            number = self._number

        try:
            yield following
        finally:
            self._viewers -= 1
            self._until_s = anyio.current_time() + LINGER_S
            self._left.set()

    async def run(self) -> None:
        """Read it until it has had no viewer for LINGER_S."""
        try:
            async with anyio.create_task_group() as group:
                try:
                    await group.start(self._live.run)
                    sequence = self._live.sequence
                    await self._search()
                except (SearchError, ClientError) as error:
                    self._error = error
                else:
                    group.start_soon(self._read, sequence)
                    # Those who waited become viewers now, however long it took.
                    self._until_s = anyio.current_time() + LINGER_S
                    self._ready.set()
                    await self._unwanted()
                self.has_ended = True
                group.cancel_scope.cancel()
        finally:
            self.has_ended = True
            self._ready.set()

    async def _search(self) -> None:
        """What is there already. What comes meanwhile is in the tail, too, and not shown twice."""
        found = await search(self._admin, self._criteria, mask=self._mask)
        for message in found.found[:ROWS_MAX]:
            self.rows.append(row_of(message))
            await anyio.lowlevel.checkpoint()
        self._of_search = frozenset(map(_place, self.rows))
        self.failures = found.failures

    async def _read(self, sequence: int) -> None:
        while True:
            batch = await self._live.after(sequence, LINGER_S)
            if batch.sequence != sequence or batch.failures != self.failures:
                await self._take(batch)
            sequence = batch.sequence
            await anyio.sleep(PAUSE_S)

    async def _take(self, batch: TailBatch) -> None:
        new: Sequence[MessageRow] = [row_of(each) for each in batch.messages[-ROWS_MAX:]]
        known = [row for row in new if _place(row) in self._of_search]
        self._came += len(batch.messages) + batch.skipped - len(known)
        for row in new:
            if _place(row) not in self._of_search:
                self.rows.appendleft(row)
        self.failures = batch.failures
        self._number += 1
        event, self._changed = self._changed, anyio.Event()
        event.set()

    async def _unwanted(self) -> None:
        while True:
            rest_s = self._until_s - anyio.current_time()
            if self._viewers:
                self._left = anyio.Event()
                await self._left.wait()
            elif rest_s > 0:
                await anyio.sleep(rest_s)
            else:
                return


def _place(row: MessageRow) -> _Place:
    return row.broker_name, row.queue_id, row.queue_offset


class Tails:
    """The tails that are followed at one time.

    Args:
      admin: open.
      mask: hides what no one may see.
    """

    def __init__(self, admin: Admin, mask: Mask) -> None:
        self._admin = admin
        self._mask = mask
        self._tails: dict[Criteria, Tail] = {}
        self._group: TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._tails)

    async def run(self, *, task_status: TaskStatus[None] = _IGNORED) -> None:
        """Read tails while they are viewed, until it is cancelled."""
        try:
            async with anyio.create_task_group() as self._group:
                task_status.started()
                await anyio.sleep_forever()
        finally:
            self._group = None

    async def of(self, criteria: Criteria) -> Tail:
        """The tail of what the criteria look for; `offset`, times and order do not count.

        Raises:
          PageError: there are too many.
          SearchError: what is looked for cannot be.
          ClientError: it cannot be read.
        """
        criteria = msgspec.structs.replace(
            criteria, offset=None, begin_ms=None, end_ms=None, is_newest_first=True
        )
        tail = self._tails.get(criteria)
        if tail is None or tail.has_ended:
            if len(self._tails) >= TAILS_MAX:
                raise PageError(503, "too_many_tails", limit=TAILS_MAX)
            if self._group is None:
                raise PageError(401, "no_session")
            tail = self._tails[criteria] = Tail(self._admin, criteria, self._mask)
            self._group.start_soon(self._serve, criteria, tail)
        await tail.ready()
        return tail

    async def _serve(self, criteria: Criteria, tail: Tail) -> None:
        try:
            await tail.run()
        finally:
            if self._tails.get(criteria) is tail:
                del self._tails[criteria]
