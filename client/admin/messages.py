"""Single messages: by id, by key, by time, and those that a group gave up.

Java counterpart: queryMsgById, queryMsgByUniqueKey, queryMsgByKey, printMsg of mqadmin.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final
from zlib import crc32

import msgspec

from ...common.java_integers import INT64_MAX
from ...common.message_properties import split_keys
from ...remoting.bodies import MessageQueue
from ...remoting.errors import RemoteProtocolError
from ...remoting.headers import QueryMessageRequestHeader, ViewMessageRequestHeader
from ...remoting.message import MessageExt
from ...remoting.message_codec import decode_messages
from ...remoting.message_id import OffsetId, decode_offset_id
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..core.topics import check_topic, dlq_topic, is_retry_topic
from ..errors import (
    AccessDeniedError,
    BadAnswerError,
    ClientError,
    ConfigurationError,
    RouteNotFoundError,
    ServerError,
)
from ..messages.message import ReceivedMessage
from ..pulling.offsets import max_offset
from ..sending.producer import configured
from .asking import (
    Answers,
    Brokers,
    NotFoundError,
    answering,
    ask_all,
    brokers_of,
    queues_of,
)
from .looking import PULL_COUNT, decode_readable, first_offset_at, look
from .results import BrokerInfo
from .topics import TopicVerbs

COUNT: Final = 64
"""Messages of one look-up. RocketMQ: maxMsgsNumBatch."""
TIME_MAX: Final[int] = INT64_MAX
_PORT_MAX: Final = 65_535
CRC_MASK: Final = 0x7FFF_FFFF
"""Bits of a CRC32 that records keep. Source: UtilAll.crc32."""


class MessageVerbs:
    """The part of `Admin` about single messages."""

    def __init__(self, brokers: Brokers, topics: TopicVerbs) -> None:
        self._brokers = brokers
        self._client = brokers.client
        self._topics = topics

    async def message(self, message_id: str, topic: str | None = None) -> ReceivedMessage:
        """A message by its id: the one that its producer gave it, or the broker's.

        A broker's id says where the message is. A producer's is looked up by the brokers' index,
        which has it a moment after the message was stored; of several with one id the first
        stored one is returned. A body that cannot be decompressed stays as it is stored, and
        `sys_flag` says so.

        Args:
          topic: of the message; None: all topics are searched for a producer's id.

        Raises: NotFoundError: there is none. ConfigurationError: not an id. RouteNotFoundError:
          there is no such topic. BrokersError; ServerError; ConnectError.
        """
        message_id = message_id.strip()
        if not message_id or message_id.split() != [message_id]:
            raise ConfigurationError(f"{message_id!r} is not the id of a message")
        place = place_of(message_id)
        if place is not None:
            return await self._message_at(message_id, place, topic)
        topics = await self._topics.topics() if topic is None else [topic]
        failed: Answers[str, None] = Answers()
        for each in topics:
            full = self._brokers.full(each)
            try:
                answers = await self.look_up(full, message_id, is_id=True, failed=failed.errors)
            except RouteNotFoundError:
                if topic is not None:
                    raise
                continue  # deleted meanwhile
            found = _sorted(answers)
            if found:
                return found[0]
            failed.errors.update(answers.errors)
            failed.values.update(dict.fromkeys(answers.values))
        failed.check(f"looking for message {message_id}", None)
        where = f"the topic {topic}" if topic is not None else f"any of {len(topics)} topics"
        raise NotFoundError(f"no message with the id {message_id} is in {where}")

    async def _message_at(
        self, message_id: str, place: OffsetId, topic: str | None
    ) -> ReceivedMessage:
        host = f"[{place.ip}]" if ":" in place.ip else place.ip
        address = f"{host}:{place.port}"
        full = None if topic is None else self._brokers.full(topic)
        header = ViewMessageRequestHeader(topic=full, offset=place.physical_offset)
        body = await self._view(address, header, message_id)
        with reading_answer(address):
            found = decode_readable(body)
        if len(found) != 1:
            raise BadAnswerError(address, f"{len(found)} messages instead of one")
        if full is not None and found[0].topic != full:
            topics = f"{self._brokers.short(found[0].topic)}, not {topic}"
            raise NotFoundError(f"the message {message_id} is in the topic {topics}")
        names = [b.name for b in await self._brokers.find() if address in b.addresses.values()]
        return self._received(found[0], names[0] if names else address)

    async def is_intact(self, message: ReceivedMessage) -> bool:
        """Whether a message's body, as its broker's log has it now, has the CRC stored with it.

        Raises: NotFoundError: the log does not have it any more, or its broker is gone.
          ServerError; ConnectError.
        """
        at = await self._brokers.one(message.queue.broker_name)
        header = ViewMessageRequestHeader(offset=message.physical_offset)
        body = await self._view(at.address, header, message.offset_message_id)
        with reading_answer(at.address):
            (found,) = decode_messages(body, inflate=False) or (None,)
        if found is None:
            raise BadAnswerError(at.address, "no message")
        return crc32(found.body) & CRC_MASK == found.body_crc

    async def _view(self, address: str, header: ViewMessageRequestHeader, message_id: str) -> bytes:
        code = RequestCode.VIEW_MESSAGE_BY_ID
        try:
            return (await self._client.request(address, code, header)).body
        except ServerError as error:
            # No response code says so.
            if error.code == ResponseCode.SYSTEM_ERROR and "can not find" in error.remark:
                text = f"{address} has no message with the id {message_id}: {error.remark}"
                raise NotFoundError(text) from error
            raise

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        count: int = COUNT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX,
    ) -> list[ReceivedMessage]:
        """The newest messages with a key, oldest first; an id that a producer gave is one too.

        Args:
          count: of messages of each broker, at most; brokers give 64 at most by default.
          begin_ms, end_ms: stored between these, ms since 1970.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        if not key or count < 1:
            raise ConfigurationError("a look-up needs a key and a count of 1 or more")
        # A retry topic of pops may have a character that topics of programs cannot have.
        full = self._brokers.full(
            topic if is_retry_topic(topic) else configured(check_topic, topic)
        )
        answers = await self.look_up(full, key, count, begin_ms, end_ms)
        found = _sorted(answers)
        answers.check(f"looking for key {key} in topic {topic}", found)
        return found

    async def look_up(
        self,
        full: str,
        key: str,
        count: int = COUNT,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX,
        *,
        is_id: bool = False,
        failed: Mapping[str, ClientError] | None = None,
        timeout_s: float | None = None,
    ) -> Answers[str, list[ReceivedMessage]]:
        """Ask the index of each broker of a topic.

        Args:
          full: the topic with namespace.
          key: a key, or the id that a producer gave.
          count, begin_ms, end_ms: as `messages_by_key`.
          is_id: look for messages with this id only.
          failed: errors of brokers that were asked before; those that were silent are left out.
          timeout_s: seconds to wait for each answer; None: the client's.

        Returns: messages and errors by broker name.
        Raises: RouteNotFoundError; ConnectError.
        """
        brokers = answering(brokers_of(await self._brokers.route(full)), failed or {})
        header = QueryMessageRequestHeader(
            topic=full,
            key=key,
            max_num=count,
            begin_timestamp=begin_ms,
            end_timestamp=end_ms,
            is_unique_key_query=is_id or None,
        )

        async def ask(broker: BrokerInfo, address: str) -> list[ReceivedMessage]:
            ok = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
            code = RequestCode.QUERY_MESSAGE
            try:
                answer = await self._client.request(
                    address, code, header, ok=ok, timeout_s=timeout_s
                )
            except AccessDeniedError:
                if not is_id:
                    raise
                # 4.x brokers leave this field out of what is signed. Source: PlainAccessValidator.
                plain = msgspec.structs.replace(header, is_unique_key_query=None)
                flag = {"_UNIQUE_KEY_QUERY": "true"}
                answer = await self._client.request(
                    address, code, plain, ok=ok, unsigned=flag, timeout_s=timeout_s
                )
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                return []
            with reading_answer(address):
                messages = decode_readable(answer.body)
            # The index knows hashes only: others may share this one. Apache's brokers give a
            # message twice that has a key twice.
            found = {
                message.physical_offset: message
                for message in messages
                if message.topic == full
                and (message.unique_key == key or (not is_id and key in split_keys(message.keys)))
            }
            return [self._received(message, broker.name) for message in found.values()]

        return await self._brokers.ask(brokers, ask)

    async def messages_by_time(
        self,
        topic: str,
        begin_ms: int,
        end_ms: int = TIME_MAX,
        *,
        count: int = COUNT,
    ) -> list[ReceivedMessage]:
        """The first messages stored in a span of time, oldest first.

        Args:
          begin_ms, end_ms: both included, ms since 1970 by the brokers' clocks.
          count: of messages, at most.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        if count < 1 or begin_ms < 0:
            raise ConfigurationError("a look-up needs a time since 1970 and a count of 1 or more")
        full = self._brokers.full(topic)
        queues = queues_of(full, await self._brokers.route(full))

        def call(queue: MessageQueue) -> Callable[[], Awaitable[list[ReceivedMessage]]]:
            return lambda: self._pull_span(queue, begin_ms, end_ms, count)

        answers = await ask_all({queue: call(queue) for queue in queues})
        found = _sorted(answers)[:count]
        answers.check(f"messages of topic {topic}", found)
        return found

    async def dead_letters(
        self, group: str, begin_ms: int = 0, end_ms: int = TIME_MAX, *, count: int = COUNT
    ) -> list[ReceivedMessage]:
        """What a group gave up; as `messages_by_time`. None if it never gave up anything."""
        topic = dlq_topic(self._brokers.full(group))
        try:
            return await self.messages_by_time(topic, begin_ms, end_ms, count=count)
        except RouteNotFoundError:
            return []

    async def _pull_span(
        self, queue: MessageQueue, begin_ms: int, end_ms: int, count: int
    ) -> list[ReceivedMessage]:
        offset = await first_offset_at(self._client, queue, begin_ms)
        end = await max_offset(self._client, queue)
        found: list[ReceivedMessage] = []
        while offset < end and len(found) < count:
            result = await look(self._client, queue, offset, PULL_COUNT)
            for message in result.messages:
                if message.store_timestamp_ms > end_ms:
                    return found
                found.append(self._received(message, queue.broker_name))
            if result.next_begin_offset <= offset:
                break  # a queue that a broker cannot read on
            offset = result.next_begin_offset
        return found

    def _received(self, ext: MessageExt, broker_name: str) -> ReceivedMessage:
        queue = MessageQueue(ext.topic, broker_name, ext.queue_id)
        return ReceivedMessage(ext, queue, self._brokers.short(ext.topic))


def place_of(message_id: str) -> OffsetId | None:
    """Where a broker's id points; None: it is a producer's.

    Both may be 32 hex digits. Where the one has 4 bytes for a port, the other has its process's
    id and random ones.
    """
    try:
        place = decode_offset_id(message_id)
    except RemoteProtocolError:
        return None
    return place if 0 < place.port <= _PORT_MAX and place.physical_offset >= 0 else None


def _sorted(
    answers: Answers[str, list[ReceivedMessage]] | Answers[MessageQueue, list[ReceivedMessage]],
) -> list[ReceivedMessage]:
    lists: Iterable[list[ReceivedMessage]] = answers.values.values()
    found = [message for each in lists for message in each]
    found.sort(
        key=lambda message: (
            message.store_timestamp_ms,
            message.queue.broker_name,
            message.physical_offset,
        )
    )
    return found
