"""Sending: confirmed, pipelined, oneway, in batches, in order, delayed, and asking for a reply.

Java counterpart: DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

from ..remoting.bodies import MessageQueue, ProducerData
from ..remoting.headers import RecallMessageRequestHeader
from ..remoting.recall_handle import RecallHandle
from ..remoting.request_codes import RequestCode
from .client import Client
from .core.sending import Selector, Sending
from .core.topics import check_producer_group
from .delivery import Delivery, SendBuffer
from .errors import ClientError, ConfigurationError, UndeliveredError
from .interceptor import tell_sent
from .members import GroupMember, Process
from .message import Message, ReceivedMessage, SendResult
from .options import split_options
from .participant import Participant, configured, own_client
from .request_reply import RequestReply
from .send_options import DEFAULT_GROUP, ProducerConfig, ProducerOptions
from .sender import Finish, OnEnd, Sender

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


class Producer(Participant):
    """Sends messages.

    Use: `async with Producer("rocketmq://127.0.0.1:9876") as producer:`, under trio or asyncio.
    Leaving the block waits for what `send_soon` took (`drain`).

    Args:
      client: a URL, or an open Client that is shared with others.
      group: of producers that stand in for one another.
      options: see ProducerOptions; those of ClientOptions only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(
        self,
        client: str | Client,
        *,
        group: str = DEFAULT_GROUP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        config, client_options = split_options(ProducerConfig, options)
        super().__init__(client, client_options, group, check_producer_group)
        self._sender = Sender(self._client, self._group, config)
        self._buffer = SendBuffer(config.send_buffer_count_max, config.send_buffer_size_max)
        # Bound once: each object that a message under way needs is one more for the collector.
        self._take_end = self._finish
        self._replies = RequestReply(self._client, self._group, self._sender)
        self._processors: dict[int, Process] = {
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
        """Carries out the sends: for the blocking producer, not for programs."""
        return self._sender

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None or issubclass(kind, Exception):
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
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send a message and wait until a broker has stored it.

        A failed try is repeated on another broker, `retry_times` times within the time; a message
        may then be stored twice. A message for a certain queue (given here, by a selector, or by
        its sharding key) is tried once: elsewhere it would be out of order.

        Args:
          queue: where to; None: a queue of the topic in turn.
          selector: chooses the queue.
          timeout_s: seconds for all tries; None: the client's.

        Raises:
          MessageRefusedError: no broker would take it.
          RouteNotFoundError: no name server knows the topic.
          SendError: all tries failed; the message may be stored nevertheless if one timed out.
          ServerError: the broker refused it, and would refuse it again.
          ClosedError; ForkedError; ConnectError: no name server answers.
        """
        interceptors = self._client.interceptors
        if not interceptors:
            return await self._sender.send(self._sending(message, queue, selector, timeout_s))
        for interceptor in interceptors:
            message = interceptor.before_send(message)
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            sending = self._sending(message, queue, selector, timeout_s)
            result = await self._sender.send(sending)
        except Exception as error:
            failure = error
            raise
        finally:
            tell_sent(interceptors, message, result, failure)
        return result

    def _sending(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
    ) -> Sending:
        outgoing = self._sender.packer.message(message)
        return self._sender.sending(outgoing, queue, selector, timeout_s)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request; all are stored in one queue, or none.

        Raises: MessageRefusedError: none, of several topics, delayed, or too large together; and
          as `send`.
        """
        for interceptor in self._client.interceptors:
            messages = [interceptor.before_send(message) for message in messages]
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            outgoing = self._sender.packer.batch(messages)
            result = await self._sender.send(
                self._sender.sending(outgoing, queue, timeout_s=timeout_s)
            )
        except Exception as error:
            failure = error
            raise
        finally:
            for message in messages:
                tell_sent(self._client.interceptors, message, result, failure)
        return result

    async def send_oneway(self, message: Message, *, queue: MessageQueue | None = None) -> None:
        """Send a message without waiting for anything: it may be lost.

        Raises: MessageRefusedError; RouteNotFoundError; ConnectError: the broker is not there.
        """
        for interceptor in self._client.interceptors:
            message = interceptor.before_send(message)
        sender = self._sender
        sending = sender.sending(sender.packer.message(message), queue)
        sending.choose(await sender.publish_info(sending.outgoing.topic), self._client.now_s())
        connection = await sender.connect(sending)
        connection.send_oneway(sending.outgoing.encode(sending.queue, 0, oneway=True))
        tell_sent(self._client.interceptors, message, None, None)

    async def send_soon(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> Delivery:
        """Send a message without waiting for its confirmation.

        Waits only while the buffer is full, or where the topic's route or the broker's connection
        are not there yet. Messages to one queue may change places if one is tried again.

        Returns: a Delivery, to be awaited or left to `drain`.
        Raises: MessageRefusedError; RouteNotFoundError; ClosedError; ForkedError; ConnectError: no
          name server answers. Anything else is the Delivery's.
        """
        client, sender = self._client, self._sender
        for interceptor in client.interceptors:
            message = interceptor.before_send(message)
        outgoing = sender.packer.message(message)
        size = len(outgoing.payload.body)
        if not self._buffer.has_room(size):
            await self._buffer.wait_for_room(size)
        sending = sender.sending(outgoing, queue, timeout_s=timeout_s)
        delivery = Delivery(message)
        on_end = partial(self._take_end, delivery, size)
        if not sender.begin(sending, self._spawn, on_end):
            # Awaited here, not behind the caller's back: messages keep their order.
            await sender.begin_when_ready(sending, self._spawn, on_end)
        # Only now: whatever raised before is the caller's, and nothing is under way.
        self._buffer.enter(size)
        return delivery

    def _spawn(self, finish: Finish, sending: Sending, on_end: OnEnd) -> None:
        """Run the tries after the first one, which have the whole time: nothing waits for them."""
        sending.restart(self._client.now_s())
        self._client.start_soon(finish, sending, on_end)

    def _finish(
        self, delivery: Delivery, size: int, result: SendResult | None, error: ClientError | None
    ) -> None:
        self._buffer.leave(delivery, size, result, error)
        if self._client.interceptors:
            tell_sent(self._client.interceptors, delivery.message, result, error)

    async def drain(self) -> None:
        """Wait until everything that `send_soon` took is confirmed or given up.

        Raises: UndeliveredError: some were given up, and their Delivery was not looked at.
        """
        await self._buffer.drain()

    async def recall(self, topic: str, recall_handle: str) -> str:
        """Take a delayed message back before it becomes visible (5.x brokers).

        Args:
          recall_handle: of its SendResult.

        Returns: the message's id.
        Raises: ServerError: it is too late, or the broker does not know how.
        """
        full = self._client.with_namespace(topic)
        await self._sender.publish_info(full)
        header = RecallMessageRequestHeader(
            producer_group=self._group, topic=full, recall_handle=recall_handle
        )
        try:
            broker_name = RecallHandle.from_text(recall_handle).broker_name
        except ValueError as error:
            raise ConfigurationError(f"not a recall handle: {error}") from None
        address = self._client.master_address(broker_name)
        answer = await self._client.request(address, RequestCode.RECALL_MESSAGE, header)
        return answer.ext_fields.get("msgId", "")

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be written to.

        Raises: RouteNotFoundError; ConnectError.
        """
        return list((await self._sender.publish_info(self._client.with_namespace(topic))).queues)

    async def send_again(
        self,
        topic: str,
        body: bytes,
        flag: int,
        properties: Mapping[str, str],
        *,
        reconsume_times: int,
        max_reconsume_times: int,
    ) -> SendResult:
        """Send what was a message before, with all its properties, to a retry topic.

        Args:
          topic: with namespace.
          reconsume_times: how often it was consumed.
          max_reconsume_times: how often it may be: then the broker puts it to the dead letters.

        Raises: as `send`.
        """
        outgoing = self._sender.packer.again(
            Message(topic, body, flag=flag),
            properties,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        return await self._sender.send(self._sender.sending(outgoing))

    # Request and reply

    async def request(self, message: Message, *, timeout_s: float | None = None) -> ReceivedMessage:
        """Send a message and wait for its consumer's reply.

        Args:
          timeout_s: seconds for sending, consuming and replying; None: the client's.

        Raises: ReplyTimeoutError: stored, but not replied to; and as `send`.
        """
        timeout_s = self._client.timeout_s if timeout_s is None else timeout_s
        return await self._replies.request(message, timeout_s)

    async def reply(self, request: ReceivedMessage, body: Any, *, tags: str | None = None) -> None:
        """Reply to a message that was sent by `request`.

        Raises: MessageRefusedError: the message asks for no reply; and as `send`.
        """
        await self._replies.reply(request, body, tags)
