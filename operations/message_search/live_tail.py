"""The messages of a topic from now on, for any number of viewers.

Brokers hold each pull until a message comes, so that a quiet topic costs each of them at most two
requests a second, however many queues it has. A busy one is not followed message by message: what
does not fit is skipped, and counted.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskStatus

from ...client.admin.admin import Admin
from ...client.admin.asking import BrokerFailure
from ...client.admin.looking import PULL_COUNT, look
from ...client.errors import ClientError
from ...client.messages.message import ReceivedMessage
from ...client.pulling.offsets import max_offset
from ...remoting.bodies import MessageQueue
from ...remoting.message import MessageExt
from .criteria import Criteria, Mask, Predicate, check, predicate, unmasked
from .deadlines import within
from .queue_ends import ends_of, searched_queues
from .search import LIMITS, Limits

HELD_MAX: Final = 500
"""Messages that a tail holds for its viewers: a page shows the newest 100 or so."""
HELD_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of these messages' records."""
BEHIND_MAX: Final = 200
"""Messages in a queue after which a tail goes on at the queue's end."""
PAUSE_S: Final = 0.25
"""Seconds between two pulls of a queue that has messages."""
SUSPEND_S: Final = 15.0
"""Seconds that a broker holds a pull. RocketMQ: brokerSuspendMaxTimeMillis 15,000."""
REQUESTS_PER_S: Final = 2.0
"""Requests that a broker gets a second while nothing comes."""
RETRY_S: Final = 3.0
"""Seconds after which a broker is asked again that gave no answer."""


class TailBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The news for one viewer.

    Attributes:
      messages: masked, in the order in which they came.
      skipped: messages that came since the viewer looked last and are not shown: they came faster
        than they were read, or were held no longer. Whether they match is not known.
      sequence: for the next look.
      failures: brokers that give no answer now.
    """

    messages: tuple[ReceivedMessage, ...]
    skipped: int
    sequence: int
    failures: tuple[BrokerFailure, ...]


class LiveTail:
    """The tail of a topic. `run` reads it; viewers get batches from `after`.

    Args:
      admin: open.
      criteria: which messages; `offset`, `begin_ms`, `end_ms` and the order do not count.
      mask: applied before anything is searched.
      limits: `broker_s` only.

    Raises: SearchError: what is looked for cannot be.
    """

    def __init__(
        self,
        admin: Admin,
        criteria: Criteria,
        *,
        mask: Mask = unmasked,
        limits: Limits = LIMITS,
    ) -> None:
        criteria = msgspec.structs.replace(criteria, offset=None, begin_ms=None, end_ms=None)
        check(criteria)
        self._client = admin.client
        self._criteria = criteria
        self._matches: Predicate = predicate(criteria)
        self._mask = mask
        self._broker_s = limits.broker_s
        self._held: deque[tuple[int, ReceivedMessage]] = deque()
        self._held_size = 0
        # Each message that came, held or skipped, has a number: this is the last one's.
        self._sequence = 0
        self._failures: dict[str, ClientError] = {}
        self._changed = anyio.Event()

    @property
    def sequence(self) -> int:
        """Where a viewer begins that wants what comes from now on."""
        return self._sequence

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Read until it is cancelled; it has started once nothing that comes is missed.

        Raises: SearchError: NO_TOPIC, NO_QUEUE, TOO_MANY_QUEUES. ClientError: no name server
          answers.
        """
        route, queues = await searched_queues(self._client, self._criteria, self._broker_s)
        ends = await ends_of(self._client, route, queues, self._broker_s)
        for queue, error in ends.errors.items():
            self._failures.setdefault(queue.broker_name, error)
        counts = Counter(queue.broker_name for queue in queues)
        async with anyio.create_task_group() as group:
            for queue in queues:
                known = ends.values.get(queue)
                interval_s = counts[queue.broker_name] / REQUESTS_PER_S
                group.start_soon(self._follow, queue, known and known.end, interval_s)
            task_status.started()

    async def after(self, sequence: int, timeout_s: float) -> TailBatch:
        """What came since a viewer looked last; waits until there is something, or time is over.

        Args:
          sequence: of the viewer's last batch; one that no batch can have counts as the present.
          timeout_s: how long to wait for news.
        """
        if not 0 <= sequence <= self._sequence:
            sequence = self._sequence
        if sequence == self._sequence:
            with anyio.move_on_after(timeout_s):
                await self._changed.wait()
        new = [message for number, message in self._held if number > sequence]
        return TailBatch(
            messages=tuple(new),
            skipped=self._sequence - sequence - len(new),
            sequence=self._sequence,
            failures=tuple(
                BrokerFailure(name, self._failures[name]) for name in sorted(self._failures)
            ),
        )

    async def _follow(self, queue: MessageQueue, at: int | None, interval_s: float) -> None:
        """Read a queue.

        Args:
          at: offset to begin at; None: its broker did not say yet where it ends.
          interval_s: seconds between two pulls that find nothing.
        """
        suspend_s = max(SUSPEND_S, interval_s)
        while True:
            begin_s = anyio.current_time()
            try:
                if at is None:
                    at = await self._end_of(queue)
                result = await look(
                    self._client,
                    queue,
                    at,
                    PULL_COUNT,
                    suspend_s=suspend_s,
                    timeout_s=self._broker_s,
                    inflate=False,
                )
            except ClientError as error:
                self._fail(queue.broker_name, error)
                await anyio.sleep(RETRY_S)
                continue
            self._fail(queue.broker_name, None)
            new = [message for message in result.messages if message.queue_offset >= at]
            for message in new:
                self._add(queue, message)
                await anyio.lowlevel.checkpoint()
            at = new[-1].queue_offset + 1 if new else max(result.next_begin_offset, 0)
            behind = result.max_offset - at
            if behind > BEHIND_MAX:
                at += behind - PULL_COUNT
                self._sequence += behind - PULL_COUNT
                self._notify()
            if new:
                await anyio.sleep(PAUSE_S)
            elif anyio.current_time() - begin_s < suspend_s / 2:
                await anyio.sleep(interval_s)  # a broker that does not hold pulls

    async def _end_of(self, queue: MessageQueue) -> int:
        return await within(
            self._broker_s,
            "an offset",
            queue.broker_name,
            lambda: max_offset(self._client, queue),
        )

    def _add(self, queue: MessageQueue, ext: MessageExt) -> None:
        place = MessageQueue(ext.topic, queue.broker_name, ext.queue_id)
        topic = self._client.without_namespace(ext.topic)
        message = self._mask(ReceivedMessage(ext, place, topic))
        if not self._matches(message):
            return
        self._sequence += 1
        self._held.append((self._sequence, message))
        self._held_size += message.store_size
        while len(self._held) > HELD_MAX or self._held_size > HELD_SIZE_MAX:
            self._held_size -= self._held.popleft()[1].store_size
        self._notify()

    def _fail(self, name: str, error: ClientError | None) -> None:
        if error is None:
            if self._failures.pop(name, None) is not None:
                self._notify()
        elif name not in self._failures:
            self._failures[name] = error
            self._notify()

    def _notify(self) -> None:
        event, self._changed = self._changed, anyio.Event()
        event.set()
