"""Filtering of records by their properties while a queue is read.

A consume queue has only the tags code of a message; a filter on properties has to read the record.
`maxFilterMessageSize` limits the units that one get scans, `RecordFilter.is_over` its time: the
next get continues where this one stopped.

Java counterpart: store/MessageFilter.java isMatchedByCommitLog of 5.3.3, as DefaultMessageStore
calls it. Where a queue has an extension, its bit map may rule a record out without reading it;
broker/filters/filter_bit_maps.py defines the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ...disk.errors import StoreIOError
from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import record_properties
from ..format import Unit
from ..log.commit_log import CommitLog
from ..queues.consume_queue_ext import EXT_ADDRESS_MAX, ExtUnit

_MATCHES: Final = 1
_MATCHES_NOT: Final = 0
MATCHING: Final = frozenset({_MATCHES})
"""The tags codes of matching units among those of `filtered`."""


class RecordFilter(NamedTuple):
    """The filter of a get.

    Attributes:
      matches: whether a record with these encoded properties is wanted; does not raise.
      is_over: whether the get has used up its time; called after each record, so that at least one
        is checked.
      hides: whether `matches` is certainly false for the record of an extension unit; None: not
        known for any.
    """

    matches: Callable[[bytes], bool]
    is_over: Callable[[], bool]
    hides: Callable[[ExtUnit], bool] | None = None


class Wanted(NamedTuple):
    """The limits and filters of a get.

    Attributes:
      count_max, size_max: most messages and bytes; the first message is answered in any case.
      tags_codes: of the messages; None: all.
      record_filter: that a record must match, too; None: all do.
      log_end: the end of the commit log.
    """

    count_max: int
    size_max: int
    tags_codes: frozenset[int] | None
    record_filter: RecordFilter | None
    log_end: int


def filtered(
    units: Iterable[Unit],
    log: CommitLog,
    record_filter: RecordFilter,
    tags_codes: frozenset[int] | None,
    log_end: int,
    is_hidden: Callable[[int], bool] | None = None,
) -> Iterator[Unit]:
    """The units of a queue with the filter's result, MATCHING or not, in place of the tags code.

    A unit whose record is missing or unreadable counts as matching: the caller handles it as
    without a filter. Ends early when the filter's time is over.

    Args:
      units: with their real tags codes; with addresses where those are not compared.
      log: the log with the records.
      record_filter: applied to each record.
      tags_codes: only records with one of these are read; None: all.
      log_end: the end of the commit log.
      is_hidden: whether the record of a unit with this tags code need not be read.
    Raises: StoreIOError, CorruptRecordError: raised by `units`.
    """
    matches, is_over = record_filter.matches, record_filter.is_over
    file_size = log.file_size
    view: memoryview | None = None
    view_base = -1
    for physical_offset, size, tags_code in units:
        if (
            tags_codes is not None
            and tags_code not in tags_codes
            and tags_code > EXT_ADDRESS_MAX  # otherwise the address of a lost extension
        ):
            yield physical_offset, size, _MATCHES_NOT
            continue
        if is_hidden is not None and is_hidden(tags_code):
            yield physical_offset, size, _MATCHES_NOT
            continue
        position = physical_offset % file_size
        if physical_offset - position != view_base:
            view_base = physical_offset - position
            try:
                view = log.view(view_base)
            except StoreIOError:
                view, view_base = None, -1
        wanted = True
        if view is not None and 0 < size <= log_end - physical_offset:
            wanted = _is_wanted(view, position, size, matches)
        yield physical_offset, size, _MATCHES if wanted else _MATCHES_NOT
        if is_over():
            return


def is_wanted(record: memoryview, record_filter: RecordFilter) -> bool:
    """Whether one record matches; an unreadable one does, as in `filtered`."""
    return _is_wanted(record, 0, len(record), record_filter.matches)


def _is_wanted(
    view: memoryview, position: int, size: int, matches: Callable[[bytes], bool]
) -> bool:
    try:
        properties = record_properties(view, position, size)
    except RemoteProtocolError:
        return True
    return matches(properties)
