"""Replies to request messages: SEND_REPLY_MESSAGE 324 and 325, forwarded by 326.

A requester sends a plain message with its client id. The responder sends the reply to the broker,
which pushes it over the requester's connection and answers whether that succeeded. The reply is
also stored, so that it can be queried.

Java counterpart: broker/processor/ReplyMessageProcessor.java of 5.3.3.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from msgspec.structs import asdict

from ...common.message_properties import (
    PROPERTY_MESSAGE_REPLY_TO_CLIENT,
    PROPERTY_PUSH_REPLY_TIME,
    properties_from_bytes,
    properties_to_bytes,
)
from ...disk.errors import StoreError
from ...remoting.channel import Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.headers import (
    ReplyMessageRequestHeader,
    SendMessageRequestHeader,
    decode,
    decode_send_message_v2,
    encode_header,
)
from ...remoting.hosts import host_text
from ...remoting.message_id import encode_offset_id
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.message_store import MessageStore
from ..clients.producer_manager import ProducerManager
from ..messages.admission import admitted
from ..messages.inner_message import InnerMessage
from ..puts.turn_puts import TurnPuts
from ..settings.config import BrokerConfig
from .send_topics import SendTopics

logger = logging.getLogger(__name__)

PUSH_TIMEOUT_S: Final = 10.0
"""How long the requester has to accept the reply. Source: Broker2Client.callClient."""


class ReplyMessageProcessor:
    """Forwards replies to the requesters.

    Args:
      store: already loaded.
      puts: appends messages, and has the broker's turn.
      topics: finds or creates topics, as for any send.
      producers: knows the clients' connections.
      on_messages: called with the queues that got messages.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        puts: TurnPuts,
        topics: SendTopics,
        *,
        producers: ProducerManager,
        on_messages: Callable[[Collection[tuple[str, int]]], None],
    ) -> None:
        self._config = config
        self._store = store
        self._inner = puts.inner
        self._turn = puts.turn
        self._topics = topics
        self._producers = producers
        self._on_messages = on_messages
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.SEND_REPLY_MESSAGE: self.reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self.reply,
        }

    def reply(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """Serve a reply.

        Raises: RequestRefused: its header cannot be read, or its topic accepts no messages.
        """
        if request.code == RequestCode.SEND_REPLY_MESSAGE:
            header = decode(SendMessageRequestHeader, request.ext_fields)
        else:
            header = decode_send_message_v2(request.ext_fields)
        topic = self._topics.check(request, header.topic, channel)
        queue_id = header.queue_id
        if not 0 <= queue_id < topic.write_queue_nums:
            queue_id = self._topics.other_queue(topic, queue_id, channel)

        async def push_and_store() -> RemotingCommand:
            constants = self._turn.answer_constants
            remark = await self._push(request, header, channel)
            place = None
            if self._config.store_reply_message_enable:
                place = self._put(request, header, queue_id, channel)
            if remark:
                logger.warning("%(reason)s", {"reason": remark})
                # Neither pushed nor stored: the reply is lost, and the sender must know.
                if place is None:
                    return request.answer(ResponseCode.SYSTEM_ERROR, remark, constants)
            message_id, queue_offset = place or ("0", 0)
            fields = {
                "msgId": message_id,
                "queueId": str(queue_id),
                "queueOffset": str(queue_offset),
            }
            code = ResponseCode.SYSTEM_ERROR if remark else ResponseCode.SUCCESS
            return request.answer(code, remark or None, fields | constants)

        return Deferred(push_and_store)

    async def _push(
        self, request: RemotingCommand, header: SendMessageRequestHeader, channel: Channel
    ) -> str:
        """Push the reply to the requester; return the error, or "" on success."""
        properties = properties_from_bytes((header.properties or "").encode("utf-8", "replace"))
        client_id = properties.get(PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        if client_id is None:
            return f"reply message properties[{PROPERTY_MESSAGE_REPLY_TO_CLIENT}] is null"
        requester = self._producers.find_channel(client_id)
        if requester is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        now_ms = self._store.wall_time_ms
        properties |= self._turn.answer_constants
        properties[PROPERTY_PUSH_REPLY_TIME] = str(now_ms)
        fields = asdict(header) | {
            "broker_name": None,
            "batch": None,
            "properties": properties_to_bytes(properties).decode("utf-8", "replace"),
            "born_host": channel.remote_address,
            "store_host": host_text(self._turn.store_host),
            "store_timestamp": now_ms,
        }
        command = RemotingCommand(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            encode_header(ReplyMessageRequestHeader(**fields)),
            request.body,
        )
        try:
            answer = await requester.call(command, PUSH_TIMEOUT_S)
        except RemotingError as error:
            return f"push reply message to {client_id}fail. {error}"
        if answer.code != ResponseCode.SUCCESS:
            return f"push reply message to {client_id}fail."
        return ""

    def _put(
        self,
        request: RemotingCommand,
        header: SendMessageRequestHeader,
        queue_id: int,
        channel: Channel,
    ) -> tuple[str, int] | None:
        """Store the reply; return message id and queue offset, or None if that failed."""
        message = InnerMessage(
            header.topic,
            queue_id,
            request.body,
            admitted((header.properties or "").encode("utf-8", "replace")),
            header.born_timestamp,
            channel.remote_host,
            self._turn.store_host,
            header.flag,
            0,
            header.reconsume_times or 0,
        )
        try:
            self._store.begin_burst()
            refusal, physical_offset, queue_offset = self._inner.put(message)
            # Without waiting for the disk, as the answer only reports the push.
            arrivals = self._store.commit()
        except StoreError as error:
            logger.error(
                "a reply in %(topic)s was not stored: %(error)s",
                {"topic": header.topic, "error": error},
            )
            return None
        if arrivals:
            self._on_messages(arrivals)
        if refusal is not None:
            reason = refusal.remark or refusal.status.name
            logger.error(
                "a reply in %(topic)s was not stored: %(reason)s",
                {"topic": header.topic, "reason": reason},
            )
            return None
        return encode_offset_id(self._turn.store_host, physical_offset), queue_offset
