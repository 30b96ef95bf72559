"""Reading queues as an administrator: nothing is remembered, no group is moved."""

from __future__ import annotations

from typing import Final

from ...common.topic_names import TOOLS_GROUP
from ...remoting.bodies import MessageQueue, SubscriptionData
from ...remoting.body_compression import DECOMPRESSED_SIZE_MAX, decompress
from ...remoting.errors import RemoteProtocolError
from ...remoting.message import MessageExt
from ...remoting.message_codec import INFLATED_TOTAL_MAX, decode_messages
from ...remoting.sys_flag import COMPRESSED
from ..connection.client import Client
from ..errors import AccessDeniedError
from ..pulling.offsets import max_offset, search_offset
from ..pulling.pulls import PullResult, pull

PULL_COUNT: Final = 32
"""Messages of one pull. RocketMQ: pullBatchSize."""


async def look(
    client: Client,
    queue: MessageQueue,
    offset: int,
    count: int,
    *,
    suspend_s: float = 0.0,
    timeout_s: float | None = None,
    inflate: bool = True,
) -> PullResult:
    """Pull once, with the group that brokers have for tools.

    Args:
      offset: of the first message wanted, in messages.
      count: of messages, at most.
      suspend_s: seconds that the broker may wait for a message.
      timeout_s: seconds to wait for the answer beyond `suspend_s`; None: the client's.
      inflate: see `pull`. One body that cannot be decompressed fails a pull that decompresses.

    Raises: AccessDeniedError: the topic may not be read. ServerError; ConnectError.
    """
    return await pull(
        client,
        queue,
        SubscriptionData(topic=queue.topic, sub_string="*"),
        TOOLS_GROUP,
        offset,
        count=count,
        suspend_s=suspend_s,
        timeout_s=suspend_s + (client.timeout_s if timeout_s is None else timeout_s),
        is_subscription_sent=True,
        inflate=inflate,
    )


def decode_readable(body: bytes) -> list[MessageExt]:
    """The records of an answer; a body that cannot be decompressed stays as it is stored.

    `decode_messages` refuses all records if one of them is such, which nothing but looking at it
    could explain.

    Raises: RemoteProtocolError: no records. MissingPackageError.
    """
    budget = INFLATED_TOTAL_MAX
    messages = decode_messages(body, inflate=False)
    for message in messages:
        if message.sys_flag & COMPRESSED and message.body:
            size_max = min(budget, DECOMPRESSED_SIZE_MAX)
            try:
                message.body = decompress(message.body, message.sys_flag, size_max=size_max)
            except RemoteProtocolError:
                continue
            message.sys_flag &= ~COMPRESSED
            budget -= len(message.body)
    return messages


async def first_offset_at(client: Client, queue: MessageQueue, timestamp_ms: int) -> int:
    """Offset of the first message stored at a time or later; the queue's end if there is none.

    What a broker of 4.x says may be off by one message, and of several messages stored in one
    millisecond any; so what it says about the millisecond before is looked at.

    Args:
      timestamp_ms: ms since 1970.

    Raises: ServerError; ConnectError.
    """
    offset = await search_offset(client, queue, max(timestamp_ms - 1, 0))
    end = await max_offset(client, queue)
    while offset < end:
        try:
            result = await look(client, queue, offset, PULL_COUNT)
        except AccessDeniedError:
            return offset
        for message in result.messages:
            if message.store_timestamp_ms >= timestamp_ms:
                return message.queue_offset
        if result.next_begin_offset <= offset:
            break
        offset = result.next_begin_offset
    return offset
