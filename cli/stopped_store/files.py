"""The files of a stopped store as a broker opens them, without a change on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from ...broker.controller import BrokerController
from ...broker.settings.config import MASTER_ID, BrokerConfig
from ...broker.settings.config_checks import read_broker_config
from ...common.clock import SystemClock
from ...common.config import ConfigError, decode, parse_properties
from ...disk.errors import StoreError, StoreIOError
from ...disk.os_disk import Disk
from ...disk.overlay_disk import OverlayDisk
from ...store.config import BrokerRole, MessageStoreConfig
from ...store.offline.examined_start import StartWarnings
from ...store.offline.findings import Finding
from ...store.offline.index_counts import IndexCounts
from ...store.offline.layout import Layout, NoStoreError, read_conf, read_layout
from ...store.offline.opening import kept_from_brokers
from ...store.offline.read_only import ReadOnlyDisk
from ...store.recovery.doubt import FILE_NAME as DOUBT
from ...store.recovery.rocksdb import refuse_rocksdb
from .identity import newest_store_host, read_names
from .memory_index import index_counts, load_index

CONF_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a broker.conf, as for `trocket store`."""
MULTI_PATH_SPLITTER: Final = ","
"""Between the folders of a commit log. Source: MixAll.MULTI_PATH_SPLITTER of RocketMQ 5.5.0."""
WITHOUT_ACCOUNTS: Final[dict[str, Any]] = {
    "acl_enable": False,
    "authentication_enabled": False,
    "authorization_enabled": False,
    "migrate_auth_from_v1_enabled": False,
}
"""Who can read the files needs no account; the console asks for its own log-in."""
ALONE: Final[dict[str, Any]] = {"broker_id": MASTER_ID, "enable_property_filter": True}
"""It answers for the whole of its broker's name, also if it is a slave's; and a search by SQL92
works whatever the broker allows its consumers."""


class Conf(NamedTuple):
    """A broker.conf.

    Attributes:
      sizes: paths and sizes of the store; see `layout.read_conf`.
      broker, store: all of it.
    """

    sizes: dict[str, str]
    broker: BrokerConfig
    store: MessageStoreConfig


def read_conf_file(path: str) -> Conf:
    """Read a broker.conf. Raises: NoStoreError: it cannot be read, or used."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(CONF_SIZE_MAX + 1)
    except OSError as error:
        raise NoStoreError(f"cannot read {path}: {error.strerror}") from error
    sizes = read_conf(text, path=path)
    try:
        entries = parse_properties(decode(text), path=path)
        broker, store, _ = read_broker_config(
            entries, BrokerConfig(), MessageStoreConfig(), path=path
        )
    except ConfigError as error:
        raise NoStoreError(str(error)) from error
    return Conf(sizes, broker, store)


class UnwritableDisk(OverlayDisk):
    """The disk of a stopped store: the store is opened as on a file system mounted read-only.

    So its log stays as it is on the disk, where it would be cut in memory, and takes no message;
    the queues that are behind it are completed in memory.

    Attributes:
      refusal: what the store gets for the reason.
    """

    def __init__(self, below: Disk) -> None:
        super().__init__(below)
        cause = OSError(errno.EROFS, os.strerror(errno.EROFS))
        self.refusal = StoreIOError("the console", "it opens a store to read only")
        self.refusal.__cause__ = cause

    def unwritable_below(self, folder: str) -> StoreIOError | None:
        """Every folder."""
        return self.refusal


class OpenedFiles(NamedTuple):
    """A store that is open.

    Attributes:
      controller: of a broker with its data loaded, its address known, and nothing running.
      layout: folders and sizes.
      findings: what a start warns of, and corrects: in memory here.
      is_clean: its broker ended by itself.
      has_conf: a broker.conf was given, so that the settings are its broker's.
    """

    controller: BrokerController
    layout: Layout
    findings: tuple[Finding, ...]
    is_clean: bool
    has_conf: bool


@contextmanager
def opened_files(root: str, conf: Conf | None = None) -> Iterator[OpenedFiles]:
    """Lock a store against brokers, and open it.

    Args:
      root: storePathRootDir.

    Raises:
      NoStoreError: there is no store.
      StoreLockedError: a broker has it open.
      ForeignStateError: queues or tables are in RocksDB.
      StoreError, ConfigError: a broker would not start with it.
    """
    disk = ReadOnlyDisk()
    root = root.rstrip("/") or "/"
    with kept_from_brokers(disk, root):
        refuse_rocksdb(disk, root)
        layout = read_layout(disk, root, conf.sizes if conf is not None else None)
        _check_log(disk, layout)
        overlay = UnwritableDisk(disk)
        if overlay.exists(f"{root}/{DOUBT}"):
            # A start writes that part of the log again, which says nothing of it.
            overlay.unlink(f"{root}/{DOUBT}")
        controller = _controller(overlay, layout, conf, index_counts(disk, layout))
        warnings = StartWarnings(root)
        warnings.addFilter(lambda record: str(overlay.refusal) not in record.getMessage())
        is_clean = not disk.exists(f"{root}/abort")
        store = controller.store
        try:
            with warnings.collected():
                _load(controller, clean=is_clean)
            _learn_address(controller)
            findings = tuple(warnings.found)
            yield OpenedFiles(controller, layout, findings, is_clean, conf is not None)
        finally:
            with suppress(StoreError):  # only memory is given back: nothing was written
                store.index.close()
                store.queue_store.close()
                store.log.close()


def _check_log(disk: Disk, layout: Layout) -> None:
    """Check that the commit log is there. Raises: NoStoreError: it is elsewhere, or in parts."""
    folder = layout.log_folder
    if disk.is_folder(folder):
        return
    if MULTI_PATH_SPLITTER in folder:
        raise NoStoreError(
            f"storePathCommitLog names several folders, which this program cannot read: {folder}"
        )
    raise NoStoreError(
        f"{folder}: there is no such folder, so the commit log is elsewhere or lost; give -c "
        "broker.conf, if storePathCommitLog names another folder"
    )


def _load(controller: BrokerController, *, clean: bool) -> None:
    """Load tables, log and queues, then the index, which a store that is only read leaves as it
    is. Raises: StoreError, ConfigError."""
    config = controller.store.config
    has_index, config.message_index_enable = config.message_index_enable, False
    controller.load()
    config.message_index_enable = has_index
    if has_index:
        load_index(controller.store, clean=clean)


def _controller(
    disk: Disk, layout: Layout, conf: Conf | None, counts: IndexCounts | None
) -> BrokerController:
    names = read_names(disk, layout.root)
    broker = conf.broker if conf is not None else BrokerConfig(broker_cluster_name=names.cluster)
    broker = replace(
        broker, broker_name=broker.broker_name or names.broker, **WITHOUT_ACCOUNTS, **ALONE
    )
    of_files = layout.configured
    store = replace(
        conf.store if conf is not None else of_files,
        store_path_root_dir=layout.root,
        broker_role=BrokerRole.ASYNC_MASTER,
        store_path_commit_log=of_files.store_path_commit_log,
        mapped_file_size_commit_log=of_files.mapped_file_size_commit_log,
        mapped_file_size_consume_queue=of_files.mapped_file_size_consume_queue,
        mapped_file_size_consume_queue_ext=of_files.mapped_file_size_consume_queue_ext,
        mapper_file_size_batch_consume_queue=of_files.mapper_file_size_batch_consume_queue,
    )
    if counts is not None:
        store.max_hash_slot_num, store.max_index_num = counts
    return BrokerController(broker, store, clock=SystemClock(), disk=disk, listeners=[])


def _learn_address(controller: BrokerController) -> None:
    """Set the address that the broker had: that of its newest message, or of its broker.conf."""
    config = controller.config
    host, _, port = newest_store_host(controller.store).rpartition(":")
    if host:
        config.broker_ip1, config.listen_port = host.strip("[]"), int(port)
    config.broker_ip1 = config.broker_ip1 or "127.0.0.1"
    config.broker_ip2 = config.broker_ip2 or config.broker_ip1
    controller.parts.foundation.address.listens([])
