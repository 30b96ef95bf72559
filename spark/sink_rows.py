"""Rows of the sink as messages, and the reason why a row cannot be one. Pure.

A row that no broker would take is refused here, by the client when the message is made or packed,
or by the broker (MESSAGE_ILLEGAL: a delivery time beyond its timers, a body beyond its limit).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from ..client.core.topics import check_send_topic
from ..client.errors import ClientError, MessageRefusedError, SendError, ServerError
from ..client.messages.message import Message
from ..remoting.response_codes import ResponseCode
from .errors import RowRefusedError
from .sink_options import BAD_ROW, BAD_ROW_TOPIC, FAIL, ROW_ID, RowLayout, SinkOptions

MESSAGE_EXTRA_SIZE: Final = 200
"""Upper estimate of a message's bytes in a batch, besides what the row gives."""

REASON_CHARS_MAX: Final = 2000
"""Characters of a reason, a topic or an id that a bad row's message has as properties: together
they must fit into the 32767 bytes of a record's properties."""

_CONTROL: Final = dict.fromkeys(range(32), " ")
"""Control characters; two of them separate properties."""


class RowMessages:
    """Makes the messages of one task.

    Args:
      row_id: prefix of the ids of this task's rows; None: rows get no ids.
    """

    def __init__(self, options: SinkOptions, layout: RowLayout, row_id: str | None) -> None:
        self._options = options
        self._layout = layout
        self._row_id = row_id

    def message(self, values: dict[str, Any], row: int) -> Message:
        """The message of a row.

        Args:
          row: number of the row in its task.

        Raises: RowRefusedError: it cannot be one.
        """
        options = self._options
        body, topic = values["body"], self.topic(values)
        if body is None or not topic:
            raise refused(values, row, "has no body" if body is None else "has no topic")
        raw = raw_body(body)
        if len(raw) > options.max_message_size:
            size = f"has a body of {len(raw)} bytes, and maxMessageSize is"
            raise refused(values, row, f"{size} {options.max_message_size}")
        # RocketMQ has no properties with null or empty values.
        properties = {name: value for name, value in values.get("properties") or () if value}
        row_id = self.id_of(values, row)
        if row_id is not None:
            properties[ROW_ID] = row_id
        try:
            check_send_topic(topic)
            return Message(
                topic=topic,
                body=raw,
                tags=values.get("tags"),
                keys=values.get("keys") or (),
                properties=properties,
                delay_level=values.get("delayLevel") or 0,
                deliver_at_ms=values.get("deliverAt"),
                sharding_key=values.get("shardingKey"),
                flag=values.get("flag") or 0,
            )
        except ValueError as error:  # MessageRefusedError is one
            raise refused(values, row, f"cannot become a message: {error}") from error

    def topic(self, values: dict[str, Any]) -> str:
        """The topic of a row; "": it has none."""
        return self._options.topic or values.get("topic") or ""

    def id_of(self, values: dict[str, Any], row: int) -> str | None:
        """The id of a row; None: it has none."""
        if self._layout.id_column is not None:
            given: str | None = values[self._layout.id_column]
            return given
        return None if self._row_id is None else f"{self._row_id}:{row}"

    def bad(self, body: bytes, topic: str, row_id: str | None, error: RowRefusedError) -> Message:
        """The message for the topic of onBadRow in place of a row.

        Raises: RowRefusedError: onBadRow is `fail`.
        """
        options = self._options
        if options.on_bad_row == FAIL:
            raise error
        properties = {BAD_ROW: str(error), BAD_ROW_TOPIC: topic, ROW_ID: row_id or ""}
        # What is wrong with the row may be wrong with these, too.
        texts = {
            name: value.translate(_CONTROL)[:REASON_CHARS_MAX] for name, value in properties.items()
        }
        return Message(
            topic=options.on_bad_row,
            # Brokers refuse messages without a body.
            body=body[: options.max_message_size] or b"-",
            properties={name: value for name, value in texts.items() if value},
        )


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch by column; `deliverAt` in ms since 1970."""
    names = batch.schema.names
    columns = [_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(names, values, strict=True))


def _values(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Not as datetime: Spark's times reach beyond the year 9999.
        in_ms = column.cast(pa.timestamp("ms", kind.tz), safe=False)
        column = in_ms.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found


def raw_body(body: str | bytes | None) -> bytes:
    return body.encode() if isinstance(body, str) else body or b""


def size_of(message: Message) -> int:
    """An upper estimate of a message's bytes in a batch."""
    texts = [message.tags or "", message.sharding_key or "", *message.properties.values()]
    texts += message.properties
    texts += [message.keys] if isinstance(message.keys, str) else message.keys
    size = len(message.body) + MESSAGE_EXTRA_SIZE + len(message.keys)
    return size + sum(len(text) if text.isascii() else 4 * len(text) for text in texts)


def refused(values: dict[str, Any], row: int, what: str) -> RowRefusedError:
    """The error of a row.

    Args:
      what: what is wrong with it, as the rest of a sentence.
    """
    shown = {name: value for name, value in values.items() if name != "body" and value is not None}
    return RowRefusedError(f"row {row} of this task {what}: {str(shown)[:200]}")


def is_about_rows(error: ClientError) -> bool:
    """Whether a send failed because of its messages: no other try would be better."""
    if isinstance(error, SendError):
        error = error.attempts[-1].error
    if isinstance(error, ServerError):
        return error.code == ResponseCode.MESSAGE_ILLEGAL
    return isinstance(error, MessageRefusedError)
