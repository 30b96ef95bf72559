"""The buffer of one burst: messages that were put and not yet committed."""

from __future__ import annotations

from typing import Final

from ...common.clock import StoreTimeMs, WallTimeMs
from ..index.index_backlog import Indexed
from ..queues.consume_queue import ConsumeQueue

NO_PUTS: Final = -1
"""A `file_end` that no record fits before: every put asks `LogWriter.roll`, which refuses it."""


class Burst:
    """Bytes for the log, units for queues and items for the index, since the last commit.

    A put is cheap because it only appends to these lists. The appenders fill them; `LogWriter`
    writes them and makes them visible, or rolls them back.

    Args:
      body_size_max: see below.

    Attributes:
      body_size_max: bytes of a message's body, at most: the largest maxMessageSize since the start.
        Here, because each put reads it.
      wall_time_ms: the time of day when the burst began, or when the clock was read since.
      store_time_ms: store timestamp of the next puts.
      append_offset: physical offset of the next record.
      file_end: physical offset at which the current file ends, or `NO_PUTS`.
      pending: pieces of the current file's bytes, in order; they begin at `pending_start`.
      segments: (physical offset, pieces) of the files before it.
      touched: queues whose newest units are not committed, each once.
      index_items: the records that the index takes.
    """

    __slots__ = (
        "append_offset",
        "body_size_max",
        "file_end",
        "index_items",
        "pending",
        "pending_start",
        "segments",
        "store_time_ms",
        "touched",
        "wall_time_ms",
    )

    def __init__(self, body_size_max: int) -> None:
        self.body_size_max = body_size_max
        self.wall_time_ms = WallTimeMs(0)
        self.store_time_ms = StoreTimeMs(0)
        self.append_offset = 0
        self.file_end = NO_PUTS
        self.pending: list[bytes | memoryview] = []
        self.pending_start = 0
        self.segments: list[tuple[int, list[bytes | memoryview]]] = []
        self.touched: list[ConsumeQueue] = []
        self.index_items: list[Indexed] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write or to roll back."""
        return not (self.pending or self.segments or self.touched or self.index_items)

    def end_file(self) -> None:
        """Set the pending pieces aside: the next ones belong to the next file."""
        self.segments.append((self.pending_start, self.pending))
        self.pending = []

    def clear_from(self, physical_offset: int) -> None:
        """Drop everything; the next record will lie at this offset."""
        self.pending = []
        self.segments = []
        self.touched = []
        self.index_items = []
        self.append_offset = self.pending_start = physical_offset
