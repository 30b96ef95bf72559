"""Pages of the table of consumer offsets, for masters whose table is larger than a frame.

RocketMQ has no pages for GET_ALL_CONSUMER_OFFSET (43): its master answers with the whole table, and
above 16 MiB slaves can no longer replicate it. A slave of ours sends two fields that Apache's
master ignores; the answer is then the whole table, which counts as one page.

Entries are sorted by key, and a page begins after a key, not at an index: an entry that is added or
dropped between two requests moves no other entry to another page.

Java counterpart: none. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .consumer_offset_manager import ConsumerOffsetManager, compact_table, parse_offsets

OFFSETS_OF_A_PAGE: Final = 20_000
"""Offsets of one page; the last key may exceed it. With one queue per key and names of maximum
length that is 8 MiB; 65,536 queues of the last key are 2 MiB."""


def page_of_offsets(
    offsets: ConsumerOffsetManager, after: str, count_max: int
) -> tuple[bytes, str | None]:
    """One page as the body of an answer, and its last key; None: it is the last page.

    Args:
      after: the last key `topic@group` of the previous page; "": this is the first one.
      count_max: offsets wanted; clamped to 1 to OFFSETS_OF_A_PAGE.
    """
    count_max = min(max(count_max, 1), OFFSETS_OF_A_PAGE)
    table = offsets.offset_table
    keys = sorted(key for key in table if key > after)
    page: dict[str, Mapping[int, int]] = {}
    count = 0
    for key in keys:
        if count >= count_max:
            break
        page[key] = table[key]
        count += max(len(table[key]), 1)
    body = b'{"dataVersion":%b,"offsetTable":%b}' % (
        offsets.data_version.to_body(),
        compact_table(page),
    )
    return body, None if len(page) == len(keys) else keys[len(page) - 1]


def join_pages(pages: Sequence[bytes]) -> bytes:
    """Join the bodies of all pages, with the version of the first.

    Raises: ValueError: a page is not a table of offsets.
    """
    whole: dict[str, dict[int, int]] = {}
    for page in pages:
        whole |= parse_offsets(page)[0]
    version = parse_offsets(pages[0])[2]
    start = b"{" if version is None else b'{"dataVersion":%b,' % version.to_body()
    return start + b'"offsetTable":%b}' % compact_table(whole)
