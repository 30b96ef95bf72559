"""PopHold: pops and notifications that found nothing wait for messages.

Java counterpart: broker/longpolling/PopLongPollingService.java of 5.5.0, of which its broker has
one for each kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass

import trio

from ...auth.standing import Rights
from ...common.clock import Clock, WallTimeMs
from ...remoting.channel import Channel, Processor
from ...remoting.codec import NO_EXT_FIELDS, RemotingCommand, encode
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ...remoting.turn import Turn
from ..settings.config import BrokerConfig
from ..waiting.pull import Key, Selector, TagsCodesSince, unknown_codes
from .waiting_requests import ANY_QUEUE, Polling, PollingKey, WaitingRequests, wait_ms_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WaitingPop:
    """A pop, or a notification, that waits.

    Attributes:
      request: served again from the beginning when a message may be there or the time is over; its
        bornTime is set.
      topic: the topic that was asked for, no retry topic.
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


def _serve_again(serve: Processor, request: RemotingCommand, channel: Channel) -> None:
    """Serve a waiting request again, as its connection does when it comes."""
    try:
        answer = serve(request, channel)
    except RequestRefused as refusal:
        answer = request.answer(refusal.code, refusal.remark, refusal.fields or NO_EXT_FIELDS)
    except Exception as error:
        logger.exception(
            "%(peer)s: a waiting request %(code)d failed",
            {"peer": channel.remote_address, "code": request.code},
        )
        answer = request.answer(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}")
    if isinstance(answer, RemotingCommand):
        channel.write(encode(answer))
    elif isinstance(answer, bytes):
        channel.write(answer)
    elif answer is not None:
        # A pop answers at once or waits here: a coroutine would be served by no task.
        raise TypeError(f"request {request.code} waits for messages and cannot await more")


def _key(topic: str, group: str, queue_id: int) -> PollingKey:
    """What a request waits for: any negative queue id stands for all queues."""
    return PollingKey(topic, group, max(queue_id, ANY_QUEUE))


class PopHold:
    """Holds pops and notifications. Not thread-safe: used from the broker's one trio run.

    Args:
      clock: of the time that one slice may take.
      clients_ms: the time of day by which clients give born times, ms since 1970.
      now_s: the clock for deadlines, such as trio.current_time.
      tags_codes_since: see TagsCodesSince.

    Attributes:
      serve, serve_notification: the processors of waiting requests, which set them. One may write
        its answer itself, and must do nothing but answer or hold the request again.
      pops, notifications: those that wait.
      rights: whether those that wait may still be served; None if there are no accounts.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        clients_ms: Callable[[], WallTimeMs],
        now_s: Callable[[], float],
        tags_codes_since: TagsCodesSince = unknown_codes,
    ) -> None:
        self.rights: Rights | None = None
        self.clients_ms = clients_ms
        self.serve: Processor = _not_served
        self.serve_notification: Processor = _not_served
        self.pops = WaitingRequests(
            lambda request, channel: self._serve_again(self.serve, request, channel),
            config,
            now_s=now_s,
            elapsed_s=clock.monotonic_s,
            tags_codes_since=tags_codes_since,
        )
        self.notifications = WaitingRequests(
            lambda request, channel: self._serve_again(self.serve_notification, request, channel),
            config,
            youngest_first=True,
            now_s=now_s,
            elapsed_s=clock.monotonic_s,
            tags_codes_since=tags_codes_since,
        )

    def _serve_again(self, serve: Processor, request: RemotingCommand, channel: Channel) -> None:
        refusal = None if self.rights is None else self.rights.revoked(request, channel)
        if refusal is None:
            _serve_again(serve, request, channel)
        else:
            channel.write(encode(request.answer(refusal.code, refusal.remark)))

    def hold(self, waiting: WaitingPop) -> Polling:
        """Hold a pop; unless it WAITS, the caller answers at once."""
        return self._hold(self.pops, waiting)

    def hold_notification(self, waiting: WaitingPop) -> Polling:
        """Hold a notification; unless it WAITS, the caller answers at once."""
        return self._hold(self.notifications, waiting)

    def _hold(self, requests: WaitingRequests, waiting: WaitingPop) -> Polling:
        return requests.hold(
            waiting.request,
            waiting.channel,
            _key(waiting.topic, waiting.group, waiting.queue_id),
            wait_ms=wait_ms_of(waiting.born_time, waiting.poll_time, self.clients_ms()),
            selector=waiting.selector,
        )

    def polling_num(self, topic: str, group: str, queue_id: int) -> int:
        """Pops that wait for one queue; or, if its id is negative, for all queues."""
        return self.pops.polling_num(_key(topic, group, queue_id))

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop and one notification of a topic, group and queue, whatever their filters.

        For messages that remain after a pop, and for a queue that is no longer blocked by messages
        that were popped in order. After a pop that found nothing it may be called only if the next
        one begins at a later offset, or that pop would be served again for ever.

        Args:
          topic: the topic that was asked for, no retry topic.
          queue_id: as the request asked; -1 wakes those of all queues only.
        """
        key = _key(topic, group, queue_id)
        self.pops.wake(key)
        self.notifications.wake(key)

    def arrived(self, queues: Collection[Key]) -> None:
        """Wake pops for new messages; called with all queues, of retry topics too, that have some.

        It is called before the answers of the turn leave, so it only notes what to do. A queue
        without new messages wakes pops in spite of their filters: offsets of it were reset.
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
