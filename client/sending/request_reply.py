"""Request and reply messages.

A request message has a correlation id and the id of the sending client. Its consumer replies by a
message to the broker, which pushes the reply to that client; `Client.replies` holds the pending
replies by correlation id.

Java counterpart: DefaultMQProducerImpl.request, MessageUtil.createReplyMessage,
RequestFutureHolder, ClientRemotingProcessor.receiveReplyMessage.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Mapping
from typing import Any, Final

import anyio

from ...common import message_properties as names
from ...common.topic_names import AUTO_CREATE_TOPIC
from ...remoting.bodies import MessageQueue
from ...remoting.body_compression import decompress
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemotingError
from ...remoting.headers import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from ...remoting.headers.base import decode
from ...remoting.hosts import host_bytes
from ...remoting.message import MessageExt
from ...remoting.message_codec import MAGIC_V1
from ...remoting.request_codes import RequestCode
from ...remoting.sys_flag import COMPRESSED
from ..connection.client import Client
from ..connection.connection import Connection
from ..connection.pending_reply import PendingReply
from ..core.sends import Selector
from ..errors import ConnectError, MessageRefusedError, ReplyTimeoutError
from ..messages.message import Message, ReceivedMessage
from .sender import Sender

logger = logging.getLogger(__name__)

REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"
"""Source: MixAll.REPLY_TOPIC_POSTFIX."""
REPLY_TYPE: Final = "reply"
"""Value of MSG_TYPE of a reply. Source: MixAll.REPLY_MESSAGE_FLAG."""
TTL_MS: Final = "3000"
"""Time to live of a reply if the request has none. Source: DefaultMQProducer.sendMsgTimeout."""


class RequestReply:
    """Sends the requests and replies of one producer, and receives replies to it.

    Args:
      client: client of the producer.
      group: name of the producer's group, with namespace.
      sender: Sender of the producer.
    """

    def __init__(self, client: Client, group: str, sender: Sender) -> None:
        self._client = client
        self._group = group
        self._sender = sender

    async def request(
        self,
        message: Message,
        timeout_s: float,
        queue: MessageQueue | None,
        selector: Selector | None,
    ) -> ReceivedMessage:
        """Send a request message and wait for the reply. Raises: see `Producer.request`."""
        client, sender = self._client, self._sender
        correlation_id = str(uuid.uuid4())
        more = {
            names.PROPERTY_CORRELATION_ID: correlation_id,
            names.PROPERTY_MESSAGE_REPLY_TO_CLIENT: client.client_id,
            names.PROPERTY_MESSAGE_TTL: str(round(timeout_s * 1000)),
        }
        send = sender.new_send(sender.packer.message(message, more), queue, selector, timeout_s)
        info = await sender.publish_info(send.prepared.topic, send)
        end_s = send.start_s + timeout_s
        reply = client.replies[correlation_id] = PendingReply()
        try:
            # The broker needs a heartbeat on this connection to push the reply.
            address = client.master_of(queue or info.queues[0])
            if client.open_connection(address) is None:
                await self._connect(address, end_s - client.now_s())
            await sender.send(send)
            with anyio.fail_after(end_s - client.now_s()):
                await reply.event.wait()
        except TimeoutError:
            raise ReplyTimeoutError(message.topic, timeout_s) from None
        finally:
            del client.replies[correlation_id]
        assert reply.message is not None  # the event is set with it
        return reply.message

    async def _connect(self, address: str, limit_s: float) -> None:
        """Have a broker know this client; the send that follows says why it cannot."""
        with anyio.move_on_after(limit_s), contextlib.suppress(ConnectError):
            await self._client.connection(address)
            await self._client.heartbeat(address)

    async def reply(
        self,
        request: ReceivedMessage,
        body: Any,
        tags: str | None,
        own_properties: Mapping[str, str] | None = None,
    ) -> None:
        """Reply to a message that was sent by `request`. Raises: see `Producer.reply`."""
        properties = request.properties
        cluster = properties.get(names.PROPERTY_CLUSTER)
        reply_to = properties.get(names.PROPERTY_MESSAGE_REPLY_TO_CLIENT)
        correlation_id = properties.get(names.PROPERTY_CORRELATION_ID)
        if cluster is None or reply_to is None or correlation_id is None:
            raise MessageRefusedError(
                f"message {request.message_id} asks for no reply: it was not sent by `request`"
            )
        more = {
            names.PROPERTY_MESSAGE_TYPE: REPLY_TYPE,
            names.PROPERTY_CORRELATION_ID: correlation_id,
            names.PROPERTY_MESSAGE_REPLY_TO_CLIENT: reply_to,
            names.PROPERTY_MESSAGE_TTL: properties.get(names.PROPERTY_MESSAGE_TTL, TTL_MS),
        }
        # A reply is a send to the cluster's reply topic. The broker stores it only if so
        # configured, and pushes it to the client that the requester named.
        message = Message(
            f"{cluster}_{REPLY_TOPIC_POSTFIX}", body, tags=tags, properties=own_properties or {}
        )
        prepared = self._sender.packer.message(message, more, is_system_topic=True)
        broker_name = request.queue.broker_name
        # Through the request's broker, to which the requester is connected, too.
        if self._client.broker_address(broker_name) is None:
            await self._client.route(request.queue.topic)
        payload = prepared.payload
        header = SendMessageRequestHeaderV2(
            producer_group=self._group,
            topic=prepared.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=self._sender.config.default_topic_queue_nums,
            queue_id=0,
            sys_flag=payload.sys_flag,
            born_timestamp=payload.born_timestamp_ms,
            flag=0,
            properties=payload.properties.decode(),
            reconsume_times=0,
            unit_mode=False,
            batch=False,
        )
        await self._client.request(
            self._client.master_address(broker_name),
            RequestCode.SEND_REPLY_MESSAGE_V2,
            header,
            payload.body,
        )

    async def on_reply(
        self, connection: Connection, command: RemotingCommand
    ) -> RemotingCommand | None:
        """Process PUSH_REPLY_MESSAGE_TO_CLIENT.

        Source: ClientRemotingProcessor.receiveReplyMessage.
        """
        ext = _decoded(command)
        pending = self._client.replies.get(ext.properties.get(names.PROPERTY_CORRELATION_ID, ""))
        if pending is not None:
            queue = MessageQueue(ext.topic, connection.address, ext.queue_id)
            pending.message = ReceivedMessage(ext, queue, ext.topic)
            pending.event.set()
        else:
            logger.info("dropped a reply that arrived too late: %s", ext.properties)
        return command.answer()


def _decoded(command: RemotingCommand) -> MessageExt:
    header = decode(ReplyMessageRequestHeader, command.ext_fields)
    body = command.body
    if header.sys_flag & COMPRESSED:
        body = decompress(body, header.sys_flag)
    return MessageExt(
        topic=header.topic,
        queue_id=header.queue_id,
        queue_offset=0,
        physical_offset=0,
        body=body,
        properties_bytes=(header.properties or "").encode("utf-8", "replace"),
        flag=header.flag,
        sys_flag=header.sys_flag,
        born_timestamp_ms=header.born_timestamp,
        born_host=_host(header.born_host),
        store_timestamp_ms=header.store_timestamp,
        store_host=_host(header.store_host),
        reconsume_times=header.reconsume_times or 0,
        prepared_transaction_offset=0,
        store_size=0,
        magic=MAGIC_V1,
        body_crc=0,
    )


def _host(text: str) -> bytes:
    """Encode `ip:port`; an invalid string becomes 0.0.0.0:0."""
    ip, _, port = text.lstrip("/").rpartition(":")
    try:
        return host_bytes(ip.strip("[]"), int(port))
    except (RemotingError, ValueError):
        return host_bytes("0.0.0.0", 0)
