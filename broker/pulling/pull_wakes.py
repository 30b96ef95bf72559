"""Direct wakes: usual held pulls that new messages satisfy, answered by the C extension.

`PullRequestHoldService` wakes all others, and `PullMessageProcessor` is the specification of these.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ...common.supervision import FailureLog
from ...native.objects import GroupLike, HeldQueueLike, TopicLike
from ...native.path_counts import PathCounts
from ...native.queue_state import QueueState
from ...remoting.answer_template import AnswerTemplate
from ...store.message_store import MessageStore
from ...store.reading.recent_records import RecentRecords
from ..waiting.pull import Key
from ..waiting.pull_request_hold import HeldQueues

logger = logging.getLogger(__name__)


class WakeRules(NamedTuple):
    """Tables and limits of the broker, in the order that the extension expects.

    Attributes:
      held: the queues of held pulls by key. All tables are read at each wake.
      queues: the store's, by key.
      topics, groups: the configurations by name.
      views: maps of the log's files by their bases.
      binary_parts, json_parts: see `AnswerTemplate`.
      file_size: bytes of a file of the log.
      near: bytes before the log's end that are in memory.
      size_max, count_max: bytes and messages of an answer.
      queue_file_count: units of a queue's file.
    """

    held: Mapping[Key, HeldQueueLike]
    queues: Mapping[Key, QueueState]
    topics: Mapping[str, TopicLike]
    groups: Mapping[str, GroupLike]
    views: Mapping[int, memoryview]
    binary_parts: tuple[bytes, ...]
    json_parts: tuple[bytes, ...]
    file_size: int
    near: int
    size_max: int
    count_max: int
    queue_file_count: int


class DirectWakes:
    """Answers held pulls that are alone in their queues and want all messages.

    Args:
      recent: where the store has recent messages.
      store: already loaded.
      held: the queues of held pulls.
      topics, groups: the configurations by name.
      found: the answer to a pull that finds messages.
      count_get: counts what a pull gets; see `BrokerStatsManager`.

    Attributes:
      counts: of the answered pulls.
    """

    def __init__(
        self,
        recent: RecentRecords,
        store: MessageStore,
        held: HeldQueues,
        *,
        topics: Mapping[str, TopicLike],
        groups: Mapping[str, GroupLike],
        found: AnswerTemplate,
        count_get: Callable[[str, int, int], None],
    ) -> None:
        self._rules: Final = WakeRules(
            held=held,
            queues=store.queue_store.queues,
            topics=topics,
            groups=groups,
            views=recent.log.views,
            binary_parts=found.binary_parts,
            json_parts=found.json_parts,
            file_size=recent.log.file_size,
            near=recent.near,
            size_max=recent.size_max,
            count_max=recent.count_max,
            queue_file_count=recent.queue_file_count,
        )
        self._wake_pulls = recent.native.wake_pulls
        self._end = store.writer
        self._served = store.log.served
        self._count_get = count_get
        self._failures = FailureLog(logger)
        self._held = held
        self.counts = PathCounts()

    def wake(self, keys: list[Key]) -> tuple[list[tuple[Any, bytes, int]], list[Key]]:
        """Answer pulls, and take them out of their queues.

        Args:
          keys: of queues with new messages.

        Returns: the connections with their answers, not written yet, and the number of them; and
          the keys of queues that are not done.
        """
        answers, rest, size, gets, error, errors = self._wake_pulls(
            self._rules, keys, self._end.committed_offset
        )
        counts = self.counts
        counts.taken += len(gets)
        if rest:
            counts.left += sum(map(self._is_usual, rest))
        if error is not None:
            counts.failed += errors
            meaning = "Nothing is lost: held pulls are answered in pure Python, which is slower"
            self._failures.note("answering held pulls in the C extension", meaning, error)
        if size:
            self._served(size)
        for key, count, got in gets:
            self._count_get(key, count, got)
        return answers, rest

    def _is_usual(self, key: Key) -> bool:
        """Whether a queue has one pull that wants all messages, as those that are answered."""
        queue = self._held.get(key)
        if queue is None or queue.tagged or len(queue.others) != 1:
            return False
        (held,) = queue.others
        return held.pull.selector is None
