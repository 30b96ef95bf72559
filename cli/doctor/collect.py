"""Collecting the facts for `trocket doctor`, by a client's and an administrator's requests.

Nothing is changed: the only send names a queue that does not exist, so brokers check it and store
nothing. A server that does not answer, or stops in the middle, is a fact too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from ...client.admin.asking import ask_all
from ...client.errors import ClientError, ServerError, is_not_supported, reading_answer
from ...common.terminal import one_line
from ...common.topic_names import BENCHMARK_TOPIC, RETRY_TOPIC_PREFIX, is_own_group
from ...remoting import fastjson
from ...remoting.bodies import (
    PERM_WRITE,
    ClusterInfo,
    ConsumerConnection,
    ConsumeStats,
    KVTable,
    SubscriptionData,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from ...remoting.headers import (
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumeStatsRequestHeader,
    GetKVListByNamespaceRequestHeader,
)
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..self_check import probe_fields
from .facts import (
    BrokerFacts,
    BrokerKey,
    Facts,
    GroupFacts,
    MemberFacts,
    NameServerFacts,
    Subscription,
)
from .server_checks import clock_reading, health_address

if TYPE_CHECKING:
    from ...client import Client

ORDERS: Final = "ORDER_TOPIC_CONFIG"
"""The name servers' namespace for orders of topics. Source: NamesrvUtil."""

MEMBERS_ASKED_MAX: Final = 50
"""Members of one group that are asked for their subscriptions; each answer comes from a client."""

PAGE_SIZE_MAX: Final = 16 * 1024 * 1024
"""Bytes that are read of a page of metrics."""

Progress = Callable[[str, int, int], None]
"""Takes what is looked at, how many of it are done, and how many there are."""


async def collect(client: Client, progress: Progress) -> Facts:
    """Collect all facts.

    Args:
      client: open.
      progress: called often.
    """
    name_servers = await _name_servers(client, progress)
    brokers = await _brokers(client, name_servers, progress)
    masters = [each for each in brokers if each.is_master and not each.error]
    clusters = sorted({each.cluster for each in masters})
    taken: set[str] = set()
    for cluster in clusters:
        taken |= await _write_perms_taken(client, cluster, masters)
    return Facts(
        name_servers,
        brokers,
        await _groups(client, masters, progress),
        frozenset(taken),
        await _ordered(client, name_servers),
    )


async def _each(
    calls: Mapping[Any, Callable[[], Awaitable[Any]]], what: str, progress: Progress
) -> tuple[dict[Any, Any], dict[Any, ClientError]]:
    """The results of calls made at the same time, and the errors of those that failed."""
    done = 0

    def counted(call: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
        async def ask() -> Any:
            nonlocal done
            try:
                return await call()
            finally:
                done += 1
                progress(what, done, len(calls))

        return ask

    progress(what, 0, len(calls))
    answers = await ask_all({key: counted(call) for key, call in calls.items()})
    return answers.values, answers.errors


# Name servers


async def _name_servers(client: Client, progress: Progress) -> tuple[NameServerFacts, ...]:
    def call(address: str) -> Callable[[], Awaitable[NameServerFacts]]:
        async def ask() -> NameServerFacts:
            answer = await client.request(address, RequestCode.GET_BROKER_CLUSTER_INFO)
            with reading_answer(address):
                info = ClusterInfo.from_body(answer.body)
            return NameServerFacts(
                address,
                brokers={
                    BrokerKey(data.broker_name, number): broker
                    for data in info.broker_addr_table.values()
                    for number, broker in sorted(data.broker_addrs.items())
                },
                clusters={
                    data.broker_name: data.cluster for data in info.broker_addr_table.values()
                },
                warning=answer.remark or "",
            )

        return ask

    addresses = client.url.name_servers
    found, errors = await _each({each: call(each) for each in addresses}, "name servers", progress)
    return tuple(
        found.get(each) or NameServerFacts(each, _name_server_error(errors[each]))
        for each in addresses
    )


def _name_server_error(error: ClientError) -> str:
    if is_not_supported(error):
        return "it answers, but it is not a name server. Is this a broker's port?"
    return one_line(error)


async def _ordered(client: Client, name_servers: Sequence[NameServerFacts]) -> Mapping[str, str]:
    """The orders of topics; empty if there are none, or no name server answered."""
    header = GetKVListByNamespaceRequestHeader(namespace=ORDERS)

    async def ask(address: str) -> Mapping[str, str]:
        answer = await client.request(
            address,
            RequestCode.GET_KVLIST_BY_NAMESPACE,
            header,
            ok=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        with reading_answer(address):
            return KVTable.from_body(answer.body).table if answer.body else {}

    addresses = [each.address for each in name_servers if not each.error]
    answers = await ask_all({each: partial(ask, each) for each in addresses})
    return next(iter(answers.values.values()), {})


async def _write_perms_taken(
    client: Client, cluster: str, masters: Iterable[BrokerFacts]
) -> set[str]:
    """Names of the brokers whose topics a name server shows without their write permission."""
    # Each broker has a topic that is called as its cluster.
    own = {each.key.name: (each.topics or {}).get(cluster) for each in masters}
    try:
        route = await client.route(cluster, is_fresh=True)
    except ClientError:
        return set()
    taken = set()
    for data in route.queue_datas:
        topic = own.get(data.broker_name)
        if topic is not None and topic.perm & PERM_WRITE and not data.perm & PERM_WRITE:
            taken.add(data.broker_name)
    return taken


# Brokers


async def _brokers(
    client: Client, name_servers: Iterable[NameServerFacts], progress: Progress
) -> tuple[BrokerFacts, ...]:
    registered: dict[tuple[BrokerKey, str], str] = {}
    for each in name_servers:
        for key, address in each.brokers.items():
            registered.setdefault((key, address), each.clusters.get(key.name, ""))

    def call(key: BrokerKey, address: str, cluster: str) -> Callable[[], Awaitable[BrokerFacts]]:
        return lambda: _broker(client, key, address, cluster)

    calls = {
        (key, address): call(key, address, cluster)
        for (key, address), cluster in sorted(registered.items())
    }
    found, errors = await _each(calls, "brokers", progress)
    return tuple(
        found.get(each) or BrokerFacts(each[0], registered[each], each[1], one_line(errors[each]))
        for each in calls
    )


async def _broker(client: Client, key: BrokerKey, address: str, cluster: str) -> BrokerFacts:
    gaps: dict[str, str] = {}
    asked_ms = client.wall_ms()
    try:
        answer = await client.request(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        answered_ms = client.wall_ms()
        with reading_answer(address):
            runtime = KVTable.from_body(answer.body).table
    except ServerError as error:
        # Old and foreign brokers refuse some requests: the rest is still checked.
        runtime, answered_ms = {}, asked_ms
        gaps[RequestCode.GET_BROKER_RUNTIME_INFO.name] = one_line(error)

    async def part(code: RequestCode, read: Callable[[bytes], Any]) -> Any:
        try:
            body = (await client.request(address, code)).body
            with reading_answer(address):
                return read(body)
        except ClientError as error:
            gaps[code.name] = one_line(error)
            return None

    config = await part(RequestCode.GET_BROKER_CONFIG, _settings) or {}
    topics: Mapping[str, TopicConfig] | None = None
    groups: frozenset[str] | None = None
    refusal: str | None = None
    # Slaves copy both tables, and refuse sends.
    if key.broker_id == 0:
        topics = await part(
            RequestCode.GET_ALL_TOPIC_CONFIG,
            lambda body: TopicConfigSerializeWrapper.from_body(body).topic_config_table,
        )
        groups = await part(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            lambda body: frozenset(
                SubscriptionGroupWrapper.from_body(body).subscription_group_table
            ),
        )
        try:
            refusal = await _send_refusal(client, address)
        except ClientError as error:
            gaps[RequestCode.SEND_MESSAGE.name] = one_line(error)
    not_ready, loop_lag_s = await _health(config, address, client.timeout_s)
    return BrokerFacts(
        key,
        cluster,
        address,
        gaps=gaps,
        runtime=runtime,
        config=config,
        clock=clock_reading(runtime, asked_ms, answered_ms),
        topics=topics,
        groups=groups,
        send_refusal=refusal,
        not_ready=not_ready,
        loop_lag_s=loop_lag_s,
    )


def _settings(body: bytes) -> dict[str, str]:
    """The settings in a broker's answer: lines of key=value."""
    lines = (line.partition("=") for line in body.decode("utf-8", "replace").splitlines())
    return {key.strip(): value.strip() for key, separator, value in lines if separator}


async def _send_refusal(client: Client, address: str) -> str:
    """Why a broker refuses a send; "": it takes sends. The send has no queue, so none is stored."""
    answer = await client.call(
        address,
        # Apache 5.5.0 fails at a send without a body before it looks at the queue.
        client.command(RequestCode.SEND_MESSAGE, body=b"x", more=probe_fields(BENCHMARK_TOPIC)),
    )
    remark = one_line(answer.remark or "")
    # 5.x has a code for a queue that does not exist; 4.x has only the words.
    if answer.code == ResponseCode.INVALID_PARAMETER or "queueId" in remark:
        return ""
    # A topic that was deleted, or that may not be sent to, says nothing about other topics.
    if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUCCESS):
        return ""
    return f"code {answer.code}, {remark or 'without a remark'}"


# Health


async def _health(
    config: Mapping[str, str], address: str, timeout_s: float
) -> tuple[tuple[str, ...] | None, float | None]:
    """What a broker's HTTP port says: what is missing, and the event loop's lag."""
    where = health_address(config, address)
    if not where:
        return None, None
    base = f"http://{where}"
    ready = _missing(await _get(f"{base}/health/ready", timeout_s))
    if ready is None:
        return None, None
    return ready, loop_lag_of((await _get(f"{base}/metrics", timeout_s)).decode("utf-8", "replace"))


async def _get(url: str, timeout_s: float) -> bytes:
    """The body of a page, whatever its status; empty if there is none."""
    return await anyio.to_thread.run_sync(_read, url, timeout_s, abandon_on_cancel=True)


def _read(url: str, timeout_s: float) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import ProxyHandler, build_opener

    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout_s) as page:
            return bytes(page.read(PAGE_SIZE_MAX))
    except HTTPError as error:
        try:
            return bytes(error.read(PAGE_SIZE_MAX))
        except (OSError, HTTPException):
            return b""
    except (OSError, HTTPException, ValueError):
        return b""


def _missing(body: bytes) -> tuple[str, ...] | None:
    """What is missing by the JSON of `/health/ready`; None: it is no such page."""
    try:
        tree = json.loads(body)
    except ValueError:
        return None
    missing = tree.get("missing") if isinstance(tree, dict) else None
    if not isinstance(missing, list):
        return None
    return tuple(one_line(each) for each in missing)


_LAG_BUCKET: Final = re.compile(
    r'^trocket_event_loop_lag_seconds_bucket\{[^}]*\ble="([^"]+)"[^}]*\} (\S+)$', re.MULTILINE
)


def loop_lag_of(page: str) -> float | None:
    """The 99th percentile of the event loop's lag in a page of metrics: the end of its bucket.

    Returns: seconds; infinite: more than the last bucket's end; None: it is not there.
    """
    try:
        buckets = [(float(end), float(count)) for end, count in _LAG_BUCKET.findall(page)]
    except ValueError:
        return None
    if not buckets or buckets[-1][1] <= 0:
        return None
    total = buckets[-1][1]
    return next((end for end, count in buckets if count >= 0.99 * total), None)


# Groups


async def _groups(
    client: Client, masters: Sequence[BrokerFacts], progress: Progress
) -> tuple[GroupFacts, ...]:
    on: dict[str, list[str]] = {}
    for master in masters:
        for name in master.groups or ():
            if not is_own_group(name):
                on.setdefault(name, []).append(master.address)

    def call(name: str, addresses: list[str]) -> Callable[[], Awaitable[GroupFacts]]:
        return lambda: _group(client, name, addresses)

    calls = {name: call(name, on[name]) for name in sorted(on)}
    found, errors = await _each(calls, "consumer groups", progress)
    return tuple(
        found.get(name) or GroupFacts(name, error=one_line(errors[name])) for name in calls
    )


async def _group(client: Client, name: str, addresses: Iterable[str]) -> GroupFacts:
    """A group on some brokers; one that does not answer leaves a gap."""
    members: dict[str, MemberFacts] = {}
    at: dict[str, str] = {}
    error = ""
    header = GetConsumerConnectionListRequestHeader(consumer_group=name)
    ok = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)

    async def connected(address: str) -> ConsumerConnection | None:
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answer = await client.request(address, code, header, ok=ok)
        if answer.code != ResponseCode.SUCCESS:
            return None
        with reading_answer(address):
            return ConsumerConnection.from_body(answer.body)

    answers = await ask_all({each: partial(connected, each) for each in addresses})
    for failure in answers.errors.values():
        error = one_line(failure)
    for address, body in answers.values.items():
        for each in body.connection_set if body else ():
            at.setdefault(each.client_id, address)
            # A member is connected to all brokers, and counts once.
            members[each.client_id] = MemberFacts(
                each.client_id, each.language, version_name(each.version)
            )
    if not members and not error:
        lag, error = await _lag(client, name, addresses)
        return GroupFacts(name, lag=lag, error=error)
    if len(members) > 1:
        asked = sorted(members)[:MEMBERS_ASKED_MAX]
        wanted = await ask_all(
            {each: partial(_subscriptions, client, name, each, at[each]) for each in asked}
        )
        for client_id, subscriptions in wanted.values.items():
            members[client_id] = replace(members[client_id], subscriptions=subscriptions)
    return GroupFacts(name, tuple(members[each] for each in sorted(members)), error=error)


async def _lag(client: Client, name: str, addresses: Iterable[str]) -> tuple[dict[str, int], str]:
    """Messages that wait for a group, by topic; and why a broker did not answer, or ""."""
    lag: dict[str, int] = {}
    header = GetConsumeStatsRequestHeader(consumer_group=name)
    for address in addresses:
        try:
            answer = await client.request(address, RequestCode.GET_CONSUME_STATS, header)
            with reading_answer(address):
                table = ConsumeStats.from_body(answer.body).offset_table
        except ClientError as error:
            return lag, one_line(error)
        for queue, offsets in table.items():
            waiting = max(offsets.broker_offset - max(offsets.consumer_offset, 0), 0)
            lag[queue.topic] = lag.get(queue.topic, 0) + waiting
    return lag, ""


async def _subscriptions(
    client: Client, group: str, client_id: str, address: str
) -> frozenset[Subscription] | None:
    """What a member says that it wants; None: it does not say."""
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=group, client_id=client_id, jstack_enable=False
    )
    code = RequestCode.GET_CONSUMER_RUNNING_INFO
    try:
        answer = await client.request(address, code, header)
        with reading_answer(address):
            tree = fastjson.loads(answer.body)
            listed = tree.get("subscriptionSet") if isinstance(tree, dict) else None
            if not isinstance(listed, list):
                return None
            found = [SubscriptionData.from_tree(each) for each in listed]
    except ClientError:
        return None
    return frozenset(
        Subscription(each.topic, each.sub_string, each.expression_type)
        for each in found
        if not each.topic.startswith(RETRY_TOPIC_PREFIX)
    )
