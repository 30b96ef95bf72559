"""Requests that register a broker and its topics with a name server, or unregister it.

REGISTER_BROKER (103) carries the table of topics: whole in one frame, or in parts when the table is
large. REGISTER_TOPIC_IN_NAMESRV (217) carries the queues of one topic.

How Apache's name servers read parts (RouteInfoManager.registerBroker of 4.9.8 and 5.3.3): a later
part replaces none of the topics of an earlier one, unless `deleteTopicWithBrokerRegistration` is
true, which treats every registration as the whole table. 4.9 reads no topic from a registration
whose DataVersion it knows already, and 5.x only new topics. So every part has a different version,
and the last part has the table's.

Java counterpart: broker/out/BrokerOuterAPI.java, BrokerController.registerBrokerAll of 5.3.3. Pure.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ...common.steps import Steps, json_members, with_member
from ...remoting import fastjson
from ...remoting.bodies import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicQueueMappingDetail,
    TopicRouteData,
)
from ...remoting.codec import FRAME_SIZE_MAX, RemotingCommand
from ...remoting.headers import (
    RegisterBrokerRequestHeader,
    RegisterTopicRequestHeader,
    UnregisterBrokerRequestHeader,
    encode_header,
)
from ...remoting.request_codes import RequestCode
from ..settings.config import BrokerConfig

logger = logging.getLogger(__name__)

WHOLE_TOPIC_COUNT_MAX: Final = 5_000
"""Topics of a registration in one part, unless `enableSplitRegistration` sets fewer; 70,000 topics
would not fit a frame."""

BODY_SIZE_MAX: Final = 8 * 1024 * 1024
"""Bytes of the body of one part; half of a frame. Only topics with large attributes approach it."""

COMPRESSED_BODY_SIZE_MAX: Final = FRAME_SIZE_MAX - 64 * 1024
"""Bytes of a compressed body: a frame without room for its header."""

_PERM_RW: Final = PERM_READ | PERM_WRITE


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The broker's part of a registration.

    Attributes:
      config: names and broker id; its permission limits that of every topic.
      broker_addr: the `host:port` advertised to clients.
      ha_server_addr: `host:port` for slaves.
      filter_servers: `host:port` of each filter server.
      queue_mappings: of the static topics, by topic.
    """

    config: BrokerConfig
    broker_addr: str
    ha_server_addr: str
    filter_servers: tuple[str, ...] = ()
    queue_mappings: Mapping[str, TopicQueueMappingDetail] = field(default_factory=dict)


def part_size(config: BrokerConfig, topic_count: int) -> int:
    """Topics of one part of a registration of `topic_count` topics.

    `enableSplitRegistration` splits from `splitRegistrationSize` on, as in RocketMQ. Without it a
    table is split only above WHOLE_TOPIC_COUNT_MAX. RocketMQ's broker always sends one frame then,
    and once that exceeds the name server's limit all routes of the broker are lost.
    """
    if config.enable_split_registration or topic_count > WHOLE_TOPIC_COUNT_MAX:
        return config.split_registration_size
    return max(topic_count, 1)


def is_one_part(config: BrokerConfig, topic_count: int) -> bool:
    return config.compressed_register or part_size(config, topic_count) >= topic_count


def register_requests(
    identity: BrokerIdentity,
    topics: Sequence[TopicConfig],
    data_version: DataVersion,
    *,
    size: int,
) -> Iterator[RemotingCommand]:
    """The requests of `register_in_steps` without its pauses."""
    for request in register_in_steps(identity, topics, data_version, size=size):
        if request is not None:
            yield request


def register_in_steps(
    identity: BrokerIdentity,
    topics: Sequence[TopicConfig],
    data_version: DataVersion,
    *,
    size: int,
) -> Iterator[RemotingCommand | None]:
    """REGISTER_BROKER (103), one request for each part of a table.

    Each part is encoded when the iterator reaches it. One whose body is larger than BODY_SIZE_MAX
    is halved; a single topic that is larger is left out with an ERROR line.

    Args:
      identity: the broker's part of the registration.
      topics: all of the broker; the sequence must not change meanwhile.
      size: topics of one part, > 0; see `part_size`.
    Yields: None after each step of a few ms, and the requests.
    """
    waiting = [topics[at : at + size] for at in range(0, len(topics), size)] or [topics]
    waiting.reverse()
    part_number = 0
    while waiting:
        part = waiting.pop()
        # Name servers take a registration for known if its version is: only the last part has it.
        version = data_version if not waiting else _version_of_part(data_version, part_number)
        body = yield from _encoded(identity, part, version)
        if len(body) > BODY_SIZE_MAX:
            if len(part) > 1:
                # Sizes differ with the names, so a part is halved until it fits.
                half = len(part) // 2
                waiting += [part[half:], part[:half]]
                continue
            logger.error(
                "topic %(topic)s is not registered, so clients cannot find it: its settings "
                "take %(body_size)d bytes, and the limit is %(limit)d. Remove some of its "
                "attributes",
                {"topic": part[0].topic_name, "body_size": len(body), "limit": BODY_SIZE_MAX},
            )
            body = _body(identity, (), version).to_body()
        yield _register_request(identity, body, is_compressed=False)
        part_number += 1


def compressed_requests(
    identity: BrokerIdentity, topics: Sequence[TopicConfig], data_version: DataVersion
) -> Iterator[RemotingCommand | None]:
    """REGISTER_BROKER (103) with all topics, deflated, in one request.

    As in Apache's form, a topic's text has neither its order flag nor its topicSysFlag.

    Yields: None after each step of a few ms, then the request. If it does not fit a frame, the
      uncompressed requests follow instead.
    """
    pieces: list[bytes] = []
    for piece in _body(identity, topics, data_version).compress():
        pieces.append(piece)
        yield None
    body = b"".join(pieces)
    if len(body) <= COMPRESSED_BODY_SIZE_MAX:
        yield _register_request(identity, body, is_compressed=True)
    else:
        logger.error(
            "%(topics)d topics are %(body_size)d bytes compressed, which does not fit one "
            "registration of %(limit)d: they are registered in parts, although "
            "compressedRegister=true. A name server with deleteTopicWithBrokerRegistration=true "
            "loses their routes: set it to false there",
            {"topics": len(topics), "body_size": len(body), "limit": COMPRESSED_BODY_SIZE_MAX},
        )
        yield from register_in_steps(
            identity, topics, data_version, size=identity.config.split_registration_size
        )


def register_topic_request(config: BrokerConfig, topic: TopicConfig) -> RemotingCommand:
    """REGISTER_TOPIC_IN_NAMESRV (217): the queues of one topic on this broker.

    It does not mention other topics, so it deletes none, however the name server is configured.
    Source: BrokerOuterAPI.registerSingleTopicAll.
    """
    queues = QueueData(
        broker_name=config.broker_name,
        read_queue_nums=topic.read_queue_nums,
        write_queue_nums=topic.write_queue_nums,
        perm=topic.perm & config.broker_permission if _is_limited(config) else topic.perm,
        topic_sys_flag=topic.topic_sys_flag,
    )
    header = RegisterTopicRequestHeader(topic=topic.topic_name)
    body = TopicRouteData(queue_datas=[queues]).to_body()
    return RemotingCommand(RequestCode.REGISTER_TOPIC_IN_NAMESRV, encode_header(header), body)


def unregister_request(config: BrokerConfig, broker_addr: str) -> RemotingCommand:
    """UNREGISTER_BROKER 104."""
    header = UnregisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=broker_addr,
        cluster_name=config.broker_cluster_name,
        broker_id=config.broker_id,
    )
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, encode_header(header))


def _version_of_part(version: DataVersion, part_number: int) -> DataVersion:
    """A version for every part but the last; no table has a counter below 0."""
    return DataVersion(
        timestamp=version.timestamp, counter=-1 - part_number, state_version=version.state_version
    )


def _is_limited(config: BrokerConfig) -> bool:
    return config.broker_permission & _PERM_RW != _PERM_RW


def _body(
    identity: BrokerIdentity, topics: Sequence[TopicConfig], data_version: DataVersion
) -> RegisterBrokerBody:
    config = identity.config
    if _is_limited(config):
        topics = [
            TopicConfig(
                topic_name=topic.topic_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm & config.broker_permission,
                topic_sys_flag=topic.topic_sys_flag,
            )
            for topic in topics
        ]
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table={topic.topic_name: topic for topic in topics},
        data_version=data_version,
        mapping_data_version=DataVersion(timestamp=data_version.timestamp, counter=0),
        topic_queue_mapping_info_map={
            topic.topic_name: identity.queue_mappings[topic.topic_name].info()
            for topic in topics
            if topic.topic_name in identity.queue_mappings
        },
        topic_queue_mapping_detail_map={},
    )
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=wrapper, filter_server_list=list(identity.filter_servers)
    )


def _encoded(
    identity: BrokerIdentity, topics: Sequence[TopicConfig], data_version: DataVersion
) -> Steps[bytes]:
    """Steps that encode a body: 5,000 topics take 14 ms."""
    body = _body(identity, topics, data_version)
    wrapper = body.topic_config_serialize_wrapper
    table, wrapper.topic_config_table = wrapper.topic_config_table, {}
    text = yield from json_members(table, fastjson.dumps)
    return with_member(body.to_body(), b'"topicConfigTable":{}', text)


def _register_request(
    identity: BrokerIdentity, body: bytes, *, is_compressed: bool
) -> RemotingCommand:
    """Source: BrokerOuterAPI.registerBroker; bodyCrc32 as observed: without the sign bit."""
    config = identity.config
    header = RegisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=identity.broker_addr,
        cluster_name=config.broker_cluster_name,
        ha_server_addr=identity.ha_server_addr,
        broker_id=config.broker_id,
        enable_acting_master=False,
        compressed=is_compressed,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return RemotingCommand(RequestCode.REGISTER_BROKER, encode_header(header), body)
