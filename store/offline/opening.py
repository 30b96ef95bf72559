"""Opening a store to look at it: locked against brokers, or live and bounded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from ..disk.os_disk import Disk
from ..errors import StoreLockedError
from .findings import Findings
from .layout import Layout, NoStoreError, read_layout
from .queue_files import QueuesOnDisk


class Opened(NamedTuple):
    """A store that can be looked at.

    Attributes:
      layout: where and how large its files are.
      stop: a live store's end, the physical offset that its queues reach; None: not live.
    """

    layout: Layout
    stop: int | None


@contextmanager
def opened(
    disk: Disk, root: str, *, conf: Mapping[str, str] | None = None, live: bool = False
) -> Iterator[Opened]:
    """Keep brokers out while the store is looked at; or, with `live`, bound what is looked at.

    Args:
      disk: a `ReadOnlyDisk`.
      root: storePathRootDir.
      conf: what `layout.read_conf` gave.
      live: look even when a broker has the store open.

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
    """Hold the store's lock; gives whether a broker holds it, which `live` allows.

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
    """The highest byte of the log that a queue's last unit points behind.

    Raises:
      StoreIOError: a file cannot be read.
    """
    queues = QueuesOnDisk(disk, layout.root, layout.queue_file_size, Findings())
    try:
        return max((queues.physical_end(queue) for queue in queues.queues.values()), default=0)
    finally:
        queues.close()
