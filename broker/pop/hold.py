"""PopHold: pops and notifications that found nothing wait for messages.

Java counterpart: broker/longpolling/PopLongPollingService.java of 5.5.0, of which its broker has
one for each kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import trio

from ...remoting.channel import Channel
from ...remoting.codec import RemotingCommand
from ...remoting.turn import Turn
from ...store.clock import Clock
from ..config import BrokerConfig
from ..pull import Selector
from ..pull_request_hold import Key, TagsCodesSince, unknown_codes
from .waiting_requests import Polling, PollingKey, WaitingRequests, wait_ms_of

Serve = Callable[[RemotingCommand, Channel], None]
"""Serves a waiting request again: it writes the answer to the channel, or holds the request."""


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


def _not_served(request: RemotingCommand, channel: Channel) -> None:
    raise RuntimeError("no processor serves the requests that wait here")


class PopHold:
    """Holds pops and notifications. Not thread-safe: used from the broker's one trio run.

    Args:
      config: the broker's.
      clock: of born times, and of the time that one slice may take.
      now_s: the clock for deadlines, such as trio.current_time.
      tags_codes_since: see TagsCodesSince.

    Attributes:
      serve, serve_notification: serve waiting requests; set by the processors.
      pops, notifications: those that wait.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        now_s: Callable[[], float],
        tags_codes_since: TagsCodesSince = unknown_codes,
    ) -> None:
        self._clock = clock
        self.serve: Serve = _not_served
        self.serve_notification: Serve = _not_served
        self.pops = WaitingRequests(
            lambda request, channel: self.serve(request, channel),
            config,
            now_s=now_s,
            elapsed_s=clock.monotonic_s,
            tags_codes_since=tags_codes_since,
        )
        self.notifications = WaitingRequests(
            lambda request, channel: self.serve_notification(request, channel),
            config,
            youngest_first=True,
            now_s=now_s,
            elapsed_s=clock.monotonic_s,
            tags_codes_since=tags_codes_since,
        )

    def hold(self, waiting: WaitingPop) -> Polling:
        """Let a pop wait; unless it WAITS, the caller answers at once."""
        return self._hold(self.pops, waiting)

    def hold_notification(self, waiting: WaitingPop) -> Polling:
        """Let a notification wait; unless it WAITS, the caller answers at once."""
        return self._hold(self.notifications, waiting)

    def _hold(self, requests: WaitingRequests, waiting: WaitingPop) -> Polling:
        return requests.hold(
            waiting.request,
            waiting.channel,
            PollingKey(waiting.topic, waiting.group, waiting.queue_id),
            wait_ms=wait_ms_of(waiting.born_time, waiting.poll_time, self._clock.wall_ms()),
            selector=waiting.selector,
        )

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop of a topic, group and queue: more messages remain than another one took.

        Args:
          topic: the topic that was asked for, no retry topic.
          queue_id: as the pop asked; -1 wakes those of all queues only.
        """
        self.pops.wake(PollingKey(topic, group, queue_id))

    def notify_queue(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop and one notification that a queue's messages are for.

        For a queue that a group can pop again: its messages were acknowledged in order, or became
        visible, or its offset was reset.

        Args:
          topic: the topic, no retry topic.
          queue_id: not -1. A request for all queues is woken, or else one for this queue.
        """
        self.pops.wake_queue(topic, group, queue_id)
        self.notifications.wake_queue(topic, group, queue_id)

    def arrived(self, queues: Collection[Key]) -> None:
        """Wake pops for new messages; called with all queues, of retry topics too, that have some.

        It is called before the answers of the turn leave, so it only notes what to do.
        """
        self.pops.arrived(queues)
        self.notifications.arrived(queues)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pops of a connection."""
        self.pops.channel_closed(channel)
        self.notifications.channel_closed(channel)

    async def run(self, turn: Turn) -> None:
        """Wake and end pops, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.pops.run, turn)
            nursery.start_soon(self.notifications.run, turn)
