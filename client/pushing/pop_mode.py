"""The pop mode of a push consumer: brokers assign the queues, and say how to consume each.

One task for each assigned queue pops messages into ReadyMessages. Queues that a broker assigns
to be pulled are left to the pull mode.

Java counterpart: DefaultMQPushConsumerImpl with `clientRebalance=false`: popMessage,
RebalanceImpl.updateMessageQueueAssignment, MQClientInstance.queryAssignment.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import anyio
import anyio.lowlevel

from ...common.topic_names import pop_retry_topics
from ...remoting.bodies import MessageModel, MessageQueue, SubscriptionData
from ...remoting.bodies.pop import (
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
)
from ...remoting.errors import RemoteProtocolError
from ...remoting.pop_requests import PopAnswer, Popped, Settled
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import Client
from ..core.allocation import AllocateMessageQueueStrategy
from ..core.routes import subscribe_queues
from ..core.subscription import build_subscription
from ..core.topics import is_retry_topic
from ..errors import (
    ClientError,
    ConfigurationError,
    RouteNotFoundError,
    ServerError,
    is_not_supported,
    reading_answer,
)
from ..options.push_options import FIRST_HEARTBEAT_S, PULL_RETRY_S, PushConsumerConfig
from ..options.simple_options import pop_init_mode
from ..popping.popped_message import queue_of
from ..popping.popper import EMPTY_PAUSE_S, Popper
from ..pulling.pulls import PullFailureLog
from ..pulling.rebalance import notify_listener
from ..tasks import clock
from ..tasks.first_answer import FirstAnswer
from ..tasks.task_group import TaskGroup, together
from .pop_queue import PopModeMessage, PopQueue
from .pop_results import PopResults
from .ready_messages import ReadyMessages

logger = logging.getLogger(__name__)

EXTENSIONS_PER_TIME: Final = 4
"""How often the messages are looked at, in one invisible time, with `pop_extend`."""


class ServerAssignment(NamedTuple):
    """What a member of a group gets of one topic.

    Attributes:
      popped: queues to pop from; a queue id of -1 means all queues of the broker.
      pulled: queues to pull from.
    """

    popped: list[MessageQueue]
    pulled: list[MessageQueue]


class AssignmentQuestion:
    """Asks the brokers for a member's queues: each broker of a topic knows the whole assignment.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      strategy_name: "AVG" or "AVG_BY_CIRCLE".
    """

    def __init__(self, client: Client, group: str, strategy_name: str) -> None:
        self._client = client
        self._group = group
        self._strategy_name = strategy_name
        self._first = FirstAnswer[ServerAssignment | None]()

    async def ask(self, topic: str) -> ServerAssignment | None:
        """This member's queues of a topic.

        Args:
          topic: the topic, with namespace.

        Returns: the queues; None: the broker does not know yet, so the member keeps what it has.
        Raises:
          RouteNotFoundError: no name server knows the topic.
          ConfigurationError: the broker is older than RocketMQ 5.0.
          BadAnswerError: the answer is malformed, or assigns queues of another topic.
          ClientError: no broker of the topic could be asked.
        """
        body = QueryAssignmentRequestBody(
            topic=topic,
            consumer_group=self._group,
            client_id=self._client.client_id,
            strategy_name=self._strategy_name,
            message_model=MessageModel.CLUSTERING,
        ).to_body()
        route = await self._client.route(topic, wait_s=0)
        addresses = {
            name: self._client.reading_address(name)
            for name in map(self._client.owner, subscribe_queues(topic, route))
        }
        servers = {
            name: partial(self._ask_at, address, topic, body)
            for name, address in addresses.items()
            if address is not None
        }
        if not servers:
            return ServerAssignment([], [])
        return await self._first.ask(servers)

    async def _ask_at(self, address: str, topic: str, body: bytes) -> ServerAssignment | None:
        try:
            answer = await self._client.request(address, RequestCode.QUERY_ASSIGNMENT, body=body)
        except ServerError as error:
            if is_not_supported(error):
                raise ConfigurationError(
                    f"the broker at {address} does not assign queues ({error.remark.strip()})."
                    ' Brokers older than RocketMQ 5.0 do not: use mode="pull", which is the default'
                ) from error
            raise
        with reading_answer(address):
            return _read(QueryAssignmentResponseBody.from_body(answer.body), topic)


def _read(body: QueryAssignmentResponseBody, topic: str) -> ServerAssignment | None:
    assignments = body.message_queue_assignments
    if assignments is None:
        return None
    for each in assignments:
        if each.message_queue.topic != topic:
            raise RemoteProtocolError(
                f"the answer assigns {each.message_queue}, and {topic} was asked for"
            )
    popped, pulled = (
        sorted({each.message_queue for each in assignments if each.mode is mode})
        for mode in (MessageRequestMode.POP, MessageRequestMode.PULL)
    )
    return ServerAssignment(popped, pulled)


class PopMode:
    """The popped queues of one consumer.

    Lifecycle: created with its consumer. Its Rebalance calls `allocate`; `stop` and then `release`
    end it.

    Args:
      client: an open client.
      group: name of the group, with namespace.
      config: configuration of the consumer.
      subscriptions: the subscriptions by topic, with namespace; retry topics are added.
      ready: gets the messages.

    Raises: ConfigurationError: the group is to begin at a time, which a pop cannot say.

    Attributes:
      assigned: the queues to pop from; a queue id of -1 means all queues of the broker.
      pop_retry_topics: the retry topics of topics that were pulled, each with its topic.
    """

    def __init__(
        self,
        client: Client,
        group: str,
        config: PushConsumerConfig,
        subscriptions: dict[str, SubscriptionData],
        ready: ReadyMessages,
    ) -> None:
        self._client = client
        self._group = group
        self._config = config
        self._subscriptions = subscriptions
        self._ready = ready
        self._popper = Popper(client, group, pop_init_mode(config.consume_from_where))
        self._results = PopResults(client, group, config, self._popper, ready.interceptors)
        strategy: AllocateMessageQueueStrategy = config.strategy
        self._assignment = AssignmentQuestion(client, group, strategy.name)
        self._failures = PullFailureLog("a pop")
        self._is_stopped = False
        self._is_released = False
        # The topics that a broker assigned to be pulled.
        self._pulled_topics: set[str] = set()
        self._new: list[PopQueue] = []
        # Messages of queues that were popped before, until they are settled.
        self._dropped: list[PopQueue] = []
        self.assigned: dict[MessageQueue, PopQueue] = {}
        self.pop_retry_topics: dict[str, str] = {}

    # Assignment

    async def check_brokers(self) -> None:
        """Ask the brokers once, at the start, for all topics at the same time.

        Those that hang are passed over.

        Raises: ConfigurationError: a broker is older than RocketMQ 5.0.
        """

        async def check(topic: str) -> None:
            try:
                await self._assignment.ask(topic)
            except ConfigurationError:
                raise
            except ClientError as error:
                logger.debug("the assignment of %s could not be asked for: %s", topic, error)

        topics = [each for each in self._subscriptions if not is_retry_topic(each)]
        with anyio.move_on_after(FIRST_HEARTBEAT_S):  # one that hangs is asked again later
            await together(partial(check, each) for each in topics)

    async def allocate(self, topic: str) -> list[MessageQueue] | None:
        """Ask for the queues of a topic: pop from those that are to be popped, and return the rest.

        Returns: the queues to pull from; None: the broker does not know yet.
        Raises: ClientError: it could not be asked.
        """
        base = self.pop_retry_topics.get(topic)
        if base is not None and base not in self._pulled_topics:
            return []  # the pops of the topic read it
        try:
            assignment = await self._assignment.ask(topic)
        except RouteNotFoundError:
            if base is None:
                raise
            return []  # nothing was ever retried
        if assignment is None or self._is_stopped:
            return None
        if not is_retry_topic(topic):
            self._on_modes(topic, assignment)
        self._assign(topic, assignment.popped)
        return assignment.pulled

    def _on_modes(self, topic: str, assignment: ServerAssignment) -> None:
        """Subscribe to the retry topics of a topic that is pulled: a pop reads them by itself."""
        if assignment.pulled and topic not in self._pulled_topics:
            self._pulled_topics.add(topic)
            logger.warning(
                "the brokers assign %s to be pulled by %s, as they do by default: for pops, set the"
                " mode by `trocket pop mode %s %s pop`, or defaultMessageRequestMode=POP in the"
                " brokers",
                topic,
                self._group,
                self._client.without_namespace(self._group),
                self._client.without_namespace(topic),
            )
            for name in pop_retry_topics(topic, self._group):
                self.pop_retry_topics[name] = topic
                self._subscriptions[name] = build_subscription(
                    name, sub_version=self._client.wall_ms()
                )
            self._client.heartbeat_soon()
        elif assignment.popped and not assignment.pulled and topic in self._pulled_topics:
            self._pulled_topics.discard(topic)
            logger.info("the brokers assign %s to be popped by %s", topic, self._group)

    def _assign(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        lost = [q for q in self.assigned if q.topic == topic and q not in queues]
        for queue in lost:
            dropped = self.assigned.pop(queue)
            dropped.drop()
            self._dropped.append(dropped)
        self._dropped = [each for each in self._dropped if each.unsettled]
        if lost:
            notify_listener(self._config.listener, "on_revoke", lost)
        gained = [q for q in queues if q not in self.assigned]
        if gained:
            notify_listener(self._config.listener, "on_assign", gained)
        for queue in gained:
            subscription = self._subscriptions[topic]
            made = PopQueue(queue, subscription, self._config, self._client.now_s)
            self.assigned[queue] = made
            self._new.append(made)

    def on_topic_rebalanced(self, topic: str) -> None:
        """Start to pop from new queues of a topic, unless it was pulled before.

        Then the offsets of its queues, and of those of its retry topic, are committed first.
        """
        if topic not in self.pop_retry_topics.values():
            self._begin([each for each in self._new if each.queue.topic == topic])

    def on_rebalanced(self) -> None:
        """Start to pop from all new queues."""
        self._begin(self._new)

    def _begin(self, queues: Sequence[PopQueue]) -> None:
        self._new = [each for each in self._new if each not in queues]
        for queue in queues:
            self._client.start_soon(self._pop_queue, queue)

    def stop(self) -> None:
        """Stop popping.

        A broker that holds a pop would give it messages all the same, so they are given back.
        """
        self._is_stopped = True
        for pop_queue in self.assigned.values():
            if not pop_queue.is_popping:
                pop_queue.scope.cancel()

    async def release(self) -> None:
        """Send what is to be acknowledged, and give back the messages that are not settled."""
        self._is_released = True
        for pop_queue in self.assigned.values():
            pop_queue.scope.cancel()
        queues = [*self.assigned.values(), *self._dropped]
        unsettled = [message for queue in queues for message in queue.unsettled]
        async with TaskGroup() as group:
            group.start_soon(self._results.drain)
            group.start_soon(self._results.give_back, unsettled)

    # Pops

    async def _pop_queue(self, queue: PopQueue) -> None:
        with queue.scope:
            queue.is_paused = self._ready.is_paused(queue.queue)
            while not self._is_stopped:
                await queue.wait_for_room()
                try:
                    answer = await self._pop_once(queue)
                except ClientError as error:
                    await anyio.lowlevel.checkpoint_if_cancelled()
                    await self._after_pop_failed(queue, error)
                    continue
                self._on_popped(queue, answer)
                if answer.is_polling_full:
                    await anyio.sleep(PULL_RETRY_S)
                elif not answer.messages:
                    # A broker that does not wait must not be asked all the time.
                    await anyio.sleep(EMPTY_PAUSE_S)

    async def _pop_once(self, queue: PopQueue) -> PopAnswer:
        config = self._config
        queue.last_pop_ms = clock.monotonic_ms()
        queue.is_popping = True
        try:
            return await self._popper.pop(
                queue.place,
                queue.subscription,
                count=config.pop_batch_size,
                invisible_s=config.pop_invisible_s,
                poll_s=config.suspend_s,
            )
        finally:
            queue.is_popping = False

    def _on_popped(self, queue: PopQueue, answer: PopAnswer) -> None:
        now_s = self._client.now_s()
        popped = []
        for each in answer.messages:
            settled = Settled(queue.queue.topic, each.receipt)
            if not each.is_selected:
                self._results.ack_soon(settled)
            elif each.ext.reconsume_times > self._results.max_reconsume_times:
                # Its consumers ended, or were too slow, each time.
                self._client.start_soon(self._results.bury, settled, each.ext)
            else:
                popped.append(self._message(queue, each, settled, now_s))
        if self._is_stopped:
            self._client.start_soon(self._results.give_back, popped)
            return
        queue.add(popped)
        self._ready.put(popped)

    def _message(
        self, queue: PopQueue, popped: Popped, settled: Settled, now_s: float
    ) -> PopModeMessage:
        return PopModeMessage(
            popped.ext,
            self._client.without_namespace(settled.topic),
            settled,
            queue=queue_of(settled, self._group),
            deadline_s=now_s + popped.receipt.invisible_time / 1000,
            pop_queue=queue,
            results=self._results,
            now_s=self._client.now_s,
        )

    async def _after_pop_failed(self, queue: PopQueue, error: ClientError) -> None:
        code = error.code if isinstance(error, ServerError) else None
        if code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            # After a restart, a broker has not received the group's heartbeat yet.
            self._client.heartbeat_soon()
        else:
            self._client.refresh_soon()
        self._failures.log(queue.queue, error, PULL_RETRY_S)
        await anyio.sleep(PULL_RETRY_S)

    # Invisible times

    async def extend(self) -> None:
        """Extend the invisible times of messages that the program is handling, until `release`.

        Handlers may still be busy after `stop`.
        """
        while True:
            await anyio.sleep(self._config.pop_invisible_s / EXTENSIONS_PER_TIME)
            if self._is_released:
                return
            self._extend_once()

    def _extend_once(self) -> None:
        """Begin to extend what ends soon; messages of one broker do not wait for another one."""
        soon_s = self._client.now_s() + self._config.pop_invisible_s / 2
        waiting = self._ready.waiting
        for queue in [*self.assigned.values(), *self._dropped]:
            for message in queue.unsettled:
                is_due = message.deadline_s < soon_s and message.change is None
                if is_due and id(message) not in waiting:
                    self._client.start_soon(self._results.extend, message, queue)
