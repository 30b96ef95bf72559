"""PopHold: pops and notifications that found nothing wait for messages.

Java counterpart: broker/longpolling/PopLongPollingService.java of 5.5.0, of which its broker has
one for each kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

import trio

from ...auth.standing import Rights
from ...common.clock import Clock, WallTimeMs
from ...remoting.channel import Answer, Channel, Processor
from ...remoting.codec import NO_EXT_FIELDS, RemotingCommand, encode
from ...remoting.errors import RequestRefused
from ...remoting.response_codes import ResponseCode
from ...remoting.turn import Turn
from ..settings.config import BrokerConfig
from ..waiting.pull import Key, TagsCodesSince, unknown_codes
from .waiting_requests import WaitingRequests, polling_key, wait_ms_of

logger = logging.getLogger(__name__)


def _not_served(request: RemotingCommand, channel: Channel) -> None:
    raise RuntimeError("no processor serves the requests that wait here")


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
        """Serve a waiting request again, as its connection does when it comes."""
        answer: Answer
        try:
            if self.rights is not None:
                refusal = self.rights.revoked(request, channel)
                if refusal is not None:
                    raise refusal
            answer = serve(request, channel)
        except RequestRefused as refused:
            answer = request.answer(refused.code, refused.remark, refused.fields or NO_EXT_FIELDS)
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
            raise TypeError(f"request {request.code} waits for messages and cannot await more")

    def wait_ms(self, born_ms: int, poll_ms: int) -> int:
        """How long a request may wait that a client sent at `born_ms`; see `wait_ms_of`."""
        return wait_ms_of(born_ms, poll_ms, self.clients_ms())

    def notify(self, topic: str, group: str, queue_id: int) -> None:
        """Wake one pop and one notification of a topic, group and queue, whatever their filters.

        For messages that remain after a pop, and for a queue that is no longer blocked by messages
        that were popped in order. After a pop that found nothing it may be called only if the next
        one begins at a later offset, or that pop would be served again for ever.

        Args:
          topic: the topic that was asked for, no retry topic.
          queue_id: as the request asked; -1 wakes those of all queues only.
        """
        key = polling_key(topic, group, queue_id)
        self.pops.wake(key)
        self.notifications.wake(key)

    def arrived(self, queues: Collection[Key]) -> None:
        """Wake pops for new messages; called with all queues, of retry topics too, that have some.

        It is called before the answers of the turn leave, so it only notes what to do. A queue
        without new messages wakes pops in spite of their filters: offsets of it were reset.
        """
        self.pops.arrived(queues)
        self.notifications.arrived(queues)

    def withdraw(self, channel: Channel, opaque: int) -> bool:
        """Forget a pop that its client has given up; whether it waited."""
        return self.pops.withdraw(channel, opaque)

    def channel_closed(self, channel: Channel) -> None:
        """Forget the pops of a connection."""
        self.pops.channel_closed(channel)
        self.notifications.channel_closed(channel)

    async def run(self, turn: Turn) -> None:
        """Wake and end pops, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.pops.run, turn)
            nursery.start_soon(self.notifications.run, turn)
