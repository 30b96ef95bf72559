"""The routes of topics: asked of the name servers, kept fresh, and what follows from them.

Java counterpart: MQClientInstance (topicRouteTable, brokerAddrTable, updateTopicRouteInfo...).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, Protocol

import anyio

from ..common.topic_names import AUTO_CREATE_TOPIC
from ..remoting.bodies import TopicRouteData
from ..remoting.codec import RemotingCommand
from ..remoting.headers import GetRouteInfoRequestHeader
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .connection import request_name
from .core.routes import TopicPublishInfo, broker_addresses, publish_info
from .errors import ClientError, ConnectError, RouteNotFoundError, reading_answer
from .ticker import Ticker

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before routes are looked at again, however often that is asked for."""

AskNameServer = Callable[[int, GetRouteInfoRequestHeader], Awaitable[RemotingCommand]]
"""Sends a request to a name server; raises ServerError and ConnectError."""


class RouteListener(Protocol):
    """Who hears what routes bring."""

    def wanted_topics(self) -> Iterable[str]:
        """Topics whose routes are to be kept fresh, with namespace."""
        ...

    def on_route_changed(self, topic: str) -> None:
        """The route of a topic is new, or another one than before."""

    def on_brokers_changed(self) -> None:
        """A broker is new, or has other addresses than before."""


class RouteTable:
    """The routes that a client knows.

    Lifecycle: made with its client; `run` is a background task of it.

    Args:
      name_servers: their addresses, for texts.
      ask: sends requests to them.
      listener: hears of changes.
      refresh_s: seconds between looks at all routes.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        ask: AskNameServer,
        listener: RouteListener,
        refresh_s: float,
    ) -> None:
        self._name_servers = ";".join(name_servers)
        self._ask = ask
        self._listener = listener
        self._refresh_s = refresh_s
        self._refresh = Ticker()
        self._routes: dict[str, TopicRouteData] = {}
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._broker_addresses: dict[str, dict[int, str]] = {}

    async def route(self, topic: str, *, is_fresh: bool = False) -> TopicRouteData:
        """Where a topic is.

        Args:
          topic: with namespace.
          is_fresh: ask a name server even if the route is known.

        Raises: RouteNotFoundError; ConnectError: no name server answers.
        """
        route = self._routes.get(topic)
        if route is not None and not is_fresh:
            return route
        async with self._locks.setdefault(topic, anyio.Lock()):
            if self._routes.get(topic) is route or is_fresh:
                await self._ask_route(topic)
            return self._routes[topic]

    async def _ask_route(self, topic: str) -> None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        with reading_answer(self._name_servers):
            route = TopicRouteData.from_body(answer.body)
            # What follows from it must be readable as well.
            publish_info(topic, route)
        self._note_route(topic, route)

    def _note_route(self, topic: str, route: TopicRouteData) -> None:
        for name, addresses in broker_addresses(route).items():
            if self._broker_addresses.get(name) != addresses:
                self._broker_addresses[name] = addresses
                self._listener.on_brokers_changed()
        if self._routes.get(topic) == route:
            return
        self._routes[topic] = route
        self._publish_infos.pop(topic, None)
        self._listener.on_route_changed(topic)

    def known_publish_info(self, topic: str) -> TopicPublishInfo | None:
        """The queues of a topic that can be written to, if they are known already."""
        return self._publish_infos.get(topic)

    async def publish_info(self, topic: str, default_queue_count: int) -> TopicPublishInfo:
        """The queues of a topic that can be written to.

        A topic that no name server knows is assumed where AUTO_CREATE_TOPIC is, with at most
        `default_queue_count` queues: sending there creates it.

        Raises: RouteNotFoundError; ConnectError.
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
                f"no broker that is up takes messages of the topic {topic}",
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
                f"no name server knows the topic {topic}, and no broker creates topics by itself; "
                f"create it first ({error.remark})",
                error.address,
                request_name(RequestCode.GET_ROUTEINFO_BY_TOPIC),
            ) from error
        for data in route.queue_datas:
            data.write_queue_nums = min(data.read_queue_nums, queue_count)
        self._routes.pop(AUTO_CREATE_TOPIC, None)
        return publish_info(topic, route)

    def broker_address(self, broker_name: str, broker_id: int = 0) -> str | None:
        """`host:port` of a broker; of another with its name if that id is not there.

        Args:
          broker_id: 0: the master, and nothing else will do.
        """
        addresses = self._broker_addresses.get(broker_name, {})
        address = addresses.get(broker_id)
        if address is None and broker_id != 0 and addresses:
            address = addresses.get(0) or next(iter(addresses.values()))
        return address

    def reading_address(self, broker_name: str) -> str | None:
        """`host:port` from which messages can be read: the master, or a slave while there is none.

        Source: MQClientInstance.findBrokerAddressInSubscribe, not only this broker.
        """
        addresses = self._broker_addresses.get(broker_name)
        return addresses[min(addresses)] if addresses else None

    def master_address(self, broker_name: str) -> str:
        """`host:port` of a broker's master.

        Raises: ConnectError: no name server says where it is.
        """
        address = self.broker_address(broker_name)
        if address is None:
            raise ConnectError(broker_name, "no name server says where this broker's master is")
        return address

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """All brokers that routes have named: broker name to broker id to `host:port`."""
        return {name: dict(addresses) for name, addresses in self._broker_addresses.items()}

    def has_broker_at(self, address: str) -> bool:
        """Whether a route has named a broker with this `host:port`."""
        return any(address in each.values() for each in self._broker_addresses.values())

    def forget(self, topic: str) -> None:
        """Ask anew before the next use: a broker said that the topic is not there."""
        self._routes.pop(topic, None)
        self._publish_infos.pop(topic, None)

    def refresh_soon(self) -> None:
        """Look at all routes now instead of at the next turn."""
        self._refresh.tick_now()

    async def run(self) -> None:
        """Look at all routes again and again; those that cannot be had stay as they were."""
        while True:
            await self._refresh.wait(self._refresh_s)
            for topic in sorted({*self._listener.wanted_topics(), *self._routes}):
                try:
                    await self.route(topic, is_fresh=True)
                except RouteNotFoundError:
                    logger.debug("the topic %s has no route (any more)", topic)
                except ClientError as error:
                    logger.warning("the route of %s could not be refreshed: %s", topic, error)
                    break
            # Many at once (a broker restarts) are one look.
            await anyio.sleep(min(RETRY_S, self._refresh_s))
