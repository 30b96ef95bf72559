"""Consuming at one's own pace, for programs with threads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from ..client.core.subscription import MessageSelector
from ..client.message import MessageQueue
from ..client.pull_consumer import PullConsumer as AsyncPullConsumer
from ..client.pull_consumer import (
    PullConsumerOptions,
)
from .client import Client, Member
from .forwarded import forwarded


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

    queues: Final = forwarded(AsyncPullConsumer.queues)

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

    seek: Final = forwarded(AsyncPullConsumer.seek)
    seek_to_begin: Final = forwarded(AsyncPullConsumer.seek_to_begin)
    seek_to_end: Final = forwarded(AsyncPullConsumer.seek_to_end)
    seek_to_time: Final = forwarded(AsyncPullConsumer.seek_to_time)
    seek_to_committed: Final = forwarded(AsyncPullConsumer.seek_to_committed)
    position: Final = forwarded(AsyncPullConsumer.position)
    committed: Final = forwarded(AsyncPullConsumer.committed)
    begin_offset: Final = forwarded(AsyncPullConsumer.begin_offset)
    end_offset: Final = forwarded(AsyncPullConsumer.end_offset)
    offset_at: Final = forwarded(AsyncPullConsumer.offset_at)
    commit: Final = forwarded(AsyncPullConsumer.commit)

    # Messages

    poll: Final = forwarded(AsyncPullConsumer.poll)
    pull: Final = forwarded(AsyncPullConsumer.pull)
