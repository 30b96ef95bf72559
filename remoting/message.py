"""Message and MessageExt: a message to send, and a stored message.

Java counterpart: `Message` and `MessageExt` of RocketMQ 5.3.3. Pure. Not thread-safe: a message
belongs to one owner at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..common.message_properties import (
    KEY_SEPARATOR,
    KEYS_NAME,
    TAGS_NAME,
    UNIQUE_KEY_NAME,
    find_property,
    properties_from_bytes,
)
from .hosts import host_text
from .message_id import encode_offset_id


@dataclass(slots=True)
class Message:
    """A message to send.

    Attributes:
      body: any bytes.
      flag: an int32 for the application.
      properties: names and values; see `properties_to_bytes` for allowed characters.
    """

    topic: str
    body: bytes
    flag: int = 0
    properties: dict[str, str] = field(default_factory=dict)


SHOWN_BODY_MAX = 40
"""Characters of a body that a printed message shows."""
SHOWN_BYTES_MAX = 16
"""Bytes of a body that is no UTF-8, each of which takes four characters."""


def message_text(
    place: str, tags: str | None, keys: Iterable[str], body: object, kind: str = "Message"
) -> str:
    """A message as it is printed: `<Message orders/3@0 tags=created keys=order-1 'x'>`.

    Args:
      place: its topic, or, if it is stored, topic/queue id@offset in the queue.
      tags: its tag, or None.
      body: its body; bytes are shown as text if they are UTF-8. What is long is cut.
      kind: name of its class.
    """
    parts = [f"<{kind} {place}"]
    if tags:
        parts.append(f"tags={tags}")
    shown_keys = ",".join(keys)
    if shown_keys:
        parts.append(f"keys={shown_keys}")
    parts.append(_body_text(body))
    return " ".join(parts) + ">"


def _body_text(body: object) -> str:
    if isinstance(body, bytes | bytearray | memoryview):
        body = _readable(body)
    if isinstance(body, str | bytes):
        end = SHOWN_BODY_MAX if isinstance(body, str) else SHOWN_BYTES_MAX
        return repr(body) if len(body) <= end else f"{body[:end]!r}…"
    text = repr(body)
    return text if len(text) <= SHOWN_BODY_MAX else f"{text[:SHOWN_BODY_MAX]}…"


def _readable(body: bytes | bytearray | memoryview) -> str | bytes:
    """The beginning of a body as text, or, if it is no UTF-8, as bytes."""
    start = bytes(body[: 4 * SHOWN_BODY_MAX + 4])  # more than is shown
    # A cut may be within a character, which has at most four bytes.
    dropped_max = 3 if len(body) > len(start) else 0
    for end in range(len(start), len(start) - dropped_max - 1, -1):
        try:
            return start[:end].decode()
        except UnicodeDecodeError:
            continue
    return start


@dataclass(slots=True, repr=False)
class MessageExt:
    """A stored message; see `message_codec.decode_record`.

    Attributes:
      queue_offset: messages from the start of the queue.
      physical_offset: bytes from the start of the commit log.
      body: as stored, or decompressed; empty if it was not requested.
      properties_bytes: as stored; `properties` is the parsed form.
      born_host, store_host: 8 or 20 bytes; `born_host_text`, `store_host_text` for people.
      born_timestamp_ms, store_timestamp_ms: ms since 1970.
      prepared_transaction_offset: physical offset of the half message.
      store_size: bytes of the record.
      magic: MAGIC_V1 or MAGIC_V2 of message_codec.
      body_crc: CRC32 & 0x7fffffff of the body as stored.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body: bytes
    properties_bytes: bytes
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    store_size: int
    magic: int
    body_crc: int
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        keys = (self.keys or "").split(KEY_SEPARATOR)
        place = f"{self.topic}/{self.queue_id}@{self.queue_offset}"
        return message_text(place, self.tags, keys, self.body, "MessageExt")

    @property
    def properties(self) -> dict[str, str]:
        """The parsed properties; parsed once. Changing them does not change the bytes."""
        parsed = self._properties
        if parsed is None:
            parsed = self._properties = properties_from_bytes(self.properties_bytes)
        return parsed

    def find(self, name: bytes) -> str | None:
        """One property, without parsing the others."""
        value = find_property(self.properties_bytes, name)
        return None if value is None else str(value, "utf-8", "replace")

    @property
    def text(self) -> str:
        """The body, decoded from UTF-8.

        Raises: UnicodeDecodeError: the body is not UTF-8.
        """
        return self.body.decode()

    @property
    def tags(self) -> str | None:
        """The tag, or None."""
        return self.find(TAGS_NAME)

    @property
    def keys(self) -> str | None:
        """The keys, separated by spaces, or None."""
        return self.find(KEYS_NAME)

    @property
    def unique_key(self) -> str | None:
        """The id that the producer gave the message, or None."""
        return self.find(UNIQUE_KEY_NAME)

    @property
    def offset_message_id(self) -> str:
        """The id that the broker gave the message: its store host and physical offset."""
        return encode_offset_id(self.store_host, self.physical_offset)

    @property
    def born_host_text(self) -> str:
        """`ip:port` of the producer."""
        return host_text(self.born_host)

    @property
    def store_host_text(self) -> str:
        """`ip:port` of the broker."""
        return host_text(self.store_host)
