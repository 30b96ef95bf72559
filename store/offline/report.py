"""The report of a check: what the store's files hold, and what is wrong with them."""

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
    """What a check found.

    Attributes:
      layout: where and how large the store's files are.
      is_live: a broker had the store open.
      is_clean_exit: there was no abort file.
      findings: what was found.
      counts: how much was looked at, by name.
      log_start, log_end: physical offsets of the log's first byte and behind its last record.
      nonzero_end: behind the last byte of the log that is not zero.
      newest_ms: the newest store timestamp.
      last_offset: physical offset of the last record; -1: there is none.
      holes, losses: what is missing in the log; with `remember`, message by message. The first may
        lie before the oldest file, the last behind the last record.
      following: how many good messages of each queue lie behind the first hole.
      batch_topics, batch_queues: those with batch consume queues.
      max_offsets: for each queue the offset behind its last message.
      begins: for each queue where its first record lies; -1: the log has none of its messages.
      damaged_queues: queues to be built again; `lagging_queues`: those that the broker's next
        start puts right; `deleted_queues`: of topics that are no more.
      unknown_topics: how many queues they have, of topics that `topics.json` lacks, by name.
      misplaced: records whose head is damaged, and what it should say.
      index_counts: of each index file; None: not known, or there is none.
      is_index_damaged: the index is to be built again.
      has_index: there are index files.
      config: the broker's own state.
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
    damaged_queues: set[Key] = field(default_factory=set)
    lagging_queues: set[Key] = field(default_factory=set)
    deleted_queues: set[Key] = field(default_factory=set)
    unknown_topics: dict[str, int] = field(default_factory=dict)
    misplaced: list[Misplaced] = field(default_factory=list)
    index_counts: IndexCounts | None = None
    is_index_damaged: bool = False
    has_index: bool = False

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
