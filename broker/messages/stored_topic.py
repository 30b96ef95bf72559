"""The topic of a stored message, as access control sees it."""

from __future__ import annotations

from typing import Final, Protocol

from ...common.message_properties import PROPERTY_REAL_TOPIC
from ...common.topic_names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
)
from ...disk.errors import StoreError
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import decode_record
from ...store.offsets import PhysicalOffset


class Messages(Protocol):
    """The part of a store that is used here; `MessageStore` implements it."""

    def message_at(self, physical_offset: PhysicalOffset) -> memoryview | None:
        """The record at an offset; None: none begins there. Raises: StoreError."""


_PARKED: Final = frozenset(
    (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC)
)
"""Topics whose messages are for another one, which a property of the broker names."""


def topic_of_message(store: Messages, physical_offset: int) -> str | None:
    """The topic of a message; of a delayed or half message the one that it is for.

    Returns: None: no message begins at the offset, or it cannot be read, so no request gets it; "":
      it is damaged, so that it is unknown whose it is.
    """
    try:
        record = store.message_at(PhysicalOffset(physical_offset))
    except StoreError:
        return None
    if record is None:
        return None
    try:
        message = decode_record(record, read_body=False)
    except RemoteProtocolError:
        return ""
    if message.topic in _PARKED:
        return message.find(PROPERTY_REAL_TOPIC.encode()) or message.topic
    return message.topic
