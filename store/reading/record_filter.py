"""Selecting records by their properties while a queue is read.

A consume queue knows of a message only its tags code; what looks at properties has to open the
record. How many units one get looks through is bounded by `maxFilterMessageSize`, and how long by
`RecordFilter.is_over`: the next get goes on where this one stopped.

Java counterpart: store/MessageFilter.java isMatchedByCommitLog of 5.3.3, as DefaultMessageStore
calls it. Where a queue has an extension, its bit map may say of a record that it is not wanted,
which then is not opened; broker/filter_bit_maps.py knows what the bits mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ...remoting.errors import RemoteProtocolError
from ...remoting.message_codec import record_properties
from ..errors import StoreIOError
from ..format import Unit
from ..log.commit_log import CommitLog
from ..queues.consume_queue_ext import EXT_ADDRESS_MAX, ExtUnit

_MATCHES: Final = 1
_MATCHES_NOT: Final = 0
JUDGED: Final = frozenset({_MATCHES})
"""What to look for among the tags codes that `judged` gives."""


class RecordFilter(NamedTuple):
    """What a get asks of each record.

    Attributes:
      matches: whether a record with these encoded properties is wanted; does not raise.
      is_over: whether the get has looked long enough; asked after each record, so that at least
        one is looked at.
      hides: whether `matches` would surely not want the record of an extension unit; None: that
        is not known of any.
    """

    matches: Callable[[bytes], bool]
    is_over: Callable[[], bool]
    hides: Callable[[ExtUnit], bool] | None = None


class Wanted(NamedTuple):
    """What a get wants of a queue.

    Attributes:
      count_max, size_max: messages and bytes at most; the first message counts for neither.
      tags_codes: of the messages; None: all.
      record_filter: that a record must pass, too; None: all do.
      log_end: where the commit log ends; there is nothing behind it.
    """

    count_max: int
    size_max: int
    tags_codes: frozenset[int] | None
    record_filter: RecordFilter | None
    log_end: int


def judged(
    units: Iterable[Unit],
    log: CommitLog,
    record_filter: RecordFilter,
    tags_codes: frozenset[int] | None,
    log_end: int,
    is_hidden: Callable[[int], bool] | None = None,
) -> Iterator[Unit]:
    """The units of a queue with a code of JUDGED, or another one, in place of their tags code.

    A unit whose record is not there or is none counts as wanted: what is to be done about it is
    the same as without a filter. Ends early when the filter's time is over.

    Args:
      units: with their real tags codes; with addresses where those are not looked at.
      log: where the records lie.
      record_filter: what to ask of them.
      tags_codes: only records with one of these are opened; None: all.
      log_end: where the commit log ends.
      is_hidden: whether the record of a unit with this tags code need not be opened.
    Raises: StoreIOError, CorruptRecordError: what `units` raises.
    """
    matches, is_over = record_filter.matches, record_filter.is_over
    file_size = log.file_size
    view: memoryview | None = None
    view_base = -1
    for physical_offset, size, tags_code in units:
        if (
            tags_codes is not None
            and tags_code not in tags_codes
            and tags_code > EXT_ADDRESS_MAX  # else an extension that is lost
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
    """Whether one record is wanted; one that cannot be read is, as in `judged`."""
    return _is_wanted(record, 0, len(record), record_filter.matches)


def _is_wanted(
    view: memoryview, position: int, size: int, matches: Callable[[bytes], bool]
) -> bool:
    try:
        properties = record_properties(view, position, size)
    except RemoteProtocolError:
        return True
    return matches(properties)
