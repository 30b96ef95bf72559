"""Consume results: delivered messages are acknowledged, or sent back for redelivery.

Java counterpart: processConsumeResult of ConsumeMessageConcurrentlyService and
ConsumeMessageOrderlyService, DefaultMQPushConsumerImpl.sendMessageBack.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from ...common import message_properties as names
from ...common.topic_names import retry_topic
from ...remoting.bodies import MessageModel
from ...remoting.headers import ConsumerSendMsgBackRequestHeader
from ...remoting.message import MessageExt
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..connection.patience import wait_a_little
from ..core.topics import CLIENT_INNER_PRODUCER_GROUP
from ..errors import ClientError, ClosedError
from ..messages.interceptor import Interceptor, call_after_consume
from ..messages.message import Message, SendStatus, for_log
from ..options.push_options import (
    CONSUME_AGAIN_S,
    MAX_RECONSUME_TIMES,
    PushConsumerConfig,
    RetryLater,
)
from ..options.send_options import ProducerConfig
from ..pulling.offsets import OffsetStore
from ..pulling.pulls import broker_of
from ..sending.sender import Sender
from ..tasks import clock
from .pushed_message import AssignedQueue, PushedMessage, assigned_queue

logger = logging.getLogger(__name__)


class ConsumeResultService:
    """Settles the messages of one consumer, and delivers the next message of an orderly queue.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      offsets: updated when messages are settled.
      hand_out: called with messages that are ready for delivery.
      interceptors: they see each message that is settled.
      renew_locks_soon: called when a lock is too old for a message of its queue to be delivered.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        offsets: OffsetStore,
        hand_out: Callable[[Sequence[PushedMessage]], None],
        interceptors: Sequence[Interceptor],
        renew_locks_soon: Callable[[], None],
    ) -> None:
        self._client = client
        self._interceptors = interceptors
        self._group = group
        self._config = config
        self._offsets = offsets
        self._hand_out = hand_out
        self._renew_locks_soon = renew_locks_soon
        self._is_clustering = config.message_model is MessageModel.CLUSTERING
        producer_group = client.with_namespace(CLIENT_INNER_PRODUCER_GROUP)
        # Queue 0 alone is sure to exist while no name server knows the retry topic yet.
        sends = ProducerConfig(default_topic_queue_nums=1)
        self._sender = Sender(client, producer_group, sends, client.check_open)

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Converts the body of a message to its `value`."""
        return self._config.deserializer

    def hand_out_next(self, assigned: AssignedQueue) -> None:
        """Deliver the next message of an orderly queue, unless one is being consumed.

        When the lock is too old, nothing is delivered until it is renewed.
        """
        if assigned.is_leaving or assigned.is_dropped:
            return
        if assigned.is_handed_out:
            if assigned.in_hand and assigned.process_queue.has_waiting:
                self._hand_out(())  # a batch of the queue may be waiting for more
            return
        message = self._next_in_order(assigned)
        if message is not None:
            self._hand_out([message])

    def _next_in_order(self, assigned: AssignedQueue) -> PushedMessage | None:
        now_ms = clock.monotonic_ms()
        if self._is_lock_over(assigned, now_ms):
            return None
        taken = assigned.process_queue.take(1, now_ms=now_ms)
        for message in taken:
            assigned.put_in_hand(message)
        return taken[0] if taken else None

    def take_next(self, message: PushedMessage) -> PushedMessage | None:
        """Hand out the message behind one of an orderly queue that is in hand, for a batch.

        Returns: it; None if there is none at the moment.
        """
        assigned = assigned_queue(message)
        following = assigned.process_queue.oldest
        is_over = assigned.is_leaving or assigned.is_dropped or assigned.is_paused
        # A retry topic has messages of several topics.
        if is_over or following is None or following.topic != message.topic:
            return None
        return self._next_in_order(assigned)

    def may_deliver(self, message: PushedMessage) -> bool:
        """Whether a message that was handed out may still be given to the program.

        The process may have stood still meanwhile, and another member may have the queue. Then the
        message goes back to its queue.
        """
        assigned = assigned_queue(message)
        if not assigned.is_in_hand(message):
            return True  # of no orderly queue
        if not self._is_lock_over(assigned, clock.monotonic_ms()):
            return True
        assigned.process_queue.rollback()
        assigned.is_handed_out = False
        assigned.settle(message)
        return False

    def _is_lock_over(self, assigned: AssignedQueue, now_ms: float) -> bool:
        """Whether another member may have the lock of an orderly queue; then it is renewed soon."""
        if not self._is_clustering or not assigned.process_queue.is_lock_expired(now_ms):
            return False
        self._renew_locks_soon()
        return True

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Acknowledge a message, so that the group's offset can move past it."""
        if self._interceptors:
            call_after_consume(self._interceptors, message, None)
        if assigned.process_queue.is_dropped:
            assigned.settle(message)
        elif self._config.is_orderly:
            self._finish(message, assigned)
        else:
            self._remove(message, assigned)

    def put_back(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """Deliver a message again, and count no delivery: an orderly one after a pause."""
        call_after_consume(self._interceptors, message, RetryLater())
        if assigned.is_dropped:
            assigned.settle(message)
            return
        again = message.again(self, is_counted=False)
        if self._config.is_orderly:
            self._finish(message, assigned, again)
        else:
            self._hand_out([again])

    async def retry(
        self,
        message: PushedMessage,
        ext: MessageExt,
        assigned: AssignedQueue,
        delay_level: int,
        cause: Exception | None,
    ) -> None:
        """Have a message redelivered: by the retry topic, or, if orderly, after a pause.

        Args:
          message: the message as it was delivered.
          ext: the decoded record of the message.
          assigned: the queue that it came from.
          delay_level, cause: see `PushedMessage.retry`.
        """
        call_after_consume(self._interceptors, message, cause or RetryLater(delay_level))
        if assigned.is_dropped:
            assigned.settle(message)
        elif self._config.is_orderly:
            await self._retry_in_order(message, ext, assigned, delay_level)
        elif not self._is_clustering:
            logger.warning(
                "%s failed; it is lost: broadcasting has no redelivery", for_log(message)
            )
            self._remove(message, assigned)
        else:
            # A broker that hangs must not hold up the handlers of messages of others.
            await wait_a_little(self._client, self._redeliver, message, ext, assigned, delay_level)

    async def _redeliver(
        self, message: PushedMessage, ext: MessageExt, assigned: AssignedQueue, delay_level: int
    ) -> None:
        if await self._send_back(message, ext, delay_level):
            self._remove(message, assigned)
        else:
            self._spawn(self._hand_out_later, message)

    # Moving the offset

    def _remove(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        held = assigned.process_queue
        if not held.is_dropped:
            offset = held.remove((message.queue_offset,), now_ms=clock.monotonic_ms())
            self._update_offset(assigned, offset)

    def _finish(
        self, message: PushedMessage, assigned: AssignedQueue, again: PushedMessage | None = None
    ) -> None:
        """Finish a message that an orderly queue delivered; deliver the next one after the last.

        Args:
          again: its copy that is to be redelivered, after a pause.
        """
        if not assigned.is_in_hand(message):
            return
        if again is not None:
            assigned.again.append(again)
        held = assigned.process_queue
        if len(assigned.in_hand) == 1:
            back, assigned.again = assigned.again, []
            held.make_message_to_consume_again(back)
            offset = held.commit()
            if offset is not None and back:
                offset = min(offset, *[each.queue_offset for each in back])
            self._update_offset(assigned, offset)
            if back:
                self._spawn(self._resume, assigned)
            else:
                assigned.is_handed_out = False
        assigned.settle(message)
        self.hand_out_next(assigned)

    def _update_offset(self, assigned: AssignedQueue, offset: int | None) -> None:
        if offset is not None and offset >= 0:
            self._offsets.update(assigned.queue, offset)
        assigned.wake_if_room()

    # Redelivery

    async def _retry_in_order(
        self, message: PushedMessage, ext: MessageExt, assigned: AssignedQueue, delay_level: int
    ) -> None:
        most = self._config.max_reconsume_times
        is_over = delay_level < 0 or (most is not None and message.reconsume_times >= most)
        # Broadcast messages cannot be sent to a retry topic: they are retried for ever.
        if is_over and self._is_clustering and await self._send_to_retry_topic(message, ext):
            if assigned.is_dropped:
                assigned.settle(message)
            else:
                self._finish(message, assigned)
            return
        self._finish(message, assigned, message.again(self))

    def _spawn(self, function: Callable[..., Awaitable[None]], argument: object) -> None:
        """Run a function in the background.

        If the client is closed, there is nothing to do: another member of the group gets the
        message.
        """
        with contextlib.suppress(ClosedError):
            self._client.start_soon(function, argument)

    async def _resume(self, assigned: AssignedQueue) -> None:
        """Continue an orderly queue after its pause."""
        await anyio.sleep(self._config.suspend_queue_s)
        assigned.is_handed_out = False
        self.hand_out_next(assigned)

    async def _hand_out_later(self, message: PushedMessage) -> None:
        await anyio.sleep(CONSUME_AGAIN_S)
        if not message.is_revoked:
            self._hand_out([message.again(self)])

    async def _send_back(self, message: PushedMessage, ext: MessageExt, delay_level: int) -> bool:
        """Send a message back (CONSUMER_SEND_MSG_BACK); if that fails, send it to the retry topic.

        Returns: whether a broker has it.
        """
        header = ConsumerSendMsgBackRequestHeader(
            offset=ext.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=ext.offset_message_id,
            origin_topic=ext.topic,
            max_reconsume_times=self._max_reconsume_times,
            broker_name=message.queue.broker_name,
        )
        try:
            address = broker_of(self._client, message.queue)
            await self._client.request(address, RequestCode.CONSUMER_SEND_MSG_BACK, header)
        except ClientError as error:
            logger.warning(
                "the broker did not take %s back, so it is sent to the retry topic: %s",
                message,
                error,
            )
            return await self._send_to_retry_topic(message, ext)
        return True

    async def _send_to_retry_topic(self, message: PushedMessage, ext: MessageExt) -> bool:
        """Send a message to the group's retry topic.

        A master that no slave has confirmed it to may be replaced by one that lacks it, and the
        consumer would commit past the message. So after FLUSH_SLAVE_TIMEOUT it is kept here, and
        may come once more than it failed.

        Source: DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage, which takes any status.

        Returns: whether a broker has it.
        """
        properties = dict(ext.properties)
        for name in (names.PROPERTY_TRANSACTION_PREPARED, names.PROPERTY_DELAY_TIME_LEVEL):
            properties.pop(name, None)
        properties.setdefault(names.PROPERTY_RETRY_TOPIC, ext.topic)
        properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, ext.offset_message_id)
        times = message.reconsume_times
        properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(3 + times)
        try:
            prepared = self._sender.packer.again(
                Message(retry_topic(self._group), ext.body, flag=ext.flag),
                properties,
                reconsume_times=times + 1,
                max_reconsume_times=self._max_reconsume_times,
            )
            result = await self._sender.send(self._sender.new_send(prepared))
        except ClientError as error:
            logger.error(
                "%s could not be sent to the retry topic; redelivered here: %s",
                for_log(message),
                error,
            )
            return False
        if result.status is SendStatus.FLUSH_SLAVE_TIMEOUT:
            logger.warning(
                "%s is in the retry topic, but no slave of %s has confirmed it; redelivered here, "
                "as it would be lost with that broker",
                for_log(message),
                result.queue.broker_name,
            )
            return False
        return True

    @property
    def _max_reconsume_times(self) -> int:
        most = self._config.max_reconsume_times
        return MAX_RECONSUME_TIMES if most is None else most
