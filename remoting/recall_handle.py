"""Handles by which a producer takes a timer message back.

Pure. Java counterpart: common/producer/RecallMessageHandle.java of 5.5.0.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from ..common.message_properties import properties_from_bytes

_VERSION: Final = "v1"


class RecallHandle(NamedTuple):
    """What a handle says.

    Attributes:
      topic: the message's own.
      broker_name: where it waits.
      deliver_ms: a time in the slot in which it is due, ms since 1970, as text.
      unique_key: the message's.
    """

    topic: str
    broker_name: str
    deliver_ms: str
    unique_key: str

    @classmethod
    def from_text(cls, text: str) -> RecallHandle:
        """Read a handle.

        Raises: ValueError: it is none.
        """
        try:
            fields = base64.urlsafe_b64decode(text.encode("ascii")).decode().split(" ")
        except (ValueError, UnicodeError) as error:
            raise ValueError("recall handle is invalid") from error
        if len(fields) != 5 or fields[0] != _VERSION:
            raise ValueError("recall handle is invalid")
        return cls(*fields[1:])

    def to_text(self) -> str:
        """The handle: base64url of its fields, blank-separated."""
        return base64.urlsafe_b64encode(" ".join((_VERSION, *self)).encode()).decode()


def recall_handle(waiting_properties: bytes, broker_name: str) -> str:
    """The handle that the producer of a timer message is told.

    Args:
      waiting_properties: of the message as it waits.
    Source: RocketMQ 5.5.0 SendMessageProcessor.attachRecallHandle.
    """
    properties = properties_from_bytes(waiting_properties)
    deliver_ms = str(int(properties["TIMER_OUT_MS"]) + 1)
    return RecallHandle(
        properties["REAL_TOPIC"], broker_name, deliver_ms, properties.get("UNIQ_KEY", "")
    ).to_text()
