"""The pull consumer for programs with threads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Unpack

from ..client.core.subscription import MessageSelector
from ..client.message import MessageQueue
from ..client.pull_consumer import PullConsumer as AsyncPullConsumer
from ..client.pull_consumer import PullConsumerOptions
from .client import Client, TracedMember
from .forwarded import forwarded


class PullConsumer(TracedMember[AsyncPullConsumer]):
    """Consumes queues that the program chooses; the blocking `trocket.client.PullConsumer`.

    Use::

        with PullConsumer(url, group="g") as consumer:
            consumer.assign(consumer.queues("Topic"))
            messages = consumer.poll()

    Any number of threads can use one consumer.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group whose offsets it reads and commits.
      options: see PullConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    def __init__(
        self, client: str | Client, *, group: str, **options: Unpack[PullConsumerOptions]
    ) -> None:
        super().__init__(client, lambda inner: AsyncPullConsumer(inner, group=group, **options))

    # Queues

    queues: Final = forwarded(AsyncPullConsumer.queues)

    def assign(self, queues: Iterable[MessageQueue], selector: MessageSelector = "*") -> None:
        """Fetch from these queues and from no others.

        Queues that were assigned before keep their positions.

        Args:
          queues: the queues; an empty iterable stops fetching.
          selector: which messages of their topics to receive: tags ("A || B"), Tag or Sql; "*"
            selects all.

        Raises:
          ConfigurationError: the selector is invalid.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._call_plain(self._inner.assign, list(queues), selector)

    @property
    def assignment(self) -> list[MessageQueue]:
        """The assigned queues, sorted."""
        return self._call_plain(lambda: self._inner.assignment)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop returning messages of these queues from `poll`, until `resume`.

        Raises: ConfigurationError: a queue is not assigned.
        """
        self._call_plain(self._inner.pause, list(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues from `poll` again.

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
