"""Routes of topics and addresses of brokers, queried from the name servers and refreshed.

Java counterpart: MQClientInstance (topicRouteTable, brokerAddrTable, updateTopicRouteInfo...).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import anyio

from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.bodies import MessageQueue, TopicRouteData
from ..remoting.codec import RemotingCommand
from ..remoting.headers import GetRouteInfoRequestHeader
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .connection import request_name
from .connection_log import failure_level
from .core.routes import (
    MOCK_BROKER_PREFIX,
    TopicPublishInfo,
    broker_addresses,
    publish_info,
    static_topic_endpoints,
)
from .errors import ClientError, ConnectError, RouteNotFoundError, reading_answer
from .ticker import Ticker

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Shortest pause between two refreshes of all routes."""

RequestNameServer = Callable[[int, GetRouteInfoRequestHeader], Awaitable[RemotingCommand]]
"""Sends a request to a name server; raises ServerError and ConnectError."""


class RouteListener(Protocol):
    """Is notified of changed routes and brokers."""

    def wanted_topics(self) -> Iterable[str]:
        """The topics whose routes are to be refreshed, with namespace."""
        ...

    def on_route_changed(self, topic: str) -> None:
        """Called when the route of a topic is new or has changed."""

    def on_brokers_changed(self) -> None:
        """Called when a broker is new or its addresses have changed."""


class RouteTable:
    """The routes that a client knows.

    Lifecycle: created with its client, which runs `run` as a background task.

    Args:
      name_servers: addresses of the name servers, for error messages.
      request: sends requests to them.
      listener: notified of changes.
      refresh_s: seconds between refreshes of all routes.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        request: RequestNameServer,
        listener: RouteListener,
        refresh_s: float,
    ) -> None:
        self._name_servers = ";".join(name_servers)
        self._request = request
        self._listener = listener
        self._refresh_s = refresh_s
        self._refresh = Ticker()
        self._routes: dict[str, TopicRouteData] = {}
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._owners: dict[str, dict[MessageQueue, str]] = {}  # of static topics, by topic
        self._locks: dict[str, anyio.Lock] = {}
        self._broker_addresses: dict[str, dict[int, str]] = {}

    async def route(self, topic: str, *, is_fresh: bool = False) -> TopicRouteData:
        """The route of a topic.

        Args:
          topic: name of the topic, with namespace.
          is_fresh: ask a name server even if the route is known.

        Raises: RouteNotFoundError: no name server knows the topic. ConnectError: no name server
          answered.
        """
        route = self._routes.get(topic)
        if route is not None and not is_fresh:
            return route
        async with self._locks.setdefault(topic, anyio.Lock()):
            if self._routes.get(topic) is route or is_fresh:
                await self._query_route(topic)
            return self._routes[topic]

    async def _query_route(self, topic: str) -> None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        with reading_answer(self._name_servers):
            route = TopicRouteData.from_body(answer.body)
            # Raises now if the queues cannot be computed from it.
            publish_info(topic, route)
        self._put_route(topic, route)

    def _put_route(self, topic: str, route: TopicRouteData) -> None:
        for name, addresses in broker_addresses(route).items():
            if self._broker_addresses.get(name) != addresses:
                self._broker_addresses[name] = addresses
                self._listener.on_brokers_changed()
        if self._routes.get(topic) == route:
            return
        self._routes[topic] = route
        self._publish_infos.pop(topic, None)
        if route.topic_queue_mapping_by_broker:
            self._owners[topic] = static_topic_endpoints(topic, route)
        logger.debug("the topic %s has the route %s", topic, broker_addresses(route))
        self._listener.on_route_changed(topic)

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """The writable queues of a topic; None if they have not been looked up yet."""
        return self._publish_infos.get(topic)

    async def publish_info(self, topic: str, default_queue_count: int) -> TopicPublishInfo:
        """The writable queues of a topic, with namespace.

        If no name server knows the topic, but brokers create topics automatically, these are the
        queues that a send would create: at most `default_queue_count` on each such broker.

        Raises: RouteNotFoundError: no broker takes messages of the topic. ConnectError: no name
          server answered.
        """
        known = self._publish_infos.get(topic)
        if known is not None:
            return known
        try:
            info = publish_info(topic, await self.route(topic))
        except RouteNotFoundError as error:
            info = await self._info_of_new_topic(topic, default_queue_count, error)
        if not info.queues:
            raise RouteNotFoundError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"no running broker takes messages of the topic {topic}",
                self._name_servers,
                request_name(RequestCode.GET_ROUTEINFO_BY_TOPIC),
            )
        if topic in self._routes:
            self._publish_infos[topic] = info
        return info

    async def _info_of_new_topic(
        self, topic: str, queue_count: int, error: RouteNotFoundError
    ) -> TopicPublishInfo:
        try:
            route = await self.route(AUTO_CREATE_TOPIC, is_fresh=True)
        except RouteNotFoundError:
            raise RouteNotFoundError(
                error.code,
                f"no name server knows the topic {topic}, and no broker creates topics "
                f"automatically: create it first ({error.remark})",
                error.address,
                request_name(RequestCode.GET_ROUTEINFO_BY_TOPIC),
            ) from error
        for data in route.queue_datas:
            data.write_queue_nums = min(data.read_queue_nums, queue_count)
        self._routes.pop(AUTO_CREATE_TOPIC, None)
        return publish_info(topic, route)

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """`host:port` of a broker; None if no route names it.

        Args:
          broker_name: name of the broker.
          broker_id: 0 for the master; otherwise a slave, or if that id is missing, any broker of
            this name.
        """
        addresses = self._broker_addresses.get(broker_name, {})
        address = addresses.get(broker_id)
        if address is None and broker_id != 0 and addresses:
            address = addresses.get(0) or next(iter(addresses.values()))
        return address

    def owner(self, queue: MessageQueue) -> str:
        """Name of the broker that has a queue: its own, but for the queues of static topics."""
        if not queue.broker_name.startswith(MOCK_BROKER_PREFIX):
            return queue.broker_name
        return self._owners.get(queue.topic, {}).get(queue, queue.broker_name)

    def master_of(self, queue: MessageQueue) -> str:
        """`host:port` of the master of a queue's broker.

        Raises: ConnectError: no route names it.
        """
        addresses = self._broker_addresses.get(queue.broker_name)
        if addresses is not None and 0 in addresses:  # nearly always
            return addresses[0]
        return self.master_address(self.owner(queue))

    def reading_address(self, broker_name: str) -> str | None:
        """`host:port` to read messages from: the master, or a slave while there is no master.

        Source: MQClientInstance.findBrokerAddressInSubscribe, with onlyThisBroker false.
        """
        addresses = self._broker_addresses.get(broker_name)
        return addresses[min(addresses)] if addresses else None

    def master_address(self, broker_name: str) -> str:
        """`host:port` of a broker's master.

        Raises: ConnectError: no route names it.
        """
        address = self.broker_address(broker_name)
        if address is None:
            raise ConnectError(broker_name, "no route of the name servers names this master")
        return address

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """All brokers that routes have named: broker name to broker id to `host:port`."""
        return {name: dict(addresses) for name, addresses in self._broker_addresses.items()}

    def has_broker_at(self, address: str) -> bool:
        """Whether a route has named a broker with this `host:port`."""
        return any(address in each.values() for each in self._broker_addresses.values())

    def forget(self, topic: str) -> None:
        """Drop a route, because a broker answered that it does not have the topic."""
        self._routes.pop(topic, None)
        self._publish_infos.pop(topic, None)

    def refresh_soon(self) -> None:
        """Refresh all routes now rather than after `refresh_s`; does not wait."""
        self._refresh.tick_now()

    async def run(self) -> None:
        """Refresh all routes until cancelled; routes that cannot be queried are kept."""
        while True:
            await self._refresh.wait(self._refresh_s)
            for topic in sorted({*self._listener.wanted_topics(), *self._routes}):
                try:
                    await self.route(topic, is_fresh=True)
                except RouteNotFoundError:
                    logger.debug("the topic %s has no route (any more)", topic)
                except ClientError as error:
                    level = failure_level(error)
                    logger.log(level, "the route of %s could not be refreshed: %s", topic, error)
                    break
            # When a broker restarts, many calls of `refresh_soon` result in one refresh.
            await anyio.sleep(min(RETRY_S, self._refresh_s))
