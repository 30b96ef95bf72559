"""Administration of clients: GET_CONSUMER_CONNECTION_LIST 203, GET_PRODUCER_CONNECTION_LIST 204,
QUERY_TOPIC_CONSUME_BY_WHO 300; requests forwarded to a client: GET_CONSUMER_RUNNING_INFO 307,
CONSUME_MESSAGE_DIRECTLY 309; their offsets: INVOKE_BROKER_TO_GET_CONSUMER_STATUS 223, and resets
of them: INVOKE_BROKER_TO_RESET_OFFSET 222.

Java counterpart: AdminBrokerProcessor, Broker2Client.resetOffset of 5.3.3, getConsumeStatus of
5.5.0.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import trio

from ...remoting import fastjson
from ...remoting.bodies import (
    Connection,
    ConsumerConnection,
    GetConsumerStatusBody,
    GroupList,
    MessageQueue,
    ProducerConnection,
)
from ...remoting.channel import Answer, Channel, Deferred, Processor
from ...remoting.codec import RemotingCommand
from ...remoting.errors import (
    RemoteProtocolError,
    RemotingError,
    RemotingTimeoutError,
    RequestRefused,
)
from ...remoting.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    GetProducerConnectionListRequestHeader,
    QueryTopicConsumeByWhoRequestHeader,
    ResetOffsetRequestHeader,
    ResetQueueOffsetRequestHeader,
    decode,
    encode_header,
)
from ...remoting.language_codes import LanguageCode
from ...remoting.message_id import decode_offset_id
from ...remoting.mq_version import V3_0_7_SNAPSHOT, version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ...remoting.signature import without_signature
from ...store.message_store import MessageStore
from ...store.offsets import PhysicalOffset
from ...store.status import BoundaryType
from ..clients.client_channel_info import ClientChannelInfo
from ..clients.consumer_manager import ConsumerManager
from ..clients.producer_manager import ProducerManager
from ..messages.admission import may_commit_offset, own_offsets
from ..settings.config import BrokerConfig
from ..tables.consumer_offset_manager import ConsumerOffsetManager
from ..tables.subscription_group_manager import SubscriptionGroupManager
from ..tables.topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

CALL_TIMEOUT_S: Final = 10.0
"""How long a client has to answer a forwarded request. Source: Broker2Client.callClient."""

STATUS_TIMEOUT_S: Final = 5.0
"""How long the clients of a group have to tell their offsets. Source:
Broker2Client.getConsumeStatus, which asks one client after the other."""


class ClientAdminProcessor:
    """Lists connected clients, and forwards requests to them.

    Args:
      store: already loaded.
      consumers, producers, offsets, topics, groups: the broker's tables.
      try_pulls: tries the held pulls and pops of queues again.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        consumers: ConsumerManager,
        producers: ProducerManager,
        offsets: ConsumerOffsetManager,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        try_pulls: Callable[[Collection[tuple[str, int]]], None],
    ) -> None:
        self._config = config
        self._store = store
        self._consumers = consumers
        self._producers = producers
        self._offsets = offsets
        self._topics = topics
        self._groups = groups
        self._try_pulls = try_pulls
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producer_connections,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._consumed_by,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._forward,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._consumer_status,
        }

    def _consumer_connections(self, request: RemotingCommand, _: Channel) -> Answer:
        group = decode(GetConsumerConnectionListRequestHeader, request.ext_fields).consumer_group
        info = self._consumers.get_consumer_group_info(group)
        if info is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online"
            )
        body = ConsumerConnection(
            connection_set=_connections(info.channel_info_table.values()),
            subscription_table={
                topic: subscription.to_data()
                for topic, subscription in info.subscription_table.items()
            },
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )
        return request.answer(ResponseCode.SUCCESS, None, body=body.to_body())

    def _producer_connections(self, request: RemotingCommand, _: Channel) -> Answer:
        group = decode(GetProducerConnectionListRequestHeader, request.ext_fields).producer_group
        clients = self._producers.group_table.get(group)
        if clients is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist"
            )
        body = ProducerConnection(connection_set=_connections(clients.values()))
        return request.answer(ResponseCode.SUCCESS, None, body=body.to_body())

    def _consumed_by(self, request: RemotingCommand, _: Channel) -> Answer:
        topic = decode(QueryTopicConsumeByWhoRequestHeader, request.ext_fields).topic
        groups = self._consumers.query_topic_consume_by_who(topic)
        groups |= self._offsets.which_group_by_topic(topic)
        body = GroupList(group_list=sorted(groups)).to_body()
        return request.answer(ResponseCode.SUCCESS, None, body=body)

    # ---- one client ----------------------------------------------------------------------

    def _forward(self, request: RemotingCommand, _: Channel) -> Deferred:
        return self._call(request, request.ext_fields, request.body)

    def _consume_directly(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """Have a client consume one message now; the request carries its record."""
        try:
            offset = decode_offset_id(request.ext_fields.get("msgId", "")).physical_offset
        except RemoteProtocolError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
        record = self._store.message_at(PhysicalOffset(offset))
        if record is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"there is no message at {offset}")
        fields = {**request.ext_fields, "brokerName": self._config.broker_name}
        topic = self._topics.topic_config_table.get(fields.get("topic", ""))
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.find(fields.get("consumerGroup", ""), channel.remote_address)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return self._call(request, fields, bytes(record))

    def _call(self, request: RemotingCommand, fields: Mapping[str, str], body: bytes) -> Deferred:
        """Forward a request to a client. Source: AdminBrokerProcessor.callConsumer."""
        # A client chooses its own id, and with that the string that is signed. It could send the
        # same string as another request, in the administrator's name.
        fields = without_signature(fields)
        header = decode(GetConsumerRunningInfoRequestHeader, request.ext_fields)
        who = f"<{header.consumer_group}> <{header.client_id}>"
        info = self._consumers.get_consumer_group_info(header.consumer_group)
        client = None if info is None else info.find_channel(header.client_id)
        if client is None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        channel = client.channel

        async def call() -> RemotingCommand:
            try:
                found = await channel.call(
                    RemotingCommand(request.code, fields, body), CALL_TIMEOUT_S
                )
            except RemotingTimeoutError as error:
                return request.answer(
                    ResponseCode.CONSUME_MSG_TIMEOUT, f"consumer {who} Timeout: {error}"
                )
            except RemotingError as error:
                return request.answer(
                    ResponseCode.SYSTEM_ERROR, f"invoke consumer {who} Exception: {error}"
                )
            return request.answer(found.code, found.remark, found.ext_fields, found.body)

        return Deferred(call)

    # ---- offsets -------------------------------------------------------------------------

    def _consumer_status(self, request: RemotingCommand, channel: Channel) -> Deferred:
        """Ask the clients of a group for their offsets in a topic.

        The answer leaves out clients that do not answer in time, or refuse. It is empty if no
        client has the id of the request.
        """
        header = decode(GetConsumerStatusRequestHeader, request.ext_fields)
        group, wanted = header.group, (header.client_addr or "").strip()
        logger.info(
            "%(peer)s asks for the offsets of %(request)s",
            {"peer": channel.remote_address, "request": header},
        )
        info = self._consumers.get_consumer_group_info(group)
        clients = [] if info is None else list(info.channel_info_table.values())
        if not clients:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"No Any Consumer online in the consumer group: [{group}]",
            )
        asked = [client for client in clients if not wanted or client.client_id == wanted]
        for client in asked:
            if client.version < V3_0_7_SNAPSHOT:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    "the client does not support this feature. "
                    f"version={version_name(client.version)}",
                )
        # All are asked at once, and a client that is slow or refuses is left out: mqadmin shows the
        # offsets of the others.
        fields = encode_header(GetConsumerStatusRequestHeader(topic=header.topic, group=group))
        body = GetConsumerStatusBody()

        async def ask(client: ClientChannelInfo) -> None:
            code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
            try:
                found = await client.channel.call(
                    RemotingCommand(code, dict(fields)), STATUS_TIMEOUT_S
                )
                if found.code == ResponseCode.SUCCESS and found.body:
                    table = GetConsumerStatusBody.from_request(found.body).message_queue_table
                    body.consumer_table[client.client_id] = table
            except RemotingError as error:
                logger.warning(
                    "the offsets of client %(client_id)s of group %(group)s are left out, because "
                    "it did not send them: %(error)s",
                    {"client_id": client.client_id, "group": group, "error": error},
                )

        async def call() -> RemotingCommand:
            async with trio.open_nursery() as nursery:
                for client in asked:
                    nursery.start_soon(ask, client)
            return request.answer(remark=NOT_SET, body=body.to_body())

        return Deferred(call)

    def _reset_offset(self, request: RemotingCommand, channel: Channel) -> Answer:
        """Set a group's offsets here, or have its clients do it and commit them."""
        header = decode(ResetQueueOffsetRequestHeader, request.ext_fields)
        logger.info(
            "%(peer)s resets the offsets of %(request)s",
            {"peer": channel.remote_address, "request": header},
        )
        if self._config.use_server_side_reset_offset:
            return self._reset_here(request, header)
        return self._reset_by_clients(request, header)

    def _reset_here(
        self, request: RemotingCommand, header: ResetQueueOffsetRequestHeader
    ) -> Answer:
        """Source: AdminBrokerProcessor.resetOffsetInner."""
        name, group, store = header.topic, header.group, self._store
        if store.is_slave:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "Can not reset offset in slave broker")
        topic = self._topics.select(name)
        if topic is None:
            raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"Topic {name} does not exist")
        if not self._groups.contains(group):
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} does not exist"
            )
        if not may_commit_offset(group):
            raise RequestRefused(ResponseCode.NO_PERMISSION, own_offsets(group))
        if header.queue_id < 0:
            wanted = {
                queue_id: self._wanted(header, queue_id)
                for queue_id in range(topic.read_queue_nums)
            }
        elif header.offset is None or header.offset == -1:
            wanted = {header.queue_id: self._wanted(header, header.queue_id)}
        else:
            begin = max(store.min_offset(name, header.queue_id), 0)
            end = store.max_offset(name, header.queue_id)
            # One more is taken, as RocketMQ does; stored as it is, it would hide the next message.
            if not begin <= header.offset <= end + 1:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"Target offset {header.offset} not in consume queue range [{begin}-{end}]",
                )
            wanted = {header.queue_id: min(header.offset, end)}
        for queue_id, offset in wanted.items():
            if queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
                self._offsets.assign_reset_offset(group, name, queue_id, offset)
            else:  # RocketMQ stores an offset for it, which would count if it came one day
                logger.warning(
                    "topic %(topic)s has no queue %(queue_id)d: nothing is reset for group "
                    "%(group)s",
                    {"topic": name, "queue_id": queue_id, "group": group},
                )
        self._try_pulls([(name, queue_id) for queue_id in wanted])
        table = {
            MessageQueue(name, self._config.broker_name, queue_id): offset
            for queue_id, offset in wanted.items()
        }
        return request.answer(body=fastjson.dumps({"offsetTable": table}))

    def _reset_by_clients(
        self, request: RemotingCommand, header: ResetQueueOffsetRequestHeader
    ) -> Answer:
        """Source: Broker2Client.resetOffset."""
        topic = self._topics.topic_config_table.get(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST,
                "[reset-offset] reset offset failed, no topic in this broker. "
                f"topic={header.topic}",
            )
        table = {
            MessageQueue(header.topic, self._config.broker_name, queue_id): self._place(
                header, queue_id
            )
            for queue_id in range(topic.write_queue_nums)
        }
        info = self._consumers.get_consumer_group_info(header.group)
        if info is None:
            raise RequestRefused(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"Consumer not online, so can not reset offset, Group: {header.group} "
                f"Topic: {header.topic} Timestamp: {header.timestamp}",
            )
        body = fastjson.dumps({"offsetTable": table})
        fields = encode_header(
            ResetQueueOffsetRequestHeader(
                group=header.group, topic=header.topic, timestamp=header.timestamp
            )
        )
        # Oneway, as in Apache's: each client drops its queues, commits these offsets and pulls
        # anew. A client that misses the request continues where it is.
        for client in info.all_channels():
            client.send_oneway(
                RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, dict(fields), body)
            )
        return request.answer(ResponseCode.SUCCESS, NOT_SET, body=body)

    def _place(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The offset at which the group is to continue in one queue."""
        known = self._offsets.query_offset(header.group, header.topic, queue_id)
        if known == -1:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"THe consumer group <{header.group}> not exist"
            )
        wanted = self._wanted(header, queue_id)
        return wanted if header.is_force or wanted < known else known

    def _wanted(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        """The offset that the request's time stands for; -1 is the queue's end."""
        if header.timestamp == -1:
            return self._store.max_offset(header.topic, queue_id)
        offset = self._store.offset_by_time(
            header.topic, queue_id, header.timestamp, BoundaryType.LOWER
        )
        return max(offset, 0)


def _connections(clients: Iterable[ClientChannelInfo]) -> list[Connection]:
    languages = {int(code): code.name for code in LanguageCode}
    return [
        Connection(
            client_id=client.client_id,
            client_addr=client.channel.remote_address,
            language=languages.get(client.language, LanguageCode.OTHER.name),
            version=client.version,
        )
        for client in clients
    ]
