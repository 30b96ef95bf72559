"""PopHold: pops that found nothing wait for messages.

Java counterpart: broker/longpolling/PopLongPollingService.java of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum, auto

import trio

from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.turn import Turn
from ..pull import Selector


class Polling(Enum):
    """What became of a pop that found nothing. Source: longpolling/PollingResult.java."""

    WAITS = auto()
    FULL = auto()
    TIMEOUT = auto()


@dataclass(frozen=True, slots=True)
class WaitingPop:
    """A pop, or a notification, that waits.

    Attributes:
      request: served again from the beginning when a message may be there or the time is over; its
        bornTime is set.
      channel: its connection.
      topic: the topic that was asked for, no retry topic.
      group: the consumer group.
      queue_id: one queue; -1: all queues.
      born_time: ms since 1970.
      poll_time: how long to wait, ms after `born_time`; 0 or less: not at all.
      selector: the filter of the topic's messages; None: all are wanted.
    """

    request: RemotingCommand
    channel: Channel
    topic: str
    group: str
    queue_id: int
    born_time: int
    poll_time: int
    selector: Selector | None


class PopHold:
    """Holds pops. Not thread-safe: used from the broker's one trio run.

    Attributes:
      serve: serves a waiting request again; the answer is written to the channel. Set by the
        processors.
    """

    def __init__(self) -> None:
        self.serve: Callable[[RemotingCommand, Channel], None] = lambda request, channel: None

    def hold(self, waiting: WaitingPop) -> Polling:
        """Let a pop wait; unless it WAITS, the caller answers at once."""
        return Polling.TIMEOUT

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop of a topic, group and queue: more messages remain than another one took.

        Args:
          topic: the topic that was asked for, no retry topic.
          queue_id: as the pop asked; -1 wakes those of all queues only.
        """

    def arrived(self, queues: Collection[tuple[str, int]]) -> None:
        """Wake pops for new messages; called with all queues, of retry topics too, that have some.

        It is called before the answers of the turn leave, so it only notes what to do.
        """

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pops of a connection."""

    async def run(self, turn: Turn) -> None:
        """Wake and end pops, until cancelled."""
        await trio.sleep_forever()
