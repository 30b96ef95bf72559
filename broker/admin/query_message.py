"""Queries of messages: VIEW_MESSAGE_BY_ID (33) by physical offset, QUERY_MESSAGE (12) by key or
tag.

An answer's body is the stored records, sent from the store's maps without copying. A message is
found as soon as it is visible to consumers, by key a moment later, when it is indexed. A message of
a deleted topic is found as long as the log has it.

Java counterpart: broker/processor/QueryMessageProcessor.java, DefaultMessageStore.queryMessage of
5.5.0.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ...common.steps import Steps
from ...disk.errors import StoreError
from ...remoting.channel import Answer, Channel, Processor, answer_of
from ...remoting.codec import FRAME_SIZE_MAX, RemotingCommand, encode_head
from ...remoting.errors import RequestRefused
from ...remoting.headers import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
    ViewMessageRequestHeader,
    decode,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ...store.offsets import PhysicalOffset
from ...store.reading.message_reader import MessageReader

logger = logging.getLogger(__name__)

UNIQUE_KEY_COUNT_MAX: Final = 32
"""Messages that a query by unique key returns at most, even if more are requested. RocketMQ:
defaultQueryMaxNum, 32."""

ANSWER_SIZE_MAX: Final = FRAME_SIZE_MAX - 4096
"""Bytes of records in one answer: a frame without the header, which has two numbers. RocketMQ has
no limit, but its clients close the connection at a larger frame."""

_INDEX_BY_TAG: Final = "T"
"""Source: MessageConst.INDEX_TAG_TYPE of 5.5.0. Any other type is a look-up by key, as there."""
_NOT_FOUND: Final = "can not find message, maybe time range not correct"
_NOTHING: Final = encode_header(
    QueryMessageResponseHeader(index_last_update_timestamp=0, index_last_update_phyoffset=0)
)


class Messages(Protocol):
    """The part of the store that is used here; `store.message_store.MessageStore` implements it.

    Attributes:
      reader: looks messages up by key, in steps.
    """

    reader: MessageReader

    @property
    def dispatched_offset(self) -> int:
        """The end of the visible log."""

    def message_at(self, physical_offset: PhysicalOffset) -> memoryview | None:
        """The record at a physical offset; None when none starts there."""


class QueryMessageProcessor:
    """Serves queries from the store."""

    def __init__(self, store: Messages) -> None:
        self._store = store
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.QUERY_MESSAGE: self.query_message,
            RequestCode.VIEW_MESSAGE_BY_ID: self.view_message,
        }

    def view_message(self, request: RemotingCommand, channel: Channel) -> None:
        """Answer with the record that begins at a physical offset.

        Raises: RequestRefused: SYSTEM_ERROR if no record begins there, or it is damaged or cannot
          be read.
        """
        offset = decode(ViewMessageRequestHeader, request.ext_fields).offset
        try:
            record = self._store.message_at(PhysicalOffset(offset))
        except StoreError as error:
            raise _refusal(channel, f"a read at offset {offset}", error) from error
        if record is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}"
            )
        head = encode_head(request.answer(), len(record))
        channel.write([head, record], len(head) + len(record))

    def query_message(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Answer with the records of a key, a unique key or a tag, oldest first.

        The answer has the newest records: at most the requested number, maxMsgsNumBatch
        (UNIQUE_KEY_COUNT_MAX by unique key) and ANSWER_SIZE_MAX bytes. The newest record is
        included whatever its size. The answer does not say that older ones were left out; to get
        them, repeat the query with an earlier end.

        Raises: RequestRefused: SYSTEM_ERROR if one of the messages is damaged or a file cannot be
          read.
        """
        header = decode(QueryMessageRequestHeader, request.ext_fields)
        count_max = UNIQUE_KEY_COUNT_MAX if header.is_unique_key_query else header.max_num
        if count_max <= 0:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, _NOTHING)
        return answer_of(self._answer_query(request, channel, header, count_max))

    def _answer_query(
        self,
        request: RemotingCommand,
        channel: Channel,
        header: QueryMessageRequestHeader,
        count_max: int,
    ) -> Steps[RemotingCommand | None]:
        try:
            result = yield from self._store.reader.query_by_key(
                header.topic,
                header.key,
                count_max,
                header.begin_timestamp,
                header.end_timestamp,
                self._store.dispatched_offset,
                by_tags=header.index_type == _INDEX_BY_TAG and not header.is_unique_key_query,
            )
        except StoreError as error:
            what = f"a look-up of {header.key[:80]!r} in topic {header.topic[:80]!r}"
            raise _refusal(channel, what, error) from error
        records = newest_that_fit(result.buffers, ANSWER_SIZE_MAX)
        if not records:
            return request.answer(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, _NOTHING)
        fields = encode_header(
            QueryMessageResponseHeader(
                index_last_update_timestamp=result.index_last_update_timestamp_ms,
                index_last_update_phyoffset=result.index_last_update_physical_offset,
            )
        )
        size = sum(map(len, records))
        head = encode_head(request.answer(ext_fields=fields), size)
        channel.write([head, *records], len(head) + size)
        return None


def newest_that_fit(records: list[memoryview], size_max: int) -> list[memoryview]:
    """The last of these records that fit into `size_max` bytes together.

    Args:
      records: oldest first.
      size_max: bytes; the last record is included even if it is larger.
    """
    size = 0
    for index in range(len(records) - 1, -1, -1):
        size += len(records[index])
        if size > size_max:
            return records[min(index + 1, len(records) - 1) :]
    return records


def _refusal(channel: Channel, what: str, error: StoreError) -> RequestRefused:
    logger.error(
        "%(peer)s: %(what)s failed: %(error)s",
        {"peer": channel.remote_address, "what": what, "error": error},
    )
    return RequestRefused(ResponseCode.SYSTEM_ERROR, str(error))
