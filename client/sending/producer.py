"""The producer: confirmed, pipelined, oneway, batch, ordered and delayed sends; request and reply.

Java counterpart: DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Generic, Never, Unpack, overload

from ...remoting.bodies import MessageQueue, ProducerData
from ...remoting.headers import RecallMessageRequestHeader
from ...remoting.recall_handle import RecallHandle
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..checks.call_check import refuse_names
from ..checks.misuse import explained, knows_elsewhere
from ..checks.option_check import check_timeout
from ..checks.other_names import PRODUCER
from ..connection.client import Client
from ..connection.connection import request_name
from ..connection.grpc import refuse_by
from ..connection.members import GroupMember, Processor
from ..connection.options import split_options
from ..connection.participant import Participant, configured, own_client
from ..core.sends import BatchEntry, Selector, Send
from ..core.topics import check_producer_group
from ..errors import ClientError, ConfigurationError, UndeliveredError, server_error
from ..messages.body_types import PlainBody, SentT
from ..messages.interceptor import call_after_send
from ..messages.message import Message, ReceivedMessage, SendResult
from ..messages.sendable import call_before_send, check_batch, check_sendable, wrong_arguments
from ..options.send_options import DEFAULT_GROUP, ProducerConfig, ProducerOptions
from .accumulator import ProduceAccumulator
from .packer import revive
from .request_reply import RequestReply
from .send_buffer import Delivery, SendBuffer
from .sender import Finish, OnEnd, Sender
from .tracing import producer_trace

__all__ = [
    "DEFAULT_GROUP",
    "Delivery",
    "Producer",
    "ProducerOptions",
    "Selector",
    "configured",
    "own_client",
]

logger = logging.getLogger(__name__)

_NO_REPLIES: Final = "send it as a message, and receive the reply from a topic for replies"


@knows_elsewhere(PRODUCER)
class Producer(Participant, Generic[SentT]):
    """Sends messages.

    Use: `async with Producer("rocketmq://127.0.0.1:9876") as producer:`, under trio or asyncio. The
    end of the block waits until the messages of `send_soon` are confirmed (see `drain`).

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: name of the producer group; any member can answer for the transactions of another.
      serializer: converts bodies that are neither bytes nor str to bytes or str; None: there are
        no such bodies.
      options: see ProducerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    @overload
    def __init__(
        self: Producer[PlainBody],
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: None = None,
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: Callable[[SentT], bytes | str],
        **options: Unpack[ProducerOptions],
    ) -> None: ...
    @explained
    def __init__(
        self,
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        serializer: Any = None,
        **options: Unpack[ProducerOptions],
    ) -> None:
        config, client_options = split_options(ProducerConfig, options, serializer=serializer)
        super().__init__(client, client_options, group, check_producer_group)
        self._trace = producer_trace(self._client, self._group, config.trace)
        self._traces = self._trace.dispatcher if self._trace else None
        on_sent = self._trace.on_sent if self._trace else None
        self._sender = Sender(self._client, self._group, config, self._check_open, on_sent)
        self._buffer = SendBuffer(config.send_buffer_count_max, config.send_buffer_size_max)
        self._accumulator = (
            ProduceAccumulator(self._client, self._sender) if config.linger_s else None
        )
        # Bound once: fewer objects for each unconfirmed message, and so fewer garbage collections.
        self._take_end = self._finish
        self._replies = RequestReply(self._client, self._group, self._sender)
        self._processors: dict[int, Processor] = {
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._replies.on_reply
        }
        self._member = GroupMember(
            self._group,
            lambda: ProducerData(group_name=self._group),
            lambda: self._sender.packer.topics,
            processors=self._processors,
        )

    @property
    def sender(self) -> Sender:
        """The Sender of this producer; used by the blocking producer, not meant for programs."""
        return self._sender

    @property
    def accumulator(self) -> ProduceAccumulator | None:
        """Its batches, with `linger_s`; used by the blocking producer, not meant for programs."""
        return self._accumulator

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
                if self._accumulator is not None:
                    await self._accumulator.close()
                await self.drain()
        except UndeliveredError:
            if error is None:
                raise
            logger.exception("messages were not delivered when the producer was closed")
        finally:
            await super().__aexit__(kind, error, traceback)

    # Sending

    async def send(
        self,
        message: Message[SentT | str | bytes],
        *more: Never,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
        **unknown: Never,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        A failed attempt is repeated on another broker, up to `retry_times` times within the time
        limit, and while no broker can be reached, until the time limit. The message may be stored
        twice: by an attempt whose answer was lost, and by the next one. Messages that are sent one
        after the other stay in order only on one queue.

        A message for a certain queue (given by `queue`, `selector` or its sharding key) is tried
        only once, because on another queue it would be out of order, and after a lost answer it
        could be stored behind the next one.

        Args:
          message: the message.
          queue: the queue to send to; None: the queues of the topic in turn.
          selector: chooses the queue; ignored if `queue` is given.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Raises:
          MessageRefusedError: no broker would accept the message.
          RouteNotFoundError: no name server knows the topic.
          SendError: all attempts failed. If one timed out, the message may be stored all the same.
          ServerError: the broker refused the message, and would refuse it again.
          ConnectError: no name server answered.
          ClosedError: the producer is not open.
          ForkedError: the producer was opened in the parent of this process.
        """
        if unknown:
            refuse_names("send", unknown)
        if more:
            raise wrong_arguments("send", message, more)
        interceptors = self._client.interceptors
        if not interceptors:
            if self._accumulator is not None:
                return await self._send(message, queue, selector, timeout_s)
            return await self._sender.send(self._new_send(message, queue, selector, timeout_s))
        message = call_before_send(interceptors, message)
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            result = await self._send(message, queue, selector, timeout_s)
        except Exception as error:
            failure = error
            raise
        finally:
            call_after_send(interceptors, message, result, failure)
        return result

    async def _send(
        self,
        message: Message[SentT | str | bytes],
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
    ) -> SendResult:
        """Send a message alone, or in the next batch if there are automatic ones."""
        accumulator = self._accumulator
        if accumulator is not None and selector is None:
            delivery = Delivery(message)
            if accumulator.take(message, queue, timeout_s, delivery.settle):
                return await delivery.wait()
        return await self._sender.send(self._new_send(message, queue, selector, timeout_s))

    def _new_send(
        self,
        message: Message[SentT | str | bytes],
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
    ) -> Send:
        prepared = self._sender.packer.message(message)
        return self._sender.new_send(prepared, queue, selector, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message[SentT | str | bytes]],
        *more: Never,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request: all are stored in one queue, or none is.

        Args:
          messages: at least one; together at most `message_size_max` bytes of bodies.
          queue: the queue to send to; None: the queues of the topic in turn.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Raises: MessageRefusedError: there are no messages, they have several topics, one is
          delayed, or they are too large together; and as `send`.
        """
        if more:
            raise wrong_arguments("send_batch", messages, more)
        check_batch(messages)
        interceptors = self._client.interceptors
        if interceptors:
            messages = [call_before_send(interceptors, message) for message in messages]
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            prepared = self._sender.packer.batch(messages)
            result = await self._sender.send(
                self._sender.new_send(prepared, queue, timeout_s=timeout_s)
            )
        except Exception as error:
            failure = error
            raise
        finally:
            for message in messages:
                call_after_send(self._client.interceptors, message, result, failure)
        return result

    async def send_oneway(
        self, message: Message[SentT | str | bytes], *more: Never, queue: MessageQueue | None = None
    ) -> None:
        """Send a message that the broker does not confirm; it may be lost.

        Args:
          message: the message.
          queue: the queue to send to; None: the queues of the topic in turn.

        Raises:
          MessageRefusedError: no broker would accept the message.
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered, or the broker cannot be reached.
          ClosedError: the producer is not open.
          ForkedError: the producer was opened in the parent of this process.
        """
        if more:
            raise wrong_arguments("send_oneway", message, more)
        check_sendable(message, "send_oneway")
        message = call_before_send(self._client.interceptors, message)
        sender = self._sender
        await sender.send_oneway(sender.new_send(sender.packer.message(message), queue))
        call_after_send(self._client.interceptors, message, None, None)

    async def send_soon(
        self,
        message: Message[SentT | str | bytes],
        *more: Never,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Send a message without waiting for its confirmation.

        It waits only while the buffer is full (`send_buffer_count_max`, `send_buffer_size_max`), or
        until the route of the topic and the connection to the broker are available. Messages to one
        queue can change places if one of them is retried.

        Args:
          message: the message.
          queue: the queue to send to; None: the queues of the topic in turn.
          timeout_s: seconds for the first attempt, and again for all further ones together; None:
            the producer's `send_timeout_s`.

        Returns: a Delivery, to be awaited or left to `drain`. Later errors are raised by it.
        Raises:
          MessageRefusedError: no broker would accept the message.
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered.
          ClosedError: the producer is not open.
          ForkedError: the producer was opened in the parent of this process.
        """
        if more:
            raise wrong_arguments("send_soon", message, more)
        if message.__class__ is not Message:
            check_sendable(message, "send_soon")
        client, sender = self._client, self._sender
        if client.interceptors:
            message = call_before_send(client.interceptors, message)
        if self._accumulator is not None:
            entry = self._accumulator.entry(message)
            if entry is not None:
                return await self._put_soon(self._accumulator, entry, queue, timeout_s)
        prepared = sender.packer.message(message)
        size = len(prepared.payload.body)
        if not self._buffer.has_room(size):
            await self._buffer.wait_for_room(size)
        send = sender.new_send(prepared, queue, timeout_s=timeout_s)
        delivery = Delivery(message)
        on_end = partial(self._take_end, delivery, size)
        if not sender.begin(send, self._spawn, on_end):
            # Awaited here and not in a background task, so that messages keep their order.
            await sender.begin_when_ready(send, self._spawn, on_end)
        # Counted only now: after an error above, no message is in flight.
        self._buffer.enter(size)
        return delivery

    async def _put_soon(
        self,
        accumulator: ProduceAccumulator,
        entry: BatchEntry,
        queue: MessageQueue | None,
        timeout_s: float | None,
    ) -> Delivery:
        """`send_soon` for a message that is sent in the next batch."""
        if not self._buffer.has_room(entry.size):
            # Nothing is gained by waiting for more messages: there is no room for them.
            accumulator.flush()
            await self._buffer.wait_for_room(entry.size)
        delivery = Delivery(entry.message)
        on_end = partial(self._take_end, delivery, entry.size)
        accumulator.put(entry, queue, timeout_s, on_end)
        self._buffer.enter(entry.size)
        return delivery

    def _spawn(self, finish: Finish, send: Send, on_end: OnEnd) -> None:
        """Make the attempts after the first one in the background, with a new time limit."""
        send.restart(self._client.now_s())
        self._client.start_soon(finish, send, on_end)

    def _finish(
        self, delivery: Delivery, size: int, result: SendResult | None, error: ClientError | None
    ) -> None:
        self._buffer.leave(delivery, size, result, error)
        if self._client.interceptors:
            call_after_send(self._client.interceptors, delivery.message, result, error)

    async def drain(self) -> None:
        """Wait until all messages of `send_soon` are confirmed or given up.

        Raises: UndeliveredError: messages were given up, and their Delivery was not looked at.
        """
        if self._accumulator is not None:
            self._accumulator.flush()
        await self._buffer.drain()

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Cancel a delayed message before it is delivered (brokers of 5.x).

        Args:
          topic: topic of the message.
          recall_handle: the `recall_handle` of its SendResult.

        Returns: the id of the message.
        Raises:
          ServerError: it is too late, or the broker does not support it.
          ConfigurationError: `recall_handle` is invalid.
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered, or the broker cannot be reached.
          ClosedError: the producer is not open.
        """
        self._check_open()
        full = self._client.with_namespace(topic)
        await self._sender.publish_info(full)
        try:
            handle = RecallHandle.from_text(recall_handle)
        except ValueError as error:
            raise ConfigurationError(f"not a recall handle: {error}") from None
        header = RecallMessageRequestHeader(
            producer_group=self._group,
            topic=full,
            recall_handle=recall_handle,
            broker_name=handle.broker_name,
        )
        address = self._client.master_address(handle.broker_name)
        code = RequestCode.RECALL_MESSAGE
        answer = await self._client.call(address, self._client.command(code, header))
        if self._trace is not None:
            self._trace.on_recalled(topic, handle, answer)
        if answer.code != ResponseCode.SUCCESS:
            raise server_error(answer.code, answer.remark, address, request_name(code))
        return answer.ext_fields.get("msgId", "")

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic.

        Raises:
          RouteNotFoundError: no name server knows the topic.
          ConnectError: no name server answered.
          ClosedError: the producer is not open.
        """
        self._check_open()
        return list((await self._sender.publish_info(self._client.with_namespace(topic))).queues)

    async def resend(
        self, dead_letter: ReceivedMessage, *, timeout_s: float | None = None
    ) -> SendResult:
        """Send a dead letter to its original topic again, where all groups receive it.

        The new message has another id. Its properties DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID
        name the topic and the id of the dead letter, which stays in the dead-letter topic.

        Args:
          dead_letter: a message of `Admin.dead_letters`, or of a consumer of `%DLQ%group`.
          timeout_s: seconds for all attempts; None: the producer's `send_timeout_s`.

        Raises: MessageRefusedError: it is no dead letter; and as `send`.
        """
        message, origin = revive(dead_letter, self._client.without_namespace)
        prepared = self._sender.packer.message(message, origin)
        return await self._sender.send(self._sender.new_send(prepared, timeout_s=timeout_s))

    # Request and reply

    async def request(
        self,
        message: Message[SentT | str | bytes],
        *more: Never,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> ReceivedMessage:
        """Send a request message and wait for a consumer's reply; see `replying` for the consumer.

        Args:
          message: the request.
          queue: the queue to send to; None: the queues of the topic in turn.
          selector: chooses the queue; ignored if `queue` is given.
          timeout_s: seconds for the send and the reply together; None: the client's `timeout_s`.

        Raises: ReplyTimeoutError: no reply arrived in time; and as `send`.
        """
        if more:
            raise wrong_arguments("request", message, more)
        check_sendable(message, "request")
        refuse_by(self._client.grpc, "a request", _NO_REPLIES)
        if timeout_s is None:
            timeout_s = self._client.timeout_s
        else:
            check_timeout("timeout_s", timeout_s)
        return await self._replies.request(message, timeout_s, queue, selector)

    async def reply(
        self,
        request: ReceivedMessage,
        body: SentT | str | bytes,
        *,
        tags: str | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Reply to a message that was sent by `request`.

        Args:
          request: the received request message.
          body: body of the reply; see `Message`.
          tags: tag of the reply; None: no tag.
          properties: the program's own properties of the reply; None: none.

        Raises: MessageRefusedError: the message is not a request; and as `send`.
        """
        self._check_open()
        refuse_by(self._client.grpc, "a reply", _NO_REPLIES)
        await self._replies.reply(request, body, tags, properties)
