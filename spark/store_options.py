"""The options of `format("rocketmq-store")`, and the request for a log's rows. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from .columns import COMMITLOG, CORRUPT, TABLES, PropertiesAs, of_messages
from .errors import OptionError, nearest
from .options import SizeBytes, TimeMs, exact_tags, names, read_options

FORMAT: Final = "rocketmq-store"


class ReadMode(enum.Enum):
    """The treatment of damaged records: an error, or a row that describes the damage."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"


class Tail(enum.Enum):
    """The treatment of bytes after the last record: the end of the log, or a row."""

    STOP = "stop"
    INCLUDE = "include"


@dataclass(frozen=True)
class StoreOptions:
    """The options of a store source; see docs/spark.md."""

    path: str = field(metadata={"meaning": "the folder that storePathRootDir names, or a pattern"})
    table: str = "commitlog"
    broker_name: str | None = None
    topic: str = ""
    tags: str = ""
    starting_timestamp: TimeMs | None = None
    ending_timestamp: TimeMs | None = None
    split_bytes: SizeBytes = field(default=SizeBytes(64 << 20), metadata={"minimum": 1})
    mode: ReadMode = ReadMode.FAILFAST
    tail: Tail = Tail.STOP
    verify_crc: bool = False
    only_queues: bool = False
    decompress: bool = True
    properties_as: PropertiesAs = PropertiesAs.MAP
    fail_on_data_loss: bool = True
    arrow_batch_rows: int = field(default=8192, metadata={"minimum": 1})
    pushdown: bool = False

    def __post_init__(self) -> None:
        """Raises: OptionError: options contradict each other."""
        if self.table not in TABLES:
            raise OptionError(f"{FORMAT} has no table {self.table!r}{nearest(self.table, TABLES)}")
        if self.tail is Tail.INCLUDE and self.mode is not ReadMode.PERMISSIVE:
            raise OptionError(
                f"{FORMAT}: tail=include needs mode=permissive: a tail is not a message"
            )
        first, last = self.starting_timestamp, self.ending_timestamp
        if first is not None and last is not None and last < first:
            raise OptionError(
                f"{FORMAT}: endingTimestamp {last} is before startingTimestamp {first}"
            )

    @property
    def columns(self) -> Mapping[str, str]:
        if self.table != "commitlog":
            return TABLES[self.table]
        bad = CORRUPT if self.mode is ReadMode.PERMISSIVE else {}
        return {**of_messages(COMMITLOG, self.properties_as), **bad}


@dataclass(frozen=True)
class LogRequest:
    """The requested columns and rows of a commit log; None: no filter.

    Attributes:
      columns: names, in the batches' order.
      topics, tags: a record must have one of them.
      first_ms, last_ms: bounds of the store time, inclusive.
      is_permissive: whether holes are rows; else they are errors.
      with_tail: whether the newest file's tail is a row, too.
      verify_crc: whether a record with a wrong checksum is a hole.
      decompress: whether bodies are decompressed.
      batch_rows: most rows of a RecordBatch.
      properties_as: the type of the column `properties`.
      only_queues: only records that a unit of their queue points to.
    """

    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    tags: frozenset[str] | None = None
    first_ms: int | None = None
    last_ms: int | None = None
    is_permissive: bool = False
    with_tail: bool = False
    verify_crc: bool = False
    decompress: bool = True
    batch_rows: int = 8192
    properties_as: PropertiesAs = PropertiesAs.MAP
    only_queues: bool = False

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types of all possible columns."""
        return of_messages({**COMMITLOG, **CORRUPT}, self.properties_as)

    def narrowed(
        self,
        *,
        topics: frozenset[str] | None = None,
        tags: frozenset[str] | None = None,
        first_ms: int | None = None,
        last_ms: int | None = None,
    ) -> LogRequest:
        """The same request with additional filters."""
        return replace(
            self,
            topics=_both(self.topics, topics),
            tags=_both(self.tags, tags),
            first_ms=max((t for t in (self.first_ms, first_ms) if t is not None), default=None),
            last_ms=min((t for t in (self.last_ms, last_ms) if t is not None), default=None),
        )


def _both(one: frozenset[str] | None, other: frozenset[str] | None) -> frozenset[str] | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def store_options(given: Mapping[str, str]) -> StoreOptions:
    """Parse the user's options.

    Raises:
      OptionError: an option is invalid.
    """
    options = read_options(StoreOptions, given, FORMAT)
    return replace(options, table=options.table.lower())


def within(options: StoreOptions, first_ms: int | None, last_ms: int | None) -> StoreOptions:
    """The same options with further bounds of the store time (inclusive)."""
    first = [t for t in (options.starting_timestamp, first_ms) if t is not None]
    last = [t for t in (options.ending_timestamp, last_ms) if t is not None]
    if first and last and max(first) > min(last):
        last = first = [max(first)]  # an empty range; the filter on rows drops the rest
    return replace(
        options,
        starting_timestamp=TimeMs(max(first)) if first else None,
        ending_timestamp=TimeMs(min(last)) if last else None,
    )


def log_request(options: StoreOptions, columns: tuple[str, ...]) -> LogRequest:
    """The request for a log's rows from the options.

    Args:
      columns: names, in order.
    """
    return LogRequest(
        columns,
        topics=frozenset(names(options.topic)) or None,
        tags=exact_tags(options.tags),
        first_ms=options.starting_timestamp,
        last_ms=options.ending_timestamp,
        is_permissive=options.mode is ReadMode.PERMISSIVE,
        with_tail=options.tail is Tail.INCLUDE,
        verify_crc=options.verify_crc,
        decompress=options.decompress,
        batch_rows=options.arrow_batch_rows,
        properties_as=options.properties_as,
        only_queues=options.only_queues,
    )
