"""A search in steps: each scans a limited number of messages, and gives a cursor to go on with."""

from __future__ import annotations

import heapq
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import anyio
import msgspec

from ...client.admin.admin import Admin
from ...client.admin.asking import Answers, BrokerFailure, ask_all
from ...client.connection.client import Client
from ...client.errors import ClientError
from ...client.messages.message import ReceivedMessage
from ...remoting.bodies import MessageQueue
from .criteria import Criteria, Mask, Predicate, check, predicate, unmasked
from .cursors import Places, decode_cursor, encode_cursor
from .problems import Problem, SearchError
from .queue_ends import Ends, ends_of, offsets_near, searched_queues
from .queue_scan import QueueScan, Room

SCANNED_MAX: Final = 5_000
"""Messages that a step scans: about a second with two brokers over a local network."""
FOUND_MAX: Final = 50
"""Messages that a step finds: a page."""
FOUND_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes of found messages after which a step ends: four of the largest by default."""
STEP_S: Final = 3.0
"""Seconds of a step."""
BROKER_S: Final = 1.5
"""Seconds for an answer of a broker: one that hangs leaves the others half of the step."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much a step may do.

    Attributes:
      scanned: messages.
      found: messages.
      found_size: bytes of the found messages' records; the last one may go beyond.
      step_s: seconds.
      broker_s: seconds for each answer of a broker.
    """

    scanned: int = SCANNED_MAX
    found: int = FOUND_MAX
    found_size: int = FOUND_SIZE_MAX
    step_s: float = STEP_S
    broker_s: float = BROKER_S


LIMITS: Final = Limits()


class SearchPage(msgspec.Struct, frozen=True, kw_only=True):
    """What a step found.

    Attributes:
      found: in order, masked; their bodies are as stored, and compressed if `sys_flag` says so.
      scanned: messages of this step.
      scanned_before: those of the steps before.
      left: offsets that are still to be scanned, where they are known.
      reached_ms: when the last message that was scanned was stored, ms since 1970; None: none was.
      failures: brokers that gave no answer. Their messages are missing; a next step asks them
        again, so that they may come later than the order says.
      cursor: for the next step; "": everything was scanned.
      is_late: the step ended because its time was over.
    """

    found: tuple[ReceivedMessage, ...]
    scanned: int
    scanned_before: int
    left: int
    reached_ms: int | None
    failures: tuple[BrokerFailure, ...]
    cursor: str
    is_late: bool


async def search(
    admin: Admin,
    criteria: Criteria,
    *,
    cursor: str = "",
    limits: Limits = LIMITS,
    mask: Mask = unmasked,
) -> SearchPage:
    """One step of a search that scans queues; `key` is only compared. See `search_by_key`.

    All queues are read at once, and their messages merged by the time at which they were stored.
    A search covers what was there when it began.

    Args:
      cursor: of the step before; "": the first one.

    Raises: SearchError: what is looked for cannot be. ClientError: no name server answers.
    """
    check(criteria)
    step = _Step(admin.client, criteria, limits)
    matches = predicate(criteria)
    with anyio.move_on_after(limits.step_s) as scope:
        await step.begin(cursor)
        step.open_scans(mask, matches)
        await step.run()
    return step.page(is_late=scope.cancelled_caught)


class _Step:
    """One step of a search.

    Args:
      client: open.
      criteria: checked.
      limits: of this step.
    """

    def __init__(self, client: Client, criteria: Criteria, limits: Limits) -> None:
        self._client = client
        self._criteria = criteria
        self._limits = limits
        self._failures: dict[str, ClientError] = {}
        self._places: Places = {}
        self._scans: list[QueueScan] = []
        self._before = 0
        self._scanned = 0
        self._found: list[ReceivedMessage] = []
        self._found_size = 0
        self._reached_ms: int | None = None

    async def begin(self, cursor: str) -> None:
        """Find out where each queue goes on. Raises: SearchError; ClientError."""
        criteria, broker_s = self._criteria, self._limits.broker_s
        route, queues = await searched_queues(self._client, criteria, broker_s)
        places: Places = dict.fromkeys(queues)
        if cursor:
            full = self._client.with_namespace(criteria.topic)
            self._before, found = decode_cursor(cursor, criteria.checksum, full)
            if not found.keys() <= places.keys():
                raise SearchError(Problem.BAD_CURSOR, reason="it has queues that are not there")
            places = found
        self._places = places
        unknown = [queue for queue, place in places.items() if place is None]
        if not unknown:
            return
        ends = await ends_of(self._client, route, unknown, broker_s)
        self._fail(ends)
        for queue, (begin, end) in (await self._between(ends.values)).items():
            places[queue] = (end, begin) if criteria.is_newest_first else (begin, end)

    async def _between(
        self, ends: Mapping[MessageQueue, Ends]
    ) -> dict[MessageQueue, tuple[int, int]]:
        """What is scanned of each queue, of which the ends are known."""
        criteria, broker_s = self._criteria, self._limits.broker_s
        begins = {queue: each.begin for queue, each in ends.items()}
        limits = {queue: each.end for queue, each in ends.items()}
        if criteria.offset is not None:
            for queue, each in ends.items():
                _check_offset(criteria.offset, each)
                if criteria.is_newest_first:
                    limits[queue] = criteria.offset + 1
                else:
                    begins[queue] = criteria.offset
        if criteria.begin_ms:
            near = await offsets_near(self._client, ends, criteria.begin_ms - 1, broker_s)
            self._fail(near)
            for queue, offset in near.values.items():
                begins[queue] = max(begins[queue], offset - 1)
        if criteria.end_ms is not None:
            near = await offsets_near(self._client, ends, criteria.end_ms + 1, broker_s)
            self._fail(near)
            for queue, offset in near.values.items():
                limits[queue] = min(limits[queue], offset + 1)
        failed = self._failures
        return {
            queue: (begin, max(begin, limits[queue]))
            for queue, begin in begins.items()
            if queue.broker_name not in failed
        }

    def open_scans(self, mask: Mask, matches: Predicate) -> None:
        """Open a scan of each queue that is not done and not failed."""
        room = Room()
        self._scans = [
            QueueScan(
                self._client,
                queue,
                *place,
                is_newest_first=self._criteria.is_newest_first,
                mask=mask,
                matches=matches,
                room=room,
            )
            for queue, place in self._places.items()
            if place is not None
        ]
        for scan in self._scans:
            scan.is_failed = scan.queue.broker_name in self._failures

    async def run(self) -> None:
        """Scan until a limit is reached, or nothing is left."""
        # Of each scan that has entries: the order of the next one, and the scan's number.
        heads: list[tuple[tuple[int, int], int]] = []
        waiting = set(range(len(self._scans)))
        while waiting or heads:
            if waiting:
                await self._fill(waiting)
                for number in waiting:
                    if self._scans[number].entries:
                        heapq.heappush(heads, (self._order(number), number))
                waiting = set()
            while heads and not waiting:
                if self._is_full():
                    return
                number = heads[0][1]
                scan = self._scans[number]
                if not await self._take(scan):
                    heapq.heappop(heads)
                elif scan.entries:
                    heapq.heapreplace(heads, (self._order(number), number))
                else:
                    heapq.heappop(heads)
                    waiting = {number}

    def _order(self, number: int) -> tuple[int, int]:
        entry = self._scans[number].entries[0]
        sign = -1 if self._criteria.is_newest_first else 1
        return sign * entry.store_ms, sign * entry.physical_offset

    def _is_full(self) -> bool:
        limits = self._limits
        return (
            self._scanned >= limits.scanned
            or len(self._found) >= limits.found
            or self._found_size >= limits.found_size
        )

    async def _fill(self, waiting: Iterable[int]) -> None:
        """Pull for the scans that have nothing, and for those that will soon have nothing."""
        low = [scan for scan in self._scans if scan.is_low and scan.entries]
        scans = {scan.queue: scan for scan in [*(self._scans[each] for each in waiting), *low]}

        def ask(scan: QueueScan) -> Callable[[], Awaitable[None]]:
            return lambda: scan.fill(self._limits.broker_s)

        self._fail(await ask_all({queue: ask(scan) for queue, scan in scans.items()}))

    async def _take(self, scan: QueueScan) -> bool:
        """Take the next message of a scan. Returns: whether its broker gave it."""
        try:
            entry = await scan.pop(self._limits.broker_s)
        except ClientError as error:
            self._fail_broker(scan.queue.broker_name, error)
            return False
        self._scanned += 1
        self._reached_ms = entry.store_ms
        if entry.message is not None:
            self._found.append(entry.message)
            self._found_size += entry.message.store_size
        return True

    def _fail(self, answers: Answers[MessageQueue, Any]) -> None:
        for queue, error in answers.errors.items():
            self._fail_broker(queue.broker_name, error)

    def _fail_broker(self, name: str, error: ClientError) -> None:
        self._failures.setdefault(name, error)
        for scan in self._scans:
            if scan.queue.broker_name == name:
                scan.is_failed = True

    def page(self, *, is_late: bool) -> SearchPage:
        """What was found.

        Args:
          is_late: the step's time was over.

        Raises: SearchError: TIME_IN_FUTURE.
        """
        places = dict(self._places)
        for scan in self._scans:
            if scan.left:
                places[scan.queue] = scan.place
            else:
                del places[scan.queue]
        begin_ms, now_ms = self._criteria.begin_ms or 0, self._client.wall_ms()
        if begin_ms > now_ms and not places and not self._found and not self._before:
            # By our clock; a broker's, which says when a message is stored, may be ahead.
            raise SearchError(Problem.TIME_IN_FUTURE, begin_ms=begin_ms, now_ms=now_ms)
        scanned = self._before + self._scanned
        return SearchPage(
            found=tuple(self._found),
            scanned=self._scanned,
            scanned_before=self._before,
            left=sum(scan.left for scan in self._scans),
            reached_ms=self._reached_ms,
            failures=tuple(BrokerFailure(*each) for each in sorted_failures(self._failures)),
            cursor=encode_cursor(self._criteria.checksum, scanned, places) if places else "",
            is_late=is_late,
        )


def sorted_failures(failures: Mapping[str, ClientError]) -> list[tuple[str, ClientError]]:
    """Failures by the brokers' names."""
    return [(name, failures[name]) for name in sorted(failures)]


def _check_offset(offset: int, ends: Ends) -> None:
    if offset < ends.begin:
        raise SearchError(Problem.OFFSET_BELOW, offset=offset, begin=ends.begin)
    if offset >= ends.end:
        raise SearchError(Problem.OFFSET_ABOVE, offset=offset, end=ends.end)
