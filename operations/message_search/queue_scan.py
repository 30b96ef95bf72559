"""The scan of one queue, forwards or backwards: pulls, and what they found in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

import anyio.lowlevel

from ...client.admin.looking import PULL_COUNT, look
from ...client.connection.client import Client
from ...client.core.queue_requests import PullStatus
from ...client.messages.message import ReceivedMessage
from ...remoting.bodies import MessageQueue
from ...remoting.message import MessageExt
from .criteria import Mask, Predicate

HELD_SIZE_MAX: Final = 32 * 1024 * 1024
"""Bytes of found messages that wait for their turn. Those beyond are pulled again."""


LOW_COUNT: Final = 8
"""Entries below which a queue is pulled along when another one is: queues of a topic grow at about
the same rate, and pulls of several take as long as one."""


class Entry(NamedTuple):
    """A message that was pulled, and whose turn has not come.

    Attributes:
      offset: in the queue.
      store_ms: when it was stored, ms since 1970.
      physical_offset: where; of several messages of one millisecond it gives the order.
      is_match: it is one that is looked for.
      message: it, masked; None: it does not match, or there was no room for it.
    """

    offset: int
    store_ms: int
    physical_offset: int
    is_match: bool
    message: ReceivedMessage | None


class Room:
    """Bytes that the scans of one search may hold."""

    def __init__(self, size: int = HELD_SIZE_MAX) -> None:
        self._left = size

    def take(self, message: ReceivedMessage) -> bool:
        """Whether there was room for it."""
        if message.store_size > self._left:
            return False
        self._left -= message.store_size
        return True

    def give_back(self, message: ReceivedMessage) -> None:
        self._left += message.store_size


class QueueScan:
    """The scan of one queue.

    Args:
      client: open.
      queue: the topic with namespace.
      at, until: see `Place`.
      is_newest_first: it goes backwards.
      mask, matches: applied to each message as it is pulled.
      room: shared with the other scans.

    Attributes:
      entries: pulled, in order; the next one first.
      is_failed: its broker gave no answer.
    """

    def __init__(
        self,
        client: Client,
        queue: MessageQueue,
        at: int,
        until: int,
        *,
        is_newest_first: bool,
        mask: Mask,
        matches: Predicate,
        room: Room,
    ) -> None:
        self._client = client
        self.queue = queue
        self._edge = at  # of what was pulled
        self._until = until
        self._is_backwards = is_newest_first
        self._mask = mask
        self._matches = matches
        self._room = room
        self._window = PULL_COUNT
        self.entries: deque[Entry] = deque()
        self.is_failed = False

    @property
    def place(self) -> tuple[int, int]:
        """Where the scan goes on, and where it ends; see `Place`."""
        at = self._edge
        if self.entries:
            at = self.entries[0].offset + (1 if self._is_backwards else 0)
        return at, self._until

    @property
    def left(self) -> int:
        """Offsets that were not scanned."""
        at, until = self.place
        return max(at - until if self._is_backwards else until - at, 0)

    @property
    def can_pull(self) -> bool:
        """Whether there may be messages that were not pulled."""
        if self.is_failed:
            return False
        return self._edge > self._until if self._is_backwards else self._edge < self._until

    @property
    def is_low(self) -> bool:
        """Whether more should be pulled soon."""
        return self.can_pull and len(self.entries) < LOW_COUNT

    async def fill(self, timeout_s: float) -> None:
        """Pull the next messages; after it there are entries, or the queue is done.

        Args:
          timeout_s: of each pull.

        Raises: ClientError: the broker refuses, or gives no answer in time.
        """
        is_first = True
        while self.can_pull and (is_first or not self.entries):
            is_first = False
            if self._is_backwards:
                await self._pull_back(timeout_s)
            else:
                await self._pull_on(timeout_s)

    async def _pull_on(self, timeout_s: float) -> None:
        begin = self._edge
        count = min(self._window, self._until - begin)
        result = await look(
            self._client, self.queue, begin, count, timeout_s=timeout_s, inflate=False
        )
        found = [each for each in result.messages if begin <= each.queue_offset < self._until]
        entries = await self._entries(found)
        if found:
            self._edge = found[-1].queue_offset + 1
        elif result.status is not PullStatus.NO_NEW_MESSAGE and result.next_begin_offset > begin:
            self._edge = min(result.next_begin_offset, self._until)  # deleted meanwhile
        else:
            self._edge = self._until
        self.entries += entries

    async def _pull_back(self, timeout_s: float) -> None:
        end = self._edge
        begin = max(end - self._window, self._until)
        found: list[MessageExt] = []
        at = begin
        while at < end:
            result = await look(
                self._client, self.queue, at, end - at, timeout_s=timeout_s, inflate=False
            )
            new = [each for each in result.messages if at <= each.queue_offset < end]
            if new and new[-1].queue_offset + 1 < end and self._window > 1 and at == begin:
                # The answer was full before the end: the newest ones are to come first, and what
                # is pulled before them would have to be held.
                self._window = max(min(len(new), self._window // 2), 1)
                begin = at = max(end - self._window, self._until)
                continue
            found += new
            next_at = new[-1].queue_offset + 1 if new else result.next_begin_offset
            if next_at <= at:
                if not found and result.max_offset < begin:
                    begin = max(result.max_offset, self._until)  # beyond the queue's end
                break  # the broker has nothing there
            at = next_at
        entries = await self._entries(reversed(found))
        self._edge = begin
        self.entries += entries

    async def _entries(self, found: Iterable[MessageExt]) -> list[Entry]:
        entries = []
        for ext in found:
            entries.append(self._entry(ext))
            # A body that grows, or a large one that is masked, takes some 10 ms each.
            await anyio.lowlevel.checkpoint()
        return entries

    def _entry(self, ext: MessageExt) -> Entry:
        message = self._mask(self._received(ext))
        is_match = self._matches(message)
        kept = message if is_match and self._room.take(message) else None
        return Entry(ext.queue_offset, ext.store_timestamp_ms, ext.physical_offset, is_match, kept)

    def _received(self, ext: MessageExt) -> ReceivedMessage:
        queue = MessageQueue(ext.topic, self.queue.broker_name, ext.queue_id)
        return ReceivedMessage(ext, queue, self._client.without_namespace(ext.topic))

    async def pop(self, timeout_s: float) -> Entry:
        """Take the next entry; one that was too large to be held is pulled again.

        Args:
          timeout_s: in seconds, for that pull.

        Raises: ClientError: as `fill`; the entry is still the next one.
        """
        entry = self.entries[0]
        if entry.is_match and entry.message is None:
            result = await look(
                self._client, self.queue, entry.offset, 1, timeout_s=timeout_s, inflate=False
            )
            again = [each for each in result.messages if each.queue_offset == entry.offset]
            message = self._mask(self._received(again[0])) if again else None
            entry = entry._replace(is_match=message is not None, message=message)
        elif entry.message is not None:
            self._room.give_back(entry.message)
        self.entries.popleft()
        return entry
