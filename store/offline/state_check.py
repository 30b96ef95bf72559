"""The check of checkpoint, abort file and the broker's state files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...common.topic_names import SCHEDULE_TOPIC
from ...disk.numbered import size_of
from ...disk.os_disk import Disk
from ..format import CHECKPOINT_FILE_SIZE
from ..recovery.checkpoint import Checkpoint
from .findings import Findings, Severity
from .json_files import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    TOPICS,
    JsonFile,
    consumer_offsets,
    delay_offsets,
    is_json_name,
    read_json,
    topic_names,
)

MaxOffset = Callable[[str, int], int | None]
"""(topic, queue id) to the offset after its last message; None if there is no such queue."""


class ConfigState:
    """The state files of config/.

    Attributes:
      files: by name, without the `.bak` ones.
      restorable: paths of files that are bad or missing and whose `.bak` is good.
      topics: the configured topics; None: not known.
    """

    def __init__(self, disk: Disk, root: str, findings: Findings) -> None:
        self.folder = f"{root}/config"
        self.files: dict[str, JsonFile] = {}
        self.restorable: list[str] = []
        self.topics: frozenset[str] | None = None
        names = disk.list(self.folder)
        mains = {name.removesuffix(".bak") for name in names}
        for name in sorted(filter(is_json_name, mains)):
            self._load(disk, name, set(names), findings)
        topics = self.tree(TOPICS)
        if topics is not None:
            try:
                self.topics = topic_names(topics)
            except ValueError as error:
                self._bad(findings, TOPICS, str(error))

    def tree(self, name: str) -> dict[str, Any] | None:
        """The content of a file; None when it is missing or cannot be read."""
        file = self.files.get(name)
        return file.tree if file is not None else None

    def _load(self, disk: Disk, name: str, names: set[str], findings: Findings) -> None:
        path = f"{self.folder}/{name}"
        found = read_json(disk, path) if name in names else JsonFile(b"", None, "it is missing")
        self.files[name] = found
        spare = read_json(disk, f"{path}.bak") if f"{name}.bak" in names else None
        if found.tree is None:
            if spare is not None and spare.tree is not None:
                self.restorable.append(path)
                findings.add(
                    Severity.ERROR, "config.bad", path, -1,
                    f"{found.problem}; its .bak is good",
                    "`trocket store repair` takes the .bak; trocket's broker does so by itself, "
                    "Apache's starts from nothing for some files",
                )  # fmt: skip
            else:
                also = f", and so is its .bak ({spare.problem})" if spare is not None else ""
                findings.add(
                    Severity.LOSS, "config.lost", path, -1, f"{found.problem}{also}",
                    "restore it from a backup or a replica; without it the broker begins with an "
                    "empty table",
                )  # fmt: skip
        elif spare is not None and spare.tree is None:
            findings.add(
                Severity.WARNING, "config.bad_spare", f"{path}.bak", -1, spare.problem,
                "the next save writes it again",
            )  # fmt: skip

    def check_offsets(self, findings: Findings, max_offset: MaxOffset) -> None:
        """Compare offsets with the queues' ends."""
        self._check_consumers(findings, max_offset)
        tree = self.tree(DELAY_OFFSETS)
        if tree is None:
            return
        try:
            levels = delay_offsets(tree)
        except ValueError as error:
            self._bad(findings, DELAY_OFFSETS, str(error))
            return
        for level, offset in sorted(levels.items()):
            end = max_offset(SCHEDULE_TOPIC, level - 1) or 0
            if offset > end:
                findings.add(
                    Severity.WARNING, "config.delay_offset", f"{self.folder}/{DELAY_OFFSETS}", -1,
                    f"delay level {level} is delivered up to {offset}, its queue ends at {end}: "
                    "new delayed messages of it would wait for ever or be passed over",
                    "`trocket store repair` sets it back to the queue's end",
                )  # fmt: skip

    def _check_consumers(self, findings: Findings, max_offset: MaxOffset) -> None:
        tree = self.tree(CONSUMER_OFFSETS)
        if tree is None:
            return
        try:
            table = consumer_offsets(tree)
        except ValueError as error:
            self._bad(findings, CONSUMER_OFFSETS, str(error))
            return
        for (topic, group, queue_id), offset in sorted(table.items()):
            end = max_offset(topic, queue_id)
            if end is not None and offset > end:
                findings.add(
                    Severity.WARNING, "config.offset", f"{self.folder}/{CONSUMER_OFFSETS}", -1,
                    f"group {group} has consumed {topic} queue {queue_id} up to {offset}, but the "
                    f"queue ends at {end}: it would pass over the next {offset - end} messages",
                    "`trocket store repair` sets it back to the queue's end",
                )  # fmt: skip

    def _bad(self, findings: Findings, name: str, problem: str) -> None:
        findings.add(
            Severity.ERROR, "config.content", f"{self.folder}/{name}", -1, problem,
            "restore it from a backup",
        )  # fmt: skip


def check_checkpoint(
    disk: Disk,
    root: str,
    checkpoint: Checkpoint,
    findings: Findings,
    *,
    newest_ms: int,
    is_empty: bool,
) -> None:
    """Check the checkpoint page.

    Args:
      newest_ms: the newest store timestamp in the log.
      is_empty: there is no record at all.

    Raises:
      StoreIOError: it cannot be read.
    """
    path = f"{root}/checkpoint"
    if not disk.exists(path):
        findings.add(
            Severity.INFO if is_empty else Severity.WARNING, "checkpoint.missing", path, -1,
            "there is no checkpoint", "after an unclean stop the broker reads the whole log",
        )  # fmt: skip
        return
    size = size_of(disk, path)
    if size != CHECKPOINT_FILE_SIZE:
        findings.add(
            Severity.WARNING, "checkpoint.size", path, -1,
            f"the page is {size} bytes long, not {CHECKPOINT_FILE_SIZE}",
            "the broker writes it again",
        )  # fmt: skip
    if (
        checkpoint.dispatched_offset < 0  # our page has the time at which it was written
        and checkpoint.physic_msg_timestamp_ms > newest_ms
        and not is_empty
    ):
        findings.add(
            Severity.WARNING, "checkpoint.newer", path, -1,
            f"it speaks of messages stored at {checkpoint.physic_msg_timestamp_ms} ms, the newest "
            f"in the log is of {newest_ms} ms",
        )  # fmt: skip
