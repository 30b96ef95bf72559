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
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa

from ..client.core.routes import publish_info
from ..client.errors import ClientError, MessageRefusedError
from ..client.message import Message, MessageQueue, SendResult, SendStatus
from ..common.java_hash import java_hash_code
from ..common.topic_names import RETRY_TOPIC_PREFIX
from ..remoting.bodies import TopicRouteData
from .errors import RowRefusedError, SparkConnectorError
from .sink_options import BAD_ROW, BAD_ROW_TOPIC, FAIL, ROW_ID, RowLayout, SinkOptions
from .tries import again

logger = logging.getLogger(__name__)

MESSAGE_EXTRA_SIZE: Final = 200
"""Upper estimate of a message's bytes in a batch, besides its body and its own properties."""


class Sender(Protocol):
    """Sends messages: a blocking producer, or a fake in tests."""

    def send(self, message: Message, *, queue: MessageQueue | None, timeout_s: float) -> SendResult:
        """Send one message."""

    def send_batch(
        self, messages: list[Message], *, queue: MessageQueue | None, timeout_s: float
    ) -> SendResult:
        """Send several in one request."""


class Routes(Protocol):
    """Looks up routes: a blocking client, or a fake in tests."""

    def route(self, topic: str) -> TopicRouteData:
        """The route of a topic."""

    def with_namespace(self, resource: str) -> str:
        """A topic's full name."""


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
      sender, routes: the producer and its client.
      options: the user's.
      layout: the rows' columns.
      row_id: prefix of the ids of this task's rows; None: rows get no ids.
    """

    def __init__(
        self,
        sender: Sender,
        routes: Routes,
        options: SinkOptions,
        layout: RowLayout,
        row_id: str | None,
    ) -> None:
        self._sender = sender
        self._routes = routes
        self._options = options
        self._layout = layout
        self._row_id = row_id
        self._queues: dict[str, tuple[MessageQueue, ...]] = {}
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
                for values in _rows(batch):
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
            message = self._message(values, row)
            queue = self._queue(values, message, row)
        except RowRefusedError as error:
            topic = self._options.topic or values.get("topic") or ""
            row_id = self._id_of(values, row)
            message = self._bad_row(_raw(values["body"]), topic, row_id, error)
        key = message.topic, queue
        is_alone = (
            message.delay_level
            or message.deliver_at_ms is not None
            or message.topic.startswith(RETRY_TOPIC_PREFIX)
        )
        size = len(message.body) + MESSAGE_EXTRA_SIZE
        size += sum(len(name) + len(value) for name, value in message.properties.items())
        pending = self._pending.setdefault(key, _Pending(first_row=row))
        if pending.messages and (is_alone or pending.size + size > self._options.batch_bytes):
            self._flush(key)
            pending = self._pending.setdefault(key, _Pending(first_row=row))
        pending.messages.append(message)
        pending.size += size
        if is_alone or len(pending.messages) >= self._options.batch_size:
            self._flush(key)

    def _message(self, values: dict[str, Any], row: int) -> Message:
        body = values["body"]
        topic = self._options.topic or values.get("topic")
        if body is None or not topic:
            what = "no body" if body is None else "no topic"
            raise RowRefusedError(f"row {row} of this task has {what}: {_shown(values)}")
        raw = _raw(body)
        if len(raw) > self._options.max_message_size:
            raise RowRefusedError(
                f"row {row} of this task has a body of {len(raw)} bytes, and maxMessageSize is"
                f" {self._options.max_message_size}: {_shown(values)}"
            )
        # RocketMQ has no properties with null or empty values.
        properties = {name: value for name, value in values.get("properties") or () if value}
        row_id = self._id_of(values, row)
        if row_id is not None:
            properties[ROW_ID] = row_id
        deliver_at: datetime | None = values.get("deliverAt")
        return Message(
            topic=topic,
            body=raw,
            tags=values.get("tags"),
            keys=values.get("keys") or (),
            properties=properties,
            delay_level=values.get("delayLevel") or 0,
            deliver_at_ms=None if deliver_at is None else round(deliver_at.timestamp() * 1000),
            sharding_key=values.get("shardingKey"),
            flag=values.get("flag") or 0,
        )

    def _bad_row(
        self, body: bytes, topic: str, row_id: str | None, error: RowRefusedError
    ) -> Message:
        """The message for the topic of onBadRow in place of a row.

        Raises: RowRefusedError: onBadRow is `fail`.
        """
        if self._options.on_bad_row == FAIL:
            raise error
        self._bad.append(str(error))
        properties = {BAD_ROW: str(error), BAD_ROW_TOPIC: topic, ROW_ID: row_id or ""}
        return Message(
            topic=self._options.on_bad_row,
            # Brokers refuse messages without a body.
            body=body[: self._options.max_message_size] or b"-",
            properties={name: value for name, value in properties.items() if value},
        )

    def _id_of(self, values: dict[str, Any], row: int) -> str | None:
        if self._layout.id_column is not None:
            given: str | None = values[self._layout.id_column]
            return given
        return None if self._row_id is None else f"{self._row_id}:{row}"

    def _queue(self, values: dict[str, Any], message: Message, row: int) -> MessageQueue | None:
        queue_id = values.get("queueId")
        if queue_id is not None:
            return MessageQueue(
                topic=self._routes.with_namespace(message.topic),
                broker_name=values["brokerName"] or "",
                queue_id=queue_id,
            )
        if message.sharding_key is not None:
            queues = self._queues_of(message.topic)
            # As the client chooses: abs(hash) modulo the number of queues.
            return queues[abs(java_hash_code(message.sharding_key)) % len(queues)]
        if self._options.ordered:
            raise RowRefusedError(
                f"row {row} of this task has neither shardingKey nor queueId, but ordered=true"
                f" needs one: {_shown(values)}"
            )
        return None

    def _queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        found = self._queues.get(topic)
        if found is None:
            full = self._routes.with_namespace(topic)
            route = again(self._options, partial(self._routes.route, full))
            found = tuple(publish_info(full, route).queues)
            if not found:
                raise SparkConnectorError(f"topic {topic} has no writable queue: check its perm")
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
        except MessageRefusedError as error:
            self._send_refused(pending, queue, error)
            return
        except ClientError as error:
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
        self, pending: _Pending, queue: MessageQueue | None, error: MessageRefusedError
    ) -> None:
        """Send the messages of a refused request one by one, invalid ones to onBadRow's topic.

        Raises: RowRefusedError: onBadRow is `fail`, or its topic refuses the message, too.
        """
        refused = RowRefusedError(
            f"one of the rows from {pending.first_row} on of this task for the topic"
            f" {pending.messages[0].topic} cannot become a message: {error}"
        )
        refused.__cause__ = error
        for message in pending.messages:
            if len(pending.messages) == 1:
                if message.topic == self._options.on_bad_row:
                    raise refused
                row_id = message.properties.get(ROW_ID)
                bad = self._bad_row(message.body, message.topic, row_id, refused)
                self._send(_Pending([bad], first_row=pending.first_row), None)
            elif self._options.on_bad_row == FAIL:
                raise refused
            else:
                self._send(_Pending([message], first_row=pending.first_row), queue)


def _raw(body: str | bytes | None) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    names = batch.schema.names
    columns = [column.to_pylist() for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _shown(values: dict[str, Any]) -> str:
    shown = {name: value for name, value in values.items() if name != "body" and value is not None}
    return str(shown)[:200]
