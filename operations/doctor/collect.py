"""Collecting the facts of a cluster, by a client's and an administrator's requests.

All name servers are asked at once, and each broker as soon as one of them names it, under one
deadline. A server that does not answer, or stops in the middle, is a fact too: it costs one time
limit, and what the others know is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from ...client.errors import ClientError, is_not_supported, reading_answer
from ...common.texts import one_line
from ...remoting.bodies import PERM_WRITE, ClusterInfo, KVTable, TopicRouteData
from ...remoting.headers import GetKVListByNamespaceRequestHeader, GetRouteInfoRequestHeader
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..asking import Round
from .broker_facts import BrokerCollector
from .facts import MANY, MASTER_ID, BrokerFacts, BrokerKey, Facts, Limits, NameServerFacts
from .group_facts import GroupCollector
from .set_facts import SetCollector

if TYPE_CHECKING:
    from ...client import Client

ORDERS: Final = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace for orders of topics. Source: NamesrvUtil."""

BROKERS_AT_ONCE: Final = 64
"""Brokers that are asked at one time: a name server may list any number of them."""

Progress = Callable[[str, int, int], None]
"""Takes what is looked at, how many of it are done, and how many are known so far."""


def unseen(what: str, done: int, total: int) -> None:
    """Progress that is not shown."""


async def collect(
    client: Client,
    progress: Progress = unseen,
    *,
    limits: Limits = MANY,
    limit_s: float | None = None,
    turn: int = 0,
) -> Facts:
    """Collect all facts.

    A broker gets six requests, one for each of `limits.groups` groups, and the questions for
    `limits.members` members; of a trocket broker's groups only those that have members.

    Args:
      client: open.
      progress: called often.
      limits: how much of the groups is asked for.
      limit_s: seconds for all of it; None: as `Round`.
      turn: see `choosing.chosen`: with another one, other groups are chosen.
    """
    collector = _Collector(Round(client, limit_s), progress, limits, turn)
    return await collector.collect()


class _Collector:
    def __init__(self, asked: Round, progress: Progress, limits: Limits, turn: int) -> None:
        self._round = asked
        self._progress = progress
        self._limits = limits
        self._limiter = anyio.CapacityLimiter(BROKERS_AT_ONCE)
        self._name_servers: dict[str, NameServerFacts] = {}
        self._registered: dict[tuple[BrokerKey, str], str] = {}
        self._brokers: dict[tuple[BrokerKey, str], BrokerFacts] = {}
        self._ordered: dict[str, Mapping[str, str]] = {}
        self._routes: dict[str, dict[str, TopicRouteData]] = {}
        self._groups = GroupCollector(
            asked, limits, turn, lambda done, total: progress("consumer groups", done, total)
        )

    async def collect(self) -> Facts:
        addresses = self._round.client.url.name_servers
        self._progress("name servers", 0, len(addresses))
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tasks.start_soon(self._name_server, tasks, address)
        brokers = tuple(self._brokers[each] for each in sorted(self._brokers))
        sets = await SetCollector(self._round, brokers).collect()
        return Facts(
            tuple(self._name_servers[each] for each in addresses),
            brokers,
            self._groups.facts(),
            frozenset(self._write_perms_taken(addresses)),
            next((self._ordered[each] for each in addresses if each in self._ordered), {}),
            self._limits,
            sets,
        )

    # Name servers

    async def _name_server(self, tasks: TaskGroup, address: str) -> None:
        try:
            facts = await self._registrations(address)
        except ClientError as error:
            facts = NameServerFacts(address, _name_server_error(error))
        self._name_servers[address] = facts
        total = len(self._round.client.url.name_servers)
        self._progress("name servers", len(self._name_servers), total)
        new = [each for each in sorted(facts.brokers.items()) if each not in self._registered]
        for key, broker in new:
            self._registered[key, broker] = facts.clusters.get(key.name, "")
        masters = {key.name for key, _ in self._registered if key.broker_id == MASTER_ID}
        for each in new:
            tasks.start_soon(self._broker, *each, len(masters) == 1)
        self._progress("brokers", len(self._brokers), len(self._registered))
        if not facts.error:
            await self._orders_and_routes(address, set(facts.clusters.values()))

    async def _registrations(self, address: str) -> NameServerFacts:
        answer = await self._round.request(address, RequestCode.GET_BROKER_CLUSTER_INFO)
        with reading_answer(address):
            info = ClusterInfo.from_body(answer.body)
        return NameServerFacts(
            address,
            brokers={
                BrokerKey(data.broker_name, number): broker
                for data in info.broker_addr_table.values()
                for number, broker in sorted(data.broker_addrs.items())
            },
            clusters={data.broker_name: data.cluster for data in info.broker_addr_table.values()},
            warning=answer.remark or "",
        )

    async def _orders_and_routes(self, address: str, clusters: Iterable[str]) -> None:
        """The orders of topics, and the routes of the topics that are called as the clusters."""
        header = GetKVListByNamespaceRequestHeader(namespace=ORDERS)
        ok = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            answer = await self._round.request(address, code, header, ok=ok)
            with reading_answer(address):
                table = KVTable.from_body(answer.body).table if answer.body else {}
            self._ordered[address] = table
        except ClientError:
            pass  # another name server may tell
        for cluster in sorted(clusters):
            route = GetRouteInfoRequestHeader(topic=cluster, accept_standard_json_only=True)
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            try:
                answer = await self._round.request(address, code, route)
                with reading_answer(address):
                    found = TopicRouteData.from_body(answer.body)
            except ClientError:
                continue
            self._routes.setdefault(address, {})[cluster] = found

    def _write_perms_taken(self, addresses: Iterable[str]) -> set[str]:
        """Names of the brokers whose topics a name server shows without their write permission."""
        # Each broker has a topic that is called as its cluster.
        own = {
            each.key.name: (each.topics or {}).get(each.cluster)
            for each in self._brokers.values()
            if each.is_master and not each.error
        }
        routes: dict[str, TopicRouteData] = {}
        for address in addresses:
            for cluster, route in self._routes.get(address, {}).items():
                routes.setdefault(cluster, route)
        taken = set()
        for data in (each for route in routes.values() for each in route.queue_datas):
            topic = own.get(data.broker_name)
            if topic is not None and topic.perm & PERM_WRITE and not data.perm & PERM_WRITE:
                taken.add(data.broker_name)
        return taken

    # Brokers

    async def _broker(self, key: BrokerKey, address: str, is_only_broker: bool) -> None:
        cluster = self._registered[key, address]
        collector = BrokerCollector(self._round, key, cluster, address)
        async with self._limiter:
            facts = await collector.collect(self._groups, is_only_broker=is_only_broker)
        self._brokers[key, address] = facts
        self._progress("brokers", len(self._brokers), len(self._registered))


def _name_server_error(error: ClientError) -> str:
    if is_not_supported(error):
        return "it answers, but it is not a name server. Is this a broker's port?"
    return one_line(error)
