"""The choice of a message's queue: in turn, no broker that just failed, and no slow one.

Java counterpart: MQFaultStrategy, LatencyFaultToleranceImpl, ThreadLocalIndex,
TopicPublishInfo.selectOneMessageQueue of RocketMQ 5.3.3. Pure: times are arguments, and the first
index of a round (random in Java) is too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...remoting.bodies import MessageQueue
from .routes import TopicPublishInfo

LATENCY_MAX_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15_000)
"""From this latency on …"""
NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 2000, 5000, 6000, 10_000, 30_000)
"""… a broker is avoided so long. Source: MQFaultStrategy."""

ISOLATION_LATENCY_MS: Final = 10_000
"""What a failed send counts as: 10 s away. Source: MQFaultStrategy.updateFaultItem."""


_POSITIVE: Final = 0x7FFFFFFF


class RoundRobinIndex:
    """The number of the queue that is next; one for each topic of a producer.

    Args:
      start: where to begin, any int; random, so that many producers do not march in step.
    """

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def next(self) -> int:
        """One more than the last time, 0 … 2^31 - 1, wrapping."""
        index = self._index = self._index + 1 & _POSITIVE
        return index

    def reset(self, start: int) -> None:
        """Go on from another place: a retry with the latency rules on does, so that not all
        producers that fail together fall upon one broker."""
        self._index = start


@dataclass(slots=True)
class FaultItem:
    """What is known of a broker.

    Attributes:
      current_latency_ms: of the last send.
      available_from_ms: it is avoided before, on the caller's clock.
      is_reachable: whether the last send got through.
    """

    current_latency_ms: float = 0
    available_from_ms: float = 0
    is_reachable: bool = True


@dataclass(slots=True)
class LatencyFaultTolerance:
    """Which brokers are slow or gone, by name. All times are ms of one clock, wall or monotonic.

    Source: RocketMQ 5.3.3 LatencyFaultToleranceImpl.
    """

    items: dict[str, FaultItem] = field(default_factory=dict)

    def update(
        self,
        broker_name: str,
        latency_ms: float,
        not_available_ms: float,
        *,
        reachable: bool,
        now_ms: float,
    ) -> None:
        """Note a send's outcome.

        Args:
          not_available_ms: avoid it so long; this only ever lengthens what was said before.
        """
        item = self.items.get(broker_name)
        if item is None:
            item = self.items[broker_name] = FaultItem()
        item.current_latency_ms = latency_ms
        item.is_reachable = reachable
        if not_available_ms > 0:
            item.available_from_ms = max(item.available_from_ms, now_ms + not_available_ms)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether it need not be avoided; an unknown broker need not."""
        item = self.items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Whether it got through last; an unknown broker counts as reachable."""
        item = self.items.get(broker_name)
        return item is None or item.is_reachable


class FaultStrategy:
    """Picks queues for a producer's sends. One for each producer; not thread-safe.

    Args:
      send_latency_fault_enable: learn from latencies and errors, and avoid brokers by them; off by
        default, as in RocketMQ.
      latency_max_ms: ascending; with the next one a table as `LATENCY_MAX_MS`.
      not_available_duration_ms: as many.
    Raises: ValueError: the tables differ in length, or the first does not ascend.
    Source: RocketMQ 5.3.3 MQFaultStrategy.
    """

    __slots__ = (
        "_latency_max_ms",
        "_not_available_duration_ms",
        "send_latency_fault_enable",
        "tolerance",
    )

    def __init__(
        self,
        *,
        send_latency_fault_enable: bool = False,
        latency_max_ms: tuple[int, ...] = LATENCY_MAX_MS,
        not_available_duration_ms: tuple[int, ...] = NOT_AVAILABLE_DURATION_MS,
    ) -> None:
        if len(latency_max_ms) != len(not_available_duration_ms):
            raise ValueError(
                f"{len(latency_max_ms)} latencies and {len(not_available_duration_ms)} durations:"
                " give one duration for each latency"
            )
        if sorted(latency_max_ms) != list(latency_max_ms):
            raise ValueError(f"the latencies {latency_max_ms} do not ascend")
        self.send_latency_fault_enable: bool = send_latency_fault_enable
        self.tolerance: LatencyFaultTolerance = LatencyFaultTolerance()
        self._latency_max_ms = latency_max_ms
        self._not_available_duration_ms = not_available_duration_ms

    def update(
        self,
        broker_name: str,
        latency_ms: float,
        isolated: bool,
        reachable: bool,
        now_ms: float,
    ) -> None:
        """Note a send's outcome; nothing happens while `send_latency_fault_enable` is off.

        Args:
          latency_ms: how long the send took, ms, >= 0.
          isolated: it failed; it counts as one of `ISOLATION_LATENCY_MS`.
          reachable: false: not even a connection was made.
        """
        if not self.send_latency_fault_enable:
            return
        duration_ms = self.not_available_ms(ISOLATION_LATENCY_MS if isolated else latency_ms)
        self.tolerance.update(
            broker_name, latency_ms, duration_ms, reachable=reachable, now_ms=now_ms
        )

    def not_available_ms(self, latency_ms: float) -> int:
        """How long a broker of this latency is avoided, ms."""
        row = bisect_right(self._latency_max_ms, latency_ms)
        return self._not_available_duration_ms[row - 1] if row else 0

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether a broker need not be avoided."""
        return self.tolerance.is_available(broker_name, now_ms)

    def is_reachable(self, broker_name: str) -> bool:
        """Whether a broker could be connected to."""
        return self.tolerance.is_reachable(broker_name)

    def select(
        self,
        info: TopicPublishInfo,
        index: RoundRobinIndex,
        *,
        now_ms: float = 0,
        last_broker_name: str | None = None,
    ) -> MessageQueue | None:
        """The queue for a message.

        The next one in turn, but not of the broker that just failed; with the latency rules on
        first among the available brokers, then among the reachable ones. If that leaves none, the
        next one in turn whatever it is.

        Args:
          info: where the topic can be written.
          index: the topic's; moves on.
          now_ms: on the clock of `update`; not looked at while the latency rules are off.
          last_broker_name: the broker that the message was just tried on; None: the first try.
        Returns: a queue; None: the topic has none.
        """
        queues = info.queues
        count = len(queues)
        if count == 0:
            return None
        if self.send_latency_fault_enable:
            tolerance = self.tolerance

            def is_available(broker_name: str) -> bool:
                return tolerance.is_available(broker_name, now_ms)

            for is_good in (is_available, tolerance.is_reachable):
                queue = _next_where(info, index, last_broker_name, is_good)
                if queue is not None:
                    return queue
        elif last_broker_name is not None:
            queue = _next_where(info, index, last_broker_name, None)
            if queue is not None:
                return queue
        return queues[index.next() % count]


def _next_where(
    info: TopicPublishInfo,
    index: RoundRobinIndex,
    last_broker_name: str | None,
    is_good: Callable[[str], bool] | None,
) -> MessageQueue | None:
    """The next queue in turn of another broker that is good; None: one round found none."""
    queues = info.queues
    for _ in queues:
        queue = queues[index.next() % len(queues)]
        name = queue.broker_name
        if name != last_broker_name and (is_good is None or is_good(name)):
            return queue
    return None
