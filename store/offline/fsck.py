"""The check of a whole store: one walk over the log, with all other files compared to it.

Nothing is changed. The order: sizes, checkpoint and queue ends first, because they distinguish a
hole from the leftovers of a truncation; then the walk; then the checks that need its end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ...disk.numbered import numbered
from ...disk.os_disk import Disk
from ..config import MessageStoreConfig
from ..format import Key
from ..log.commit_log import CommitLog
from ..log.log_reader import Hole, LogRecord
from ..queues.projection import Places
from ..queues.queue_ends import read_queue_ends
from ..recovery.checkpoint import read_checkpoint
from ..recovery.doubt import FILE_NAME as DOUBT
from ..recovery.doubt import read_doubt
from ..recovery.rocksdb import refuse_rocksdb
from .batch_check import BatchCheck
from .examined_start import OpenStore, examine_start
from .findings import Findings, Severity
from .index_check import IndexCheck
from .index_counts import IndexCounts, find_counts
from .layout import read_layout
from .log_walk import LogWalk
from .losses import Losses, per_queue
from .opening import kept_from_brokers
from .queue_check import QueueCheck
from .queue_files import QueuesOnDisk
from .report import Report
from .state_check import ConfigState, check_checkpoint
from .term_check import check_cut, check_epochs
from .topic_table import find_unknown_topics

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), about once per MiB."""

RESTORE = (
    "restore the file from a replica or a backup; otherwise `trocket store repair --skip` puts "
    "placeholders where messages are lost and keeps all others, `--cut` deletes all that follows"
)


def check_store(
    disk: Disk,
    root: str,
    *,
    conf: Mapping[str, str] | None = None,
    live: bool = False,
    remember: bool = False,
    open_store: OpenStore | None = None,
    progress: Progress | None = None,
) -> Report:
    """Check a store.

    Args:
      disk: a `ReadOnlyDisk`, so that nothing can be changed.
      root: storePathRootDir.
      conf: the result of `layout.read_conf`.
      live: check even a store that a broker has open, up to the end of the log by its queues.
      remember: keep each lost message for a repair.
      open_store: opens a store as a start does: its warnings are findings; None: not examined.
      progress: see `Progress`.

    Raises:
      NoStoreError: there is no store.
      StoreLockedError: a broker has it open, and `live` is not set.
      ForeignStateError: queues or tables are in RocksDB.
      StoreIOError: a file cannot be read.
    """
    with kept_from_brokers(disk, root, live=live) as is_live:
        refuse_rocksdb(disk, root.rstrip("/") or "/")
        report = _Check(disk, root, conf, is_live, remember, progress).run()
        if open_store is not None and not is_live:
            report.start_opens = examine_start(
                disk, start_config(report), open_store, report.findings
            )
        return report


def start_config(report: Report) -> MessageStoreConfig:
    """The settings of a start on a store, as far as its files show them."""
    config, counts = replace(report.layout.configured), report.index_counts
    config.store_path_root_dir = report.layout.root
    if counts is not None:
        config.max_hash_slot_num, config.max_index_num = counts
    return config


class _Check:
    def __init__(
        self,
        disk: Disk,
        root: str,
        conf: Mapping[str, str] | None,
        is_live: bool,
        remember: bool,
        progress: Progress | None,
    ) -> None:
        self._disk = disk
        self._remember = remember
        self._progress = progress
        self._layout = layout = read_layout(disk, root, conf)
        self._root = root = layout.root
        self._findings = findings = Findings()
        is_clean_exit = not disk.exists(f"{root}/abort")
        self._report = Report(
            layout=layout,
            is_live=is_live,
            is_clean_exit=is_clean_exit,
            findings=findings,
            config=ConfigState(disk, root, findings),
            checkpoint=read_checkpoint(disk, f"{root}/checkpoint"),
        )
        self._settled = is_clean_exit and not is_live
        self._cut = None if is_live else check_cut(disk, root, findings)
        self._log = self._open_log()
        ends = read_queue_ends(disk, root)
        # The queue ends are those of the last orderly stop. A broker that ran since then has moved
        # the checkpoint, and its queues must be read to find their ends.
        is_current = ends is not None and ends.dispatched_offset >= 0
        if ends is None or ends.dispatched_offset != self._report.checkpoint.dispatched_offset:
            is_current = False
        self._ends = ends if is_current else None
        self._queues = QueuesOnDisk(disk, root, layout.queue_file_size, findings)
        config = layout.configured
        self._places = Places(config.message_delay_level)
        self._batch = BatchCheck(disk, root, layout.batch_file_size, self._places, findings)
        self._queue_check = QueueCheck(
            disk,
            root,
            self._queues,
            self._log,
            ext_file_size=layout.ext_file_size,
            places=self._places,
            delays_known="message_delay_level" in layout.given,
            batch_topics=self._batch.topics,
        )
        self._vouched = max(
            (self._queues.physical_end(queue) for queue in self._queues.queues.values()), default=0
        )
        self._index = self._open_index()
        self._odd_fields: list[int] = []
        self._odd_count = 0

    def run(self) -> Report:
        """Walk the log, compare the other files, and report."""
        report, findings = self._report, self._findings
        if not self._report.is_clean_exit and not report.is_live:
            findings.add(
                Severity.WARNING, "store.abort", f"{self._root}/abort", -1,
                "the last broker did not stop cleanly", "the next start recovers the store",
            )  # fmt: skip
        doubt = read_doubt(self._disk, self._root, self._log.end_of_files)
        if doubt >= 0 and not report.is_live:
            findings.add(
                Severity.WARNING, "store.doubt", f"{self._root}/{DOUBT}", doubt,
                f"an fsync failed: what the log has from {doubt} on may not be on the device",
                "the next start writes it again",
            )  # fmt: skip
        if report.is_live:
            findings.add(
                Severity.INFO, "store.live", f"{self._root}/lock", -1,
                f"a broker has the store open: checked up to {self._vouched}",
            )  # fmt: skip
        try:
            walk = self._compare()
            self._finish(walk)
        finally:
            self._log.close()
            self._queues.close()
        return report

    def _compare(self) -> LogWalk:
        """Walk the log, and compare all other files with it."""
        report, walk = self._report, self._walk()
        following = report.following
        # One pass for all files, as reading the log takes most of the time.
        for record in walk.records():
            if walk.hole_count:
                following[record.topic, record.queue_id] += 1
            if record.queue_id < 0 or record.queue_offset < 0 or record.store_timestamp_ms <= 0:
                self._odd(record)
            self._queue_check.feed(record)
            if self._index is not None:
                self._index.feed(record)
            if self._batch.topics:
                self._batch.feed(record)
        report.log_start, report.log_end = self._log.min_offset, walk.end
        report.nonzero_end, report.newest_ms = walk.nonzero_end, walk.newest_ms
        report.last_offset = walk.last_offset
        report.holes = [*self._missing_start(), *walk.holes, *self._missing_end(walk)]
        report.losses = Losses(report.holes, remember=self._remember)
        return walk

    def _missing_start(self) -> list[Hole]:
        """The hole at the log's start, if its oldest files are missing without retention."""
        start, known = self._log.min_offset, self._ends.log_start if self._ends else 0
        if self._ends is None or not self._log.files or known >= start:
            return []
        return [Hole(known, start, "the oldest commit log files are missing")]

    def _missing_end(self, walk: LogWalk) -> list[Hole]:
        """The hole at the log's end, by the checkpoint or by the queues after a clean exit."""
        report, dispatched = self._report, self._report.checkpoint.dispatched_offset
        vouched = dispatched
        if self._settled and dispatched < 0:
            # A unit that points far beyond is a damaged one.
            room = self._log.end_of_files + self._log.file_size
            vouched = self._vouched if self._vouched <= room else -1
        if self._cut is not None:  # the checkpoint may be that of before
            vouched = min(vouched, self._cut.offset)
        if report.is_live or vouched <= walk.end:
            return []
        reason = walk.reason or "zeros or a missing file"
        return [Hole(walk.end, vouched, reason, at_end=True, newest_ms=walk.newest_ms)]

    def _open_log(self) -> CommitLog:
        """The log's files; adds findings about them."""
        layout, findings = self._layout, self._findings
        size = layout.log_file_size
        newest = max(layout.log_sizes, default=0)
        for base, found in layout.log_sizes.items():
            path = f"{layout.log_folder}/{base:020d}"
            if layout.is_misnamed(base):
                findings.add(
                    Severity.ERROR, "log.file_name", path, base,
                    f"no file of {size} bytes can begin here; it is left out",
                    "give -c broker.conf if mappedFileSizeCommitLog is another one",
                )  # fmt: skip
            elif found != size:
                is_new = base == newest and found == 0
                findings.add(
                    Severity.WARNING if is_new else Severity.ERROR, "log.file_size", path, base,
                    f"the file is {found} bytes long, not {size}; brokers refuse to start with it",
                    "it was being made when the broker died" if is_new else
                    "`trocket store repair` gives it its size back",
                )  # fmt: skip
        return layout.commit_log(self._disk)

    def _open_index(self) -> IndexCheck | None:
        paths = list(numbered(self._disk, f"{self._root}/index").values())
        report = self._report
        report.has_index = bool(paths)
        if not paths or report.is_live:
            if paths:
                self._findings.add(
                    Severity.INFO, "index.live", f"{self._root}/index", -1,
                    "not checked: a broker is writing it",
                )  # fmt: skip
            return None
        given, config = None, self._layout.configured
        if {"max_hash_slot_num", "max_index_num"} & self._layout.given:
            given = IndexCounts(config.max_hash_slot_num, config.max_index_num)
        counts = find_counts(self._disk, paths, given, self._log)
        report.index_counts = counts
        if counts is None:
            report.is_index_damaged = True
            self._findings.add(
                Severity.WARNING, "index.unknown", f"{self._root}/index", -1,
                "not checked: the files do not show how many slots and entries they have room for",
                "give -c broker.conf with maxHashSlotNum and maxIndexNum",
            )  # fmt: skip
            return None
        progress = report.checkpoint.index
        return IndexCheck(
            self._disk,
            paths,
            counts,
            self._log,
            log_end=self._log.end_of_files,
            unfinished=f"{progress.file_name:017d}" if progress and progress.file_name else "-",
        )

    def _walk(self) -> LogWalk:
        checkpoint = self._report.checkpoint
        return LogWalk(
            self._log,
            stop=self._vouched if self._report.is_live else None,
            ours_from=self._ends.own_from if self._ends else checkpoint.dispatched_offset,
            is_leftover=self._is_leftover,
            progress=self._progress,
        )

    def _is_leftover(self, start: int, record: LogRecord, newest_ms: int) -> bool:
        """Whether Apache's broker had cut off a record after bad bytes, in memory only."""
        queue = self._queues.queues.get((record.topic, record.queue_id))
        if queue is not None:
            unit = self._queues.unit(queue, record.queue_offset)
            if unit[:2] == (record.physical_offset, record.size):
                return False
        # A leftover is older than later records; or the last exit was clean and does not cover any
        # byte after the bad ones.
        if record.store_timestamp_ms < newest_ms:
            return True
        vouched = max(self._vouched, self._report.checkpoint.dispatched_offset)
        return self._settled and 0 < vouched <= start

    def _odd(self, record: LogRecord) -> None:
        self._odd_count += 1
        if len(self._odd_fields) < 1:
            self._odd_fields.append(record.physical_offset)

    def _finish(self, walk: LogWalk) -> None:
        report, findings = self._report, self._findings
        self._queue_check.finish(
            findings,
            report.losses,
            log_start=min([report.log_start, *(hole.start for hole in report.holes[:1])]),
            log_end=report.log_end,
            ends=self._ends.ends if self._ends and not report.is_live else {},
            settled=self._settled,
            is_live=report.is_live,
            topics=report.config.topics,
        )
        self._report_log(walk)
        if self._index is not None:
            # With our checkpoint the broker knows the end of the index, and adds the rest.
            is_apaches = report.checkpoint.dispatched_offset < 0
            self._index.finish(findings, settled=self._settled and is_apaches)
            report.is_index_damaged = self._index.is_damaged
        self._batch.finish(findings, log_start=report.log_start, settled=self._settled)
        check_checkpoint(
            self._disk,
            self._root,
            report.checkpoint,
            findings,
            newest_ms=report.newest_ms if not report.is_live else 1 << 62,
            is_empty=not walk.record_count,
        )
        check_epochs(self._disk, start_config(report).epoch_file, report.log_end, self._findings)
        report.max_offsets = self._max_offsets()
        states = self._queue_check.states
        report.begins = {key: state.begin for key, state in states.items()}
        report.message_counts = {key: state.count for key, state in states.items()}
        if not report.is_live:
            report.config.check_offsets(
                findings, lambda topic, queue_id: report.max_offsets.get((topic, queue_id))
            )
        report.damaged_queues = self._queue_check.damaged
        report.lagging_queues = self._queue_check.lagging
        report.batch_topics, report.batch_queues = self._batch.topics, set(self._batch.queues)
        report.misplaced = list(self._queue_check.misplaced.values())
        report.deleted_queues = self._queue_check.deleted
        find_unknown_topics(self._disk, report)
        report.counts = {
            "logFiles": len(self._log.files),
            "logBytes": report.log_end - report.log_start,
            "records": walk.record_count,
            "blanks": walk.blank_count,
            "holes": walk.hole_count + len(report.holes) - len(walk.holes),
            "messagesLost": sum(report.losses.total.values()),
            "queues": len(self._queues.queues),
            "queueFiles": self._queues.file_count,
            "units": self._queue_check.unit_count,
            "batchQueues": len(self._batch.queues),
            "batchUnits": self._batch.unit_count,
            "indexFiles": len(self._index.problems) if self._index is not None else 0,
            "indexEntries": self._index.entry_count if self._index is not None else 0,
            "configFiles": len(report.config.files),
        }

    def _max_offsets(self) -> dict[Key, int]:
        found = {}
        for key, state in self._queue_check.states.items():
            on_disk = state.on_disk
            end = self._queues.max_offset(on_disk) if on_disk is not None else 0
            found[key] = state.next if state.next >= 0 else end
        for key, queue in self._batch.queues.items():
            found[key] = queue.max_offset
        return found

    def _report_hole(self, number: int, hole: Hole) -> None:
        report, path = self._report, self._layout.log_path(hole.start)
        counts = report.losses.counts[number]
        known = sum(counts.values())
        lost = "no message is known to be lost"
        if known:
            lost = f"{known} messages are known to be lost ({per_queue(counts)})"
        size = hole.end - hole.start
        if hole.start < report.log_start:
            kind = "log.start"
            what = f"the log began at {hole.start}, now at {hole.end}: {hole.reason}; {lost}"
        elif hole.start == report.log_end:
            kind = "log.short"
            what = (
                f"the log ends at {hole.start} ({hole.reason}), but it reached up to {hole.end}, "
                f"and that was on the device; {lost}"
            )
        else:
            kind = "log.hole"
            what = (
                f"{size} bytes are no records ({hole.reason}), and whole records follow at "
                f"{hole.end}; {lost}"
            )
        self._findings.add(Severity.LOSS, kind, path, hole.start, what, RESTORE)

    def _report_log(self, walk: LogWalk) -> None:
        report, findings = self._report, self._findings
        path = self._layout.log_path
        for number, hole in enumerate(report.holes):
            self._report_hole(number, hole)
        if walk.hole_count > len(walk.holes):
            findings.add(
                Severity.LOSS, "log.holes", self._layout.log_folder, -1,
                f"{walk.hole_count - len(walk.holes)} more holes were only counted", RESTORE,
            )  # fmt: skip
        if walk.nonzero_end > walk.end and not report.is_live:
            what = f"hold no whole record ({walk.reason or 'zeros first'})"
            if walk.leftover_at >= 0:
                what = f"were cut off once and left there (a record at {walk.leftover_at})"
            findings.add(
                Severity.WARNING, "log.tail", path(walk.end), walk.end,
                f"{walk.nonzero_end - walk.end} bytes behind the last record {what}",
                "the broker's next start, or `trocket store repair`, overwrites them with zeros",
            )  # fmt: skip
        if walk.back_count:
            findings.add(
                Severity.WARNING, "log.time", path(walk.first_back), walk.first_back,
                f"{walk.back_count} records were stored at an earlier time than the one before: "
                "the clock went back; queries by time may be wrong",
            )  # fmt: skip
        # A client that forwards a message with its properties also copies the old checksum.
        if walk.bad_crc_count:
            findings.add(
                Severity.WARNING, "log.crc_property", path(walk.first_bad_crc),
                walk.first_bad_crc,
                f"{walk.bad_crc_count} records carry a __CRC32# that is not theirs; forwarded "
                "messages bring the old one along, so they may be whole",
            )  # fmt: skip
        if self._odd_count:
            findings.add(
                Severity.WARNING, "log.field", path(self._odd_fields[0]),
                self._odd_fields[0],
                f"{self._odd_count} records have a negative queue id or offset, or no store time",
            )  # fmt: skip
        if not self._log.files and self._queues.queues:
            findings.add(
                Severity.LOSS, "log.none", self._layout.log_folder, -1,
                f"there is no commit log, but there are {len(self._queues.queues)} queues",
                "give -c broker.conf if storePathCommitLog names another folder",
            )  # fmt: skip
