"""The layout of a store: folders and file sizes, detected from the files themselves.

RocketMQ refuses files of another size than configured; a tool that gets a folder does not know the
configuration. A given configuration takes precedence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import pairwise

from ...common.config import ConfigError, decode, key_of, parse_properties
from ...disk.errors import StoreError
from ...disk.numbered import numbered, size_of
from ...disk.os_disk import Disk
from ..config import MessageStoreConfig
from ..format import BATCH_UNIT_SIZE, UNIT_SIZE
from ..log.commit_log import CommitLog, file_name
from ..queues.queue_ends import read_queue_ends

_READ_FROM_CONF = {
    "store_path_commit_log",
    "mapped_file_size_commit_log",
    "mapped_file_size_consume_queue",
    "mapped_file_size_consume_queue_ext",
    "mapper_file_size_batch_consume_queue",
    "max_hash_slot_num",
    "max_index_num",
    "message_delay_level",
}
_KEYS = {
    key_of(field): field.name
    for field in fields(MessageStoreConfig)
    if field.name in _READ_FROM_CONF
}
_CONF_SIZE_MAX = 1024 * 1024


class NoStoreError(StoreError):
    """The path is not a store, or the configuration cannot be used."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A store's folders and sizes.

    Attributes:
      root: storePathRootDir.
      log_folder: of the commit log.
      log_sizes: bytes of each log file by the physical offset of its first byte.
      log_file_size: bytes that each should have; the default where there is none.
      queue_file_size, ext_file_size, batch_file_size: likewise of consume queue files, of their
        extensions and of batch consume queue files.
      configured: the given configuration, with defaults for the rest and the sizes above.
      given: its fields that were given.
      knows_queue_size: queue_file_size is not only the default.
    """

    root: str
    log_folder: str
    log_sizes: dict[int, int]
    log_file_size: int
    queue_file_size: int
    ext_file_size: int
    batch_file_size: int
    configured: MessageStoreConfig
    given: frozenset[str]
    knows_queue_size: bool

    def commit_log(self, disk: Disk) -> CommitLog:
        """The log's files, unchecked; the caller closes them."""
        log = CommitLog(disk, self.log_folder, self.log_file_size)
        log.use(base for base in self.log_sizes if not self.is_misnamed(base))
        return log

    def is_misnamed(self, base: int) -> bool:
        """Whether no log file of this size can begin at a physical offset."""
        return base % self.log_file_size != 0

    def log_path(self, physical_offset: int) -> str:
        """The path of the log file that holds, or would hold, a byte."""
        base = physical_offset - physical_offset % self.log_file_size
        return f"{self.log_folder}/{file_name(base)}"


def read_conf(text: bytes, *, path: str) -> dict[str, str]:
    """The paths and sizes of a broker.conf; other keys are ignored.

    Returns: values by the field's name in `MessageStoreConfig`.

    Raises:
      NoStoreError: it is no such file, or a size is no number.
    """
    if len(text) > _CONF_SIZE_MAX:
        raise NoStoreError(f"{path}: {len(text)} bytes are too many for a broker.conf")
    try:
        entries = parse_properties(decode(text), path=path)
    except ConfigError as error:
        raise NoStoreError(str(error)) from error
    found = {}
    for entry in entries:
        name = _KEYS.get(entry.key)
        if name is None:
            continue
        value = entry.value.strip()
        if name not in ("store_path_commit_log", "message_delay_level") and not (
            value.isascii() and value.isdigit() and int(value) > 0
        ):
            raise NoStoreError(f"{path}: line {entry.line}: {entry.key} must be a whole number > 0")
        found[name] = value
    return found


def read_layout(disk: Disk, root: str, conf: Mapping[str, str] | None = None) -> Layout:
    """Detect the layout of a store.

    Args:
      root: storePathRootDir.
      conf: the result of `read_conf`.

    Raises:
      NoStoreError: there is no store at that path.
      StoreIOError: a folder or file cannot be read.
    """
    root = root.rstrip("/") or "/"
    conf = conf or {}
    config = MessageStoreConfig(store_path_root_dir=root)
    for name, value in conf.items():
        setattr(config, name, int(value) if isinstance(getattr(config, name), int) else value)
    if not disk.is_folder(root):
        raise NoStoreError(f"{root}: there is no such folder")
    log_folder = config.commit_log_folder
    parts = ("consumequeue", "batchconsumequeue", "index", "checkpoint", "config")
    # A store may have lost its log: any other part of it is enough to check the rest.
    if not disk.is_folder(log_folder) and not any(disk.exists(f"{root}/{part}") for part in parts):
        raise NoStoreError(
            f"{root}: not a store, as it has no commitlog folder; give the folder that "
            "storePathRootDir names (and -c broker.conf, if storePathCommitLog names another one)"
        )
    log_sizes = {base: size_of(disk, path) for base, path in numbered(disk, log_folder).items()}
    if "mapped_file_size_commit_log" not in conf and log_sizes:
        config.mapped_file_size_commit_log = log_file_size(log_sizes)
    for name, folder, unit in (
        ("mapped_file_size_consume_queue_ext", "consumequeue_ext", 1),
        ("mapper_file_size_batch_consume_queue", "batchconsumequeue", BATCH_UNIT_SIZE),
    ):
        if name not in conf:
            size = usual_size(disk, f"{root}/{folder}", unit)
            if size:
                setattr(config, name, size)
    knows = "mapped_file_size_consume_queue" in conf
    if not knows:
        size = usual_size(disk, f"{root}/consumequeue", UNIT_SIZE) or _noted_queue_size(disk, root)
        knows = size > 0
        config.mapped_file_size_consume_queue = size or config.mapped_file_size_consume_queue
    return Layout(
        root=root,
        log_folder=log_folder,
        log_sizes=log_sizes,
        log_file_size=config.mapped_file_size_commit_log,
        queue_file_size=config.queue_file_size,
        ext_file_size=config.mapped_file_size_consume_queue_ext,
        batch_file_size=config.batch_queue_file_size,
        configured=config,
        given=frozenset(conf),
        knows_queue_size=knows,
    )


def _noted_queue_size(disk: Disk, root: str) -> int:
    """The queue file size that trocket's broker recorded, for a store without queue files; or 0."""
    ends = read_queue_ends(disk, root)
    return ends.file_size if ends is not None else 0


def log_file_size(sizes: Mapping[int, int]) -> int:
    """The configured size of the log files.

    Files begin at multiples of it, so a size that contradicts the files' names belongs to a damaged
    one.

    Args:
      sizes: bytes by the physical offset of the first byte; not empty.
    """
    bases = sorted(sizes)
    gaps = [second - first for first, second in pairwise(bases)]
    counted = Counter(size for size in sizes.values() if size > 0)
    for size, _ in counted.most_common():
        if all(base % size == 0 for base in bases) and size <= min(gaps, default=size):
            return size
    return min(
        gaps, default=max(sizes.values()) or MessageStoreConfig().mapped_file_size_commit_log
    )


def usual_size(disk: Disk, folder: str, unit: int) -> int:
    """The size that most files of all queues have; 0 if there is none.

    Args:
      folder: holds TOPIC/QUEUEID/FILE.
      unit: the size is a multiple of it.

    Raises:
      StoreIOError: a folder or file cannot be read.
    """
    counted: Counter[int] = Counter()
    for _, _, queue_folder in queue_folders(disk, folder):
        files = numbered(disk, queue_folder)
        counted.update(size_of(disk, path) for path in files.values())
        bases = list(files)
        counted.update(second - first for first, second in pairwise(bases))
    good = {size: count for size, count in counted.items() if size > 0 and size % unit == 0}
    return max(good, key=lambda size: (good[size], size), default=0)


def queue_folders(disk: Disk, folder: str) -> Iterable[tuple[str, int, str]]:
    """(topic, queue id, its folder) of each queue below a folder.

    Raises:
      StoreIOError: a folder cannot be read.
    """
    for topic in disk.list(folder):
        for name in disk.list(f"{folder}/{topic}") if disk.is_folder(f"{folder}/{topic}") else ():
            path = f"{folder}/{topic}/{name}"
            if name.isascii() and name.isdigit() and disk.is_folder(path):
                yield topic, int(name), path
