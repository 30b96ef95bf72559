"""The pulled messages of a push consumer that wait for the program: pauses and the rate limit.

Messages of paused topics and queues are kept aside until they are resumed.

Java counterpart: the queue of ConsumeMessageConcurrentlyService's thread pool, suspend and resume.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import anyio

from ...remoting.bodies import MessageQueue
from ..connection.client import Client
from ..errors import ConfigurationError
from ..messages.interceptor import Interceptor, call_before_consume
from .pushed_message import PushedMessage

BURST_S: Final = 0.1
"""Time whose messages may be delivered at once after a pause, because timers are not exact."""


class RateLimit:
    """Counts the messages of one consumer.

    Args:
      per_s: messages per second, above 0.
      now_s: the current time.
    """

    def __init__(self, per_s: float, now_s: float) -> None:
        self._interval_s = 1.0 / per_s
        self._next_s = now_s

    def take(self, now_s: float) -> bool:
        """Count a message; False: it has to wait, for `wait_s`."""
        if self._next_s > now_s:
            return False
        self._next_s = max(self._next_s, now_s - BURST_S) + self._interval_s
        return True

    def wait_s(self, now_s: float) -> float:
        """Seconds until the next message may be delivered; 0: now."""
        return max(self._next_s - now_s, 0.0)


class ReadyMessages:
    """The messages that are ready for delivery, in the order of their arrival.

    Lifecycle: `open` in the event loop before messages are put or taken, then `stop`.

    Args:
      rate_limit: messages per second; None: no limit.
      interceptors: see the attribute.

    Attributes:
      interceptors: they see each message that is taken: the client's, and that of a trace.
      may_deliver: called for each message that is about to be taken; if it returns False, the
        message is dropped. None: all may be taken.
    """

    def __init__(
        self,
        client: Client,
        rate_limit: float | None,
        interceptors: Sequence[Interceptor],
    ) -> None:
        self._client = client
        self.interceptors: Sequence[Interceptor] = interceptors
        self._rate_limit = rate_limit
        self.may_deliver: Callable[[PushedMessage], bool] | None = None
        self._limit: RateLimit | None = None
        self._ready: deque[PushedMessage] = deque()
        self._held: deque[PushedMessage] = deque()
        self._paused: set[str | MessageQueue] = set()
        self._is_stopped = False
        self._arrival: anyio.Event

    def open(self) -> None:
        """Prepare it for the running event loop."""
        self._arrival = anyio.Event()
        if self._rate_limit is not None:
            self._limit = RateLimit(self._rate_limit, self._client.now_s())

    def stop(self) -> None:
        """Drop the messages, and those that are put from now on; wakes `wait`."""
        self._is_stopped = True
        self._ready.clear()
        self._held.clear()
        self._arrival.set()

    def put(self, messages: Sequence[PushedMessage]) -> None:
        """Add messages that are ready for delivery."""
        # After `stop`, a settled message must not bring the next message of an orderly queue.
        if self._is_stopped:
            return
        if self._paused:
            self._held = deque([each for each in self._held if not each.is_revoked])
            self._held.extend([each for each in messages if self.holds(each)])
            messages = [each for each in messages if not self.holds(each)]
        self._ready.extend(messages)
        self._arrival.set()

    def take(self) -> PushedMessage | None:
        """The next message; None if there is none, or the rate limit is reached."""
        limit = self._limit
        while self._ready:
            message = self._ready.popleft()
            if not message.is_revoked:
                if limit is not None and not limit.take(self._client.now_s()):
                    self._ready.appendleft(message)
                    return None
                if self.may_deliver is not None and not self.may_deliver(message):
                    continue
                if self.interceptors:
                    call_before_consume(self.interceptors, message)
                return message
        return None

    def take_from(self, take: Callable[[], PushedMessage | None]) -> PushedMessage | None:
        """Take a message from elsewhere, under the rate limit, and show it to the interceptors.

        Args:
          take: returns it, or None; not called when the rate limit is reached.
        """
        limit = self._limit
        if self._is_stopped or (limit is not None and limit.wait_s(self._client.now_s()) > 0):
            return None
        message = take()
        if message is not None:
            if limit is not None:
                limit.take(self._client.now_s())
            if self.interceptors:
                call_before_consume(self.interceptors, message)
        return message

    @property
    def is_stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._is_stopped

    def wake(self) -> None:
        """End `wait`."""
        self._arrival.set()

    def take_back(self, message: PushedMessage) -> bool:
        """Remove a message; returns whether it was still waiting, and not taken."""
        for messages in (self._ready, self._held):
            for index, each in enumerate(messages):
                if each is message:
                    del messages[index]
                    return True
        return False

    @property
    def waiting(self) -> set[int]:
        """The messages that were not taken, by their object ids."""
        return {id(message) for messages in (self._ready, self._held) for message in messages}

    async def wait(self) -> None:
        """Wait until `take` may return a message, or until `stop`."""
        if self._arrival.is_set():
            self._arrival = anyio.Event()
        if self._limit is not None and self._ready:
            with anyio.move_on_after(self._limit.wait_s(self._client.now_s())):
                await self._arrival.wait()  # `stop` ends it, too
        else:
            await self._arrival.wait()

    # Pauses

    @property
    def paused(self) -> set[str | MessageQueue]:
        """The paused topics, without namespace, and queues."""
        return set(self._paused)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused, alone or with its topic."""
        return queue in self._paused or (
            bool(self._paused) and self._client.without_namespace(queue.topic) in self._paused
        )

    def holds(self, message: PushedMessage) -> bool:
        """Whether the message is kept aside, by its topic or its queue."""
        # By the message's own topic, too: its redeliveries come from the group's retry topic.
        return message.topic in self._paused or message.queue in self._paused

    def pause(self, paused: Iterable[str | MessageQueue], subscribed: Collection[str]) -> None:
        """Keep the messages of these topics and queues aside until `resume`.

        Args:
          paused: the argument of the program.
          subscribed: the topics of the consumer, with namespace.

        Raises: ConfigurationError: it is a string, or a topic is not subscribed.
        """
        self._paused.update(self._checked(paused, subscribed))
        self._held.extend([each for each in self._ready if self.holds(each)])
        self._ready = deque([each for each in self._ready if not self.holds(each)])

    def resume(self, resumed: Iterable[str | MessageQueue], subscribed: Collection[str]) -> None:
        """Deliver the messages of these topics and queues again. Args, Raises: as `pause`."""
        self._paused.difference_update(self._checked(resumed, subscribed))
        released = [each for each in self._held if not self.holds(each)]
        self._held = deque([each for each in self._held if self.holds(each)])
        self.put(released)

    def _checked(
        self, given: Iterable[str | MessageQueue], subscribed: Collection[str]
    ) -> list[str | MessageQueue]:
        if isinstance(given, str):
            raise ConfigurationError(f"{given!r} is a string: give a list of topics or queues")
        wanted = list(given)
        for each in wanted:
            if isinstance(each, str) and self._client.with_namespace(each) not in subscribed:
                raise ConfigurationError(f"the consumer does not subscribe to the topic {each}")
        return wanted

    def give_back(self, messages: Sequence[PushedMessage]) -> None:
        """Put messages that were taken, and not given to the program, in front of the others."""
        for message in reversed(messages):
            (self._held if self.holds(message) else self._ready).appendleft(message)
