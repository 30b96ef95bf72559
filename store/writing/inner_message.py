"""The message type that a store accepts.

Java counterpart: MessageExtBrokerInner.java of 5.3.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ...common.message_properties import PROPERTY_CRC32, change_properties
from ...remoting.message import MessageExt

_CRC32_NAME: Final = PROPERTY_CRC32.encode("ascii") + b"\1"


@dataclass(slots=True)
class InnerMessage:
    """A message on its way into the store.

    Attributes:
      topic, queue_id: the broker has checked that they exist; 0 … 2^31 - 1.
      body: as stored (compressed when `sys_flag` has that bit).
      properties: encoded.
      born_timestamp_ms: the sender's clock, ms since 1970.
      born_host, store_host: results of `host_bytes`, 8 or 20 bytes.
      flag: the user's; int32.
      sys_flag: int32; the store sets its IPv6 bits.
      reconsume_times: int32.
      prepared_transaction_offset: physical offset of the half message.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    flag: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0

    @classmethod
    def of(cls, message: MessageExt) -> InnerMessage:
        """A copy of a stored message, to be stored again; its body stays compressed if it is."""
        properties = message.properties_bytes
        if _CRC32_NAME in properties:  # the checksum of the old record
            properties = change_properties(properties, {}, (PROPERTY_CRC32,))
        return cls(
            message.topic,
            message.queue_id,
            message.body,
            properties,
            message.born_timestamp_ms,
            message.born_host,
            message.store_host,
            message.flag,
            message.sys_flag,
            message.reconsume_times,
        )

    def change_properties(self, changed: Mapping[str, str], *removed: str) -> None:
        """Set some properties, at the end, and remove others."""
        self.properties = change_properties(self.properties, changed, removed)

    def moved(self, topic: str, queue_id: int) -> InnerMessage:
        """The same message for another queue."""
        return InnerMessage(
            topic, queue_id, self.body, self.properties, self.born_timestamp_ms, self.born_host,
            self.store_host, self.flag, self.sys_flag, self.reconsume_times,
            self.prepared_transaction_offset,
        )  # fmt: skip
