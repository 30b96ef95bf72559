"""Automatic batches: messages that wait up to `linger_s` for others, and share one request.

Messages with an equal BatchKey are put into one batch, in the order of their sends. One task for
each key sends the batches of that key one after the other, when they are full or their time is
over; several batches can be unconfirmed at a time. Each message has its own result or exception.

Java counterpart: ProduceAccumulator. Differences: its keys have the tag, too, and it leaves the
sharding key out.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import anyio

from ...remoting.bodies import MessageQueue
from ...remoting.message_batch import BATCH_COUNT_MAX
from ..connection.client import Client
from ..core.sends import BatchEntry, Send
from ..errors import ClientError, ClosedError, copy_of
from ..messages.message import Message, SendResult, is_delayed
from ..messages.sendable import check_sendable
from .sender import Finish, OnEnd, Sender


class BatchKey(NamedTuple):
    """The values that all messages of a batch have in common.

    A batch is stored in one queue. So messages with different sharding keys, which choose the
    queue, are in different batches.
    """

    topic: str
    queue: MessageQueue | None
    sharding_key: str | None
    wait_store_ok: bool
    timeout_s: float | None


class _Batch:
    """Messages of one key that are sent in one request.

    Attributes:
      due: set when the batch need not wait any longer.
      begin_s: when its first message came.
    """

    __slots__ = ("_on_ends", "begin_s", "due", "entries", "size")

    def __init__(self, begin_s: float) -> None:
        self.begin_s: float = begin_s
        self.due: anyio.Event = anyio.Event()
        self.entries: list[BatchEntry] = []
        self.size = 0
        self._on_ends: list[OnEnd] = []

    def add(self, entry: BatchEntry, on_end: OnEnd) -> None:
        self.entries.append(entry)
        self._on_ends.append(on_end)
        self.size += len(entry.encoded)

    def end(self, result: SendResult | None, error: ClientError | None) -> None:
        """Give each message its part of the outcome."""
        if error is not None:
            for on_end in self._on_ends:
                on_end(None, copy_of(error))
            return
        assert result is not None  # without an error there is a result
        if len(self.entries) == 1:
            self._on_ends[0](result, None)
            return
        places = result.offset_message_id.split(",")
        for index, (entry, on_end) in enumerate(zip(self.entries, self._on_ends, strict=True)):
            offset = result.queue_offset
            # A queue of batches has one offset for the batch, and so one id.
            own = SendResult(
                result.status,
                entry.message_id,
                result.queue,
                offset + index if offset >= 0 else offset,
                places[index] if len(places) > index else places[0],
                entry.message_id if result.transaction_id else None,
                region_id=result.region_id,
            )
            on_end(own, None)


class ProduceAccumulator:
    """Collects the messages of one producer into batches.

    Args:
      client: open while messages are added.
      sender: sends the batches; its config has the limits.
    """

    def __init__(self, client: Client, sender: Sender) -> None:
        config = sender.config
        self._client = client
        self._sender = sender
        self._linger_s = config.linger_s
        self._count_max = min(config.batch_count_max, BATCH_COUNT_MAX)
        self._size_max = min(config.batch_size_max, config.message_size_max)
        # A batch is not compressed: a body that is worth compressing is sent alone.
        self._alone_size_min = min(self._size_max, config.compress_over)
        self._lanes: dict[BatchKey, deque[_Batch]] = {}
        self._count = 0
        self._is_closing = False
        self._idle = anyio.Event()

    def take(
        self, message: Message, queue: MessageQueue | None, timeout_s: float | None, on_end: OnEnd
    ) -> bool:
        """`entry` and `put`; False: the message cannot be in a batch, and was not taken."""
        entry = self.entry(message)
        if entry is None:
            return False
        self.put(entry, queue, timeout_s, on_end)
        return True

    def entry(self, message: Message) -> BatchEntry | None:
        """The message, prepared for a batch; None: it is delayed, so it cannot be in one.

        Raises: MessageRefusedError: no broker would accept it. ClosedError; ForkedError.
        """
        self._sender.check_open()
        if message.__class__ is not Message:
            check_sendable(message)
        if is_delayed(message):
            return None
        return self._sender.packer.entry(message)

    def put(
        self, entry: BatchEntry, queue: MessageQueue | None, timeout_s: float | None, on_end: OnEnd
    ) -> None:
        """Send a message in the next batch of its key.

        Args:
          queue: where to; None: a queue of the topic in turn.
          timeout_s: seconds for all attempts of the batch; None: the producer's.
          on_end: called once with the message's own result or error.
        """
        self._sender.check_open()
        message = entry.message
        key = BatchKey(message.topic, queue, message.sharding_key, message.wait_store_ok, timeout_s)
        size = len(entry.encoded)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
            self._client.start_soon(self._run, key, lane)
        is_alone = entry.size > self._alone_size_min
        batch = lane[-1] if lane else None
        if batch is not None and (is_alone or batch.size + size > self._size_max):
            # It stays in its lane, before the batch of this message.
            batch.due.set()
        if batch is None or batch.due.is_set():
            batch = _Batch(self._client.now_s())
            lane.append(batch)
        batch.add(entry, on_end)
        self._count += 1
        is_full = len(batch.entries) >= self._count_max or batch.size >= self._size_max
        if is_alone or is_full or self._is_closing:
            batch.due.set()

    async def _run(self, key: BatchKey, lane: deque[_Batch]) -> None:
        """Send the batches of one key in order; ends when there are none."""
        try:
            while lane:
                if not lane[0].due.is_set():
                    with anyio.move_on_after(self._linger_s):
                        await lane[0].due.wait()
                # Taken before it is sent: messages that arrive from now on open another batch.
                await self._begin(key, lane.popleft())
        finally:
            del self._lanes[key]
            for batch in lane:
                self._end(batch, None, _closed())

    async def _begin(self, key: BatchKey, batch: _Batch) -> None:
        """Send a batch; the wait for its answer takes no task."""

        def on_end(result: SendResult | None, error: ClientError | None) -> None:
            self._end(batch, result, error)

        failure: ClientError | None = _closed()
        try:
            sender, entries = self._sender, batch.entries
            if len(entries) == 1:
                prepared = sender.packer.message(entries[0].message)
            else:
                prepared = sender.packer.join(entries)
            send = sender.new_send(prepared, key.queue, timeout_s=key.timeout_s)
            if not sender.begin(send, self._spawn, on_end):
                # Awaited here, so that the next batch of this key stays behind this one. It has
                # waited behind earlier ones for the same route.
                send.start_s = batch.begin_s
                await sender.begin_when_ready(send, self._spawn, on_end)
            failure = None
        except ClientError as error:
            failure = error
        finally:
            if failure is not None:
                self._end(batch, None, failure)

    def _spawn(self, finish: Finish, send: Send, on_end: OnEnd) -> None:
        self._client.start_soon(finish, send, on_end)

    def _end(self, batch: _Batch, result: SendResult | None, error: ClientError | None) -> None:
        self._count -= len(batch.entries)
        batch.end(result, error)
        if not self._count:
            self._idle.set()

    def flush(self) -> None:
        """Send the messages that wait now, without waiting for the rest of `linger_s`."""
        for lane in self._lanes.values():
            for batch in lane:
                batch.due.set()

    async def close(self) -> None:
        """Send all messages without further waits, until each has its result or error."""
        self._is_closing = True
        self.flush()
        while self._count:
            self._idle = anyio.Event()
            await self._idle.wait()


def _closed() -> ClosedError:
    return ClosedError("it was closed before the message was confirmed")
