"""Pages of the table of consumer offsets, for slaves whose master has more than a frame holds.

RocketMQ has no pages for GET_ALL_CONSUMER_OFFSET (43): its master answers with the whole table, and
above 16 MiB no slave can follow. A slave of ours asks with two fields that Apache's master passes
over; then the answer is the whole table, which is one page.

The entries go by the order of their keys, and a page begins after a key, not at an index: what
comes or goes between two pages moves no other entry from one page to another.

Java counterpart: none. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from .consumer_offset_manager import ConsumerOffsetManager, compact_table, parse_offsets

OFFSETS_OF_A_PAGE: Final = 20_000
"""Offsets of one page, and those of its last key beyond. With one queue for each key, and names as
long as they may be, that is 8 MiB; 65,536 queues of the last key are 2 MiB."""


def page_of_offsets(
    offsets: ConsumerOffsetManager, after: str, count_max: int
) -> tuple[bytes, str | None]:
    """One page as the body of an answer, and the last key of it; None: it ends the table.

    Args:
      after: the last key `topic@group` of the page before; "": there was none.
      count_max: offsets that are wanted; taken into 1 to OFFSETS_OF_A_PAGE.
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
    """The bodies of all pages as one, with the version of the first.

    Raises: ValueError: one is no table of offsets.
    """
    whole: dict[str, dict[int, int]] = {}
    for page in pages:
        whole |= parse_offsets(page)[0]
    version = parse_offsets(pages[0])[2]
    start = b"{" if version is None else b'{"dataVersion":%b,' % version.to_body()
    return start + b'"offsetTable":%b}' % compact_table(whole)
