"""Sending: confirmed, pipelined, oneway, in batches, in order, delayed, and asking for a reply.

Java counterpart: DefaultMQProducer, DefaultMQProducerImpl.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Unpack

import anyio

from ..common.java_hash import java_hash_code
from ..remoting.bodies import MessageQueue, ProducerData
from ..remoting.codec import RemotingCommand
from ..remoting.headers import RecallMessageRequestHeader
from ..remoting.recall_handle import RecallHandle
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .client import Client
from .connection import Connection
from .core.fault_strategy import FaultStrategy, RoundRobinIndex
from .core.routes import TopicPublishInfo
from .core.topics import check_producer_group
from .delivery import Delivery, SendBuffer
from .errors import (
    Attempt,
    ClientError,
    ClosedError,
    ConfigurationError,
    ConnectError,
    ForkedError,
    MessageRefusedError,
    RequestTimeoutError,
    SendError,
    ServerError,
    UndeliveredError,
    server_error,
)
from .interceptor import tell_sent
from .members import GroupMember, Process
from .message import Message, ReceivedMessage, SendResult, SendStatus
from .options import split_options
from .outgoing import Outgoing, Packer
from .participant import Participant, configured, own_client
from .request_reply import RequestReply
from .send_options import (
    DEFAULT_GROUP,
    RETRY_CODES,
    RETRY_PAUSE_S,
    STORED,
    ProducerConfig,
    ProducerOptions,
)

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

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""Chooses the queue of a message among all of its topic."""


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
        self._config, client_options = split_options(ProducerConfig, options)
        super().__init__(client, client_options, group, check_producer_group)
        config = self._config
        self._strategy = FaultStrategy(send_latency_fault_enable=config.send_latency_fault_enable)
        self._indexes: dict[str, RoundRobinIndex] = {}
        self._packer = Packer(self._client, self._group, config)
        self._buffer = SendBuffer(config.send_buffer_count_max, config.send_buffer_size_max)
        self._replies = RequestReply(
            self._client, self._group, self._packer, config.default_topic_queue_nums, self._send_any
        )
        self._processors: dict[int, Process] = {
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._replies.on_reply
        }
        self._member = GroupMember(
            self._group,
            lambda: ProducerData(group_name=self._group),
            lambda: self._packer.topics,
            processors=self._processors,
        )

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
          RouteNotFoundError: nobody knows the topic.
          SendError: all tries failed; the message may be stored nevertheless if one timed out.
          ServerError: the broker refused it, and would refuse it again.
          ClosedError; ForkedError; ConnectError: no name server answers.
        """
        interceptors = self._client.interceptors
        if not interceptors:
            return await self._send(self._packer.message(message), queue, selector, timeout_s)
        for interceptor in interceptors:
            message = interceptor.before_send(message)
        result: SendResult | None = None
        failure: Exception | None = None
        try:
            result = await self._send(self._packer.message(message), queue, selector, timeout_s)
        except Exception as error:
            failure = error
            raise
        finally:
            tell_sent(interceptors, message, result, failure)
        return result

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
            result = await self._send(self._packer.batch(messages), queue, None, timeout_s)
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
        outgoing = self._packer.message(message)
        info = await self._publish_info(outgoing.topic)
        queue = self._fixed_queue(outgoing, info, queue, None) or self._select(info, None)
        connection = await self._connection(queue.broker_name)
        await connection.wait_writable()
        connection.send_oneway(outgoing.encode(queue, 0, oneway=True))
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
        client = self._client
        for interceptor in client.interceptors:
            message = interceptor.before_send(message)
        outgoing = self._packer.message(message)
        size = len(outgoing.body)
        if self._buffer.is_full(size):
            await self._buffer.wait_for_room(size)
        client.check_open()
        info = client.known_publish_info(outgoing.topic)
        if info is None:
            info = await self._publish_info(outgoing.topic)
        fixed = self._fixed_queue(outgoing, info, queue, None)
        chosen = fixed or self._select(info, None)
        if timeout_s is None:
            timeout_s = client.timeout_s
        delivery = Delivery(message)
        address = client.broker_address(chosen.broker_name)
        connection = client.open_connection(address) if address else None
        if connection is None:
            # Awaited here, not behind the caller's back: messages keep their order.
            try:
                connection = await self._connection(chosen.broker_name)
            except ConnectError:
                self._buffer.take(size)
                tries = partial(self._send, outgoing, fixed, None, timeout_s)
                client.start_soon(self._deliver, delivery, outgoing, tries)
                return delivery
        opaque = client.next_opaque()
        sent_s = self._client.now_s()

        def on_answer(answer: RemotingCommand | ClientError) -> None:
            if isinstance(answer, RemotingCommand) and answer.code == 0:
                now_s = self._client.now_s()
                self._note_success(chosen.broker_name, sent_s, now_s)
                self._settle(delivery, outgoing, chosen, answer)
                return
            tries = partial(self._go_on, outgoing, fixed, chosen, answer, sent_s, timeout_s)
            try:
                client.start_soon(self._deliver, delivery, outgoing, tries)
            except ClientError as error:
                # The client was closed, or this is a child process: there is no other try.
                self._finish(delivery, outgoing, None, error)

        connection.submit(outgoing.encode(chosen, opaque), opaque, on_answer, timeout_s)
        # Only now: whatever raised before is the caller's, and nothing is under way.
        self._buffer.take(size)
        if connection.is_backed_up:
            await connection.wait_writable()
        return delivery

    async def drain(self) -> None:
        """Wait until everything that `send_soon` took is confirmed or given up.

        Raises: UndeliveredError: some were given up, and nobody looked at their Delivery.
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
        await self._publish_info(full)
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
        return list((await self._publish_info(self._client.with_namespace(topic))).queues)

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
        outgoing = self._packer.again(
            Message(topic, body, flag=flag),
            properties,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        return await self._send(outgoing, None, None, None)

    # Request and reply

    async def request(self, message: Message, *, timeout_s: float | None = None) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it.

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

    # One try, and all tries

    async def _publish_info(self, topic: str) -> TopicPublishInfo:
        return await self._client.publish_info(topic, self._config.default_topic_queue_nums)

    def _select(self, info: TopicPublishInfo, last_broker: str | None) -> MessageQueue:
        index = self._indexes.get(info.topic)
        if index is None:
            # Many producers that start together shall not march in step.
            index = self._indexes[info.topic] = RoundRobinIndex(random.getrandbits(31))
        now_ms = self._client.now_s() * 1000
        queue = self._strategy.select(info, index, now_ms=now_ms, last_broker_name=last_broker)
        assert queue is not None  # publish_info gives no empty ones
        return queue

    def _fixed_queue(
        self,
        outgoing: Outgoing,
        info: TopicPublishInfo,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> MessageQueue | None:
        """The one queue that a message has to go to, if there is one."""
        if queue is not None:
            if queue.topic in (outgoing.topic, outgoing.message.topic):
                return queue
            raise ConfigurationError(
                f"a queue of {queue.topic} for a message to {outgoing.message.topic}"
            )
        if selector is not None:
            return selector(info.queues, outgoing.message)
        key = outgoing.message.sharding_key
        if key is not None:
            return info.queues[abs(java_hash_code(key)) % len(info.queues)]
        return None

    async def _connection(self, broker_name: str) -> Connection:
        address = self._client.master_address(broker_name)
        return self._client.open_connection(address) or await self._client.connection(address)

    async def _send_any(self, outgoing: Outgoing, timeout_s: float) -> SendResult:
        return await self._send(outgoing, None, None, timeout_s)

    async def _send(
        self,
        outgoing: Outgoing,
        queue: MessageQueue | None,
        selector: Selector | None,
        timeout_s: float | None,
        attempts: Sequence[Attempt] = (),
    ) -> SendResult:
        """All tries of one message."""
        client = self._client
        client.check_open()
        if timeout_s is None:
            timeout_s = client.timeout_s
        topic = outgoing.topic
        start_s = self._client.now_s()
        made = list(attempts)
        last_broker = made[-1].broker_name if made else None
        while True:
            info = client.known_publish_info(topic) or await self._publish_info(topic)
            fixed = self._fixed_queue(outgoing, info, queue, selector)
            chosen = fixed or self._select(info, last_broker)
            if chosen.broker_name == last_broker and isinstance(made[-1].error, ConnectError):
                # There is no other broker: this one may be about to come back. The tries that
                # are left shall have their time, too.
                pause_s = RETRY_PAUSE_S * 2 ** (len(made) - 1)
                left_s = timeout_s - (client.now_s() - start_s)
                await anyio.sleep(min(pause_s, max(left_s, 0) / 4))
            begin_s = self._client.now_s()
            left_s = timeout_s - (begin_s - start_s)
            if left_s <= 0 and made:
                break
            try:
                result = await self._send_once(outgoing, chosen, max(left_s, 0.001))
            except (MessageRefusedError, ClosedError, ForkedError):
                # No broker's fault, and no other try is better.
                raise
            except ClientError as error:
                self._note_failure(chosen.broker_name, error, begin_s, topic, made)
                last_broker = chosen.broker_name
                if isinstance(error, ServerError) and error.code not in RETRY_CODES:
                    raise
            else:
                if result.status is SendStatus.SEND_OK or not self._config.retry_when_not_stored_ok:
                    return result
                if len(made) >= self._config.retry_times:
                    return result
                not_ok = server_error(result.status, "", chosen.broker_name, "SEND_MESSAGE_V2")
                made.append(Attempt(chosen.broker_name, self._client.now_s() - begin_s, not_ok))
            if fixed is not None or len(made) > self._config.retry_times:
                break
        raise SendError(outgoing.message.topic, made) from made[-1].error

    async def _send_once(
        self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float
    ) -> SendResult:
        connection = await self._connection(queue.broker_name)
        if connection.is_backed_up:
            await connection.wait_writable()
        opaque = self._client.next_opaque()
        frame = outgoing.encode(queue, opaque)
        sent_s = self._client.now_s()
        answer = await connection.exchange(frame, opaque, timeout_s, RequestCode.SEND_MESSAGE_V2)
        now_s = self._client.now_s()
        if answer.code not in STORED:
            raise server_error(answer.code, answer.remark, connection.address, "SEND_MESSAGE_V2")
        self._note_success(queue.broker_name, sent_s, now_s)
        return outgoing.result(answer, queue)

    async def _go_on(
        self,
        outgoing: Outgoing,
        fixed: MessageQueue | None,
        chosen: MessageQueue,
        answer: RemotingCommand | ClientError,
        sent_s: float,
        timeout_s: float,
    ) -> SendResult:
        """What `send` does once a first try, made without it, was not plainly confirmed.

        Args:
          fixed: the one queue that the message has to go to; None: any.
          chosen: the queue that was tried.
          sent_s: when, by the loop's clock.
          timeout_s: seconds for all further tries; none are made if it is not above 0.

        Raises: as `send`.
        """
        error: ClientError
        if isinstance(answer, ClientError):
            error = answer
        elif answer.code in STORED:
            return outgoing.result(answer, chosen)
        else:
            address = self._client.broker_address(chosen.broker_name) or chosen.broker_name
            error = server_error(answer.code, answer.remark, address, "SEND_MESSAGE_V2")
        made: list[Attempt] = []
        self._note_failure(chosen.broker_name, error, sent_s, outgoing.topic, made)
        if isinstance(error, ServerError) and error.code not in RETRY_CODES:
            raise error
        if fixed is not None or self._config.retry_times == 0 or timeout_s <= 0:
            raise SendError(outgoing.message.topic, made) from error
        return await self._send(outgoing, None, None, timeout_s, made)

    def _note_success(self, broker_name: str, sent_s: float, now_s: float) -> None:
        if self._config.send_latency_fault_enable:
            self._strategy.update(broker_name, (now_s - sent_s) * 1000, False, True, now_s * 1000)

    def _note_failure(
        self,
        broker_name: str,
        error: ClientError,
        begin_s: float,
        topic: str,
        attempts: list[Attempt],
    ) -> None:
        now_s = self._client.now_s()
        attempts.append(Attempt(broker_name, now_s - begin_s, error))
        is_silent = isinstance(error, ConnectError | RequestTimeoutError)
        self._strategy.update(broker_name, (now_s - begin_s) * 1000, True, True, now_s * 1000)
        if is_silent:
            self._client.refresh_soon()
        elif isinstance(error, ServerError) and error.code == ResponseCode.TOPIC_NOT_EXIST:
            self._client.forget_route(topic)

    # What becomes of send_soon

    async def _deliver(
        self, delivery: Delivery, outgoing: Outgoing, tries: Callable[[], Awaitable[SendResult]]
    ) -> None:
        result: SendResult | None = None
        # What stays if this task is cancelled, or has a bug: `drain` waits for every message.
        failure: ClientError | None = ClosedError("the client was closed before it was confirmed")
        try:
            result = await tries()
            failure = None
        except ClientError as error:
            failure = error
        finally:
            self._finish(delivery, outgoing, result, failure)

    def _settle(
        self, delivery: Delivery, outgoing: Outgoing, queue: MessageQueue, answer: RemotingCommand
    ) -> None:
        """The broker has stored it; an answer that cannot be read fails the delivery only."""
        try:
            result = outgoing.result(answer, queue)
        except ClientError as error:
            self._finish(delivery, outgoing, None, error)
        else:
            self._finish(delivery, outgoing, result, None)

    def _finish(
        self,
        delivery: Delivery,
        outgoing: Outgoing,
        result: SendResult | None,
        error: ClientError | None,
    ) -> None:
        self._buffer.finish(delivery, len(outgoing.body), result, error)
        tell_sent(self._client.interceptors, delivery.message, result, error)
