"""Routes of topics and addresses of brokers, queried from the name servers and refreshed.

Java counterpart: MQClientInstance (topicRouteTable, brokerAddrTable, updateTopicRouteInfo...).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from math import inf
from typing import Final, Protocol, TypeVar

import anyio
import anyio.lowlevel

from ...common.topic_names import AUTO_CREATE_TOPIC
from ...remoting.bodies import MessageQueue, TopicRouteData
from ...remoting.codec import RemotingCommand
from ...remoting.headers import GetRouteInfoRequestHeader
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..core.routes import (
    MOCK_BROKER_PREFIX,
    TopicPublishInfo,
    broker_addresses,
    publish_info,
    static_topic_endpoints,
)
from ..errors import ClientError, ConnectError, RouteNotFoundError, copy_of, reading_answer
from ..tasks.ticker import Ticker
from .connection import request_name
from .connection_log import failure_level
from .waiting import Window

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S: Final = 1.0
"""Shortest pause between two refreshes of all routes, and the first one while a set has no master:
a controller elects another one within seconds, and orderly consumers stand still until they know
it, as they lock their queues there. The pauses double: a set may stay without one for hours."""

RequestNameServer = Callable[[int, GetRouteInfoRequestHeader, float], Awaitable[RemotingCommand]]
"""Asks the name servers once, within a number of seconds; raises ServerError and ConnectError."""


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
      timeout_s: time limit of one question to the name servers, in seconds.
      now_s: returns the time of the event loop's clock, in seconds.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        request: RequestNameServer,
        listener: RouteListener,
        refresh_s: float,
        timeout_s: float,
        now_s: Callable[[], float],
    ) -> None:
        self._name_servers = ";".join(name_servers)
        self._request = request
        self._listener = listener
        self._refresh_s = refresh_s
        self._timeout_s = timeout_s
        self._now_s = now_s
        self._refresh = Ticker()
        self._routes: dict[str, TopicRouteData] = {}
        self._publish_infos: dict[str, TopicPublishInfo] = {}
        self._owners: dict[str, dict[MessageQueue, str]] = {}  # of static topics, by topic
        self._locks: dict[str, anyio.Lock] = {}
        # By topic, the last question that failed: when it ended, and why.
        self._failures: dict[str, tuple[float, ClientError]] = {}
        self._awaited: set[str] = set()  # topics of which the log says that calls wait for them
        self._broker_addresses: dict[str, dict[int, str]] = {}

    async def route(
        self, topic: str, *, is_fresh: bool = False, timeout_s: float | None = None
    ) -> TopicRouteData:
        """The route of a topic; tasks that look up the same one share a question and its failure.

        Args:
          topic: name of the topic, with namespace.
          is_fresh: ask a name server even if the route is known.
          timeout_s: seconds for the question; None: the usual limit.

        Raises: RouteNotFoundError: no name server knows the topic. ConnectError: no name server
          answered.
        """
        route = self._routes.get(topic)
        if route is not None and not is_fresh:
            return route
        asked_s = self._now_s()
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        lock = self._locks.setdefault(topic, anyio.Lock())
        # Another task's question may have a longer limit.
        with anyio.move_on_after(limit_s) as waiting:
            await lock.acquire()
        if waiting.cancelled_caught:
            failed_s, failure = self._failures.get(topic, (-inf, None))
            if failure is not None and failed_s >= asked_s - self._timeout_s:
                raise copy_of(failure)  # it says more
            text = f"no name server answered within {limit_s:.3g} s. Is one running there?"
            raise ConnectError(self._name_servers, text)
        try:
            failed_s, failure = self._failures.get(topic, (-inf, None))
            if failure is not None and failed_s >= asked_s:
                raise copy_of(failure)
            if self._routes.get(topic) is route or is_fresh:
                await self._query_route(topic, limit_s - (self._now_s() - asked_s))
        finally:
            lock.release()
        return self._routes[topic]

    async def _query_route(self, topic: str, timeout_s: float) -> None:
        header = GetRouteInfoRequestHeader(topic=topic, accept_standard_json_only=True)
        try:
            answer = await self._request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header, timeout_s)
            with reading_answer(self._name_servers):
                route = TopicRouteData.from_body(answer.body)
                # Raises now if the queues cannot be computed from it.
                publish_info(topic, route)
        except ClientError as error:
            # A copy: the original has a traceback, and with it the frames of its callers.
            self._failures[topic] = self._now_s(), copy_of(error)
            raise
        self._failures.pop(topic, None)
        self._put_route(topic, route)

    async def wait_for_route(
        self, topic: str, window: Window, *, is_fresh: bool = False, is_missing_ok: bool = False
    ) -> TopicRouteData:
        """The route of a topic; it is looked up again within the window.

        Args:
          topic: name of the topic, with namespace.
          window: how long to wait for a name server that answers.
          is_fresh: see `route`.
          is_missing_ok: a topic that no name server knows may be created soon: wait for it, too.

        Raises: as `route`.
        """

        async def look_up(timeout_s: float) -> TopicRouteData:
            return await self.route(topic, is_fresh=is_fresh, timeout_s=timeout_s)

        return await self._persistently(topic, window, look_up, is_missing_ok=is_missing_ok)

    async def _persistently(
        self,
        topic: str,
        window: Window,
        look_up: Callable[[float], Awaitable[T]],
        *,
        is_missing_ok: bool,
    ) -> T:
        awaited = (ConnectError, RouteNotFoundError) if is_missing_ok else (ConnectError,)
        failed_s, failure = self._failures.get(topic, (-inf, None))
        if failure is not None and failed_s >= window.start_s and not window.left_s:
            # The call has waited in a queue behind one that waited for the same route.
            raise copy_of(failure)
        while True:
            try:
                found = await look_up(window.try_s(self._timeout_s))
            except awaited as error:
                await anyio.lowlevel.checkpoint_if_cancelled()
                is_final = isinstance(error, ConnectError) and error.is_final
                left_s = 0.0 if is_final else window.left_s
                if left_s > 0 and topic not in self._awaited:
                    self._awaited.add(topic)
                    text = "calls wait up to %.3g s for the route of %s: %s"
                    logger.warning(text, left_s, topic, error)
                if is_final or not await window.pause():
                    raise window.explained(error) from error.__cause__
            else:
                self._awaited.discard(topic)
                return found

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

    async def publish_info(
        self, topic: str, default_queue_count: int, window: Window
    ) -> TopicPublishInfo:
        """The writable queues of a topic, with namespace.

        If no name server knows the topic, but brokers create topics automatically, these are the
        queues that a send would create: at most `default_queue_count` on each such broker.

        Args:
          window: how long to wait for a name server that answers, and for a broker that takes
            messages of the topic.

        Raises: RouteNotFoundError: no broker takes messages of the topic. ConnectError: no name
          server answered.
        """
        known = self._publish_infos.get(topic)
        if known is not None:
            return known

        async def look_up(timeout_s: float) -> TopicPublishInfo:
            # A route without writable queues may have some soon.
            is_fresh = window.try_count > 0 and topic in self._routes
            return await self._publish_info(
                topic, default_queue_count, timeout_s, is_fresh=is_fresh
            )

        return await self._persistently(topic, window, look_up, is_missing_ok=True)

    async def _publish_info(
        self, topic: str, default_queue_count: int, timeout_s: float, *, is_fresh: bool
    ) -> TopicPublishInfo:
        end_s = self._now_s() + timeout_s
        try:
            route = await self.route(topic, is_fresh=is_fresh, timeout_s=timeout_s)
            info = publish_info(topic, route)
        except RouteNotFoundError as error:
            left_s = end_s - self._now_s()
            if left_s <= 0:
                raise
            info = await self._info_of_new_topic(topic, default_queue_count, error, left_s)
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
        self, topic: str, queue_count: int, error: RouteNotFoundError, timeout_s: float
    ) -> TopicPublishInfo:
        try:
            route = await self.route(AUTO_CREATE_TOPIC, is_fresh=True, timeout_s=timeout_s)
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
        pause_s = self._refresh_s
        while True:
            await self._refresh.wait(pause_s)
            was_masterless = self._is_masterless
            for topic in sorted({*self._listener.wanted_topics(), *self._routes}):
                try:
                    await self.route(topic, is_fresh=True)
                except RouteNotFoundError:
                    logger.debug("the topic %s has no route (any more)", topic)
                except ClientError as error:
                    level = failure_level(error)
                    logger.log(level, "the route of %s could not be refreshed: %s", topic, error)
                    if isinstance(error, ConnectError):  # the next ones would fail, too
                        break
            # When a broker restarts, many calls of `refresh_soon` result in one refresh.
            await anyio.sleep(min(RETRY_S, self._refresh_s))
            if not self._is_masterless:
                pause_s = self._refresh_s
            elif was_masterless:
                pause_s = min(2 * pause_s, self._refresh_s)
            else:
                pause_s = min(RETRY_S, self._refresh_s)

    @property
    def _is_masterless(self) -> bool:
        """Whether a route names a set of brokers without its master."""
        return any(
            0 not in broker.broker_addrs
            for route in self._routes.values()
            for broker in route.broker_datas
        )
