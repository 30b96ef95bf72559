"""The messages of one burst: put, and not yet written by a commit."""

from __future__ import annotations

from typing import Final

from ..index.index_service import IndexItem
from ..queues.consume_queue import ConsumeQueue

NO_PUTS: Final = -1
"""A `file_end` that no record fits before: every put asks `LogWriter.roll`, which refuses it."""


class Burst:
    """Bytes for the log, units for queues and items for the index, since the last commit.

    A put costs little because it appends to these lists and does nothing else. The appenders fill
    them, `LogWriter` writes, shows or takes back what they hold.

    Attributes:
      now_ms: store timestamp of the puts to come.
      append_offset: physical offset of the next record.
      file_end: physical offset at which the current file ends, or `NO_PUTS`.
      pending: pieces of the current file's bytes, in order; they begin at `pending_start`.
      segments: (physical offset, pieces) of the files before it.
      touched: queues whose newest units are not committed, each once.
      index_items: one for each record that the index takes.
    """

    __slots__ = (
        "append_offset",
        "file_end",
        "index_items",
        "now_ms",
        "pending",
        "pending_start",
        "segments",
        "touched",
    )

    def __init__(self) -> None:
        self.now_ms = 0
        self.append_offset = 0
        self.file_end = NO_PUTS
        self.pending: list[bytes | memoryview] = []
        self.pending_start = 0
        self.segments: list[tuple[int, list[bytes | memoryview]]] = []
        self.touched: list[ConsumeQueue] = []
        self.index_items: list[IndexItem] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write, to show or to take back."""
        return not (self.pending or self.segments or self.touched or self.index_items)

    def end_file(self) -> None:
        """Put the pending pieces aside: what follows belongs to the next file."""
        self.segments.append((self.pending_start, self.pending))
        self.pending = []

    def clear_from(self, physical_offset: int) -> None:
        """Have nothing, and go on at an offset of the log."""
        self.pending = []
        self.segments = []
        self.touched = []
        self.index_items = []
        self.append_offset = self.pending_start = physical_offset
