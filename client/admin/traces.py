"""Message traces: what producers and consumers reported about one message.

Java counterpart: queryMsgTraceById of mqadmin, MessageTraceServiceImpl of the Dashboard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from ...common.topic_names import TRACE_TOPIC
from ..core.trace_records import (
    ConsumeOutcome,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
    decode_records,
)
from ..errors import RouteNotFoundError
from ..messages.message import ReceivedMessage
from ..messages.transaction import TransactionState
from .asking import BrokersError, NotFoundError
from .messages import COUNT, MessageVerbs, place_of


class TracedSend(msgspec.Struct, frozen=True, rename="camel"):
    """A send that a broker confirmed.

    Attributes:
      time_ms: when it began, by the producer's clock.
      cost_ms: from the send to the answer.
      client_host: IP address of the producer.
      client_id: id of its client; "": not reported.
      tags, keys: of the message; None: none.
      store_host: `host:port` of the broker.
      offset_message_id: the broker's id of the message; None: not reported.
      body_length: bytes, as sent: compressed, if it is.
      kind: the kind of message.
      is_success: it was stored as safely as the broker is configured to.
    """

    time_ms: int
    cost_ms: int
    group: str
    client_host: str
    client_id: str
    topic: str
    tags: str | None
    keys: str | None
    store_host: str
    offset_message_id: str | None
    body_length: int
    kind: TracedType
    is_success: bool
    region: str


class TracedConsumption(msgspec.Struct, frozen=True, rename="camel"):
    """A delivery to a consumer's program.

    Of its two reports, one may be missing: it is still running, its consumer crashed, or the
    report was dropped.

    Attributes:
      time_ms: when it began, by the consumer's clock; None: not reported.
      cost_ms: how long it took; None: its end is not reported.
      group: of the consumer; None: not reported.
      client_host: IP address of the consumer.
      is_success: it was acknowledged, else redelivered; None: its end is not reported.
      outcome: how its handler ended; None: not reported.
      retry_times: number of earlier deliveries; None: not reported.
      keys: of the message; None: none.
      request_id: id that its reports have in common.
    """

    time_ms: int | None
    cost_ms: int | None
    group: str | None
    client_host: str
    is_success: bool | None
    outcome: ConsumeOutcome | None
    retry_times: int | None
    keys: str | None
    request_id: str


class TracedTransactionEnd(msgspec.Struct, frozen=True, rename="camel"):
    """The outcome of a transaction that a producer sent to the broker.

    Attributes:
      time_ms: by the producer's clock.
      client_host: IP address of the producer.
      store_host: `host:port` of the broker.
      transaction_id: None: not reported.
      state: the outcome.
      is_from_check: the broker had asked for it.
    """

    time_ms: int
    group: str
    client_host: str
    topic: str
    store_host: str
    transaction_id: str | None
    state: TransactionState
    is_from_check: bool
    region: str


class TracedRecall(msgspec.Struct, frozen=True, rename="camel"):
    """A recall of a delayed message by a producer.

    Attributes:
      time_ms: by the producer's clock.
      client_host: IP address of the producer.
      is_success: the broker accepted it.
    """

    time_ms: int
    group: str
    client_host: str
    topic: str
    is_success: bool
    region: str


class MessageTrace(msgspec.Struct, frozen=True, rename="camel"):
    """The timeline of one message; each part is sorted by time.

    Attributes:
      message_id: the producer's id of the message.
      bad_count: records and bodies in the trace topic that could not be read; they may be about
        other messages.
    """

    message_id: str
    sends: tuple[TracedSend, ...]
    consumptions: tuple[TracedConsumption, ...]
    transaction_ends: tuple[TracedTransactionEnd, ...]
    recalls: tuple[TracedRecall, ...]
    bad_count: int = 0


class TraceVerbs:
    """The part of `Admin` about message traces."""

    def __init__(self, messages: MessageVerbs) -> None:
        self._messages = messages

    async def message_trace(
        self, message_id: str, *, trace_topic: str = TRACE_TOPIC, count: int = COUNT
    ) -> MessageTrace:
        """What traced producers and consumers reported about a message: ours, Java's and Go's.

        A report arrives up to 5 s after the event, and only of clients with `trace`.

        Args:
          message_id: the producer's id of the message, or the broker's.
          trace_topic: the topic with the reports.
          count: of messages of the trace topic to read from each broker, at most; each has the
            reports of several messages.

        Raises: NotFoundError: no client reported it, or no broker has the trace topic.
          BrokersError: some brokers failed; `partial` is the MessageTrace of the others.
          ServerError; ConnectError.
        """
        message_id = message_id.strip()
        if place_of(message_id) is not None:
            message_id = (await self._messages.message(message_id)).message_id
        try:
            found = await self._messages.messages_by_key(trace_topic, message_id, count=count)
        except RouteNotFoundError as error:
            text = f"no broker has the trace topic {trace_topic}: set traceTopicEnable=true there"
            raise NotFoundError(text) from error
        except BrokersError as error:
            error.partial = timeline(message_id, error.partial)
            raise
        trace = timeline(message_id, found)
        if not (trace.sends or trace.consumptions or trace.transaction_ends or trace.recalls):
            bad = f" ({trace.bad_count} records there cannot be read)" if trace.bad_count else ""
            raise NotFoundError(
                f"no client reported the message {message_id} to {trace_topic}{bad}: only those"
                " with `trace` do, within 5 s"
            )
        return trace


class _Seen(NamedTuple):
    """A record, and the IP address of the client that sent it."""

    record: TraceRecord
    host: str


def timeline(message_id: str, messages: Iterable[ReceivedMessage]) -> MessageTrace:
    """The timeline of a message, from messages of the trace topic. Pure.

    Args:
      messages: in any order; records of other messages in them are ignored.
    """
    bad_count = 0
    seen: list[_Seen] = []
    # A producer may have stored a message of the trace topic twice.
    for message in {each.message_id: each for each in messages}.values():
        decoded = decode_records(message.body)
        bad_count += len(decoded.bad)
        host = message.born_host.rpartition(":")[0]
        seen += [_Seen(record, host) for record in decoded.records]
    own = [each for each in seen if message_id in each.record.message_id.split(",")]
    sends = [_send(r, host) for r, host in own if isinstance(r, PubRecord)]
    ends = [_end(r, host) for r, host in own if isinstance(r, EndTransactionRecord)]
    recalls = [_recall(r, host) for r, host in own if isinstance(r, RecallRecord)]
    return MessageTrace(
        message_id,
        tuple(sorted(sends, key=lambda each: each.time_ms)),
        tuple(sorted(_consumptions(own), key=lambda each: each.time_ms or 0)),
        tuple(sorted(ends, key=lambda each: each.time_ms)),
        tuple(sorted(recalls, key=lambda each: each.time_ms)),
        bad_count,
    )


def _send(record: PubRecord, host: str) -> TracedSend:
    return TracedSend(
        time_ms=record.time_ms,
        cost_ms=record.cost_ms,
        group=record.group,
        client_host=host,
        client_id=record.client_host,
        topic=record.topic,
        tags=record.tags,
        keys=record.keys,
        store_host=record.store_host,
        offset_message_id=record.offset_message_id,
        body_length=record.body_length,
        kind=record.kind,
        is_success=record.is_success,
        region=record.region,
    )


def _end(record: EndTransactionRecord, host: str) -> TracedTransactionEnd:
    return TracedTransactionEnd(
        time_ms=record.time_ms,
        group=record.group,
        client_host=host,
        topic=record.topic,
        store_host=record.store_host,
        transaction_id=record.transaction_id,
        state=record.state,
        is_from_check=record.is_from_check,
        region=record.region,
    )


def _recall(record: RecallRecord, host: str) -> TracedRecall:
    return TracedRecall(
        time_ms=record.time_ms,
        group=record.group,
        client_host=host,
        topic=record.topic,
        is_success=record.is_success,
        region=record.region,
    )


def _consumptions(own: Iterable[_Seen]) -> list[TracedConsumption]:
    """Joins the two records of each consumption by their request id."""
    begins: dict[str, tuple[SubBeforeRecord, str]] = {}
    ends: dict[str, tuple[SubAfterRecord, str]] = {}
    for record, host in own:
        if isinstance(record, SubBeforeRecord):
            begins[record.request_id] = record, host
        elif isinstance(record, SubAfterRecord):
            ends[record.request_id] = record, host
    found = []
    for request_id in dict.fromkeys((*begins, *ends)):
        begin, begin_host = begins.get(request_id, (None, ""))
        end, end_host = ends.get(request_id, (None, ""))
        time_ms = begin.time_ms if begin else None
        if time_ms is None and end is not None and end.time_ms is not None:
            time_ms = end.time_ms - end.cost_ms
        found.append(
            TracedConsumption(
                time_ms=time_ms,
                cost_ms=end.cost_ms if end else None,
                group=begin.group if begin else end.group if end else None,
                client_host=begin_host or end_host,
                is_success=end.is_success if end else None,
                outcome=end.outcome if end else None,
                retry_times=begin.retry_times if begin else None,
                keys=begin.keys if begin else end.keys if end else None,
                request_id=request_id,
            )
        )
    return found
