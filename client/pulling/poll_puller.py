"""Pulling ahead for `poll`: one task for each queue of a pull consumer.

Java counterpart: DefaultLitePullConsumerImpl.PullTaskImpl, AssignedMessageQueue.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import anyio.lowlevel

from ...remoting.bodies import ConsumeFromWhere, MessageQueue, SubscriptionData
from ..connection.client import Client
from ..core.queue_requests import PullStatus
from ..errors import ClientError, ConfigurationError
from ..messages.message import ReceivedMessage
from ..options.consumer_options import PULL_TIMEOUT_S, SUSPEND_S, ConsumerConfig
from .offsets import committed_offset, initial_offset, max_offset, min_offset
from .pulls import PullFailureLog, pull
from .sql_check import sql_refusal

logger = logging.getLogger(__name__)

PULL_RETRY_S: Final = 1.0
"""Pause after a failed pull. RocketMQ: pullTimeDelayMillsWhenException 1,000."""


class PolledQueue:
    """The state of an assigned queue.

    Attributes:
      messages: those that `poll` has not returned yet.
      is_paused: the program paused it: nothing is pulled or returned.
      position: offset of the next message that `poll` returns; None until the first one is known.
      done: where `position` was when the last `poll` began: messages before it were returned by
        earlier ones, and the program has asked for more since; None until then.
      next_offset: offset of the next message to pull; None until the first one is known.
      broker_id: id of the broker that the last pull suggested; 0: the master.
      scope: cancels the task that pulls.
      wake: wakes the task when there is room, or when it is no longer paused.
      refusal: why the broker refuses the subscription, so that there are no more pulls.
    """

    __slots__ = (
        "broker_id",
        "done",
        "is_paused",
        "messages",
        "next_offset",
        "position",
        "refusal",
        "scope",
        "wake",
    )

    def __init__(self, position: int | None = None, *, is_paused: bool = False) -> None:
        self.messages: deque[ReceivedMessage] = deque()
        self.is_paused: bool = is_paused
        self.position: int | None = position
        self.done: int | None = position
        self.next_offset: int | None = position
        self.broker_id: int = 0
        self.scope: anyio.CancelScope = anyio.CancelScope()
        self.wake: anyio.Event = anyio.Event()
        self.refusal: ConfigurationError | None = None


class PollPuller:
    """Pulls the messages of a pull consumer's queues before `poll` asks for them.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      subscriptions: the subscriptions by topic, with namespace.
      on_arrival: called when there are messages, or a reason why there are none.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: ConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        on_arrival: Callable[[], None],
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._subscriptions = subscriptions
        self._on_arrival = on_arrival
        self._failures = PullFailureLog()

    async def first_offset(self, queue: MessageQueue) -> int:
        """The committed offset of the group, or where a new group begins.

        Raises: ClientError: the broker cannot be asked.
        """
        kept = await committed_offset(self._client, queue, self._group)
        if kept is not None:
            return kept
        where = self._config.consume_from_where
        if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return await min_offset(self._client, queue)
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            since_ms = self._config.consume_timestamp_ms
            return await initial_offset(self._client, queue, where, since_ms)
        return await max_offset(self._client, queue)

    async def pull_queue(self, queue: MessageQueue, polled: PolledQueue) -> None:
        """Pull from a queue until its scope is cancelled, or the broker refuses it."""
        with polled.scope:
            while True:
                try:
                    await self._pull_once(queue, polled)
                except ClientError as error:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    polled.refusal = sql_refusal(self._subscriptions[queue.topic], error)
                    if polled.refusal is not None:
                        self._on_arrival()  # `poll` raises it
                        return
                    polled.broker_id = 0
                    self._failures.log(queue, error, PULL_RETRY_S)
                    self._client.refresh_soon()
                    await anyio.sleep(PULL_RETRY_S)

    async def _pull_once(self, queue: MessageQueue, polled: PolledQueue) -> None:
        config = self._config
        if polled.next_offset is None:
            polled.position = polled.next_offset = await self.first_offset(queue)
        while polled.is_paused or len(polled.messages) >= config.pull_threshold_for_queue:
            polled.wake = anyio.Event()
            await polled.wake.wait()
        # The topic may have been unsubscribed before this task ran.
        await anyio.lowlevel.checkpoint_if_cancelled()
        result = await pull(
            self._client,
            queue,
            self._subscriptions[queue.topic],
            self._group,
            polled.next_offset,
            count=config.pull_batch_size,
            suspend_s=config.suspend_s,
            timeout_s=config.suspend_s + PULL_TIMEOUT_S - SUSPEND_S,
            broker_id=polled.broker_id,
            is_subscription_sent=True,
        )
        polled.broker_id = result.suggest_which_broker_id
        if result.status is PullStatus.OFFSET_ILLEGAL:
            logger.warning(
                "%s: the queue does not have the offset %d (any more); continuing at %d",
                queue,
                polled.next_offset,
                result.next_begin_offset,
            )
            polled.messages.clear()
            polled.position = result.next_begin_offset
        polled.next_offset = result.next_begin_offset
        if result.messages:
            topic = self._client.without_namespace(queue.topic)
            polled.messages.extend(ReceivedMessage(m, queue, topic) for m in result.messages)
            self._on_arrival()
        elif not polled.messages:
            # All messages up to here were filtered out by the broker.
            polled.position = result.next_begin_offset
