"""Registration of clients: HEART_BEAT (34), UNREGISTER_CLIENT (35), CHECK_CLIENT_CONFIG (46).

A consumer's heartbeat creates its group, if that is allowed, and the group's retry topic. The
answer waits until both are saved, and is a refusal if the save fails. It also waits until the name
servers know the topic, because the client requests its route at once.

SQL92 expressions are compiled here if enablePropertyFilter allows them. The answer to 46 names the
fault of an expression, so that its consumer fails at its start and not silently later.

Java counterpart: broker/processor/ClientManageProcessor.java of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final

from ...auth.access_control import heartbeat_user
from ...common.clock import Clock
from ...common.steps import Steps, in_parts
from ...common.topic_names import retry_topic
from ...common.topic_validator import refuse_topic
from ...disk.until_saved import until_saved
from ...remoting.bodies import CheckClientRequestBody, ConsumerData, ConsumeType, HeartbeatData
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RequestRefused
from ...remoting.headers import UnregisterClientRequestHeader, decode
from ...remoting.names import NAME_SIZE_MAX
from ...remoting.refusals import Refusals
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..filters.consumer_filter_manager import (
    HEARTBEAT_CHARACTERS_MAX,
    ConsumerFilterManager,
    compile_filter,
)
from ..filters.subscription import SUBSCRIPTION_CODES_MAX, is_tag_type, refuse_subscription
from ..messages.request import NO_BODY, read_body, read_body_in_steps
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import UNIT_SUB_FLAG, TopicConfigManager
from .client_channel_info import CLIENT_ID_LENGTH_MAX, GROUPS_PER_CHANNEL_MAX, ClientChannelInfo
from .consumer_manager import ConsumerManager
from .producer_manager import ProducerManager

if TYPE_CHECKING:
    from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

HEARTBEAT_STEP_GROUPS: Final = 50
"""Groups of a heartbeat that are registered per step: a new one takes up to 0.1 ms."""
HEARTBEAT_STEP_SIZE: Final = 64 * 1024
"""Bytes up to which a heartbeat is parsed in the same step as its first groups are registered:
together some 5 ms."""
HEARTBEAT_STEP_SUBSCRIPTIONS: Final = 2_500
"""Subscriptions that are updated per step, or those of one group: each takes up to 2 us."""

_NO_REPLIES: Final = (
    "the client id {id} is in use by the open connection of another user, so this client gets no "
    "replies to its requests: give each client its own instance name"
)


class ClientManageProcessor:
    """Registers producers and consumers, and checks their expressions.

    Args:
      consumers, producers, groups, topics: the broker's tables.
      clock: its monotonic time goes into the tables.
      register_topics: registers changed topics with the name servers; waits a short time for their
        answers, and does not raise.
      filters: the table of expressions; None: enablePropertyFilter is false.
      refusals: counts refused clients.
    """

    def __init__(
        self,
        config: BrokerConfig,
        *,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        clock: Clock,
        register_topics: Callable[[], Awaitable[None]],
        filters: ConsumerFilterManager | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        self._config = config
        self._refusals = refusals or Refusals()
        self._filters = filters
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._clock = clock
        self._register_topics = register_topics
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check,
        }

    def _heartbeat(self, request: RemotingCommand, channel: Channel) -> Answer:
        return answer_of(self._register_client(request, channel, heartbeat_user(channel)))

    def _register_client(
        self, request: RemotingCommand, channel: Channel, user: str | None
    ) -> Steps[RemotingCommand | Deferred]:
        """Register a heartbeat's groups in steps, and answer."""
        data = yield from read_body_in_steps(
            request, HeartbeatData.from_request_in_steps, lambda data: _bound_groups(data, channel)
        )
        _refuse_too_large(data)
        client = ClientChannelInfo(
            channel,
            data.client_id,
            language=request.language,
            version=request.version,
            last_update_s=self._clock.monotonic_s(),
            user=user,
        )
        version_before = self._topics.data_version
        groups = [consumer.group_name for consumer in data.consumer_data_set]
        is_sub_change = data.heartbeat_fingerprint == 0
        refusal: RequestRefused | None = None
        is_large = len(request.body) > HEARTBEAT_STEP_SIZE
        for consumers in _parts_of(data.consumer_data_set):
            if is_large or consumers[0] is not data.consumer_data_set[0]:
                yield
            # Not around the steps, so that changes of other requests in between are not delayed.
            with self._topics.file.saving_once(), self._groups.file.saving_once():
                for consumer in consumers:
                    try:
                        if self._register_consumer(consumer, client, data):
                            is_sub_change = True
                    except RequestRefused as error:  # the other groups are registered
                        refusal = error
        if is_large:
            yield
        if self._filters is not None:
            yield from self._register_filters(self._filters, data)
        if data.producer_data_set:
            self._note_taken_id(client)
        for producers in in_parts(data.producer_data_set, HEARTBEAT_STEP_GROUPS):
            if producers[0] is not data.producer_data_set[0]:
                yield
            for producer in producers:
                if producer.group_name:
                    self._producers.register(producer.group_name, client)
        self._count(channel)
        if refusal is not None:
            raise refusal
        answer = request.answer(
            ext_fields={
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if is_sub_change else "false",
            }
        )
        is_saved = all(map(self._groups.is_saved, groups)) and self._topics.unsaved.isdisjoint(
            map(retry_topic, groups)
        )
        if is_saved and self._topics.data_version is version_before:
            return answer
        return Deferred(lambda: self._answer_saved(answer))

    def _note_taken_id(self, client: ClientChannelInfo) -> None:
        """Warn that a client gets no replies, because another user has its id."""
        holder = self._producers.find_channel(client.client_id)
        # The client is registered all the same: an id is no right, and one user's must not cost
        # another its checks of transactions.
        if holder is not None and not self._producers.may_have_id(client):
            what = _NO_REPLIES.format(id=client.client_id[:NAME_SIZE_MAX])
            logger.warning(
                "%(peer)s: %(what)s", {"peer": client.channel.remote_address, "what": what}
            )

    async def _answer_saved(self, answer: RemotingCommand) -> RemotingCommand:
        await until_saved(self._groups.file)
        await until_saved(self._topics.file)
        await self._register_topics()
        return answer

    def _count(self, channel: Channel) -> None:
        """Update the memory budget by the size of a connection's clients."""
        if not channel.closed:
            size = self._consumers.size_of(channel) + self._producers.size_of(channel)
            channel.memory.subscriptions.hold(channel, size)

    def _register_consumer(
        self, consumer: ConsumerData, client: ClientChannelInfo, data: HeartbeatData
    ) -> bool:
        """Register one group of a heartbeat.

        Returns: whether the client must send its subscriptions again, because its fingerprint
          differs from that of the group's last heartbeat, or they are unknown.
        Raises: RequestRefused: the group may not be created now, or has enough clients.
        """
        group = consumer.group_name
        if (
            self._config.reject_pull_consumer_enable
            and consumer.consume_type is ConsumeType.CONSUME_ACTIVELY
        ):
            return False
        group_config = self._groups.find(group, client.channel.remote_address)
        if group_config is None:
            logger.warning(
                "%(client)s: group %(group)r does not exist and is not created",
                {"client": client, "group": group},
            )
            return False
        self._refuse_one_more(group, client)
        topic = retry_topic(group)
        if refuse_topic(topic) is None:
            self._topics.stage_topic(
                topic,
                queue_count=group_config.retry_queue_nums,
                order=any(
                    self._topics.is_order_topic(subscription.topic)
                    for subscription in consumer.subscription_data_set
                ),
                sys_flag=UNIT_SUB_FLAG if consumer.unit_mode else 0,
            )
        self._consumers.register(
            consumer,
            client,
            notify=group_config.notify_consumer_ids_changed_enable,
            with_subscriptions=not (data.is_without_sub and data.heartbeat_fingerprint),
        )
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            return False
        before = info.heartbeat_fingerprint
        info.heartbeat_fingerprint = data.heartbeat_fingerprint
        if before is None:
            # RocketMQ answers "no change" here, so after a restart of the broker a client would
            # stay without subscriptions for ever.
            return data.is_without_sub
        return before != data.heartbeat_fingerprint

    def _refuse_one_more(self, group: str, client: ClientChannelInfo) -> None:
        """Raises: RequestRefused: the client is new in a group that has clientsPerGroupMax."""
        info = self._consumers.get_consumer_group_info(group)
        if info is None or len(info.channel_info_table) < self._config.clients_per_group_max:
            return
        if client.channel not in info.channel_info_table:
            reason = f"group[{group}] has {len(info.channel_info_table)} clients"
            self._refusals.note("clientsPerGroupMax", client.channel.remote_address, reason)
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY, f"{reason}, which is the limit clientsPerGroupMax"
            )

    def _register_filters(self, filters: ConsumerFilterManager, data: HeartbeatData) -> Steps[None]:
        left = HEARTBEAT_CHARACTERS_MAX
        for consumer in data.consumer_data_set:
            info = self._consumers.get_consumer_group_info(consumer.group_name)
            if info is not None:
                compiled = filters.register(info.group_name, info.subscription_table, left)
                left -= compiled
                if compiled:
                    yield

    def _unregister(self, request: RemotingCommand, channel: Channel) -> Answer:
        header = decode(UnregisterClientRequestHeader, request.ext_fields)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, channel)
        if header.consumer_group is not None:
            known = self._groups.subscription_group_table.get(header.consumer_group)
            self._consumers.unregister(
                header.consumer_group,
                channel,
                notify=known is None or known.notify_consumer_ids_changed_enable,
            )
        self._count(channel)
        return request.answer(ext_fields={})

    def _check(self, request: RemotingCommand, channel: Channel) -> Answer:
        if request.body.strip() in NO_BODY:
            return request.answer()  # nothing to check
        body = read_body(request, CheckClientRequestBody.from_request)
        subscription = body.subscription_data
        if (
            subscription is None
            or subscription.class_filter_mode
            or is_tag_type(subscription.expression_type)
        ):
            return request.answer()
        if self._filters is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                "The broker does not support consumer to filter message by "
                f"{subscription.expression_type}",
            )
        found = compile_filter(subscription.expression_type, subscription.sub_string)
        if isinstance(found, str):
            logger.warning(
                "client %(client_id)s of group %(group)s cannot start, its expression for topic "
                "%(topic)s is wrong: %(reason)s",
                {
                    "client_id": body.client_id,
                    "group": body.group,
                    "topic": subscription.topic,
                    "reason": found,
                },
            )
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, found)
        return request.answer()


def _parts_of(consumers: list[ConsumerData]) -> Iterator[list[ConsumerData]]:
    """Split the consumers of a heartbeat into steps."""
    part: list[ConsumerData] = []
    count = 0
    for consumer in consumers:
        part.append(consumer)
        count += len(consumer.subscription_data_set)
        if len(part) == HEARTBEAT_STEP_GROUPS or count >= HEARTBEAT_STEP_SUBSCRIPTIONS:
            yield part
            part, count = [], 0
    if part:
        yield part


def _refuse_too_large(data: HeartbeatData) -> None:
    """Raises: RequestRefused: SYSTEM_ERROR if a name or a subscription is too long."""
    reason = None
    if len(data.client_id) > CLIENT_ID_LENGTH_MAX:
        size = len(data.client_id)
        reason = f"the client id has {size} characters, the limit is {CLIENT_ID_LENGTH_MAX}"
    for producer in data.producer_data_set:
        if len(producer.group_name) > NAME_SIZE_MAX:
            size = len(producer.group_name)
            reason = f"a producer group's name has {size} characters, the limit is {NAME_SIZE_MAX}"
    for consumer in data.consumer_data_set:
        for subscription in consumer.subscription_data_set:
            # Few are long enough to be looked at closely, and heartbeats are frequent.
            if len(subscription.sub_string) + len(subscription.code_set) > SUBSCRIPTION_CODES_MAX:
                why = refuse_subscription(subscription)
                if why is not None:
                    group = consumer.group_name[:NAME_SIZE_MAX]
                    reason = f"the subscription of group {group} has {why}"
    if reason is not None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the heartbeat is refused: {reason}")


def _bound_groups(data: HeartbeatData, channel: Channel) -> None:
    """Drop the groups of a heartbeat beyond the limit of a connection."""
    count = max(len(data.consumer_data_set), len(data.producer_data_set))
    if count > GROUPS_PER_CHANNEL_MAX:
        logger.warning(
            "%(peer)s sent a heartbeat with %(groups)d groups, only the first %(limit)d are "
            "registered",
            {"peer": channel.remote_address, "groups": count, "limit": GROUPS_PER_CHANNEL_MAX},
        )
        del data.consumer_data_set[GROUPS_PER_CHANNEL_MAX:]
        del data.producer_data_set[GROUPS_PER_CHANNEL_MAX:]
