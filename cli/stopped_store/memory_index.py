"""The index of a stopped store, completed in memory.

A broker that was killed leaves an index that its checkpoint does not cover, which a start builds
again. So does this, on the copy in memory: without it, a message could not be found by its key.
"""

from __future__ import annotations

from typing import Final

import trio

from ...disk.numbered import numbered
from ...disk.os_disk import Disk
from ...store.index.index_loading import LogSpan
from ...store.index.index_service import SLICE_S, IndexService
from ...store.message_store import MessageStore
from ...store.offline.index_counts import IndexCounts, find_counts
from ...store.offline.layout import Layout
from ...store.reading.visible_log import VisibleLog
from ...store.recovery.checkpoint import read_checkpoint

FIRST_S: Final = 5.0
"""How long the opening of a store waits for its index: that of most is complete within."""


def index_counts(disk: Disk, layout: Layout) -> IndexCounts | None:
    """Slots and entries of the index files; None: there are none, or they do not show it.

    Raises: StoreIOError: a file cannot be read.
    """
    given, config = None, layout.configured
    if {"max_hash_slot_num", "max_index_num"} & layout.given:
        given = IndexCounts(config.max_hash_slot_num, config.max_index_num)
    paths = list(numbered(disk, f"{layout.root}/index").values())
    log = layout.commit_log(disk)
    try:
        return find_counts(disk, paths, given, log)
    finally:
        log.close()


def load_index(store: MessageStore, *, clean: bool) -> None:
    """Load the index of a store that was loaded without it, and complete it for FIRST_S.

    Args:
      store: on a disk whose changes stay in memory.
      clean: there was no abort file.
    """
    root = store.config.store_path_root_dir
    checkpoint = read_checkpoint(store.disk, f"{root}/checkpoint")
    log = VisibleLog(store.log, lambda: store.dispatched_offset)
    latest_ms = max(store.store_time_ms, store.clock.wall_ms())
    span = LogSpan(store.log.min_offset, store.max_physical_offset, log.is_record, latest_ms)
    store.index.load(checkpoint, span, clean=clean)
    _work(store.index, FIRST_S)


async def complete(index: IndexService) -> None:
    """Complete the index in slices, between which requests are answered."""
    while index.is_behind:
        _work(index, SLICE_S)
        await trio.lowlevel.checkpoint()


def _work(index: IndexService, limit_s: float) -> None:
    index.work(limit_s)
    index.finish_full_files()
