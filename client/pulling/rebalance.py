"""Rebalancing: the queues that a consumer gets as a member of its group.

A pull consumer has a `PullRebalance`, a push consumer a `PushRebalance` (`pushing/`), which begins
pulls and keeps locks, too.

Java counterpart: RebalanceImpl, RebalanceLitePullImpl, MQClientInstance.findConsumerIdList.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Literal, TypeAlias

import anyio
import anyio.lowlevel

from ...remoting.bodies import GetConsumerListByGroupResponseBody, MessageQueue
from ...remoting.headers import GetConsumerListByGroupRequestHeader
from ...remoting.request_codes import RequestCode
from ..checks.queue_check import check_queue
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..core.allocation import AllocateMessageQueueStrategy
from ..core.routes import subscribe_queues
from ..errors import (
    ClientError,
    ConfigurationError,
    RouteNotFoundError,
    ServerError,
    reading_answer,
)
from ..options.push_options import (
    FIRST_HEARTBEAT_S,
    MISSING_TOPIC_S,
    REBALANCE_RETRY_S,
    RebalanceListener,
)
from ..tasks.first_answer import FirstAnswer
from ..tasks.task_group import TaskGroup
from ..tasks.ticker import Ticker
from .pulls import broker_of

logger = logging.getLogger(__name__)


ListenerMethod: TypeAlias = Literal["on_assign", "on_revoke"]
"""A method of RebalanceListener."""


class MemberIds:
    """Asks brokers for the client ids of a group's members.

    Args:
      client: an open client.
      group: name of the group, with namespace.
    """

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._first = FirstAnswer[list[str]]()

    async def of(self, queues: Sequence[MessageQueue]) -> list[str]:
        """The client ids, sorted: each broker of the topic of these queues knows all of them.

        Raises: ClientError: no broker answered.
        """
        one_of_each = {self._client.owner(queue): queue for queue in reversed(queues)}
        return await self._first.ask(
            {name: partial(self._ask, one_of_each[name]) for name in sorted(one_of_each)}
        )

    async def _ask(self, queue: MessageQueue) -> list[str]:
        header = GetConsumerListByGroupRequestHeader(consumer_group=self._group)
        try:
            answer = await self._client.request(
                broker_of(self._client, queue, 1), RequestCode.GET_CONSUMER_LIST_BY_GROUP, header
            )
        except ServerError:
            # The broker does not know the group: it is new, or was restarted.
            self._client.heartbeat_soon()
            raise
        with reading_answer(queue.broker_name):
            body = GetConsumerListByGroupResponseBody.from_body(answer.body)
        return sorted(body.consumer_id_list)


def allocated(
    strategy: AllocateMessageQueueStrategy,
    group: str,
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> list[MessageQueue]:
    """The queues that a strategy gives to one member; see AllocateMessageQueueStrategy.

    Raises: ConfigurationError: it failed, or returned something else; the member keeps its queues.
    Source: RebalanceImpl.rebalanceByTopic, which keeps them, too.
    """
    name = type(strategy).__name__
    try:
        mine = list(strategy.allocate(group, client_id, queues, client_ids))
    except Exception as error:
        raise ConfigurationError(f"{name}.allocate raised {error!r}: correct it") from error
    for queue in mine:
        check_queue(queue, f"{name}.allocate must return some of the queues that it is given")
    return mine


def notify_listener(
    listener: RebalanceListener | None, method: ListenerMethod, queues: Sequence[MessageQueue]
) -> None:
    """Call a method of a RebalanceListener, if there is one; exceptions are logged."""
    if listener is not None:
        try:
            getattr(listener, method)(list(queues))
        except Exception:
            logger.exception("%s of the rebalance listener failed", method)


class PullRebalance:
    """Finds this member's queues of the subscribed topics, again and again.

    Lifecycle: created with its consumer; `run` is a background task.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      strategy: assigns queues to the members.
      rebalance_s: seconds between periodic rebalances.
      assign: takes the queues of one topic, and gives up others of it that it has.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        strategy: AllocateMessageQueueStrategy,
        rebalance_s: float,
        assign: Callable[[str, Sequence[MessageQueue]], Awaitable[None]],
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._rebalance_s = rebalance_s
        self._assign = assign
        self._members = MemberIds(client, group)
        self._due = Ticker()
        self._topics: set[str] = set()
        # Those that brokers know of, by a heartbeat.
        self._announced: set[str] = set()

    @property
    def topics(self) -> list[str]:
        """The subscribed topics, with namespace, sorted."""
        return sorted(self._topics)

    def add(self, topics: Iterable[str]) -> None:
        """Subscribe to topics, with namespace; does not wait."""
        self._topics.update(topics)
        self.rebalance_soon()

    def remove(self, topic: str) -> bool:
        """Subscribe to a topic no longer; False: it was not subscribed."""
        if topic not in self._topics:
            return False
        self._topics.remove(topic)
        self._announced.discard(topic)
        return True

    def rebalance_soon(self) -> None:
        """Rebalance now rather than after `rebalance_s`; does not wait."""
        self._due.tick_now()

    async def run(self) -> None:
        """Rebalance when it is due, until cancelled."""
        while True:
            pauses = [self._rebalance_s]

            async def rebalance(topic: str, pauses: list[float] = pauses) -> None:
                pauses.append(await self._pause_after(topic))

            await self._announce()
            async with TaskGroup() as group:
                for topic in self.topics:
                    group.start_soon(rebalance, topic)
            await self._due.wait(min(pauses))

    async def _announce(self) -> None:
        """Send a heartbeat with new topics: brokers list this member from then on."""
        new = self._topics - self._announced
        if not new:
            return

        async def look_up(topic: str) -> None:
            try:
                await self._client.route(topic, wait_s=0)
            except ClientError as error:
                # `_pause_after` looks it up again, and says so.
                logger.debug("the route of %s was not found: %s", topic, error)

        async with TaskGroup() as group:
            for topic in new:
                group.start_soon(look_up, topic)
        # One that hangs gets its heartbeat again later.
        with anyio.move_on_after(FIRST_HEARTBEAT_S) as limit:
            await self._client.heartbeat()
        if limit.cancelled_caught:
            self._client.heartbeat_soon()
        self._announced |= new

    async def _pause_after(self, topic: str) -> float:
        """Rebalance a topic; returns the seconds until it should be done again."""
        try:
            mine = await self._allocate(topic)
        except RouteNotFoundError:
            return MISSING_TOPIC_S
        except ClientError as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            # A new or restarted broker refuses it until it has received the next heartbeat.
            level = logging.INFO if isinstance(error, ServerError) else failure_level(error)
            text = "the queues of %s could not be assigned, retrying in %g s: %s"
            logger.log(level, text, topic, REBALANCE_RETRY_S, error)
            return REBALANCE_RETRY_S
        if mine is None:
            return REBALANCE_RETRY_S
        if topic in self._topics:
            await self._assign(topic, mine)
        return self._rebalance_s

    async def _allocate(self, topic: str) -> Sequence[MessageQueue] | None:
        """This member's queues of a topic; None: the brokers do not list this member (yet)."""
        queues = list(subscribe_queues(topic, await self._client.route(topic, wait_s=0)))
        if not queues:
            return queues
        client_id = self._client.client_id
        members = await self._members.of(queues)
        if client_id not in members:
            return None
        return allocated(self._strategy, self._group, client_id, queues, members)
