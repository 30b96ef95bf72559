"""Key-value tables, and the offsets of consumers."""

from __future__ import annotations

import msgspec

from .base import Body, Int32, Int64
from .data_version import DataVersion


class KVTable(Body):
    """Strings by name: answers 28 and 219, and the answer to a registration."""

    table: dict[str, str] = msgspec.field(default_factory=dict)


class ConsumerOffsetSerializeWrapper(Body):
    """Offsets of all groups: config/consumerOffset.json and answer 43.

    Attributes:
      offset_table: "topic@group" to queue id to the next message to consume, in messages.
      data_version: version of the table (5.x).
    """

    offset_table: dict[str, dict[Int32, Int64]] = msgspec.field(default_factory=dict)
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)

    def to_body(self, *, quote_int_keys: bool = False) -> bytes:
        """Write the body; integer keys are not quoted, as in RocketMQ."""
        return super().to_body(quote_int_keys=quote_int_keys)
