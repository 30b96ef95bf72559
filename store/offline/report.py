"""The report of a check: contents of the store's files, and findings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ..format import Key
from ..log.log_reader import Hole
from ..recovery.checkpoint import Checkpoint
from .findings import Findings, Severity
from .index_counts import IndexCounts
from .layout import Layout
from .losses import Losses
from .queue_check import Misplaced
from .state_check import ConfigState


@dataclass(slots=True)
class Report:
    """The result of a check.

    Attributes:
      layout: folders and sizes of the store's files.
      is_live: a broker had the store open.
      is_clean_exit: there was no abort file.
      findings: see `Findings`.
      counts: numbers of checked items, by name.
      log_start, log_end: physical offsets of the log's first byte and after its last record.
      nonzero_end: physical offset after the last byte of the log that is not zero.
      newest_ms: the newest store timestamp.
      last_offset: physical offset of the last record; -1 if there is none.
      holes, losses: missing parts of the log, and with `remember` each lost message. The first hole
        may be before the oldest file, the last one after the last record.
      following: number of good messages of each queue after the first hole.
      batch_topics, batch_queues: those with batch consume queues.
      max_offsets: for each queue the offset after its last message.
      begins: for each queue the physical offset of its first record; -1: the log has none.
      message_counts: for each queue the number of its messages in the log.
      damaged_queues: queues to rebuild; `lagging_queues`: those that the broker's next start
        corrects; `deleted_queues`: of deleted topics.
      unknown_topics: queue counts of topics that `topics.json` lacks, by name.
      misplaced: records whose head is damaged, and the correct values.
      index_counts: of each index file; None: unknown, or there is none.
      is_index_damaged: the index has to be rebuilt.
      has_index: there are index files.
      config: the broker's own state.
      start_opens: a start was examined, and it is not refused.
      checkpoint: the page.
    """

    layout: Layout
    is_live: bool
    is_clean_exit: bool
    findings: Findings
    config: ConfigState
    checkpoint: Checkpoint
    counts: dict[str, int] = field(default_factory=dict)
    log_start: int = 0
    log_end: int = 0
    nonzero_end: int = 0
    newest_ms: int = 0
    last_offset: int = -1
    holes: list[Hole] = field(default_factory=list)
    losses: Losses = field(default_factory=lambda: Losses([], remember=False))
    following: Counter[Key] = field(default_factory=Counter)
    batch_topics: frozenset[str] = frozenset()
    batch_queues: set[Key] = field(default_factory=set)
    max_offsets: dict[Key, int] = field(default_factory=dict)
    begins: dict[Key, int] = field(default_factory=dict)
    message_counts: dict[Key, int] = field(default_factory=dict)
    damaged_queues: set[Key] = field(default_factory=set)
    lagging_queues: set[Key] = field(default_factory=set)
    deleted_queues: set[Key] = field(default_factory=set)
    unknown_topics: dict[str, int] = field(default_factory=dict)
    misplaced: list[Misplaced] = field(default_factory=list)
    index_counts: IndexCounts | None = None
    is_index_damaged: bool = False
    has_index: bool = False
    start_opens: bool = False

    @property
    def is_clean(self) -> bool:
        """Whether nothing was an error or a loss."""
        return self.findings.is_clean

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        counts = self.findings.counts
        return {
            "path": self.layout.root,
            "clean": self.is_clean,
            "live": self.is_live,
            "cleanExit": self.is_clean_exit,
            "log": {
                "folder": self.layout.log_folder,
                "fileSize": self.layout.log_file_size,
                "minOffset": self.log_start,
                "maxOffset": self.log_end,
                "newestStoreTimestamp": self.newest_ms,
            },
            "counts": self.counts,
            "findingCounts": {kind.name.lower(): counts[kind] for kind in Severity},
            "lost": [
                {"topic": topic, "queueId": queue_id, "count": count}
                for (topic, queue_id), count in sorted(self.losses.total.items())
            ],
            "findings": [finding.as_dict() for finding in self.findings.items],
            "findingsLeftOut": self.findings.total - len(self.findings.items),
        }
