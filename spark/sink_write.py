"""Task of the sink: from Arrow record batches to messages at brokers.

A task returns when all its rows are stored, and fails otherwise: Spark then runs it again, and some
rows are stored twice, with the same id (`ROW_ID`), by which consumers can drop duplicates.

Rows for one topic (and one queue, if they name it) share a request; several requests are in flight
at once. With `ordered`, only one per queue is, so that no later row overtakes a retried one.

A row that cannot become a message fails the task, or goes to the topic of `onBadRow` with the
reason.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from ..client.errors import ClientError
from ..client.messages.message import Message, MessageQueue, SendResult, SendStatus
from ..common.java_hash import java_hash_code
from ..common.topic_names import RETRY_TOPIC_PREFIX
from .errors import RowRefusedError, SparkConnectorError
from .sink_options import FAIL, ROW_ID, RowLayout, SinkOptions
from .sink_rows import RowMessages, is_about_rows, raw_body, refused, rows_of, size_of
from .tries import again

logger = logging.getLogger(__name__)


class Sender(Protocol):
    """Sends messages: a blocking producer, or a fake in tests."""

    def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic; of a new one, those that a send would create."""

    def send(
        self, message: Message, *, queue: MessageQueue | None, timeout_s: float
    ) -> SendResult: ...

    def send_batch(
        self, messages: list[Message], *, queue: MessageQueue | None, timeout_s: float
    ) -> SendResult:
        """Send several in one request."""


class Written(NamedTuple):
    """The numbers of rows and requests that a task sent."""

    row_count: int
    request_count: int


@dataclass
class _Pending:
    """Messages that wait for their common request."""

    messages: list[Message] = field(default_factory=list)
    size: int = 0
    first_row: int = 0


class SinkWriter:
    """Sends the rows of one task.

    Args:
      sender: the producer.
      row_id: prefix of the ids of this task's rows; None: rows get no ids.
    """

    def __init__(
        self,
        sender: Sender,
        options: SinkOptions,
        layout: RowLayout,
        row_id: str | None,
    ) -> None:
        self._sender = sender
        self._options = options
        self._messages = RowMessages(options, layout, row_id)
        # The most bytes of a request: the producer refuses larger ones.
        self._size_max = min(options.batch_bytes, options.max_message_size)
        self._queues: dict[str, list[MessageQueue]] = {}
        self._pending: dict[tuple[str, MessageQueue | None], _Pending] = {}
        self._under_way: deque[Future[None]] = deque()
        self._of_queue: dict[MessageQueue | None, Future[None]] = {}
        self._request_count = 0
        self._bad: list[str] = []

    def write(self, batches: Iterable[pa.RecordBatch]) -> Written:
        """Send all rows, and wait until they are stored.

        Raises:
          RowRefusedError: a row cannot become a message; messages sent before it stay.
          SparkConnectorError: a broker refused, or did not flush or replicate a message.
        """
        row = 0
        with ThreadPoolExecutor(self._options.max_in_flight) as self._pool:
            for batch in batches:
                for values in rows_of(batch):
                    self._add(values, row)
                    row += 1
            for key in list(self._pending):
                self._flush(key)
            while self._under_way:
                self._under_way.popleft().result()
        if self._bad:
            topic = self._options.on_bad_row
            logger.warning(
                "%d rows cannot become messages, sent to onBadRow's topic %s; the first: %s",
                len(self._bad), topic, self._bad[0],
            )  # fmt: skip
        return Written(row, self._request_count)

    def _add(self, values: dict[str, Any], row: int) -> None:
        queue: MessageQueue | None = None
        try:
            message = self._messages.message(values, row)
            queue = self._queue(values, message, row)
        except RowRefusedError as error:
            topic, row_id = self._messages.topic(values), self._messages.id_of(values, row)
            message = self._bad_row(raw_body(values["body"]), topic, row_id, error)
        key = message.topic, queue
        is_alone = (
            message.delay_level
            or message.deliver_at_ms is not None
            or message.topic.startswith(RETRY_TOPIC_PREFIX)
        )
        size = size_of(message)
        pending = self._pending.setdefault(key, _Pending(first_row=row))
        if pending.messages and (is_alone or pending.size + size > self._size_max):
            self._flush(key)
            pending = self._pending.setdefault(key, _Pending(first_row=row))
        pending.messages.append(message)
        pending.size += size
        if is_alone or len(pending.messages) >= self._options.batch_size:
            self._flush(key)

    def _bad_row(
        self, body: bytes, topic: str, row_id: str | None, error: RowRefusedError
    ) -> Message:
        """The message for the topic of onBadRow; counted.

        Raises: RowRefusedError: onBadRow is `fail`.
        """
        message = self._messages.bad(body, topic, row_id, error)
        self._bad.append(str(error))
        return message

    def _queue(self, values: dict[str, Any], message: Message, row: int) -> MessageQueue | None:
        broker_name, queue_id = values.get("brokerName") or None, values.get("queueId")
        if (broker_name is None) != (queue_id is None):
            raise refused(values, row, "has one of brokerName and queueId: give both, or neither")
        if broker_name is not None and queue_id is not None:
            queues = self._queues_of(message.topic)
            own = [queue for queue in queues if queue.broker_name == broker_name]
            for queue in own:
                if queue.queue_id == queue_id:
                    return queue
            # A broker that has no queue now may be away: the send waits for it.
            if not own and queue_id >= 0:
                return MessageQueue(queues[0].topic, broker_name, queue_id)
            what = f"names the queue {queue_id} of {broker_name}, which has {len(own)} to write to"
            raise refused(values, row, what)
        if message.sharding_key is not None:
            queues = self._queues_of(message.topic)
            # As the client chooses: abs(hash) modulo the number of queues.
            return queues[abs(java_hash_code(message.sharding_key)) % len(queues)]
        if self._options.ordered:
            what = "has neither shardingKey nor queueId, but ordered=true needs one"
            raise refused(values, row, what)
        return None

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, as the producer sees them; the same for the whole task.

        Raises: RouteNotFoundError: there are none, and no broker creates the topic. ClientError.
        """
        found = self._queues.get(topic)
        if found is None:
            found = again(self._options, partial(self._sender.queues, topic))
            self._queues[topic] = found
        return found

    # Requests

    def _flush(self, key: tuple[str, MessageQueue | None]) -> None:
        pending = self._pending.pop(key)
        queue = key[1]
        if self._options.ordered and queue in self._of_queue:
            self._of_queue[queue].result()
        while len(self._under_way) >= self._options.max_in_flight:
            self._under_way.popleft().result()
        future = self._pool.submit(self._send, pending, queue)
        self._under_way.append(future)
        self._of_queue[queue] = future
        self._request_count += 1

    def _send(self, pending: _Pending, queue: MessageQueue | None) -> None:
        messages, timeout_s = pending.messages, self._options.send_timeout_ms / 1000

        def once() -> SendResult:
            if len(messages) == 1:
                return self._sender.send(messages[0], queue=queue, timeout_s=timeout_s)
            return self._sender.send_batch(messages, queue=queue, timeout_s=timeout_s)

        try:
            result = again(self._options, once)
        except ClientError as error:
            if is_about_rows(error):
                self._send_refused(pending, queue, error)
                return
            raise SparkConnectorError(
                f"{len(messages)} rows for {queue or messages[0].topic} were not stored: {error};"
                " raise numRetries or retryIntervalMs if brokers are away for longer"
            ) from error
        if self._options.require_flushed and result.status is not SendStatus.SEND_OK:
            raise SparkConnectorError(
                f"{len(messages)} rows for {result.queue} are stored, but not safely:"
                f" {result.status.name}; set requireFlushed=false to accept that"
            )

    def _send_refused(
        self, pending: _Pending, queue: MessageQueue | None, error: ClientError
    ) -> None:
        """Send the messages of a refused request one by one, invalid ones to onBadRow's topic.

        Raises: RowRefusedError: onBadRow is `fail`, or its topic refuses the message, too.
        """
        reason = RowRefusedError(
            f"one of the rows from {pending.first_row} on of this task for the topic"
            f" {pending.messages[0].topic} cannot become a message: {error}"
        )
        reason.__cause__ = error
        for message in pending.messages:
            if len(pending.messages) == 1:
                if message.topic == self._options.on_bad_row:
                    raise reason
                row_id = message.properties.get(ROW_ID)
                bad = self._bad_row(message.body, message.topic, row_id, reason)
                self._send(_Pending([bad], first_row=pending.first_row), None)
            elif self._options.on_bad_row == FAIL:
                raise reason
            else:
                self._send(_Pending([message], first_row=pending.first_row), queue)
