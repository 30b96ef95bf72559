"""Assignment of queues by the broker: QUERY_ASSIGNMENT (400), SET_MESSAGE_REQUEST_MODE (401).

A client that leaves the assignment to the broker asks at each of its rebalances, every 20 s. It
keeps the queues that it has if the answer names none; it drops all of them if the answer is an
empty list.

Java counterpart: broker/processor/QueryAssignmentProcessor.java of 5.5.0. Pure.
Not done: queues of lite topics, whose names begin with %LMQ%.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from ...common.allocation import share_averagely, share_by_circle
from ...common.topic_names import RETRY_TOPIC_PREFIX
from ...disk.until_saved import until_saved
from ...remoting.bodies import (
    MessageModel,
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..clients.consumer_manager import ConsumerManager
from ..cluster.topic_routes import Queues, TopicRoutes
from ..messages.request import read_body
from ..tables.request_modes import MessageRequestModeManager, Mode
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager

if TYPE_CHECKING:
    from ..settings.config import BrokerConfig


# Assignment: the queues of a topic that a broker gives to one client of a group.
#
# Java counterpart: QueryAssignmentProcessor.doLoadBalance and allocate4Pop of 5.5.0. Pure.

ANY_QUEUE: Final = -1
"""The queue id for pops from all queues of a broker."""

Share = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]
"""The queues of one member, from all queues, its index, and the number of members."""

STRATEGIES: Final[Mapping[str, Share]] = MappingProxyType(
    {"AVG": share_averagely, "AVG_BY_CIRCLE": share_by_circle}
)
"""The strategies that brokers know, by RocketMQ's names."""


def assigned_queues(
    queues: Sequence[MessageQueue],
    client_id: str,
    client_ids: Sequence[str],
    share: Share,
    setting: SetMessageRequestModeRequestBody,
) -> set[MessageQueue] | None:
    """The queues of one client of a clustering group.

    In mode POP several clients may have the same queue. Each gets its own share, and those of the
    `pop_share_queue_num` clients after it; where there are more clients than queues, one queue. If
    that number is 0 or less, or covers all clients, each client pops from all queues of every
    broker: the queue id is ANY_QUEUE.

    Args:
      queues: all of the topic, sorted.
      client_ids: of all clients of the group, sorted.
      share: of `STRATEGIES`.
      setting: the mode of the group for the topic.

    Returns: the queues, none for a client that is not in the group; None: they cannot be assigned,
      and the client keeps what it has.
    """
    shared = setting.pop_share_queue_num
    is_pop = setting.mode is MessageRequestMode.POP
    # Everyone pops everywhere, also a client without a heartbeat yet.
    if is_pop and not 0 < shared < len(client_ids) - 1:
        brokers = dict.fromkeys((queue.topic, queue.broker_name) for queue in queues)
        return {MessageQueue(topic, broker_name, ANY_QUEUE) for topic, broker_name in brokers}
    if not (client_id.strip() and queues and client_ids):
        return None
    if client_id not in client_ids:
        return set()
    index, count = client_ids.index(client_id), len(client_ids)
    if not is_pop:
        return set(share(queues, index, count))
    if count > len(queues):
        return {queues[index % len(queues)]}
    return {
        queue
        for step in range(shared + 1)
        for queue in share(queues, (index + step) % count, count)
    }


logger = logging.getLogger(__name__)


class QueryAssignmentProcessor:
    """Assigns queues to clients, and sets how they get messages from them.

    Args:
      config: the broker's; read at each use.
      modes, topics, groups: the broker's tables.
      routes: the queues of topics on all brokers.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        modes: MessageRequestModeManager,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        routes: TopicRoutes,
    ) -> None:
        self._config = config
        self._modes = modes
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._routes = routes
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.QUERY_ASSIGNMENT: self._query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
        }

    def _query(self, request: RemotingCommand, channel: Channel) -> Answer:
        asked = read_body(request, QueryAssignmentRequestBody.from_request)
        _refuse_without_names(asked.topic, asked.consumer_group)
        known = self._routes.known(asked.topic)
        if known is not None:
            return self._answer(request, channel, asked, known)

        async def ask_first() -> RemotingCommand:
            queues = await self._routes.queues(asked.topic)
            return self._answer(request, channel, asked, queues)

        return Deferred(ask_first)

    def _answer(
        self,
        request: RemotingCommand,
        channel: Channel,
        asked: QueryAssignmentRequestBody,
        queues: Queues | None,
    ) -> RemotingCommand:
        mode = self._modes.find(asked.topic, asked.consumer_group) or self._default_mode(asked)
        assigned = self._assigned(asked, queues, mode)
        body = QueryAssignmentResponseBody()
        if isinstance(assigned, str):
            _log_kept(asked, channel, assigned)
        else:
            body.message_queue_assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode.mode)
                for queue in sorted(assigned)
            ]
        return request.answer(body=body.to_body())

    def _default_mode(self, asked: QueryAssignmentRequestBody) -> Mode:
        """The mode of a group and a topic for which none is set."""
        mode, shared = self._config.default_message_request_mode, 0
        if asked.topic.startswith(RETRY_TOPIC_PREFIX):
            mode = MessageRequestMode.PULL
        if mode is MessageRequestMode.POP:
            shared = self._config.default_pop_share_queue_num
        return Mode(asked.topic, asked.consumer_group, mode, shared)

    def _assigned(
        self,
        asked: QueryAssignmentRequestBody,
        queues: Queues | None,
        mode: Mode,
    ) -> set[MessageQueue] | str:
        """The queues for a client, or the reason why it keeps those that it has.

        Source: QueryAssignmentProcessor.doLoadBalance.
        """
        if queues is None:
            return "no name server that answers knows the topic"
        if asked.message_model is MessageModel.BROADCASTING:
            return set(queues)
        if asked.message_model is not MessageModel.CLUSTERING:
            return f"the message model is {asked.message_model}"
        if not self._config.server_load_balancer_enable:
            return set(queues)
        group = self._consumers.get_consumer_group_info(asked.consumer_group)
        if group is None:
            return "the group has no connected client; a client sends a heartbeat first"
        share = STRATEGIES.get(asked.strategy_name or "")
        if share is None:
            known = " and ".join(STRATEGIES)
            return f"the strategy {asked.strategy_name!r} is not one of the broker's, {known}"
        # Sorted, so that each broker shares the queues in the same way.
        client_ids = sorted(group.all_client_ids())
        assigned = assigned_queues(queues, asked.client_id, client_ids, share, mode)
        if assigned is None:
            return "there is no readable queue" if asked.client_id.strip() else "it has no id"
        return assigned

    def _set_mode(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Source: QueryAssignmentProcessor.setMessageRequestMode."""
        mode = read_body(request, SetMessageRequestModeRequestBody.from_request)
        _refuse_without_names(mode.topic, mode.consumer_group)
        if mode.topic.startswith(RETRY_TOPIC_PREFIX):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode"
            )
        if self._topics.select(mode.topic) is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{mode.topic}] not exist")
        if self._groups.find(mode.consumer_group, channel.remote_address) is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist"
            )
        logger.info(
            "%(peer)s sets how group %(group)r gets topic %(topic)r: %(mode)s",
            {
                "peer": channel.remote_address,
                "group": mode.consumer_group,
                "topic": mode.topic,
                "mode": mode.mode,
            },
        )
        self._modes.set(mode)

        async def saved() -> RemotingCommand:
            # The group may have been created by this request.
            await until_saved(self._groups.file)
            await until_saved(self._modes.file)
            return request.answer()

        return Deferred(saved)


def _refuse_without_names(topic: str, group: str) -> None:
    """Raises: RequestRefused: SYSTEM_ERROR if the body lacks a name.

    RocketMQ answers with a NullPointerException.
    """
    missing = [name for name, text in (("topic", topic), ("consumerGroup", group)) if not text]
    if missing:
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR, f"the body has no {' and no '.join(missing)}"
        )


def _log_kept(asked: QueryAssignmentRequestBody, channel: Channel, reason: str) -> None:
    """Log why a client keeps the queues that it has."""
    is_usual = asked.topic.startswith(RETRY_TOPIC_PREFIX)  # before the first retry there is none
    logger.log(
        logging.DEBUG if is_usual else logging.WARNING,
        "%(peer)s: client %(client_id)r of group %(group)r keeps its queues of topic %(topic)r, "
        "because %(reason)s",
        {
            "peer": channel.remote_address,
            "client_id": asked.client_id,
            "group": asked.consumer_group,
            "topic": asked.topic,
            "reason": reason,
        },
    )
