"""Bringing log and queues to one state when the store is opened.

Java counterparts: DefaultMessageStore.load/recover, CommitLog.recoverNormally/recoverAbnormally of
5.3.3. What to do at the log's end is decided in recovery.py. Afterwards every consume queue is what
the log says it is, and nothing lies behind the log's end.

Messages of batch queues (BatchCQ) and of topics that can be no folder are not put into queues.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from ..remoting.java_hash import tags_code
from ..remoting.message import MessageExt
from ..remoting.message_properties import find_property
from ..remoting.sys_flag import TRANSACTION_PREPARED_TYPE
from .checkpoint import Checkpoint
from .commit_log import CommitLog, file_name
from .config import MessageStoreConfig
from .consume_queue_store import ConsumeQueueStore
from .errors import CorruptRecordError
from .format import UNIT
from .log_scanner import LogScanner, find_record_after
from .recovery import Action, Place, Rest, decide, scan_start

logger = logging.getLogger(__name__)

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
TAIL_BYTES_MAX = 16 * 1024
"""Units of one queue kept in memory while rebuilding."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Recovered(NamedTuple):
    """What recovery found."""

    end: int  # physical offset to append at
    last_timestamp_ms: int  # the newest store timestamp seen


class Loader:
    """One recovery.

    Args:
      config, log, queues, checkpoint: the store's; log and queues are not loaded yet.
      clean: there was no abort file.
    """

    def __init__(
        self,
        config: MessageStoreConfig,
        log: CommitLog,
        queues: ConsumeQueueStore,
        checkpoint: Checkpoint,
        *,
        clean: bool,
    ) -> None:
        self._config = config
        self._log = log
        self._queues = queues
        self._checkpoint = checkpoint
        self._clean = clean
        self._delays_ms = delay_levels_ms(config.message_delay_level)

    def recover(self) -> Recovered:
        """Load files, walk the log's end, rebuild what queues lack, cut what must not stay.

        Raises:
          CorruptRecordError: a hole, or files of another size; nothing was changed in the log.
          StoreIOError: a file could not be read or written.
        """
        log, queues, checkpoint = self._log, self._queues, self._checkpoint
        log.load()
        queues.load()
        newest_ms = max(checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms)
        if not log.files:
            if queues.queues:
                logger.warning("there is no commit log: the consume queues are removed")
                queues.remove_all()
            return Recovered(0, newest_ms)
        queues_end = queues.physical_end()
        start = scan_start(
            clean=self._clean,
            dispatched_offset=checkpoint.dispatched_offset,
            files=[(base, self._first_timestamp_ms(base)) for base in log.files],
            queues_end=queues_end,
            safe_timestamp_ms=min(
                checkpoint.physic_msg_timestamp_ms, checkpoint.logics_msg_timestamp_ms
            )
            - 3000,
        )
        if not self._clean:
            for queue in queues.queues.values():
                queue.cut(start)
        dispatch_from = queues_end if self._clean else start
        scanner = LogScanner(log, start, check_crc=self._config.check_crc_on_recover)
        for record in scanner.records():
            newest_ms = max(newest_ms, record.store_timestamp_ms)
            if record.physical_offset >= dispatch_from:
                self._dispatch(record)
        vouched = max(checkpoint.dispatched_offset, queues_end if self._clean else -1)
        self._settle_end(scanner, vouched, newest_ms)
        for queue in queues.queues.values():
            if queue.physical_end() > scanner.end:
                queue.cut(scanner.end)
            queue.correct_min_offset(log.min_offset)
        return Recovered(scanner.end, newest_ms)

    def _first_timestamp_ms(self, base: int) -> int:
        record = next(LogScanner(self._log, base, check_crc=False).records(), None)
        return record.store_timestamp_ms if record is not None else 0

    def _settle_end(self, scanner: LogScanner, vouched: int, newest_ms: int) -> None:
        """Decide about what lies behind the last good record, and do it."""
        log, end = self._log, scanner.end
        exact = self._clean and self._checkpoint.dispatched_offset == end and not scanner.reason
        nonzero_end = end if exact else log.last_nonzero(end)
        found = -1
        if nonzero_end > end:
            found = find_record_after(log, end + 1, nonzero_end, newest_ms)
        rest = Rest.ZEROS if nonzero_end == end else Rest.RECORDS if found >= 0 else Rest.GARBAGE
        # Without a checkpoint of ours nothing tells synced from unsynced after an abnormal exit.
        known = self._clean or self._checkpoint.dispatched_offset >= 0
        case = decide(
            rest=rest,
            clean=self._clean,
            place=Place.UNSYNCED if known and end >= vouched else Place.SYNCED,
            flush=self._config.flush_disk_type,
        )
        base = end - end % log.file_size
        path = f"{log.folder}/{file_name(base)}"
        if case.action is Action.REFUSE:
            raise CorruptRecordError(
                path,
                end,
                f"{scanner.reason or 'zeros'}, but whole records follow (at {found}); cutting the "
                "log here would lose them, so the store does not start. Restore this file from a "
                f"replica or a backup (case {case.label}: {case.why})",
            )
        if case.action is Action.TRUNCATE:
            logger.warning(
                "%s: the log is cut at %d, %d bytes behind it are zeroed: %s (case %s: %s)",
                path,
                end,
                nonzero_end - end,
                scanner.reason or "zeros",
                case.label,
                case.why,
            )
            keep_end = min(nonzero_end, base + log.file_size)
            log.remove_from(base + log.file_size)
            log.zero(end, keep_end)
        else:
            log.remove_from(base + log.file_size)

    def _dispatch(self, record: MessageExt) -> None:
        """Put one record into its queue, or queues."""
        if record.sys_flag & TRANSACTION_PREPARED_TYPE or record.topic in self._queues.batch_topics:
            return
        properties = record.properties_bytes
        code = self._tags_code(record)
        self._append(record.topic, record.queue_id, record.queue_offset, record, code)
        more = find_property(properties, b"INNER_MULTI_DISPATCH")
        offsets = find_property(properties, b"INNER_MULTI_QUEUE_OFFSET")
        if more is not None and offsets is not None:
            for topic, offset in zip(more.split(b","), offsets.split(b","), strict=False):
                if offset.isdigit():
                    name = str(topic, "utf-8", "replace")
                    queue_id = 0 if name.startswith("%LMQ%") else record.queue_id
                    self._append(name, queue_id, int(offset), record, code)

    def _append(
        self, topic: str, queue_id: int, queue_offset: int, record: MessageExt, code: int
    ) -> None:
        queue = self._queues.get_or_create(topic, queue_id)
        if queue is None:
            logger.error("the record at %d has a topic no queue can have", record.physical_offset)
            return
        if queue_offset < queue.max_offset:
            if queue.unit_at(queue_offset)[0] == record.physical_offset:
                return
            logger.warning("%s begins again at offset %d", queue.folder, queue_offset)
            queue.remove()  # the topic was deleted and made again between these two records
        unit = UNIT.pack(record.physical_offset, record.store_size, code)
        queue.append_recovered(queue_offset, unit)
        if len(queue.tail) >= TAIL_BYTES_MAX:
            queue.write()

    def _tags_code(self, record: MessageExt) -> int:
        properties = record.properties_bytes
        if record.topic == SCHEDULE_TOPIC:
            level = find_property(properties, b"DELAY")
            if level is not None and level.isdigit() and int(level) > 0:
                delay_ms = self._delays_ms[min(int(level), len(self._delays_ms)) - 1]
                return record.store_timestamp_ms + delay_ms
        tags = find_property(properties, b"TAGS")
        return tags_code(str(tags, "utf-8", "replace")) if tags is not None else 0


def delay_levels_ms(text: str) -> list[int]:
    """The delays of messageDelayLevel, level 1 first.

    Args:
      text: such as "1s 5s 2h"; units s, m, h, d.

    Raises:
      ValueError: a duration is not a number and a unit.
    """
    return [int(word[:-1]) * _SECONDS[word[-1]] * 1000 for word in text.split()] or [1000]
