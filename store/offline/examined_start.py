"""A start that changes nothing: what a broker's next start on a store would warn of and correct.

The broker's own code opens the store, on a disk that keeps every change in memory. Each warning
that it logs is a finding, in the same words, so fsck and the start cannot disagree; the error of a
start that is refused is one, too.

A store whose queues must be built again needs 20 bytes of memory for each of their messages.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from ...disk.errors import StoreError
from ...disk.os_disk import Disk
from ...disk.overlay_disk import OverlayDisk
from ...disk.start_warnings import kind_of
from ..config import MessageStoreConfig
from ..message_store import MessageStore
from ..recovery.doubt import FILE_NAME as DOUBT
from .findings import Finding, Findings, Severity

OpenStore = Callable[[MessageStoreConfig, Disk], MessageStore]
"""Opens a store as a start does: a broker's start with its tables, or the store alone."""

REFUSED: Final = "start.refused"
WARNED: Final = "start.warning"
LEFTOVER: Final = "start.leftover"
STRAY: Final = "start.stray"

WARNED_ADVICE: Final = "the broker's next start says this; `trocket store repair` does what it does"
LEFTOVER_ADVICE: Final = "the broker's next start says this; nothing needs a repair"

STRAY_ADVICE: Final = "the broker's next start says this; `trocket store repair` moves it away"

_KINDS: Final = {
    "damage": (Severity.ERROR, WARNED, WARNED_ADVICE),
    "leftover": (Severity.WARNING, LEFTOVER, LEFTOVER_ADVICE),
    "stray": (Severity.ERROR, STRAY, STRAY_ADVICE),
}
"""How a warning of a start is reported, by its kind in start_warnings.py."""

_LOGGER: Final = __name__.partition(".")[0]


def open_alone(config: MessageStoreConfig, disk: Disk) -> MessageStore:
    """Open a store without a broker's tables. Raises: StoreError: it cannot be opened."""
    store = MessageStore(config, disk=disk)
    store.load()
    return store


def examine_start(
    disk: Disk, config: MessageStoreConfig, open_store: OpenStore, findings: Findings
) -> bool:
    """Add what a start would warn of; nothing is changed on the disk.

    Args:
      disk: read only; the caller has locked the store.
      config: of the store, with the sizes of its files.

    Returns: whether the store opens.
    """
    overlay = OverlayDisk(disk)
    root = config.store_path_root_dir
    if overlay.exists(f"{root}/{DOUBT}"):
        # A start writes that part of the log again, which says nothing and may need much memory.
        overlay.unlink(f"{root}/{DOUBT}")
    warnings = StartWarnings(root)
    refusal = ""
    with warnings.collected():
        try:
            store = open_store(config, overlay)
        except StoreError as error:
            refusal = str(error)
        else:
            with suppress(StoreError):  # only memory is given back: nothing was written
                store.index.close()
                store.queue_store.close()
                store.log.close()
    for finding in warnings.found:
        findings.add_one(finding)
    if refusal:
        findings.add(
            Severity.ERROR, REFUSED, root, -1, refusal, "a broker does not start with this store",
        )  # fmt: skip
    return not refusal


class StartWarnings(logging.Handler):
    """Turns the warnings of a start into findings, each string once.

    Args:
      root: the data folder, for warnings that name no file.

    Attributes:
      found: the findings, in the order of the warnings.
    """

    def __init__(self, root: str) -> None:
        super().__init__(logging.WARNING)
        self.found: list[Finding] = []
        self._root = root
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Add a finding for a warning of this thread."""
        if record.thread not in (None, self._thread):
            return
        values = record.args if isinstance(record.args, dict) else {}
        severity, kind, advice = _KINDS[kind_of(record)]
        path = str(values.get("path") or values.get("file") or self._root)
        if "/" not in path:  # a table, named without its folder
            path = f"{self._root}/config/{path}"
        finding = Finding(severity, kind, path, -1, record.getMessage(), advice)
        if finding not in self.found:
            self.found.append(finding)

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect the warnings of a block; they are not logged."""
        logger = logging.getLogger(_LOGGER)
        handlers, propagates, level = logger.handlers[:], logger.propagate, logger.level
        logger.handlers[:], logger.propagate = [self], False
        if logger.getEffectiveLevel() > logging.WARNING:
            logger.setLevel(logging.WARNING)
        try:
            yield
        finally:
            logger.handlers[:], logger.propagate = handlers, propagates
            logger.setLevel(level)
