"""Task of `rocketmq`: from a range of a queue to Arrow record batches.

A broker returns few messages per pull (Apache's 32, or 8 old ones), so several answers make a
batch. Pulls are sequential: a thread that pulls ahead was tried, and the handover between threads
cost more than it gained (72,000 against 116,000 messages per second of CPU).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from ..client.core.queue_requests import PullAnswer
from ..client.core.subscription import Sql, build_subscription
from ..client.errors import ClientError
from ..remoting.bodies import SubscriptionData
from ..remoting.response_codes import ResponseCode
from .arrow import schema_of
from .batch_plan import lost
from .errors import QueueGoneError, SparkConnectorError
from .log_read import wanted
from .queue_offsets import Queue, QueueRange
from .record_columns import RecordColumns, column_of, constant, walk
from .source_options import SourceOptions
from .store_options import LogRequest

BATCH_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of answers in one batch."""


class Puller(Protocol):
    """The cluster to pull from: `Cluster`, or a fake in tests."""

    def pull(
        self,
        queue: Queue,
        offset: int,
        *,
        count: int,
        size: int | None,
        group: str,
        subscription: SubscriptionData,
    ) -> PullAnswer: ...


def read_range(
    puller: Puller, options: SourceOptions, request: LogRequest, part: QueueRange
) -> Iterator[pa.RecordBatch]:
    """The requested rows of a range, in the queue's order.

    Args:
      request: columns, and tags that rows must have.

    Raises:
      DataLossError: messages of the range are gone, and failOnDataLoss is set.
      SparkConnectorError: a broker does not answer, or refuses; an answer holds other bytes than
        messages; or a body cannot be decompressed.
    """
    bodies: list[bytes] = []
    deltas: list[int] = []
    size = count = 0
    for answer, passed in _answers(puller, options, part):
        bodies.append(answer.body)
        deltas.append(answer.offset_delta)
        size += len(answer.body)
        count += passed
        if size >= BATCH_BYTES or count >= options.arrow_batch_rows:
            yield from _batches(options, request, part, bodies, deltas)
            bodies, deltas, size, count = [], [], 0, 0
    if bodies:
        yield from _batches(options, request, part, bodies, deltas)


def subscription_of(options: SourceOptions, topic: str) -> SubscriptionData:
    """The subscription of the pulls: the broker's part of the filter."""
    if options.filter_sql:
        return build_subscription(topic, Sql(options.filter_sql))
    return build_subscription(topic, options.tags)


def _answers(
    puller: Puller, options: SourceOptions, part: QueueRange
) -> Iterator[tuple[PullAnswer, int]]:
    """The answers that hold messages of the range, and the number of offsets each covers."""
    subscription = subscription_of(options, part.queue.topic)

    offset = part.start
    while offset < part.end:
        try:
            answer = puller.pull(
                part.queue,
                offset,
                count=min(options.pull_batch_size, part.end - offset),
                size=options.pull_bytes,
                group=options.consumer_group,
                subscription=subscription,
            )
        except QueueGoneError as error:
            lost(options, str(error))
            return
        except ClientError as error:
            raise SparkConnectorError(
                f"{part.queue}: pulling the messages [{offset}, {part.end}) failed"
                f" {1 + options.num_retries} times: {error}; raise numRetries or retryIntervalMs"
                " if brokers are away for longer"
            ) from error
        after = _next_offset(options, part, offset, answer)
        passed, offset = after - offset, after
        if answer.code == ResponseCode.SUCCESS:
            yield answer, passed


def _next_offset(options: SourceOptions, part: QueueRange, offset: int, answer: PullAnswer) -> int:
    """The offset of the next pull.

    Raises:
      DataLossError: messages of the range are gone, and failOnDataLoss is set.
      SparkConnectorError: the broker's next offset does not advance.
    """
    after = answer.next_offset
    is_lost = answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_NOT_FOUND)
    if not is_lost:
        if after <= offset:
            raise SparkConnectorError(
                f"{part.queue}: the broker answered a pull at {offset} with the next offset"
                f" {after}, which does not advance"
            )
        return after
    # The broker's next offset lies ahead: messages before it are gone. Otherwise all the rest is.
    end = min(after, part.end) if after > offset else part.end
    text = (
        f"{part.queue}: the messages [{offset}, {end}) are gone: the queue has"
        f" [{answer.min_offset}, {answer.max_offset}) now"
    )
    lost(options, text)
    return end


def _batches(
    options: SourceOptions,
    request: LogRequest,
    part: QueueRange,
    bodies: list[bytes],
    deltas: list[int],
) -> Iterator[pa.RecordBatch]:
    data = bodies[0] if len(bodies) == 1 else b"".join(bodies)
    starts, end = walk(data, 0, len(data))
    records = RecordColumns(data, starts)
    if end != len(data) or records.good_count() < len(records):
        raise SparkConnectorError(
            f"{part.queue}: the answer to a pull in [{part.start}, {part.end}) holds bytes that are"
            " not messages"
        )
    delta = np.zeros(1, np.int64)
    if any(deltas):
        ends = np.cumsum([len(body) for body in bodies])
        delta = np.array(deltas)[np.searchsorted(ends, starts, side="right")]
    offsets = records.field("queue_offset") + delta
    mine = (offsets >= part.start) & (offsets < part.end)
    offsets, records = offsets[mine], records.where(mine)
    if request.tags is not None and len(records):
        # A broker compares only hashes of tags, so other tags may be among the messages.
        kept = wanted(records, request)
        offsets = offsets[np.isin(records.starts, kept.starts)]
        records = kept
    for begin in range(0, len(records), request.batch_rows):
        rows = slice(begin, begin + request.batch_rows)
        yield _decoded(options, request, part, records.part(rows.start, rows.stop), offsets[rows])


def _decoded(
    options: SourceOptions,
    request: LogRequest,
    part: QueueRange,
    records: RecordColumns,
    offsets: np.ndarray,
) -> pa.RecordBatch:
    def refuse(row: int, reason: str) -> None:
        raise SparkConnectorError(
            f"{part.queue}, offset {offsets[row]}: {reason}; decompress=false returns it as stored"
        )

    columns = []
    for name in request.columns:
        if name == "body" and options.decompress:
            column = records.inflated(refuse)
        elif name == "brokerName":
            column = constant(part.queue.broker_name, records)
        elif name == "queueOffset":
            column = pa.array(offsets)
        elif name == "topic" and options.namespace:
            column = constant(part.queue.topic, records)
        else:
            column = column_of(records, name, request.properties_as)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema_of(request.columns, request.kinds))
