"""The pull consumer for programs with threads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Unpack

from ..client.checks.misuse import explained, knows_elsewhere
from ..client.checks.other_names import PULL_CONSUMER
from ..client.checks.queue_check import queues_of
from ..client.core.subscription import MessageSelector
from ..client.messages.message import MessageQueue
from ..client.pulling.pull_consumer import PullConsumer as AsyncPullConsumer
from ..client.pulling.pull_consumer import PullConsumerOptions
from .client import Client, TracedMember
from .forwarded import forwarded


@knows_elsewhere(PULL_CONSUMER)
class PullConsumer(TracedMember[AsyncPullConsumer]):
    """Consumes at the pace of the program; the blocking `trocket.client.PullConsumer`.

    Use::

        with PullConsumer(url, group="g") as consumer:
            consumer.subscribe("Topic")
            while True:
                for message in consumer.poll(32):
                    ...

    `subscribe` shares the queues of topics among the members of the group; with `assign` the
    program chooses its queues itself.

    The messages of a `poll` count as consumed when the next one begins; from then on they are
    committed, within `auto_commit_s`. At the normal end of the `with` block the messages of the
    last `poll` are committed, too. If the block ends by an exception, or the program crashes, they
    come again.

    Any number of threads can use one consumer; they turn `auto_commit` off, and call `commit`.

    Args:
      client: the URL of a cluster, or an open Client to share with other objects.
      group: the consumer group whose offsets it reads and commits.
      options: see PullConsumerOptions; those of ClientOptions are allowed only with a URL.

    Raises: ConfigurationError: the URL, the group's name or an option is invalid.
    """

    @explained
    def __init__(
        self, client: str | Client, *, group: str, **options: Unpack[PullConsumerOptions]
    ) -> None:
        super().__init__(client, lambda inner: AsyncPullConsumer(inner, group=group, **options))

    # Queues

    queues: Final = forwarded(AsyncPullConsumer.queues)

    def subscribe(
        self,
        topics: str | Iterable[str] | Mapping[str, MessageSelector],
        selector: MessageSelector = "*",
    ) -> None:
        """Receive from topics from now on, as a member of the group.

        The queues of the topics are shared among the members, and assigned anew when members join
        or leave. Topics that are subscribed already stay so; they may get another selector.

        A queue that goes to another member is committed as far as it was consumed; messages of the
        last `poll` may be received by the other member, too.

        Args:
          topics: one topic, several, or a dict with a selector for each.
          selector: which messages of the topics to receive, unless `topics` says it: tags
            ("A || B"), Tag or Sql; "*" selects all.

        Raises:
          ConfigurationError: a topic or a selector is invalid, or the program assigned queues.
          ClosedError: the consumer is not open.
          ForkedError: the consumer was opened in the parent of this process.
        """
        self._call_plain(self._inner.subscribe, topics, selector)

    unsubscribe: Final = forwarded(AsyncPullConsumer.unsubscribe)

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
        self._call_plain(self._inner.pause, list(queues_of(queues, "pause")))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of these queues from `poll` again.

        Raises: ConfigurationError: a queue is not assigned.
        """
        self._call_plain(self._inner.resume, list(queues_of(queues, "resume")))

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
