"""The rebalance of a push consumer: the queues assigned to it, and the locks of orderly queues.

Java counterpart: RebalanceImpl, RebalancePushImpl, RebalanceService.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol

import anyio
import anyio.lowlevel

from ...remoting.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageModel,
    MessageQueue,
    SubscriptionData,
)
from ...remoting.headers import LockBatchMqRequestHeader, UnlockBatchMqRequestHeader
from ...remoting.request_codes import RequestCode
from ..connection.client import Client
from ..connection.connection_log import failure_level
from ..core.allocation import AllocateMessageQueueStrategy
from ..core.routes import subscribe_queues
from ..errors import (
    ClientError,
    RouteNotFoundError,
    ServerError,
    reading_answer,
)
from ..options.push_options import (
    LOCK_EXPIRED_S,
    LOCK_S,
    MISSING_TOPIC_S,
    REBALANCE_RETRY_S,
    PushConsumerConfig,
)
from ..pulling.offsets import OffsetStore
from ..pulling.pulls import broker_of
from ..pulling.rebalance import MemberIds, allocated, notify_listener
from ..tasks import clock
from ..tasks.task_group import TaskGroup
from ..tasks.ticker import Ticker
from .pushed_message import AssignedQueue, PushedMessage

logger = logging.getLogger(__name__)

UNLOCK_S: Final = 1.0
"""Time limit for sending all unlocks, which have no answers: connecting may take longer."""


class Outcome(enum.Enum):
    """What became of the rebalance of a topic."""

    COMPLETE = enum.auto()
    INCOMPLETE = enum.auto()
    """Tried again soon."""
    MISSING = enum.auto()
    """No name server knows the topic."""


class Allocator(Protocol):
    """Finds the queues that one member of a group gets, in place of its strategy."""

    async def allocate(self, topic: str) -> Sequence[MessageQueue] | None:
        """The queues of a topic, with namespace, to pull from; None: that is not known now.

        Raises: ClientError: it cannot be found out.
        """
        ...

    def on_topic_rebalanced(self, topic: str) -> None:
        """Called when a topic is rebalanced: the offsets of its lost queues are committed."""

    def on_rebalanced(self) -> None:
        """Called after each rebalance: the offsets of all lost queues are committed."""


class PushRebalance:
    """Assigns queues to one member of a group.

    Lifecycle: created with its consumer. Background tasks call `run_once` and `renew_locks`
    repeatedly until `stop`; `release` ends it.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      subscriptions: the subscriptions by topic, with namespace.
      offsets: persisted for revoked queues.
      pull: pulls from an assigned queue until that is dropped; False: it cannot be pulled now.
      allocator: finds the queues in place of the strategy of `config`.
      take_back: takes back a message that was handed out; returns False if the program has it.
      hand_out_next: delivers the next message of an orderly queue, whose lock was renewed.
      locks_due: ticks when locks are to be renewed before LOCK_S is over.

    Attributes:
      assigned: the assigned queues.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        subscriptions: Mapping[str, SubscriptionData],
        offsets: OffsetStore,
        pull: Callable[[AssignedQueue], Awaitable[bool]],
        allocator: Allocator | None,
        *,
        take_back: Callable[[PushedMessage], bool],
        hand_out_next: Callable[[AssignedQueue], None],
        locks_due: Ticker,
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._subscriptions = subscriptions
        self._offsets = offsets
        self._pull = pull
        self._allocator = allocator
        self._take_back = take_back
        self._hand_out_next = hand_out_next
        self._locks_due = locks_due
        # Orderly queues of which the program still has a message, which keep their locks.
        self._leaving: dict[MessageQueue, AssignedQueue] = {}
        self._turn = anyio.Lock()
        self._is_clustering = config.message_model is MessageModel.CLUSTERING
        self._due = Ticker()
        self._members = MemberIds(client, group)
        self._is_stopped = False
        self._has_missing_topics = False
        self.assigned: dict[MessageQueue, AssignedQueue] = {}

    @property
    def has_locks(self) -> bool:
        """Whether queues are locked at their brokers."""
        return self._config.is_orderly and self._is_clustering

    @property
    def held(self) -> list[MessageQueue]:
        """The assigned queues, and those that leave when their message is settled."""
        return [*self.assigned, *self._leaving]

    def rebalance_soon(self) -> None:
        """Rebalance now rather than after `rebalance_s`; does not wait."""
        self._due.tick_now()

    def stop(self) -> None:
        """Stop pulling and rebalancing."""
        self._is_stopped = True
        for assigned in self.assigned.values():
            assigned.scope.cancel()
        self._due.tick_now()
        self._locks_due.tick_now()

    async def release(self) -> None:
        """Drop all queues and release their locks, because the consumer leaves its group.

        A queue whose message a handler still has keeps its lock until that expires at the broker:
        another member would handle the same message meanwhile.
        """
        if self.has_locks:
            busy = [queue for queue in self.held if self._is_in_handler(queue)]
            await self._unlock([queue for queue in self.held if queue not in busy])
            if busy:
                logger.warning(
                    "closed while handlers run: no member gets messages of %s until the brokers"
                    " drop their locks, within %g s",
                    ", ".join(map(str, busy)),
                    LOCK_EXPIRED_S,
                )
        for assigned in (*self.assigned.values(), *self._leaving.values()):
            assigned.drop()
            assigned.settle(None)

    async def run_once(self) -> None:
        """Rebalance, then wait until the next rebalance is due."""
        if not await self.rebalance():
            await anyio.sleep(REBALANCE_RETRY_S)
            self.rebalance_soon()
        pause_s = self._config.rebalance_s
        if self._has_missing_topics:
            pause_s = min(pause_s, MISSING_TOPIC_S)
        await self._due.wait(pause_s)

    async def rebalance(self) -> bool:
        """Rebalance all topics now; returns False if some of them could not be rebalanced."""
        if self._allocator is None:
            return await self._rebalance()
        # Its queues begin when the offsets of those that were lost are committed: a second
        # rebalance at the same time must not begin those of the first.
        async with self._turn:
            is_complete = await self._rebalance()
            if not self._is_stopped:
                self._allocator.on_rebalanced()
        return is_complete

    async def _rebalance(self) -> bool:
        """Rebalance all topics at once: one whose brokers hang delays no other."""
        outcomes = dict.fromkeys(self._subscriptions, Outcome.INCOMPLETE)

        async def rebalance_topic(topic: str) -> None:
            outcomes[topic] = await self._rebalance_topic(topic, self._subscriptions[topic])

        async with TaskGroup() as group:
            for topic in outcomes:
                group.start_soon(rebalance_topic, topic)
        self._has_missing_topics = Outcome.MISSING in outcomes.values()
        return self._is_stopped or Outcome.INCOMPLETE not in outcomes.values()

    async def _rebalance_topic(self, topic: str, subscription: SubscriptionData) -> Outcome:
        try:
            mine = await self._allocate(topic)
        except RouteNotFoundError:
            return Outcome.MISSING
        except ClientError as error:
            await anyio.lowlevel.checkpoint_if_cancelled()
            if not self._is_stopped:
                # A new or restarted broker refuses it until it has received the next heartbeat.
                level = logging.INFO if isinstance(error, ServerError) else failure_level(error)
                text = "the queues of %s could not be assigned, retrying in %g s: %s"
                logger.log(level, text, topic, REBALANCE_RETRY_S, error)
            return Outcome.INCOMPLETE
        if mine is None or self._is_stopped:
            return Outcome.INCOMPLETE
        is_complete = await self._assign(topic, subscription, mine)
        if self._allocator is not None and not self._is_stopped:
            self._allocator.on_topic_rebalanced(topic)
        return Outcome.COMPLETE if is_complete else Outcome.INCOMPLETE

    async def _allocate(self, topic: str) -> Sequence[MessageQueue] | None:
        if self._allocator is not None:
            return await self._allocator.allocate(topic)
        route = await self._client.route(topic, wait_s=0)
        queues = list(subscribe_queues(topic, route))
        if not self._is_clustering or not queues:
            return queues
        members = await self._members.of(queues)
        if not members:
            return []
        strategy: AllocateMessageQueueStrategy = self._config.strategy
        return allocated(strategy, self._group, self._client.client_id, queues, members)

    async def _assign(
        self, topic: str, subscription: SubscriptionData, mine: Sequence[MessageQueue]
    ) -> bool:
        wanted = set(mine)
        lost = [q for q in self.assigned if q.topic == topic and q not in wanted]
        await self._revoke(lost)
        # One that is still leaving is assigned by the rebalance that follows when it has left.
        gained = [q for q in mine if q not in self.assigned and q not in self._leaving]
        if not self.has_locks:
            self._begin_all(gained, subscription)
            return True
        locked: set[MessageQueue] = set()

        async def lock_and_begin(broker_queues: Sequence[MessageQueue]) -> None:
            of_broker = await self._lock_at_one_broker(broker_queues)
            locked.update(of_broker)
            # Another rebalance may have assigned them during the wait, or even let them go again.
            held = self.held
            new = [q for q in broker_queues if q in of_broker and q not in held]
            if self._is_stopped:
                await self._unlock(new)
            else:
                self._begin_all(new, subscription)

        # Those of one broker begin while another one is still asked for its locks.
        await self._at_all_brokers(gained, lock_and_begin)
        return self._is_stopped or locked.issuperset(gained)

    def _begin_all(self, queues: Sequence[MessageQueue], subscription: SubscriptionData) -> None:
        if not queues or self._is_stopped:
            return
        notify_listener(self._config.listener, "on_assign", queues)
        for queue in queues:
            assigned = AssignedQueue(queue, subscription, self._config)
            assigned.process_queue.set_locked(self._config.is_orderly, now_ms=clock.monotonic_ms())
            self.assigned[queue] = assigned
            self._client.start_soon(self._pull_until_dropped, assigned)

    async def _revoke(self, queues: Sequence[MessageQueue]) -> None:
        if not queues:
            return
        idle = []
        for queue in queues:
            assigned = self.assigned.pop(queue)
            if self.has_locks and self._is_in_program(assigned):
                assigned.leave()
                self._leave_when_settled(assigned)
            else:
                assigned.drop()
                idle.append(queue)
        await self._let_go(idle)

    async def _let_go(self, queues: Sequence[MessageQueue]) -> None:
        """Commit the offsets of queues whose messages are dropped, and release their locks."""
        if not queues:
            return
        # Those of one broker go while another one is still asked to commit.
        await self._at_all_brokers(queues, self._let_go_at_one_broker)
        notify_listener(self._config.listener, "on_revoke", queues)

    async def _let_go_at_one_broker(self, queues: Sequence[MessageQueue]) -> None:
        await self._offsets.persist(queues)
        for queue in queues:
            self._offsets.remove(queue)
        if self.has_locks:
            await self._unlock(queues)

    def _is_in_handler(self, queue: MessageQueue) -> bool:
        assigned = self.assigned.get(queue) or self._leaving[queue]
        return assigned.is_in_handler

    def _is_in_program(self, assigned: AssignedQueue) -> bool:
        """Whether the program has a message of an orderly queue, which it has not settled."""
        taken_back = [message for message in assigned.in_hand if self._take_back(message)]
        return len(taken_back) < len(assigned.in_hand)

    def _leave_when_settled(self, assigned: AssignedQueue) -> None:
        """Keep the lock of an orderly queue until its message is settled.

        Another member would handle the same message meanwhile.
        """
        self._leaving[assigned.queue] = assigned
        self._client.start_soon(self._leave, assigned)

    async def _leave(self, assigned: AssignedQueue) -> None:
        queue = assigned.queue
        with anyio.move_on_after(self._config.consume_timeout_s) as limit:
            await assigned.wait_settled()
        if self._is_stopped:
            return  # `release` unlocks it
        if limit.cancelled_caught:
            logger.warning(
                "%s goes to another member although its message was not settled within the"
                " consume_timeout_s of %g s: it may be handled twice at once",
                queue,
                self._config.consume_timeout_s,
            )
        if not assigned.is_dropped:
            assigned.drop()
            await self._let_go([queue])
        self._leaving.pop(queue, None)
        self.rebalance_soon()

    async def _pull_until_dropped(self, assigned: AssignedQueue) -> None:
        """Pull; a queue that cannot be pulled now is dropped, and the next rebalance assigns it."""
        if not await self._pull(assigned):
            assigned.drop()
            if self.assigned.get(assigned.queue) is assigned:
                del self.assigned[assigned.queue]
            self.rebalance_soon()

    async def reset(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets; queues that are not assigned to this member are ignored."""
        queues = [queue for queue in offsets if queue in self.assigned]
        for queue in queues:
            assigned = self.assigned.pop(queue)
            assigned.drop()
            self._offsets.update(queue, offsets[queue])
            if self._config.is_orderly and self._is_in_program(assigned):
                self._leave_when_settled(assigned)
        await self._offsets.persist(queues)
        for queue in queues:
            self._offsets.remove(queue)
        self.rebalance_soon()

    # Locks

    async def renew_locks(self) -> None:
        """Wait until locks are due, and renew them; queues whose lock has expired are revoked."""
        await self._locks_due.wait(LOCK_S)
        if self._is_stopped:
            # `release` unlocks the queues: do not lock them again.
            return
        asked_ms = clock.monotonic_ms()
        asked = self.held
        locked = await self._lock(asked)
        # Those that were let go meanwhile would stay locked for a minute.
        await self._unlock([queue for queue in asked if queue not in self.held])
        now_ms = clock.monotonic_ms()
        lost = []
        for queue, assigned in list(self.assigned.items()):
            if queue in locked:
                # The broker counts from some moment after the request.
                assigned.process_queue.set_locked(True, now_ms=asked_ms)
                self._hand_out_next(assigned)
            elif assigned.process_queue.is_lock_expired(now_ms):
                lost.append(queue)
        if lost:
            logger.warning("lost the locks of %s: stopped consuming these queues", lost)
            await self._revoke(lost)
            self.rebalance_soon()

    async def _lock(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock the queues at all brokers at once, and return those that are locked."""
        locked: set[MessageQueue] = set()

        async def lock(broker_queues: Sequence[MessageQueue]) -> None:
            locked.update(await self._lock_at_one_broker(broker_queues))

        await self._at_all_brokers(queues, lock)
        return locked

    async def _lock_at_one_broker(self, queues: Sequence[MessageQueue]) -> set[MessageQueue]:
        """Lock queues of one broker, and return those that are locked; a failure is logged."""
        name = queues[0].broker_name
        try:
            answer = await self._client.request(
                broker_of(self._client, queues[0]),
                RequestCode.LOCK_BATCH_MQ,
                LockBatchMqRequestHeader(),
                self._lock_body(queues),
            )
            with reading_answer(name):
                return set(LockBatchResponseBody.from_body(answer.body).lock_ok_mq_set)
        except ClientError as error:
            logger.warning("queues of %s were not locked: %s", name, error)
            self._client.refresh_soon()  # there may be another master
            return set()

    async def _unlock(self, queues: Sequence[MessageQueue]) -> None:
        async def unlock(broker_queues: Sequence[MessageQueue]) -> None:
            try:
                await self._client.send_oneway(
                    broker_of(self._client, broker_queues[0]),
                    RequestCode.UNLOCK_BATCH_MQ,
                    UnlockBatchMqRequestHeader(),
                    self._lock_body(broker_queues),
                )
            except ClientError as error:
                logger.debug("queues were not unlocked: %s", error)

        # A broker that is lost needs no unlock: it drops the locks of clients that are gone.
        with anyio.move_on_after(UNLOCK_S):
            await self._at_all_brokers(queues, unlock)

    async def _at_all_brokers(
        self,
        queues: Sequence[MessageQueue],
        work: Callable[[Sequence[MessageQueue]], Coroutine[Any, Any, None]],
    ) -> None:
        """Do some work with the queues of each broker, at all brokers at once."""
        async with TaskGroup() as group:
            for broker_queues in self._by_broker(queues):
                group.start_soon(work, broker_queues)

    def _lock_body(self, queues: Sequence[MessageQueue]) -> bytes:
        return LockBatchRequestBody(
            consumer_group=self._group, client_id=self._client.client_id, mq_set=list(queues)
        ).to_body()

    def _by_broker(self, queues: Sequence[MessageQueue]) -> list[list[MessageQueue]]:
        brokers: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            brokers.setdefault(self._client.owner(queue), []).append(queue)
        return list(brokers.values())
