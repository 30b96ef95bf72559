"""Cluster: the topics, groups and users of a cluster, as its name servers and brokers know them.

Java counterpart: proxy/service/route/TopicRouteService.java, metadata/ClusterMetadataService.java,
ProxyAuthenticationMetadataProvider.java of RocketMQ 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from ..grpc_server.refused import refusal_of
from ..grpc_server.service import OnBroker
from ..remoting.bodies import (
    ClusterInfo,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicRouteData,
)
from ..remoting.bodies.account import UserInfo
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingError
from ..remoting.headers.admin import (
    GetSubscriptionGroupConfigRequestHeader,
    GetTopicConfigRequestHeader,
)
from ..remoting.headers.auth import UserRequestHeader
from ..remoting.headers.base import Header
from ..remoting.headers.namesrv import GetRouteInfoRequestHeader
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from ..remoting.turn import Turn
from .config import ProxyConfig
from .lookups import Freshness, Lookups, Running, UnansweredError
from .questions import ask_any
from .routes import MASTER_ID, addresses_of, on_brokers

_ANY: Final = ""
"""The name of the one list of brokers."""

_NAME_MAX: Final = 255
"""Characters of a user's name that is asked for."""

ENABLED: Final = "enable"


class Cluster:
    """What is known of a cluster. Its look-ups raise Awaited, and Refused, as `Backend`'s.

    Args:
      client: running; its account is the proxy's own.
      turn: the server's, in which what waited for an answer goes on.
      start_soon: runs questions.

    Attributes:
      topics, groups, secrets: by name; a secret is "" if there is no such user, or it is disabled.
    """

    def __init__(
        self,
        config: ProxyConfig,
        client: RemotingClient,
        *,
        turn: Turn,
        start_soon: Callable[..., object],
    ) -> None:
        self._client = client
        self._name_servers = config.name_servers
        self._addresses: dict[str, Mapping[int, str]] = {}
        of_topics = Freshness(
            config.topic_route_service_cache_refresh_seconds,
            config.topic_route_service_cache_max_num,
        )
        of_groups = Freshness(
            config.subscription_group_config_cache_refresh_seconds,
            config.subscription_group_config_cache_max_num,
        )
        of_users = Freshness(config.acl_cache_refresh_seconds, config.acl_cache_max_num)
        usual = Running(turn, start_soon)
        self.topics = Lookups("topics", self._fetch_topic, of_topics, usual)
        self.groups = Lookups("groups", self._fetch_group, of_groups, usual)
        self.secrets = Lookups("users", self._fetch_secret, of_users, usual)
        self._brokers = Lookups("brokers", self._fetch_brokers, of_topics, usual)

    async def address(self, broker: str) -> str | None:
        """The address of a broker, `host:port`: its master's, if there is one; None: unknown.

        Raises: Refused: the name servers do not answer.
        """
        if broker not in self._addresses:
            await self._brokers.value(_ANY)
        known = self._addresses.get(broker)
        return known[min(known)] if known else None

    async def _fetch_topic(self, topic: str) -> tuple[OnBroker, ...]:
        header = GetRouteInfoRequestHeader(topic=topic)
        answer = await self._ask_name_servers(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return ()
        with _reading("a route"):
            route = TopicRouteData.from_body(_body_of(answer))
        addresses = addresses_of(route)
        attributes = await self._attributes(topic, addresses)
        self._addresses.update(addresses)
        with _reading("a route"):
            return on_brokers(topic, route, attributes)

    async def _attributes(
        self, topic: str, addresses: Mapping[str, Mapping[int, str]]
    ) -> Mapping[str, str]:
        """The attributes of a topic: those that the first broker answers."""
        header = GetTopicConfigRequestHeader(topic=topic)
        asked = [each[min(each)] for each in addresses.values() if each]
        answer = await ask_any(self._client, asked, RequestCode.GET_TOPIC_CONFIG, header)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return {}  # a broker of before 5.0, whose topics have none
        with _reading("a topic's settings"):
            return TopicConfig.from_body(_body_of(answer)).attributes

    async def _fetch_brokers(self, name: str) -> tuple[str, ...]:
        """The addresses of all masters."""
        answer = await self._ask_name_servers(RequestCode.GET_BROKER_CLUSTER_INFO, None)
        with _reading("the list of brokers"):
            table = ClusterInfo.from_body(_body_of(answer)).broker_addr_table
        self._addresses = {name: dict(data.broker_addrs) for name, data in table.items()}
        return tuple(each[MASTER_ID] for each in self._addresses.values() if MASTER_ID in each)

    async def _fetch_group(self, group: str) -> SubscriptionGroupConfig | None:
        # All: a broker that creates groups on their first use creates it now.
        masters = await self._brokers.value(_ANY)
        header = GetSubscriptionGroupConfigRequestHeader(group=group)
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        answer = await ask_any(self._client, masters, code, header)
        if answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        with _reading("a group's settings"):
            return SubscriptionGroupConfig.from_body(_body_of(answer))

    async def _fetch_secret(self, user: str) -> str:
        if len(user) > _NAME_MAX:
            return ""
        masters = await self._brokers.value(_ANY)
        header = UserRequestHeader(username=user)
        answer = await ask_any(self._client, masters, RequestCode.AUTH_GET_USER, header)
        body = _body_of(answer)
        if not body:
            return ""
        with _reading("a user"):
            info = UserInfo.from_body(body)
        if info.user_status not in (None, ENABLED):
            return ""
        if not info.password:
            raise UnansweredError(
                "the brokers show no passwords to the proxy: the account of "
                "innerClientAuthenticationCredentials must be a super user's"
            )
        return info.password

    async def _ask_name_servers(self, code: RequestCode, header: Header | None) -> RemotingCommand:
        return await ask_any(self._client, self._name_servers, code, header)


def _body_of(answer: RemotingCommand) -> bytes:
    """The body of a success. Raises: Refused: it is none."""
    if answer.code != ResponseCode.SUCCESS:
        raise refusal_of(answer)
    return bytes(answer.body)


@contextmanager
def _reading(what: str) -> Iterator[None]:
    """Make an unreadable answer an UnansweredError."""
    try:
        yield
    except RemotingError as error:
        raise UnansweredError(f"{what} cannot be read: {error}") from error
