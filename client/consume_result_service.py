"""The end of messages that were handed out: acknowledged, or to come again.

Java counterpart: processConsumeResult of ConsumeMessageConcurrentlyService and
ConsumeMessageOrderlyService, DefaultMQPushConsumerImpl.sendMessageBack.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio

from ..common import message_properties as names
from ..common.topic_names import retry_topic
from ..remoting.bodies import MessageModel
from ..remoting.headers import ConsumerSendMsgBackRequestHeader
from ..remoting.message import MessageExt
from ..remoting.request_codes import RequestCode
from . import clock
from .client import Client
from .core.topics import CLIENT_INNER_PRODUCER_GROUP
from .errors import ClientError, ClosedError
from .interceptor import tell_settled
from .producer import Producer
from .pulling import OffsetStore, broker_of
from .push_options import (
    CONSUME_AGAIN_S,
    MAX_RECONSUME_TIMES,
    PushConsumerConfig,
    RetryLater,
)
from .pushed_message import AssignedQueue, PushedMessage

logger = logging.getLogger(__name__)


class ConsumeResultService:
    """Settles the messages of one consumer; hands out the next one of ordered queues.

    Args:
      client: open while it works.
      group: with namespace.
      config: the consumer's.
      offsets: noted as messages are settled.
      hand_out: takes the messages that are handed out next.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        offsets: OffsetStore,
        hand_out: Callable[[Sequence[PushedMessage]], None],
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._offsets = offsets
        self._hand_out = hand_out
        self._is_clustering = config.message_model is MessageModel.CLUSTERING
        self._producer = Producer(client, group=CLIENT_INNER_PRODUCER_GROUP)

    @property
    def deserializer(self) -> Callable[[bytes], Any] | None:
        """Makes a message's `value` of its body."""
        return self._config.deserializer

    def hand_out_next(self, assigned: AssignedQueue) -> None:
        """Hand out the next message of an ordered queue, unless one is out."""
        if assigned.is_handed_out or assigned.is_dropped:
            return
        taken = assigned.process_queue.take(1, now_ms=clock.monotonic_ms())
        if taken:
            assigned.is_handed_out = True
            self._hand_out(taken)

    def ack(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """The message is done with; the group's offset moves on."""
        tell_settled(self._client.interceptors, message, None)
        if assigned.is_dropped:
            return
        if self._config.is_orderly:
            self._commit(assigned)
        else:
            self._remove(message, assigned)

    async def retry(
        self, message: PushedMessage, ext: MessageExt, assigned: AssignedQueue, delay_level: int
    ) -> None:
        """The message is to come again: by the retry topic, or, if orderly, after a pause.

        Args:
          ext: what the message was made of.
          delay_level: as `PushedMessage.retry` has it.
        """
        tell_settled(self._client.interceptors, message, RetryLater(delay_level))
        if assigned.is_dropped:
            return
        if self._config.is_orderly:
            await self._retry_in_order(message, ext, assigned, delay_level)
        elif not self._is_clustering:
            logger.warning("%s failed; broadcast messages do not come again", message)
            self._remove(message, assigned)
        elif await self._send_back(message, ext, delay_level):
            self._remove(message, assigned)
        else:
            self._soon(self._hand_out_later, message)

    # Moving on

    def _remove(self, message: PushedMessage, assigned: AssignedQueue) -> None:
        """A message is done with here."""
        if not assigned.is_dropped:
            now_ms = clock.monotonic_ms()
            self._note(
                assigned, assigned.process_queue.remove([message.queue_offset], now_ms=now_ms)
            )

    def _commit(self, assigned: AssignedQueue) -> None:
        """What was handed out of an ordered queue is done with."""
        self._note(assigned, assigned.process_queue.commit())
        assigned.is_handed_out = False
        self.hand_out_next(assigned)

    def _note(self, assigned: AssignedQueue, offset: int | None) -> None:
        if offset is not None and offset >= 0:
            self._offsets.update(assigned.queue, offset)
        assigned.look_for_room()

    # Coming again

    async def _retry_in_order(
        self, message: PushedMessage, ext: MessageExt, assigned: AssignedQueue, delay_level: int
    ) -> None:
        most = self._config.max_reconsume_times
        is_over = delay_level < 0 or (most is not None and message.reconsume_times >= most)
        # Broadcast messages do not leave their queue: they are tried for ever.
        if is_over and self._is_clustering and await self._send_to_retry_topic(message, ext):
            if not assigned.is_dropped:
                self._commit(assigned)
            return
        assigned.process_queue.make_message_to_consume_again([message.again()])
        self._soon(self._resume, assigned)

    def _soon(self, function: Callable[..., Awaitable[None]], argument: object) -> None:
        """Later, unless the client is closed meanwhile: the group's next member gets it then."""
        with contextlib.suppress(ClosedError):
            self._client.start_soon(function, argument)

    async def _resume(self, assigned: AssignedQueue) -> None:
        """An ordered queue goes on after its pause."""
        await anyio.sleep(self._config.suspend_queue_s)
        assigned.is_handed_out = False
        self.hand_out_next(assigned)

    async def _hand_out_later(self, message: PushedMessage) -> None:
        await anyio.sleep(CONSUME_AGAIN_S)
        if not message.is_revoked:
            self._hand_out([message.again()])

    async def _send_back(self, message: PushedMessage, ext: MessageExt, delay_level: int) -> bool:
        """CONSUMER_SEND_MSG_BACK; if the broker cannot, a new message to the retry topic."""
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
            logger.warning("%s was not taken back: %s", message, error)
            return await self._send_to_retry_topic(message, ext)
        return True

    async def _send_to_retry_topic(self, message: PushedMessage, ext: MessageExt) -> bool:
        """Source: DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage."""
        properties = dict(ext.properties)
        for name in (names.PROPERTY_TRANSACTION_PREPARED, names.PROPERTY_DELAY_TIME_LEVEL):
            properties.pop(name, None)
        properties.setdefault(names.PROPERTY_RETRY_TOPIC, ext.topic)
        properties.setdefault(names.PROPERTY_ORIGIN_MESSAGE_ID, ext.offset_message_id)
        times = message.reconsume_times
        properties[names.PROPERTY_DELAY_TIME_LEVEL] = str(3 + times)
        try:
            await self._producer.send_again(
                retry_topic(self._group),
                ext.body,
                ext.flag,
                properties,
                reconsume_times=times + 1,
                max_reconsume_times=self._max_reconsume_times,
            )
        except ClientError as error:
            logger.error("%s could not be sent to the retry topic: %s", message, error)
            return False
        return True

    @property
    def _max_reconsume_times(self) -> int:
        most = self._config.max_reconsume_times
        return MAX_RECONSUME_TIMES if most is None else most
