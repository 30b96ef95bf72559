"""Index entries of messages: of the unique key, then of each of the keys, then of the tags.

Java counterpart: store/index/IndexService.java buildIndex of 5.5.0; before 5.5.0 tags had no entry.
Pure.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from ...common.java_hash import hash_continue, index_key_hash_after
from ...common.message_properties import (
    KEYS_HEAD,
    KEYS_NAME,
    TAGS_HEAD,
    TAGS_NAME,
    UNIQUE_KEY_HEAD,
    UNIQUE_KEY_NAME,
    find_property,
)
from .index_backlog import IndexItem

IndexEntry: TypeAlias = tuple[int, int, int]
"""(key hash, physical offset, store timestamp ms), as `IndexFile.put_many` takes it."""

TAG_KEY_HEAD: Final = "T#"
"""What the key of a message's tags begins with, after the topic and its #; the whole value of TAGS
follows. Source: IndexService.buildKey of 5.5.0."""


def entries_of_items(items: list[IndexItem]) -> list[IndexEntry]:
    """The entries of messages, in their order: `entries_of` each, in a fraction of its time."""
    last_topic_hash, last_head, head_hash = 0, b"", 0
    last_tags_topic_hash, last_tags, tags_hash = 0, b"", 0
    entries: list[IndexEntry] = []
    # Of the last usual message: all before and all after the last four digits of its unique key.
    before, after, cut, end = b"", b"", 0, 0
    has_tags = False
    for topic_hash, properties, physical_offset, timestamp_ms in items:
        # Most differ from it in these digits only, and take half the time.
        if before and (
            properties[:cut] == before and properties[end:] == after
            and topic_hash == last_topic_hash
        ):  # fmt: skip
            a, b, c, d = properties[cut:end]
            # All ASCII, and none is a separator of properties: then the rest is where it was.
            if a | b | c | d > 127 or a < 3 or b < 3 or c < 3 or d < 3:
                entries += entries_of(topic_hash, properties, physical_offset, timestamp_ms)
                continue
            code = (head_hash + a * 29791 + b * 961 + c * 31 + d) & 0xFFFFFFFF
            if code >= 0x80000000:
                code = (0x100000000 - code) & 0x7FFFFFFF
            entries.append((code, physical_offset, timestamp_ms))
            if has_tags:
                entries.append((tags_hash, physical_offset, timestamp_ms))
            continue
        # The usual message has no KEYS and one unique key, which differs from the previous
        # message's in the last four digits only. `entries_of` handles all others.
        at = properties.rfind(UNIQUE_KEY_HEAD)
        key_end = properties.find(b"\x02", at + 9)
        key = properties[at + 9 : key_end if key_end > 0 else None]
        if (
            at < 0
            or (at and properties[at - 1] != 2)
            or len(key) < 8
            or KEYS_HEAD in properties
            or not key.isascii()
        ):
            entries += entries_of(topic_hash, properties, physical_offset, timestamp_ms)
            before = b""
            continue
        end = at + 9 + len(key)
        cut = end - 4
        before, after, has_tags = properties[:cut], properties[end:], False
        head = key[:-4]
        if head != last_head or topic_hash != last_topic_hash:
            last_topic_hash, last_head = topic_hash, head
            head_hash = hash_continue(topic_hash, head.decode()) * 923521  # 31 ** 4
        a, b, c, d = key[-4:]
        code = (head_hash + a * 29791 + b * 961 + c * 31 + d) & 0xFFFFFFFF
        if code >= 0x80000000:
            code = (0x100000000 - code) & 0x7FFFFFFF
        entries.append((code, physical_offset, timestamp_ms))
        at = properties.rfind(TAGS_HEAD)
        if at >= 0:
            tags_end = properties.find(b"\x02", at + 5)
            tags: bytes | None = properties[at + 5 : tags_end if tags_end > 0 else None]
            # An empty property does not replace an earlier one of its name.
            if not tags or (at and properties[at - 1] != 2):
                tags = find_property(properties, TAGS_NAME)
            if tags:
                if tags != last_tags or topic_hash != last_tags_topic_hash:
                    last_tags, last_tags_topic_hash = tags, topic_hash
                    tags_hash = tags_hash_after(topic_hash, tags)
                entries.append((tags_hash, physical_offset, timestamp_ms))
                has_tags = True
    return entries


def tags_hash_after(topic_hash: int, tags: bytes) -> int:
    """The hash of the key of a message's tags.

    Args:
      topic_hash: `hash_prefix("topic#")`.
      tags: the value of TAGS, not empty.
    """
    return index_key_hash_after(topic_hash, TAG_KEY_HEAD + str(tags, "utf-8", "replace"))


def entries_of(
    topic_hash: int, properties: bytes, physical_offset: int, timestamp_ms: int
) -> list[IndexEntry]:
    """The entries of one message: of its unique key, of each of its keys, and of its tags."""
    entries = []
    unique_key = find_property(properties, UNIQUE_KEY_NAME)
    if unique_key is not None:
        # `topic#key` is hashed as Java hashes the string, from where `topic#` ends.
        code = index_key_hash_after(topic_hash, str(unique_key, "utf-8", "replace"))
        entries.append((code, physical_offset, timestamp_ms))
    keys = find_property(properties, KEYS_NAME)
    if keys is not None:
        for key in str(keys, "utf-8", "replace").split(" "):
            if key:
                code = index_key_hash_after(topic_hash, key)
                entries.append((code, physical_offset, timestamp_ms))
    tags = find_property(properties, TAGS_NAME)
    if tags:
        entries.append((tags_hash_after(topic_hash, tags), physical_offset, timestamp_ms))
    return entries
