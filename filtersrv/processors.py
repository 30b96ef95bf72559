"""The processors of the filter server.

They serve REGISTER_MESSAGE_FILTER_CLASS (302) and PULL_MESSAGE (11), and trocket's own requests
LIST_MESSAGE_FILTER_CLASSES (30302) and REMOVE_MESSAGE_FILTER_CLASS (30303).

For each pull, all messages are pulled from the broker, and those that the group's filter selects
are returned. If there are none, the answer has the consumer pull again at once from the next
offset.

Java counterpart: filtersrv/processor/DefaultRequestProcessor.java of 4.2.0.
"""

from __future__ import annotations

import dataclasses
import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from ..common import message_properties as names
from ..common.message_properties import change_properties
from ..remoting.body_compression import CompressionType, decompress
from ..remoting.channel import Answer, Channel, Deferred, Processor
from ..remoting.codec import RemotingCommand
from ..remoting.errors import LocalProtocolError, RemoteProtocolError, RemotingError, RequestRefused
from ..remoting.headers import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    RegisterMessageFilterClassRequestHeader,
    RemoveMessageFilterClassRequestHeader,
    decode,
    encode_header,
)
from ..remoting.message import MessageExt
from ..remoting.message_codec import INFLATED_TOTAL_MAX, decode_messages, encode_record
from ..remoting.pull_sys_flag import SUBSCRIPTION, SUSPEND
from ..remoting.record_schema import PROPERTIES_SIZE_MAX
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.sys_flag import COMPRESSED, COMPRESSION_TYPE_MASK
from .config import FiltersrvConfig
from .filter_class_manager import FilterClassManager
from .filters import FilterError

# Pull answers for consumers: the matching messages of a broker's answer, encoded again. Pure.
#
# Java counterpart: filtersrv/processor/DefaultRequestProcessor.java of 4.2.0 (pullMessageForward,
# messageToByteBuffer).

_REMOVED: Final = (names.PROPERTY_CRC32,)
"""The checksum property covers the stored record, which differs from the new one."""


def read_messages(body: bytes) -> tuple[list[MessageExt], list[MessageExt]]:
    """Decode the messages of a pull answer.

    Returns: the messages as stored, and the same with decompressed bodies, for filters.
    Raises: RemoteProtocolError: a record is damaged, or the decompressed bodies are too large.
    """
    stored = decode_messages(body, inflate=False)
    seen, budget = [], INFLATED_TOTAL_MAX
    for message in stored:
        if message.sys_flag & COMPRESSED:
            inflated = decompress(message.body, message.sys_flag, size_max=budget)
            budget -= len(inflated)
            message = dataclasses.replace(message, body=inflated)
        seen.append(message)
    return stored, seen


def write_messages(
    stored: Sequence[MessageExt],
    seen: Sequence[MessageExt],
    wanted: Sequence[bool],
    *,
    min_offset: int,
    max_offset: int,
    compress_from: int,
    compression_level: int,
) -> bytes:
    """Encode the body of the answer: a record for each matching message.

    The properties MIN_OFFSET and MAX_OFFSET are added, as RocketMQ's pull client does. Bodies are
    compressed if they are large, whether the stored ones are or not.

    Args:
      stored, seen: result of `read_messages`.
      wanted: for each message, whether it matches.
      min_offset, max_offset: minimum and maximum offset of the queue, from the broker's answer.
      compress_from: size in bytes from which on bodies are compressed.
      compression_level: level of zlib.
    """
    offsets = {
        names.PROPERTY_MIN_OFFSET: str(min_offset),
        names.PROPERTY_MAX_OFFSET: str(max_offset),
    }
    return b"".join(
        _record(*pair, offsets, compress_from, compression_level)
        for pair, is_wanted in zip(zip(stored, seen, strict=True), wanted, strict=True)
        if is_wanted
    )


def _record(
    stored: MessageExt,
    seen: MessageExt,
    offsets: dict[str, str],
    compress_from: int,
    compression_level: int,
) -> bytes:
    body, sys_flag = seen.body, stored.sys_flag & ~COMPRESSED
    if len(body) >= compress_from:
        if stored.sys_flag & COMPRESSED:  # use the producer's compressed body
            body, sys_flag = stored.body, stored.sys_flag
        else:
            body = zlib.compress(body, compression_level)
            sys_flag = sys_flag & ~COMPRESSION_TYPE_MASK | CompressionType.ZLIB.sys_flag
    properties = change_properties(stored.properties_bytes, offsets, _REMOVED)
    if len(properties) > PROPERTIES_SIZE_MAX:
        properties = stored.properties_bytes
    return encode_record(
        stored.topic,
        stored.queue_id,
        stored.queue_offset,
        stored.physical_offset,
        body,
        properties,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=stored.born_host,
        store_timestamp_ms=stored.store_timestamp_ms,
        store_host=stored.store_host,
        flag=stored.flag,
        sys_flag=sys_flag,
        reconsume_times=stored.reconsume_times,
        prepared_transaction_offset=stored.prepared_transaction_offset,
    )


logger = logging.getLogger(__name__)

GROUP: Final = "FILTERSRV_CONSUMER"
"""Group for pulls from the broker. Source: MixAll.FILTERSRV_CONSUMER_GROUP of 4.2.0."""

_ANSWER_TIMEOUT_S: Final = 10.0
"""Time limit of a pull, in addition to the time for which the broker may hold it."""

_WITHOUT_MESSAGES: Final = frozenset(
    {
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)

BrokerCall = Callable[[RemotingCommand, float], Awaitable[RemotingCommand]]
"""Sends a request to the broker, with a time limit in seconds. Raises: RemotingError."""


class FiltersrvProcessors:
    """The processors of a filter server.

    Args:
      config: configuration of the filter server.
      classes: the filter classes.
      ask_broker: see `BrokerCall`.

    Attributes:
      processors: the processors by request code.
    """

    def __init__(
        self, config: FiltersrvConfig, classes: FilterClassManager, ask_broker: BrokerCall
    ) -> None:
        self._config = config
        self._classes = classes
        self._ask_broker = ask_broker
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.REGISTER_MESSAGE_FILTER_CLASS: self._register,
            RequestCode.LIST_MESSAGE_FILTER_CLASSES: self._list,
            RequestCode.REMOVE_MESSAGE_FILTER_CLASS: self._remove,
        }

    def _register(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(RegisterMessageFilterClassRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            await self._classes.register(
                header.topic,
                header.consumer_group,
                header.class_name,
                header.class_crc,
                header.source_language or "java",
                bytes(request.body),
            )
            return request.answer()

        return Deferred(run)

    def _list(self, request: RemotingCommand, channel: Channel) -> Answer:
        rows = [
            {
                "topic": topic,
                "consumerGroup": group,
                "className": info.class_name,
                "classCrc": info.class_crc,
                "language": info.language,
                "state": info.state,
                "error": info.error,
            }
            for (topic, group), info in sorted(self._classes.classes.items())
        ]
        return request.answer(body=msgspec.json.encode({"classes": rows}))

    def _remove(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(RemoveMessageFilterClassRequestHeader, request.ext_fields)

        async def run() -> RemotingCommand:
            topic, group = header.topic, header.consumer_group
            if not await self._classes.remove(topic, group):
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"group {group} has no filter class for {topic}"
                )
            return request.answer()

        return Deferred(run)

    # Pulls

    def _pull(self, request: RemotingCommand, channel: Channel) -> Answer:
        return Deferred(partial(self._answer_pull, request))

    async def _answer_pull(self, request: RemotingCommand) -> RemotingCommand:
        header = decode(PullMessageRequestHeader, request.ext_fields)
        topic, group = header.topic, header.consumer_group
        await self._classes.find(topic, group)  # refuse at once if there is no class
        suspends = header.sys_flag & SUSPEND
        timeout_s = _ANSWER_TIMEOUT_S
        if suspends:
            timeout_s += header.suspend_timeout_millis / 1000
        try:
            answer = await self._ask_broker(self._broker_pull(header, suspends), timeout_s)
        except RemotingError as error:
            raise _pull_failed(str(error)) from error
        if answer.code not in _WITHOUT_MESSAGES and answer.code != ResponseCode.SUCCESS:
            raise _pull_failed(f"CODE: {answer.code}  DESC: {answer.remark}")
        offsets = decode(PullMessageResponseHeader, answer.ext_fields)
        code, body = answer.code, b""
        if code == ResponseCode.SUCCESS:
            try:
                stored, seen = read_messages(answer.body)
                # Look it up again: the class may have been replaced while the broker held the pull.
                found = await self._classes.find(topic, group)
                wanted = await found.match(seen, group)
                body = write_messages(
                    stored,
                    seen,
                    wanted,
                    min_offset=offsets.min_offset,
                    max_offset=offsets.max_offset,
                    compress_from=self._config.compress_msg_body_over_howmuch,
                    compression_level=self._config.zip_compress_level,
                )
            except (FilterError, RemoteProtocolError, LocalProtocolError) as error:
                what = f"ConsumerGroup: {group} Topic: {topic}"
                remark = f"do Message Filter Exception, {what} {error}"
                logger.warning("%(reason)s", {"reason": remark})
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from error
            if not body:
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
        response_header = PullMessageResponseHeader(
            suggest_which_broker_id=0,
            next_begin_offset=offsets.next_begin_offset,
            min_offset=offsets.min_offset,
            max_offset=offsets.max_offset,
        )
        return request.answer(code, ext_fields=encode_header(response_header), body=body)

    def _broker_pull(self, header: PullMessageRequestHeader, suspends: int) -> RemotingCommand:
        """The pull to send to the broker: of all messages, for a group without offsets."""
        pull = PullMessageRequestHeader(
            consumer_group=GROUP,
            topic=header.topic,
            queue_id=header.queue_id,
            queue_offset=header.queue_offset,
            max_msg_nums=header.max_msg_nums,
            sys_flag=suspends | SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=header.suspend_timeout_millis,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
            max_msg_bytes=header.max_msg_bytes,
        )
        return RemotingCommand(RequestCode.PULL_MESSAGE, encode_header(pull))


def _pull_failed(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"Pull Callback Exception, {why}")
