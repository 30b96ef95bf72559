"""Requests about brokers: 103, 104, 106, 205, 322, 327, 901, 904.

Java counterpart: RocketMQ 5.3.3 namesrv/processor/DefaultRequestProcessor.java.
"""

from __future__ import annotations

import hashlib
import logging
import zlib
from typing import Final

import trio

from ...auth.open_server import is_same_host
from ...common.steps import Steps, in_steps
from ...remoting.bodies import (
    BrokerMemberGroup,
    DataVersion,
    GetBrokerMemberGroupResponseBody,
    KVTable,
    RegisterBrokerBody,
    TopicConfigSerializeWrapper,
)
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RequestRefused
from ...remoting.headers import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerRequestHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
    decode,
    encode_header,
)
from ...remoting.mq_version import V3_0_11
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import NOT_SET, ResponseCode
from ..kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from ..registration import BrokerAddrInfo, BrokerRegistration
from ..route_info_manager import RouteInfoManager
from .services import NamesrvServices
from .topic import ZONE_NAME_FIELD

logger = logging.getLogger(__name__)

REMOTING_COMMAND_EXCEPTION = "org.apache.rocketmq.remoting.exception.RemotingCommandException"
"""The start of RocketMQ's remark when a body cannot be read."""

DIGEST_SIZE: Final = 16
"""Bytes of the digest by which an unchanged registration is recognized: two bodies have the same
one by chance once in 2**128, and a broker that makes two on purpose harms its own topics alone."""


class BrokerProcessors:
    """Serves registrations, heartbeats and queries of brokers."""

    def __init__(self, services: NamesrvServices) -> None:
        self._services = services
        self._config = services.config
        self._routes = services.routes
        self._in_steps: dict[str, trio.Event] = {}
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.REGISTER_BROKER: self.register,
            RequestCode.UNREGISTER_BROKER: self.unregister,
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.QUERY_DATA_VERSION: self.query_data_version,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self.member_group,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_perm,
        }

    def register(self, request: RemotingCommand, channel: Channel) -> Answer:
        """REGISTER_BROKER 103: register a broker; the answer to a slave names its master."""
        header = decode(RegisterBrokerRequestHeader, request.ext_fields)
        # Only where it is stated: a digest of the body is made in any case.
        if header.body_crc32 and header.body_crc32 != zlib.crc32(request.body) & 0x7FFFFFFF:
            logger.warning(
                "%(peer)s: a registration is refused, as its body does not match its checksum",
                {"peer": channel.remote_address},
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        if header.broker_addr in self._in_steps:
            return Deferred(lambda: self._register_after(request, header, channel))
        return answer_of(self._register(request, header, channel))

    async def _register_after(
        self, request: RemotingCommand, header: RegisterBrokerRequestHeader, channel: Channel
    ) -> RemotingCommand:
        """Register after the broker's earlier registration has ended, so that the last one wins."""
        while (earlier := self._in_steps.get(header.broker_addr)) is not None:
            await earlier.wait()
        return await in_steps(self._register(request, header, channel))

    def _register(
        self, request: RemotingCommand, header: RegisterBrokerRequestHeader, channel: Channel
    ) -> Steps[RemotingCommand]:
        """Register in steps; until the last one, no other registration of the broker begins."""
        ended: trio.Event | None = None
        steps = self._registered(request, header, channel)
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    answer: RemotingCommand = end.value
                    return answer
                if ended is None:
                    ended = self._in_steps[header.broker_addr] = trio.Event()
                yield
        finally:
            if ended is not None:
                del self._in_steps[header.broker_addr]
                ended.set()

    def _registered(
        self, request: RemotingCommand, header: RegisterBrokerRequestHeader, channel: Channel
    ) -> Steps[RemotingCommand]:
        deletes = self._config.delete_topic_with_broker_registration
        digest = b""
        if request.version >= V3_0_11:  # older ones have another form of body
            digest = hashlib.blake2b(request.body, digest_size=DIGEST_SIZE).digest()
        data_version = self._routes.repeated(
            BrokerAddrInfo(header.cluster_name, header.broker_addr),
            header.broker_name,
            header.broker_id,
            body_digest=digest,
            delete_missing_topics=deletes,
        )
        if data_version is None:
            registration = yield from registration_in_steps(request, header)
        else:
            unchanged = TopicConfigSerializeWrapper(data_version=data_version)
            registration = _registration(request, header, unchanged, None)
        result = yield from self._routes.register_broker_in_steps(
            registration,
            channel=channel,
            now_ms=self._services.now_ms(),
            delete_missing_topics=deletes,
            body_digest=digest,
        )
        if result.change is not None:
            self._services.notify([result.change])
        fields = encode_header(
            RegisterBrokerResponseHeader(
                ha_server_addr=result.ha_server_addr, master_addr=result.master_addr
            )
        )
        items = None
        if self._config.return_order_topic_config_to_broker:
            items = self._services.kv.items(NAMESPACE_ORDER_TOPIC_CONFIG)
        body = b"" if items is None else KVTable(table=items).to_body()
        # RocketMQ's brokers ignore the remark of a success; trocket's log it.
        return request.answer(remark=result.warning or None, ext_fields=fields, body=body)

    def unregister(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """UNREGISTER_BROKER 104: remove a broker; success also for an unknown one."""
        header = decode(UnregisterBrokerRequestHeader, request.ext_fields)
        addr_info = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        removal = self._routes.unregister_broker(addr_info, header.broker_name)
        self._services.notify(removal.changes)
        return request.answer()

    def heartbeat(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """BROKER_HEARTBEAT 904: success also for an unknown broker."""
        header = decode(BrokerHeartbeatRequestHeader, request.ext_fields)
        addr_info = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        self._routes.update_heartbeat(addr_info, now_ms=self._services.now_ms())
        return request.answer()

    def query_data_version(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """QUERY_DATA_VERSION 322: whether a broker must register again; also a heartbeat."""
        header = decode(QueryDataVersionRequestHeader, request.ext_fields)
        try:
            version = DataVersion.from_request(request.body)
        except RemoteProtocolError as error:
            raise _unreadable("DataVersion", error) from error
        addr_info = BrokerAddrInfo(header.cluster_name, header.broker_addr)
        known = self._routes.data_version(addr_info)
        self._routes.update_heartbeat(addr_info, now_ms=self._services.now_ms())
        fields = encode_header(QueryDataVersionResponseHeader(changed=known != version))
        return request.answer(ext_fields=fields, body=b"" if known is None else known.to_body())

    def cluster_info(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_BROKER_CLUSTER_INFO 106: all brokers; broker ids are bare keys for every client."""
        remark = "; ".join(self._routes.warnings()) or None
        return request.answer(remark=remark, body=self._routes.cluster_info().to_body())

    def member_group(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_BROKER_MEMBER_GROUP 901: the addresses of a broker name, empty for an unknown one."""
        header = decode(GetBrokerMemberGroupRequestHeader, request.ext_fields)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._routes.broker_addrs(header.broker_name),
        )
        body = GetBrokerMemberGroupResponseBody(broker_member_group=group).to_body()
        return request.answer(remark=NOT_SET, body=body)

    def wipe_write_perm(self, request: RemotingCommand, channel: Channel) -> Answer:
        """WIPE_WRITE_PERM_OF_BROKER 205: make a broker's topics read-only."""
        name = decode(WipeWritePermOfBrokerRequestHeader, request.ext_fields).broker_name
        logger.info(
            "%(peer)s wipes the write permission of broker %(broker_name)r",
            {"peer": channel.remote_address, "broker_name": name[:80]},
        )

        def steps() -> Steps[RemotingCommand]:
            count = yield from self._routes.wipe_write_perm(name)
            header = WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count)
            return request.answer(ext_fields=encode_header(header))

        return answer_of(steps())

    def add_write_perm(self, request: RemotingCommand, channel: Channel) -> Answer:
        """ADD_WRITE_PERM_OF_BROKER 327: make a broker's topics writable again."""
        name = decode(AddWritePermOfBrokerRequestHeader, request.ext_fields).broker_name
        logger.info(
            "%(peer)s gives broker %(broker_name)r write permission",
            {"peer": channel.remote_address, "broker_name": name[:80]},
        )

        def steps() -> Steps[RemotingCommand]:
            count = yield from self._routes.add_write_perm(name)
            header = AddWritePermOfBrokerResponseHeader(add_topic_count=count)
            return request.answer(ext_fields=encode_header(header))

        return answer_of(steps())


def is_own_broker(routes: RouteInfoManager, request: RemotingCommand, channel: Channel) -> bool:
    """Whether the broker of an UNREGISTER_BROKER is its sender's, or of the sender's machine.

    One that is not registered is anybody's: nothing is removed.

    Raises: RequestRefused: the header is not valid.
    """
    header = decode(UnregisterBrokerRequestHeader, request.ext_fields)
    registered = routes.channel_of(BrokerAddrInfo(header.cluster_name, header.broker_addr))
    return registered is None or (
        isinstance(registered, Channel) and is_same_host(registered, channel)
    )


def registration_in_steps(
    request: RemotingCommand, header: RegisterBrokerRequestHeader
) -> Steps[BrokerRegistration]:
    """Steps that read the registration from a REGISTER_BROKER request.

    Raises: RequestRefused: SYSTEM_ERROR if the body cannot be read.
    """
    filter_servers: list[str] | None = None
    try:
        if not request.body:
            wrapper = TopicConfigSerializeWrapper()
            filter_servers = []
        elif request.version < V3_0_11:
            wrapper = yield from TopicConfigSerializeWrapper.from_body_in_steps(request.body)
        else:
            body = yield from RegisterBrokerBody.from_body_in_steps(request.body)
            wrapper = body.topic_config_serialize_wrapper
            filter_servers = body.filter_server_list
    except RemoteProtocolError as error:
        raise _unreadable("RegisterBrokerBody", error) from error
    return _registration(request, header, wrapper, filter_servers)


def _registration(
    request: RemotingCommand,
    header: RegisterBrokerRequestHeader,
    wrapper: TopicConfigSerializeWrapper,
    filter_servers: list[str] | None,
) -> BrokerRegistration:
    mappings = (wrapper.topic_queue_mapping_info_map or {}).items()
    return BrokerRegistration(
        cluster_name=header.cluster_name,
        broker_addr=header.broker_addr,
        broker_name=header.broker_name,
        broker_id=header.broker_id,
        data_version=wrapper.data_version,
        topics=list(wrapper.topic_config_table.values()),
        ha_server_addr=header.ha_server_addr,
        queue_mappings={topic: info for topic, info in mappings if isinstance(info, dict)},
        filter_servers=filter_servers,
        zone_name=request.ext_fields.get(ZONE_NAME_FIELD),
        heartbeat_timeout_ms=header.heartbeat_timeout_millis,
        enable_acting_master=header.enable_acting_master,
    )


def _unreadable(what: str, error: RemoteProtocolError) -> RequestRefused:
    remark = f"{REMOTING_COMMAND_EXCEPTION}: Failed to decode {what}: {error}"
    return RequestRefused(ResponseCode.SYSTEM_ERROR, remark)
