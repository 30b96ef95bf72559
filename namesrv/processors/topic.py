"""Requests about topics: 105, 206, 216, 217, 224, 304, 311, 312, 313.

Java counterparts: RocketMQ 5.3.3 namesrv/processor/ClientRequestProcessor.java,
DefaultRequestProcessor.java, namesrv/route/ZoneRouteRPCHook.java.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from ...common.steps import Steps
from ...remoting.bodies import BrokerData, TopicList, TopicRouteData
from ...remoting.channel import Answer, Channel, Deferred, Processor, answer_of
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError, RemotingError, RequestRefused
from ...remoting.headers import (
    DeleteTopicFromNamesrvRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    decode,
)
from ...remoting.mq_version import V4_9_4
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from ..registration import MASTER_ID
from ..route_info_manager import UNIT_FLAG, UNIT_SUB_FLAG
from ..topic_table import Form
from .services import NamesrvServices

APPLY_TOPIC_URL: Final = "https://rocketmq.apache.org/docs/bestPractice/06FAQ"
"""The page in RocketMQ's remark. Source: FAQUrl.java 5.3.3; 4.9 names an older page."""

ELSEWHERE_TIMEOUT_S: Final = 3.0
"""For the answer of another environment's name server; a client waits as long for ours.
Source: MQClientAPIImpl.getTopicRouteInfoFromNameServer as DefaultMQAdminExt calls it."""

logger = logging.getLogger(__name__)

ZONE_MODE_FIELD: Final = "__ZONE_MODE"
ZONE_NAME_FIELD: Final = "__ZONE_NAME"
"""Ext fields of a client that wants brokers of its zone. Source: RocketMQ MixAll.java."""


class TopicProcessors:
    """Serves routes and lists of topics."""

    def __init__(self, services: NamesrvServices) -> None:
        self._services = services
        self._config = services.config
        self._routes = services.routes
        self.processors: dict[RequestCode, Processor] = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.list_all,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.list_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.list_system,
            RequestCode.GET_UNIT_TOPIC_LIST: self.list_unit,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self.list_unit_sub,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self.list_unit_sub_not_unit,
        }

    def route(self, request: RemotingCommand, _channel: Channel) -> Answer:
        """GET_ROUTEINFO_BY_TOPIC 105: the brokers and queues of a topic.

        With clusterTest, a topic that is unknown here is asked for in the other environment.
        """
        header = decode(GetRouteInfoRequestHeader, request.ext_fields)
        config = self._config
        if config.need_wait_for_service:
            up_ms = self._services.now_ms() - self._services.started_ms
            if up_ms < config.wait_seconds_for_service * 1_000:
                return request.answer(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = header.topic
        quote = request.version >= V4_9_4 or bool(header.accept_standard_json_only)
        if config.order_message_enable or _zone_of(request.ext_fields):
            body = self._special_route(topic, request.ext_fields, quote=quote)
        else:
            body = self._routes.route_body(topic, Form(config.support_acting_master, quote))
        if body is not None:
            return request.answer(body=body)
        if config.cluster_test:
            return Deferred(partial(self._route_elsewhere, request, topic))
        return _no_route(request, topic)

    def _special_route(
        self, topic: str, ext_fields: Mapping[str, str], *, quote: bool
    ) -> bytes | None:
        """A route with the order configuration, or for a zone; None: there is none."""
        config = self._config
        route = self._routes.pick_up_topic_route_data(
            topic, support_acting_master=config.support_acting_master
        )
        if route is None:
            return None
        if config.order_message_enable:
            route.order_topic_conf = self._services.kv.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        keep_zone(route, ext_fields)
        return route.to_body(quote_int_keys=quote)

    async def _route_elsewhere(self, request: RemotingCommand, topic: str) -> RemotingCommand:
        """Pass on the answer of the first name server of the other environment that knows a topic.

        Source: ClusterTestRequestProcessor.getRouteInfoByTopic.
        """
        config = self._config
        question = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, dict(request.ext_fields))
        question.version = request.version  # decides the form of the route's JSON
        for address in config.product_namesrv_addresses:
            try:
                answer = await self._services.call(address, question, ELSEWHERE_TIMEOUT_S)
            except (RemotingError, OSError) as error:
                logger.warning(
                    "the name server %(name_server)s of environment %(environment)s did not "
                    "answer for topic %(topic)s: %(error)s. The next one is asked",
                    {
                        "name_server": address,
                        "environment": config.product_env_name,
                        "topic": topic,
                        "error": error,
                    },
                )
                continue
            if answer.code == ResponseCode.SUCCESS:
                return request.answer(body=answer.body)
        return _no_route(request, topic)

    def list_all(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER 206."""
        if not self._config.enable_all_topic_list:
            return request.answer(ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(request, self._routes.topics.topics())

    def list_cluster(self, request: RemotingCommand, _channel: Channel) -> Answer:
        """GET_TOPICS_BY_CLUSTER 224."""
        self._check_enabled()
        header = decode(GetTopicsByClusterRequestHeader, request.ext_fields)

        def steps() -> Steps[RemotingCommand]:
            return _topic_list(request, (yield from self._routes.topics_of_cluster(header.cluster)))

        return answer_of(steps())

    def list_system(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS 304: topics named after clusters and brokers."""
        topics, broker_addr = self._routes.system_topics()
        return _topic_list(request, topics, broker_addr)

    def list_unit(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_UNIT_TOPIC_LIST 311: topics of a unit."""
        self._check_enabled()
        return _topic_list(request, self._routes.topics.topics_with_flags(wanted=UNIT_FLAG))

    def list_unit_sub(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_TOPIC_LIST 312: topics with subscriptions by unit."""
        self._check_enabled()
        return _topic_list(request, self._routes.topics.topics_with_flags(wanted=UNIT_SUB_FLAG))

    def list_unit_sub_not_unit(
        self, request: RemotingCommand, _channel: Channel
    ) -> RemotingCommand:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST 313: those of 312 that do not belong to a unit."""
        self._check_enabled()
        topics = self._routes.topics.topics_with_flags(wanted=UNIT_SUB_FLAG, unwanted=UNIT_FLAG)
        return _topic_list(request, topics)

    def _check_enabled(self) -> None:
        if not self._config.enable_topic_list:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "disable")

    def register(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """REGISTER_TOPIC_IN_NAMESRV 217: the queues of one topic; success in any case."""
        header = decode(RegisterTopicRequestHeader, request.ext_fields)
        if request.body:
            try:
                route = TopicRouteData.from_request(request.body)
            except RemoteProtocolError as error:
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from error
            self._routes.register_topic(header.topic, route.queue_datas)
        return request.answer()

    def delete(self, request: RemotingCommand, _channel: Channel) -> RemotingCommand:
        """DELETE_TOPIC_IN_NAMESRV 216: success also for a topic that does not exist."""
        header = decode(DeleteTopicFromNamesrvRequestHeader, request.ext_fields)
        self._routes.delete_topic(header.topic, header.cluster_name or "")
        return request.answer()


def _topic_list(
    request: RemotingCommand, topics: list[str], broker_addr: str | None = None
) -> RemotingCommand:
    body = TopicList(topic_list=topics, broker_addr=broker_addr).to_body()
    return request.answer(body=body)


def _no_route(request: RemotingCommand, topic: str) -> RemotingCommand:
    remark = (
        f"No topic route info in name server for the topic: {topic}"
        f"\nSee {APPLY_TOPIC_URL} for further details."
    )
    return request.answer(ResponseCode.TOPIC_NOT_EXIST, remark)


def _zone_of(ext_fields: Mapping[str, str]) -> str:
    """The zone that a client wants the brokers of; "": of all zones."""
    if ext_fields.get(ZONE_MODE_FIELD, "").lower() != "true":
        return ""
    return ext_fields.get(ZONE_NAME_FIELD, "").strip()


def keep_zone(route: TopicRouteData, ext_fields: Mapping[str, str]) -> None:
    """Leave only the brokers of the client's zone in a route, if the client requests that.

    A group without a master stays, so that its messages can still be read.

    Args:
      route: changed in place.
    """
    zone = _zone_of(ext_fields)
    if not zone:
        return
    kept: list[BrokerData] = []
    dropped: list[BrokerData] = []
    for data in route.broker_datas:
        is_near = (data.zone_name or "").lower() == zone.lower()
        (kept if is_near or MASTER_ID not in data.broker_addrs else dropped).append(data)
    names = {data.broker_name for data in dropped}
    addresses = {address for data in dropped for address in data.broker_addrs.values()}
    route.broker_datas = kept
    route.queue_datas = [data for data in route.queue_datas if data.broker_name not in names]
    route.filter_server_table = {
        address: servers
        for address, servers in route.filter_server_table.items()
        if address not in addresses
    }
