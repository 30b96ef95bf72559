"""The choice of a queue for a message: round robin, avoiding failed and slow brokers.

Java counterpart: MQFaultStrategy, LatencyFaultToleranceImpl, ThreadLocalIndex,
TopicPublishInfo.selectOneMessageQueue of RocketMQ 5.3.3. Pure: times are arguments, and so is the
first index of a round, which is random in Java.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ...remoting.bodies import MessageQueue
from .routes import TopicPublishInfo

LATENCY_MAX_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15_000)
"""Latencies in ascending order, each with a duration in NOT_AVAILABLE_DURATION_MS."""
NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 2000, 5000, 6000, 10_000, 30_000)
"""Time for which a broker of at least the given latency is avoided. Source: MQFaultStrategy."""

ISOLATION_LATENCY_MS: Final = 10_000
"""Latency that a failed send counts as. Source: MQFaultStrategy.updateFaultItem."""


_POSITIVE: Final = 0x7FFFFFFF


class RoundRobinIndex:
    """The index of the next queue, in turn; one for each topic of a producer.

    Args:
      start: first index, any int. Producers give a random one, so that they do not all begin with
        the same queue.
    """

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def next(self) -> int:
        """The next index, 0 to 2^31 - 1; then it starts at 0 again."""
        index = self._index = self._index + 1 & _POSITIVE
        return index

    def reset(self, start: int) -> None:
        """Continue at another index.

        Retries do so while slow brokers are avoided: otherwise all producers that fail at the same
        time would choose the same broker.
        """
        self._index = start


@dataclass(slots=True)
class FaultItem:
    """The state of a broker, as far as sends have shown it.

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
    """Slow and unreachable brokers, by name. All times are milliseconds of one clock.

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
        """Record the outcome of a send.

        Args:
          broker_name: name of the broker.
          latency_ms: duration of the send.
          not_available_ms: time for which to avoid the broker; it never shortens an earlier one.
          reachable: whether the broker was reached.
          now_ms: the current time.
        """
        item = self.items.get(broker_name)
        if item is None:
            item = self.items[broker_name] = FaultItem()
        item.current_latency_ms = latency_ms
        item.is_reachable = reachable
        if not_available_ms > 0:
            item.available_from_ms = max(item.available_from_ms, now_ms + not_available_ms)

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether a broker is not avoided at the moment; unknown brokers are not."""
        item = self.items.get(broker_name)
        return item is None or now_ms >= item.available_from_ms

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last send or check reached a broker; unknown brokers count as reachable."""
        item = self.items.get(broker_name)
        return item is None or item.is_reachable


class FaultStrategy:
    """Chooses the queues for a producer's sends. One for each producer; not thread-safe.

    Args:
      send_latency_fault_enable: avoid brokers that were slow or failed; off by default, as in
        RocketMQ.
      latency_max_ms: latencies in ascending order; see LATENCY_MAX_MS.
      not_available_duration_ms: a duration for each latency; see NOT_AVAILABLE_DURATION_MS.

    Raises: ValueError: the tables differ in length, or the latencies do not ascend.
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
        """Record the outcome of a send; it has no effect if `send_latency_fault_enable` is off.

        Args:
          broker_name: name of the broker.
          latency_ms: duration of the send, >= 0.
          isolated: whether the send failed; it then counts as one of `ISOLATION_LATENCY_MS`.
          reachable: whether a connection was made.
          now_ms: the current time.
        """
        if not self.send_latency_fault_enable:
            return
        duration_ms = self.not_available_ms(ISOLATION_LATENCY_MS if isolated else latency_ms)
        self.tolerance.update(
            broker_name, latency_ms, duration_ms, reachable=reachable, now_ms=now_ms
        )

    def not_available_ms(self, latency_ms: float) -> int:
        """The time, in milliseconds, for which a broker of this latency is avoided."""
        row = bisect_right(self._latency_max_ms, latency_ms)
        return self._not_available_duration_ms[row - 1] if row else 0

    def is_available(self, broker_name: str, now_ms: float) -> bool:
        """Whether a broker is not avoided at the moment."""
        return self.tolerance.is_available(broker_name, now_ms)

    def is_reachable(self, broker_name: str) -> bool:
        """Whether the last send or check reached a broker."""
        return self.tolerance.is_reachable(broker_name)

    def select(
        self,
        info: TopicPublishInfo,
        index: RoundRobinIndex,
        *,
        now_ms: float = 0,
        last_broker_name: str | None = None,
    ) -> MessageQueue | None:
        """Choose the queue for a message.

        This is the next queue in turn that is not on the broker that just failed. With
        `send_latency_fault_enable` it is chosen among the available brokers first, then among the
        reachable ones. If there is no such queue, it is the next one in turn.

        Args:
          info: the writable queues of the topic.
          index: the topic's index, which is advanced.
          now_ms: the current time; used only with `send_latency_fault_enable`.
          last_broker_name: the broker of the failed attempt before; None for the first attempt.

        Returns: a queue; None if the topic has none.
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
    """The next queue in turn on another broker that `is_good`; None if there is none."""
    queues = info.queues
    for _ in queues:
        queue = queues[index.next() % len(queues)]
        name = queue.broker_name
        if name != last_broker_name and (is_good is None or is_good(name)):
            return queue
    return None
