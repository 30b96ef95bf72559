"""Consuming at one's own pace, for programs with threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Unpack

from ..client.consumer_options import PULL_BATCH_SIZE
from ..client.core.subscription import MessageSelector
from ..client.message import MessageQueue, ReceivedMessage
from ..client.pull_consumer import (
    POLL_TIMEOUT_S,
    PullConsumerOptions,
    Pulled,
)
from ..client.pull_consumer import PullConsumer as AsyncPullConsumer
from .client import Client, Member


class PullConsumer(Member[AsyncPullConsumer]):
    """Consumes from queues of the program's choice; the blocking `trocket.client.PullConsumer`.

    Use::

        with PullConsumer(url, group="g") as consumer:
            consumer.assign(consumer.queues("Topic"))
            messages = consumer.poll()

    Any number of threads may use one consumer.

    Args:
      client: a URL, or an open Client that is shared with others.
      group: whose offsets it reads and commits.
      options: see PullConsumerOptions; those of ClientOptions only with a URL.

    Raises: ConfigurationError: an argument cannot be right.
    """

    def __init__(
        self, client: str | Client, *, group: str, **options: Unpack[PullConsumerOptions]
    ) -> None:
        super().__init__(client, lambda inner: AsyncPullConsumer(inner, group=group, **options))

    # Queues

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic that can be read.

        Raises: RouteNotFoundError; ConnectError.
        """
        return self._call(self._inner.queues, topic)

    def assign(self, queues: Iterable[MessageQueue], selector: MessageSelector = "*") -> None:
        """Fetch from these queues, and no others; those that stay go on where they are.

        Args:
          selector: what is wanted of their topics: tags or Sql.

        Raises: ConfigurationError: an expression that cannot be right; ClosedError; ForkedError.
        """
        self._call_plain(self._inner.assign, list(queues), selector)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that are fetched from, sorted."""
        return self._call_plain(lambda: self._inner.assignment)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """`poll` gives nothing of these queues until `resume`.

        Raises: ConfigurationError: a queue is not assigned.
        """
        self._call_plain(self._inner.pause, list(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """`poll` gives messages of these queues again.

        Raises: ConfigurationError: a queue is not assigned.
        """
        self._call_plain(self._inner.resume, list(queues))

    # Positions

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at an offset; what was fetched ahead is dropped.

        Args:
          offset: in messages, >= 0.

        Raises: ConfigurationError: the queue is not assigned, or the offset negative.
        """
        self._call_plain(self._inner.seek, queue, offset)

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the first message there is. Raises: as `seek`, and ClientError."""
        self._call(self._inner.seek_to_begin, queue)

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the next message to come. Raises: as `seek`, and ClientError."""
        self._call(self._inner.seek_to_end, queue)

    def seek_to_time(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Go on at the first message stored then or later. Raises: as `seek`, and ClientError.

        Args:
          timestamp_ms: ms since 1970.
        """
        self._call(self._inner.seek_to_time, queue, timestamp_ms)

    def seek_to_committed(self, queue: MessageQueue) -> None:
        """Go on where the group committed, or where a new group begins. Raises: ClientError."""
        self._call(self._inner.seek_to_committed, queue)

    def position(self, queue: MessageQueue) -> int | None:
        """Offset of the next message that `poll` gives of a queue; None: not yet known.

        Raises: ConfigurationError: the queue is not assigned.
        """
        return self._call_plain(self._inner.position, queue)

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is, by the broker; None: it never committed. Raises: ClientError."""
        return self._call(self._inner.committed, queue)

    def begin_offset(self, queue: MessageQueue) -> int:
        """Offset of the first message there is. Raises: ClientError."""
        return self._call(self._inner.begin_offset, queue)

    def end_offset(self, queue: MessageQueue) -> int:
        """Offset of the next message to come. Raises: ClientError."""
        return self._call(self._inner.end_offset, queue)

    def offset_at(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Offset of the first message stored then or later, ms since 1970. Raises: ClientError."""
        return self._call(self._inner.offset_at, queue, timestamp_ms)

    def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit offsets of the group; what fails is logged, and tried again with the next commit.

        Args:
          offsets: queue to the next offset to consume; None: the positions of all queues.
        """
        self._call(self._inner.commit, offsets)

    # Messages

    def poll(
        self, *, count_max: int = PULL_BATCH_SIZE, timeout_s: float = POLL_TIMEOUT_S
    ) -> list[ReceivedMessage]:
        """Messages of the assigned queues, each queue's in order; their positions move on.

        Args:
          count_max: at most so many, >= 1.
          timeout_s: seconds to wait for the first; >= 0.

        Returns: messages; empty when none came in time.
        """
        return self._call(self._inner.poll, count_max=count_max, timeout_s=timeout_s)

    def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int = PULL_BATCH_SIZE,
        selector: MessageSelector = "*",
        timeout_s: float = 0.0,
    ) -> Pulled:
        """Pull once; nothing is remembered.

        Args:
          offset: of the first message wanted, in messages.
          count: at most so many.
          timeout_s: seconds that the broker may wait for a message; 0: none.

        Raises: ClientError.
        """
        return self._call(
            self._inner.pull, queue, offset, count=count, selector=selector, timeout_s=timeout_s
        )
