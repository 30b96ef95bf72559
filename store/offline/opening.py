"""Opening a store for reading: locked against brokers, or live up to a fixed end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ...disk.errors import StoreLockedError
from ...disk.os_disk import Disk
from .findings import Findings
from .layout import Layout, NoStoreError, read_layout
from .queue_files import QueuesOnDisk


class Opened(NamedTuple):
    """A store that is open for reading.

    Attributes:
      layout: folders and sizes of its files.
      stop: a live store's end, the physical offset that its queues reach; None: not live.
    """

    layout: Layout
    stop: int | None


@contextmanager
def opened(
    disk: Disk, root: str, *, conf: Mapping[str, str] | None = None, live: bool = False
) -> Iterator[Opened]:
    """Lock the store against brokers; or, with `live`, fix the end up to which it is read.

    Args:
      disk: a `ReadOnlyDisk`.
      root: storePathRootDir.
      conf: the result of `layout.read_conf`.
      live: open it even when a broker has the store open.

    Raises:
      NoStoreError: there is no store.
      StoreLockedError: a broker has it open, and `live` is not set.
      StoreIOError: something cannot be read.
    """
    with kept_from_brokers(disk, root, live=live) as is_live:
        layout = read_layout(disk, root, conf)
        yield Opened(layout, queues_end(disk, layout) if is_live else None)


@contextmanager
def kept_from_brokers(disk: Disk, root: str, *, live: bool = False) -> Iterator[bool]:
    """Hold the store's lock; yields whether a broker holds it, which `live` allows.

    Raises:
      NoStoreError: there is no such folder.
      StoreLockedError: a broker has it open, and `live` is not set.
      StoreIOError: the lock file cannot be read.
    """
    if not disk.is_folder(root):
        raise NoStoreError(f"{root}: there is no such folder")
    lock = f"{root.rstrip('/') or '/'}/lock"
    is_live = False
    try:
        disk.lock(lock)
    except StoreLockedError:
        if not live:
            raise
        is_live = True
    try:
        yield is_live
    finally:
        if not is_live:
            disk.unlock(lock)


def queues_end(disk: Disk, layout: Layout) -> int:
    """First byte of the log after the last record that a queue unit points to.

    Raises:
      StoreIOError: a file cannot be read.
    """
    queues = QueuesOnDisk(disk, layout.root, layout.queue_file_size, Findings())
    try:
        return max((queues.physical_end(queue) for queue in queues.queues.values()), default=0)
    finally:
        queues.close()
