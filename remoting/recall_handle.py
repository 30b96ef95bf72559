"""RecallHandle: identifies a timer message for its recall by the producer.

Pure. Java counterpart: common/producer/RecallMessageHandle.java of 5.5.0.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from ..common.message_properties import (
    PROPERTY_REAL_TOPIC,
    PROPERTY_TIMER_OUT_MS,
    PROPERTY_UNIQUE_KEY,
    properties_from_bytes,
)

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """The parts of a handle.

    Attributes:
      broker_name: the broker on which it waits.
      deliver_ms: a time in the slot in which it is due, ms since 1970, as text.
    """

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    @classmethod
    def from_text(cls, text: str) -> RecallHandle:
        """Decode a handle.

        Raises: ValueError: the text is not a handle.
        """
        try:
            fields = base64.urlsafe_b64decode(text.encode("ascii")).decode().split(" ")
        except (ValueError, UnicodeError) as error:
            raise ValueError("recall handle is invalid") from error
        if len(fields) != 5 or fields[0] != _VERSION:
            raise ValueError("recall handle is invalid")
        return cls(*fields[1:])

    def to_text(self) -> str:
        """Encode the handle: base64url of its fields, separated by spaces."""
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def recall_handle(waiting_properties: bytes, broker_name: str) -> str:
    """The handle in the answer to a timer message's producer.

    Args:
      waiting_properties: of the message in its waiting form.
    Source: RocketMQ 5.5.0 SendMessageProcessor.attachRecallHandle.
    """
    properties = properties_from_bytes(waiting_properties)
    deliver_ms = str(int(properties[PROPERTY_TIMER_OUT_MS]) + 1)
    return RecallHandle(
        properties[PROPERTY_REAL_TOPIC],
        broker_name,
        deliver_ms,
        properties.get(PROPERTY_UNIQUE_KEY, ""),
    ).to_text()
