"""The appender of runs: messages that the C extension packs in one call.

A run is received frames of plain sends and batches, or stored records of delayed messages that are
due. For the first the extension reads frames, and asks the rules of the broker for each; so this is
the one place where the store sees frames. Without the extension there are no runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...common.delay_levels import delay_levels_ms
from ...native import Extension
from ...native.objects import TopicLike
from ...native.path_counts import PathCounts
from ...native.queue_state import QueueState
from ...remoting.codec import HEADER_SIZE_MAX
from ..config import MessageStoreConfig
from ..format import Key
from ..index.index_backlog import IndexRun
from ..queues.consume_queue_store import ConsumeQueueStore
from .log_writer import LogWriter


class SendRules(NamedTuple):
    """The broker's rules for plain sends and batches, in the order that the extension expects.

    Attributes:
      topics: the configurations by name. Read at each send.
      checked: names of topics whose sends must be checked. Read at each send.
      queues: the store's, by topic and queue id. Read at each send.
      added: the properties that the broker appends to each message's.
      store_host: of the records, 8 bytes.
      id_prefix: the store host in hexadecimal digits, with which each message id begins.
      answer_parts, json_answer_parts: see `AnswerTemplate.binary_parts` and `json_parts`.
      delays_ms: of each delay level, from the first on.
    """

    topics: Mapping[str, TopicLike]
    checked: set[str]
    queues: Mapping[Key, QueueState]
    added: bytes
    store_host: bytes
    id_prefix: bytes
    answer_parts: tuple[bytes, ...]
    json_answer_parts: tuple[bytes, ...]
    body_size_max: int
    delays_ms: tuple[int, ...]


class AppendedRun(NamedTuple):
    """A run that is part of the burst.

    Attributes:
      size: bytes of its frames.
      send_count: at least one.
      answers: the frames of their answers, one after the other; oneway sends have none.
      batch_count: how many of the sends are batches.
    """

    size: int
    send_count: int
    answers: bytes
    batch_count: int = 0


class DeliveredRun(NamedTuple):
    """Due messages that are part of the burst.

    Attributes:
      size: bytes of the records that they had.
      message_count: at least one.
    """

    size: int
    message_count: int


class RunAppender:
    """Adds runs to the next `LogWriter.commit`.

    Args:
      native: the C extension.
      writer: commits what is appended.
      batches: counts of the extension's other put.

    Attributes:
      sends, deliveries: counts of messages; their owners count those that are left.
      batches: as given.
    """

    def __init__(
        self,
        native: Extension,
        config: MessageStoreConfig,
        queue_store: ConsumeQueueStore,
        writer: LogWriter,
        batches: PathCounts,
    ) -> None:
        self._pack_sends = native.pack_sends
        self._pack_deliveries = native.pack_deliveries
        self._read_clock = writer.read_clock
        self._queues = queue_store.queues
        self._burst = writer.burst
        self._config = config
        # Slaves and brokers with accounts never append runs of sends.
        self.batches = batches
        self.sends, self.deliveries = PathCounts(is_judged=False), PathCounts()
        self._delays_ms = tuple(delay_levels_ms(config.message_delay_level))

    def rules(
        self,
        topics: Mapping[str, TopicLike],
        checked: set[str],
        *,
        added: bytes,
        store_host: bytes,
        id_prefix: bytes,
        answer_parts: tuple[bytes, ...],
        json_answer_parts: tuple[bytes, ...],
    ) -> SendRules:
        """The rules for `append`, with maxMessageSize as it is now; see `SendRules`."""
        return SendRules(
            topics, checked, self._queues, added, store_host, id_prefix, answer_parts,
            json_answer_parts, self._config.max_message_size, self._delays_ms,
        )  # fmt: skip

    def append(
        self, rules: SendRules, data: bytes, position: int, frame_size_max: int, born_host: bytes
    ) -> AppendedRun | None:
        """Append the run at a position of received bytes.

        Args:
          rules: from `rules`.
          data: received bytes.
          position: of a frame.
          frame_size_max: bytes of the largest accepted frame, without its length word.
          born_host: of the records.

        Returns: None if the first frame is neither a plain send nor a batch, or has no room;
          nothing was changed.
        """
        # A delayed message may be newer than the turn's time, by which it would be delivered early.
        self._read_clock()
        burst = self._burst
        first = burst.append_offset
        try:
            packed = self._pack_sends(
                rules, HEADER_SIZE_MAX, data, position, frame_size_max, born_host,
                burst.store_time_ms, burst.wall_time_ms, first, burst.file_end, burst.touched,
            )  # fmt: skip
        except Exception:
            self.sends.failed += 1
            raise
        if packed is None:
            return None
        size, send_count, batch_count, message_count, records, answers, entries = packed
        self._add(message_count, records, entries)
        self.sends.taken += send_count - batch_count
        self.batches.taken += batch_count
        return AppendedRun(size, send_count, answers, batch_count)

    def deliver(self, data: bytes, position: int, topics: set[str]) -> DeliveredRun | None:
        """Append the due messages at a position of records to the queues that they were sent to.

        Args:
          data: records, one after the other, of messages that are due.
          position: of a record.
          topics: that messages may be delivered to.

        Returns: None if the first record is not plain, its topic is none of these, its queue does
          not exist yet, or it has no room; nothing was changed.
        """
        burst = self._burst
        try:
            packed = self._pack_deliveries(
                self._queues, topics, burst.body_size_max, data, position, burst.store_time_ms,
                burst.append_offset, burst.file_end, burst.touched,
            )  # fmt: skip
        except Exception:
            self.deliveries.failed += 1
            raise
        if packed is None:
            return None
        size, count, records, entries = packed
        self._add(count, records, entries)
        self.deliveries.taken += count
        return DeliveredRun(size, count)

    def _add(self, count: int, records: bytes, entries: bytes) -> None:
        burst, first = self._burst, self._burst.append_offset
        burst.pending.append(records)
        burst.append_offset = first + len(records)
        burst.index_items.append(IndexRun(count, entries, first))
