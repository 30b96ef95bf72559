"""Message trace: producers and consumers report each message to a topic, in RocketMQ's format.

mqadmin's queryMsgTraceById, the Dashboard and `Admin.message_trace` read it. A program's sends and
consumptions only append records to a queue; a background task sends them.

Java counterpart: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl,
EndTransactionTraceHookImpl, DefaultRecallMessageTraceHook.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import anyio

from ...common import message_properties as names
from ...common.topic_names import TRACE_TOPIC
from ...remoting.codec import RemotingCommand
from ...remoting.errors import LocalProtocolError
from ...remoting.recall_handle import RecallHandle
from ...remoting.response_codes import ResponseCode
from ...remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from ..connection.client import Client
from ..connection.grpc import refuse_by
from ..core.sends import PreparedSend, Send
from ..core.topics import check_send_topic
from ..core.trace_records import (
    DEFAULT_REGION,
    ConsumeOutcome,
    EndTransactionRecord,
    PubRecord,
    RecallRecord,
    SubAfterRecord,
    SubBeforeRecord,
    TracedType,
    TraceRecord,
    encode_record,
    index_keys,
)
from ..errors import ClientError, ConfigurationError, HandlerTimeoutError
from ..messages.interceptor import Interceptor
from ..messages.message import (
    Message,
    ReceivedMessage,
    SendResult,
    SendStatus,
    is_delayed,
    keys_text,
)
from ..messages.transaction import TransactionState
from ..options.push_options import RetryLater
from ..options.send_options import ProducerConfig
from .sender import Finish, OnEnd, Sender

logger = logging.getLogger(__name__)

GROUP_PREFIX: Final = "_INNER_TRACE_PRODUCER"
"""Source: TraceConstants.GROUP_NAME_PREFIX."""
BATCH_COUNT: Final = 10
"""Records that are sent at once. RocketMQ: traceMsgBatchNum."""
FLUSH_S: Final = 5.0
"""Longest time that a record waits for others. RocketMQ: flushTraceInterval 5,000."""
BATCH_COUNT_MAX: Final = 100
"""Records of one message while more than BATCH_COUNT wait, so that the task keeps up with fast
programs. (RocketMQ: 20.)"""
IN_FLIGHT_MAX: Final = 64
"""Trace messages that are not confirmed yet. The answer to one takes as long as the answers to all
messages that the program has in flight: 1,024 by default, at each of which a record is made."""
BODY_SIZE_MAX: Final = 128_000
"""Bytes of a trace message. RocketMQ: maxMsgSize 128,000."""
KEYS_SIZE_MAX: Final = 16 * 1024
"""Bytes of its keys: half of what a broker allows for all properties."""
QUEUE_COUNT_MAX: Final = 2048
"""Records that wait; more are dropped, because a program shall not wait for them.

RocketMQ: traceContextQueue 2,048.
"""
SEND_TIMEOUT_S: Final = 5.0
"""Time limit for sending a trace message. RocketMQ: sendMsgTimeout 5,000 of its producer."""
RETRY_S: Final = 1.0
"""Pause after a trace message that could not be sent; meanwhile records fill the queue."""
CLOSE_TIMEOUT_S: Final = 5.0
"""Longest wait at close until all records are sent. RocketMQ: WAIT_FOR_SHUTDOWN 5,000."""
BEGUN_COUNT_MAX: Final = 16_384
"""Consumptions of one consumer whose end is awaited: more than its queues hold by default. The end
of the oldest one is not reported if there are more."""
_DISPATCHER_NUMBERS: Final = itertools.count(1)


class TraceDispatcher:
    """Sends the trace records of one producer or consumer in the background.

    A failure is logged and counted, and has no other effect. The first loss is logged as a warning,
    further ones are only counted.

    Lifecycle: `open` once its client is open, and `close` before that is closed.

    Args:
      client: of the traced producer or consumer.
      group: its group, with namespace.
      kind: of what is traced; part of the name of the producer group that sends the records.
      topic: the trace topic.

    Attributes:
      topic: the trace topic, with namespace. Its own messages are not traced.
      dropped_count: records that were dropped.
    """

    def __init__(
        self, client: Client, group: str, kind: Literal["PRODUCE", "CONSUME"], topic: str
    ) -> None:
        self._client = client
        self._traced_group = client.without_namespace(group)
        self._name = topic
        self.topic: str = client.with_namespace(topic)
        number = next(_DISPATCHER_NUMBERS)
        self._sender = Sender(
            client,
            f"{GROUP_PREFIX}-{self._traced_group}-{kind}-{number}",
            ProducerConfig(send_timeout_s=SEND_TIMEOUT_S, message_size_max=BODY_SIZE_MAX),
            client.check_open,
            # Records of a cluster without the trace topic are dropped: closing does not wait.
            waits_for_route=False,
        )
        self._queue: deque[TraceRecord] = deque()
        # The records of each message that is not confirmed yet, by the object id of its Send.
        self._in_flight: dict[int, int] = {}
        self._has_failed = False
        self._is_open = False
        self._scope: anyio.CancelScope
        self._wake: anyio.Event
        self._ended: anyio.Event
        self.dropped_count: int = 0

    def open(self) -> None:
        """Start the background task.

        Raises: ClosedError: the client is not open.
        """
        self._scope, self._wake, self._ended = anyio.CancelScope(), anyio.Event(), anyio.Event()
        self._client.start_soon(self._run)
        self._is_open = True

    def append(self, record: TraceRecord) -> None:
        """Send a record soon; any code of the event loop may call this."""
        queue = self._queue
        if not self._is_open:
            self.dropped_count += 1
            return
        if len(queue) >= QUEUE_COUNT_MAX:
            self._drop(1, f"{QUEUE_COUNT_MAX} records wait already")
            return
        queue.append(record)
        if len(queue) == 1 or len(queue) == BATCH_COUNT:
            self._wake.set()

    async def close(self) -> None:
        """Send what waits, within CLOSE_TIMEOUT_S; the rest is dropped."""
        if not self._is_open:
            return
        self._is_open = False
        self._wake.set()
        with anyio.move_on_after(CLOSE_TIMEOUT_S, shield=True):
            await self._ended.wait()
        self._scope.cancel()
        left = len(self._queue) + sum(self._in_flight.values())
        self._queue.clear()
        self._in_flight.clear()
        if left:
            self._drop(left, f"they were not confirmed within {CLOSE_TIMEOUT_S:g} s")
        if self.dropped_count:
            logger.info(
                "message trace of group %s: %d records were dropped in all",
                self._traced_group,
                self.dropped_count,
            )

    # The background task

    async def _run(self) -> None:
        try:
            with self._scope:
                while self._is_open or self._queue:
                    await self._wait_for_batch()
                    if self._queue:
                        await self._begin_batch()
                while self._in_flight:
                    await self._wait()
        finally:
            self._ended.set()

    async def _wait_for_batch(self) -> None:
        """Wait for BATCH_COUNT records, or for FLUSH_S after the first one."""
        while self._is_open and not self._queue:
            await self._wait()
        with anyio.move_on_after(FLUSH_S):
            while self._is_open and len(self._queue) < BATCH_COUNT:
                await self._wait()

    async def _wait(self) -> None:
        self._wake = anyio.Event()
        await self._wake.wait()

    async def _begin_batch(self) -> None:
        """Send a message; only its begin is waited for, and IN_FLIGHT_MAX earlier ones."""
        if self._has_failed:
            self._has_failed = False
            with anyio.move_on_after(RETRY_S):
                while self._is_open:
                    await self._wait()
        while len(self._in_flight) >= IN_FLIGHT_MAX:
            await self._wait()
        batch = self._next_batch()
        if not batch.size:
            return
        sender = self._sender
        try:
            prepared = sender.packer.message(
                Message(self._name, batch.body),
                {names.PROPERTY_KEYS: " ".join(batch.keys)},
                is_system_topic=True,
            )
            send = sender.new_send(prepared)
            self._in_flight[id(send)] = batch.size
            on_end = partial(self._on_end, id(send))
            try:
                if not sender.begin(send, self._spawn, on_end):
                    await sender.begin_when_ready(send, self._spawn, on_end)
            except ClientError as error:
                on_end(None, error)
        except ClientError as error:
            self._fail(batch.size, error)

    def _spawn(self, finish: Finish, send: Send, on_end: OnEnd) -> None:
        """Make the tries after the first one in the background."""
        send.restart(self._client.now_s())
        self._client.start_soon(finish, send, on_end)

    def _on_end(self, key: int, result: SendResult | None, error: ClientError | None) -> None:
        size = self._in_flight.pop(key, None)
        if size is not None and error is not None:
            self._fail(size, error)
        self._wake.set()

    def _fail(self, size: int, error: ClientError) -> None:
        self._has_failed = True
        self._drop(size, str(error))

    def _next_batch(self) -> _Batch:
        """Take as many records from the queue as fit into one message."""
        queue = self._queue
        parts: list[bytes] = []
        keys: dict[str, None] = {}
        size = keys_size = 0
        while queue and len(parts) < BATCH_COUNT_MAX:
            record = queue[0]
            try:
                part = encode_record(record).encode("utf-8", "replace")
            except LocalProtocolError as error:
                queue.popleft()
                self._drop(1, str(error))
                continue
            own = [key for key in index_keys((record,)) if key not in keys]
            own_size = _size(own)
            if own_size > KEYS_SIZE_MAX:
                own = own[:1]  # its id
                own_size = _size(own)
            if parts and (size + len(part) > BODY_SIZE_MAX or keys_size + own_size > KEYS_SIZE_MAX):
                break
            queue.popleft()
            parts.append(part)
            size += len(part)
            keys.update(dict.fromkeys(own))
            keys_size += own_size
        return _Batch(b"".join(parts), list(keys), len(parts))

    def _drop(self, count: int, why: str) -> None:
        if not self.dropped_count:
            logger.warning(
                "message trace of group %s: %d records are dropped, so timelines of messages will "
                "have gaps; sending and consuming go on. Further ones are only counted. Reason: %s",
                self._traced_group,
                count,
                why,
            )
        self.dropped_count += count


class _Batch(NamedTuple):
    """The records of one trace message; `size` is their number."""

    body: bytes
    keys: list[str]
    size: int


def _size(keys: Sequence[str]) -> int:
    return sum(len(key.encode("utf-8", "replace")) + 1 for key in keys)


class ProducerTrace:
    """Reports what one producer does.

    Only what a broker confirmed is reported, and only if the broker's answer allows it (TRACE_ON).

    Args:
      group: the producer's, with namespace.
      topic: the trace topic.

    Attributes:
      dispatcher: sends the records; its owner opens and closes it.
    """

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client = client
        self._group = client.without_namespace(group)
        self.dispatcher: TraceDispatcher = TraceDispatcher(client, group, "PRODUCE", topic)
        # Brokers whose last answer forbade it: an outcome of a transaction has no answer.
        self._forbidden: set[str] = set()

    def on_sent(self, send: Send, result: SendResult, answer: RemotingCommand) -> None:
        """Report a send that is over, by the answer that confirmed it."""
        prepared = send.prepared
        broker_name = result.queue.broker_name
        if answer.ext_fields.get(names.PROPERTY_TRACE_SWITCH) == "false":
            self._forbidden.add(broker_name)
            return
        self._forbidden.discard(broker_name)
        if prepared.topic == self.dispatcher.topic:
            return
        cost_ms = round((self._client.now_s() - send.try_start_s) * 1000)
        time_ms = self._client.wall_ms() - cost_ms
        topic = self._client.without_namespace(prepared.topic)
        for part in _parts(prepared, result):
            message = part.message
            self.dispatcher.append(
                PubRecord(
                    time_ms=time_ms,
                    region=result.region_id or DEFAULT_REGION,
                    group=self._group,
                    topic=topic,
                    message_id=part.message_id,
                    tags=message.tags,
                    keys=keys_text(message.keys) or None,
                    store_host=send.address,
                    body_length=part.size,
                    cost_ms=cost_ms,
                    kind=_kind(prepared, message),
                    offset_message_id=part.offset_message_id,
                    is_success=result.status is SendStatus.SEND_OK,
                    client_host=self._client.client_id,
                )
            )

    def on_ended(
        self, message: Message, result: SendResult, store_host: str, state: TransactionState
    ) -> None:
        """Report the outcome of a transaction, which was sent to the broker `store_host`."""
        if result.queue.broker_name not in self._forbidden:
            keys, region = keys_text(message.keys), result.region_id or DEFAULT_REGION
            ids = result.message_id, result.transaction_id
            self._append_end(message, ids, keys, region, store_host, state, is_from_check=False)

    def on_checked(
        self,
        message: ReceivedMessage,
        transaction_id: str | None,
        store_host: str,
        state: TransactionState,
    ) -> None:
        """Report the outcome of a transaction for which the broker `store_host` asked."""
        if _is_allowed(message):
            keys, region = " ".join(message.keys), _region(message)
            ids = message.message_id, transaction_id
            self._append_end(message, ids, keys, region, store_host, state, is_from_check=True)

    def _append_end(
        self,
        message: Message | ReceivedMessage,
        ids: tuple[str, str | None],
        keys: str,
        region: str,
        store_host: str,
        state: TransactionState,
        *,
        is_from_check: bool,
    ) -> None:
        message_id, transaction_id = ids
        self.dispatcher.append(
            EndTransactionRecord(
                time_ms=self._client.wall_ms(),
                region=region,
                group=self._group,
                topic=message.topic,
                message_id=message_id,
                tags=message.tags,
                keys=keys or None,
                store_host=store_host,
                kind=TracedType.COMMIT,
                transaction_id=transaction_id,
                state=state,
                is_from_check=is_from_check,
            )
        )

    def on_recalled(self, topic: str, handle: RecallHandle, answer: RemotingCommand) -> None:
        """Report a recall that the broker answered; one that names no region is not reported.

        Source: DefaultRecallMessageTraceHook, which needs a system property.
        """
        region = answer.ext_fields.get(names.PROPERTY_MSG_REGION)
        if not region or handle.broker_name in self._forbidden:
            return
        self.dispatcher.append(
            RecallRecord(
                time_ms=self._client.wall_ms(),
                region=region,
                group=self._group,
                topic=topic,
                message_id=handle.unique_key,
                is_success=answer.code == ResponseCode.SUCCESS,
            )
        )


class _Part(NamedTuple):
    """One message of a send."""

    message: Message
    message_id: str
    offset_message_id: str
    size: int


def _parts(prepared: PreparedSend, result: SendResult) -> list[_Part]:
    """The messages of a send; a batch has several, each with its own ids."""
    entries = prepared.entries
    if not entries:
        size = len(prepared.payload.body)
        return [_Part(prepared.message, prepared.message_id, result.offset_message_id, size)]
    # A queue of batches has one offset for the batch, and so one id.
    places = result.offset_message_id.split(",")
    return [
        _Part(
            entry.message,
            entry.message_id,
            places[index] if index < len(places) else places[0],
            entry.size,
        )
        for index, entry in enumerate(entries)
    ]


def _kind(prepared: PreparedSend, message: Message) -> TracedType:
    """Source: DefaultMQProducerImpl.sendKernelImpl; timer messages are NORMAL there."""
    if prepared.payload.sys_flag & TRANSACTION_PREPARED_TYPE:
        return TracedType.HALF
    return TracedType.DELAY if is_delayed(message) else TracedType.NORMAL


class ConsumerTrace(Interceptor):
    """Reports the consumptions of one consumer; it is one of its interceptors.

    Messages that say TRACE_ON false are not reported.

    Args:
      group: the consumer's, with namespace.
      topic: the trace topic.

    Attributes:
      dispatcher: sends the records; its owner opens and closes it.
    """

    def __init__(self, client: Client, group: str, topic: str) -> None:
        self._client = client
        self._group = client.without_namespace(group)
        self.dispatcher: TraceDispatcher = TraceDispatcher(client, group, "CONSUME", topic)
        # By the message's object id, as both methods get the same object; oldest first.
        self._begun: dict[int, _Begun] = {}

    def before_consume(self, message: ReceivedMessage) -> None:
        """Report a message that the program is given."""
        if not _is_allowed(message) or message.queue.topic == self.dispatcher.topic:
            return
        begun = self._begun
        if len(begun) >= BEGUN_COUNT_MAX:
            del begun[next(iter(begun))]
        now_ms = self._client.wall_ms()
        request_id = self._client.next_unique_id(now_ms)
        # An object id can be that of a message that was never settled: this one is the newest.
        begun.pop(id(message), None)
        begun[id(message)] = _Begun(request_id, self._client.now_s())
        self.dispatcher.append(
            SubBeforeRecord(
                time_ms=now_ms,
                region=_region(message),
                group=self._group,
                request_id=request_id,
                message_id=message.message_id,
                retry_times=message.reconsume_times,
                keys=" ".join(message.keys) or None,
            )
        )

    def after_consume(self, message: ReceivedMessage, error: Exception | None) -> None:
        """Report that it is settled."""
        begun = self._begun.pop(id(message), None)
        if begun is None:
            return
        self.dispatcher.append(
            SubAfterRecord(
                request_id=begun.request_id,
                message_id=message.message_id,
                cost_ms=round((self._client.now_s() - begun.start_s) * 1000),
                is_success=error is None,
                keys=" ".join(message.keys) or None,
                outcome=_outcome(error),
                time_ms=self._client.wall_ms(),
                group=self._group,
            )
        )

    def on_polled(self, messages: Sequence[ReceivedMessage]) -> None:
        """Report messages that `poll` returns: consumed at once, as Java's lite pull consumer."""
        for message in messages:
            self.before_consume(message)
            self.after_consume(message, None)


class _Begun(NamedTuple):
    """A consumption that has begun."""

    request_id: str
    start_s: float


def _outcome(error: Exception | None) -> ConsumeOutcome:
    if error is None:
        return ConsumeOutcome.SUCCESS
    if isinstance(error, RetryLater):
        return ConsumeOutcome.FAILED
    if isinstance(error, HandlerTimeoutError):
        return ConsumeOutcome.TIMEOUT
    return ConsumeOutcome.EXCEPTION


def _is_allowed(message: ReceivedMessage) -> bool:
    return message.properties.get(names.PROPERTY_TRACE_SWITCH) != "false"


def _region(message: ReceivedMessage) -> str:
    return message.properties.get(names.PROPERTY_MSG_REGION) or DEFAULT_REGION


def producer_trace(client: Client, group: str, option: bool | str) -> ProducerTrace | None:
    """The trace of a producer with the option `trace`; None: it has none.

    Raises: ConfigurationError: not the name of a topic that clients may send to.
    """
    topic = _topic(client, option)
    return None if topic is None else ProducerTrace(client, group, topic)


def consumer_trace(client: Client, group: str, option: bool | str) -> ConsumerTrace | None:
    """The trace of a consumer with the option `trace`; None: it has none.

    Raises: ConfigurationError: not the name of a topic that clients may send to.
    """
    topic = _topic(client, option)
    return None if topic is None else ConsumerTrace(client, group, topic)


def _topic(client: Client, option: bool | str) -> str | None:
    if option:
        refuse_by(client.grpc, "trace", "use trocket.client.opentelemetry as an interceptor")
    if isinstance(option, bool):
        return TRACE_TOPIC if option else None
    try:
        check_send_topic(option)
    except ValueError as error:
        raise ConfigurationError(f"trace is {option!r}: {error}") from None
    return option
