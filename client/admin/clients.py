"""The connected clients: consumers and producers of a group, and a consumer's running info.

Java counterpart: consumerConnection, producerConnection, consumerStatus, consumeMessage of mqadmin.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import anyio

from ...remoting import fastjson
from ...remoting.bodies import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    SubscriptionData,
)
from ...remoting.codec import RemotingCommand
from ...remoting.errors import RemoteProtocolError
from ...remoting.headers import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetProducerConnectionListRequestHeader,
)
from ...remoting.mq_version import version_name
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..connection.client import reading_answer
from ..errors import ClientError, ServerError
from ..messages.message import ReceivedMessage
from .asking import Answers, Brokers, NotFoundError, brokers_of
from .results import (
    BrokerInfo,
    ClientInfo,
    DirectlyConsumed,
    GroupClients,
    GroupMembers,
    QueueState,
    RunningInfo,
    SubscriptionInfo,
)

FORWARD_TIMEOUT_S = 12.0
"""Seconds for what a broker hands on to a client, for which it waits 10 s itself."""

CLASS_FILTER: Final = "CLASS"
"""The type of an expression that is a filter server's class. RocketMQ has a flag beside TAG."""

CLIENTS_AT_ONCE: Final = 8
"""Members that are asked at one time: a broker forwards each question."""


class ClientVerbs:
    """The part of `Admin` about who is connected."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._client = brokers.client

    async def clients(self, group: str) -> GroupClients:
        """The members of a consumer group that are connected, to whichever broker.

        Raises: BrokersError; ServerError; ConnectError.
        """
        full = self._brokers.full(group)
        answers = await self.consumer_connections(full, await self._brokers.find())
        result = self.group_clients(self._brokers.short(full), answers.values)
        answers.check(f"the clients of group {group}", result)
        return result

    async def members(
        self, group: str, *, timeout_s: float = FORWARD_TIMEOUT_S, count: int | None = None
    ) -> GroupMembers:
        """The members of a consumer group that are connected, with what each says of itself.

        A broker knows one subscription to a topic for the whole group, the latest heartbeat's; each
        member's own subscription is in its answer here. A broker is asked for the members, and
        once for each of them.

        Args:
          timeout_s: for the answers of all members; those that have not answered then are silent.
          count: of members that are asked; the others are silent, too. None: all.

        Raises: BrokersError: `partial` has the members that the other brokers know. ServerError;
          ConnectError.
        """
        full = self._brokers.full(group)
        brokers = await self._brokers.find()
        connections = await self.consumer_connections(full, brokers)
        clients = self.group_clients(self._brokers.short(full), connections.values)
        addresses = {each.name: each.address for each in brokers}
        # All brokers that know a member answered, so each has an address.
        known = {each.client_id: addresses[each.brokers[0]] or "" for each in clients.clients}
        asked = dict(list(known.items())[:count])
        infos = await self._running_infos(full, asked, timeout_s)
        silent = tuple(sorted(known.keys() - {info.client_id for info in infos}))
        found = GroupMembers(clients, infos, silent)
        connections.check(f"the members of group {group}", found)
        return found

    async def _running_infos(
        self, full: str, addresses: Mapping[str, str], timeout_s: float
    ) -> tuple[RunningInfo, ...]:
        """What members say of themselves, without those that do not answer in time.

        Args:
          addresses: client id to `host:port` of a broker that the client is connected to.
        """
        infos: list[RunningInfo] = []
        limiter = anyio.CapacityLimiter(CLIENTS_AT_ONCE)

        async def ask(client_id: str, address: str) -> None:
            async with limiter:
                with contextlib.suppress(ClientError):
                    infos.append(await self._running_info_at(address, full, client_id))

        with anyio.move_on_after(timeout_s):
            async with anyio.create_task_group() as tasks:
                for client_id, address in addresses.items():
                    tasks.start_soon(ask, client_id, address)
        infos.sort(key=lambda info: info.client_id)
        return tuple(infos)

    def group_clients(
        self, group: str, connections: Mapping[str, ConsumerConnection | None]
    ) -> GroupClients:
        """What several brokers know of a group's members, in one."""
        found = {name: body for name, body in connections.items() if body is not None}
        newest: dict[str, SubscriptionData] = {}
        for body in found.values():
            for topic, data in body.subscription_table.items():
                if topic not in newest or data.sub_version > newest[topic].sub_version:
                    newest[topic] = data
        first = next(iter(found.values()), ConsumerConnection())
        return GroupClients(
            group,
            _merged({name: body.connection_set for name, body in found.items()}),
            tuple(self._subscription(newest[topic]) for topic in sorted(newest)),
            str(first.consume_type or ""),
            str(first.message_model or ""),
            str(first.consume_from_where or ""),
        )

    async def consumer_connections(
        self, full: str, brokers: Iterable[BrokerInfo]
    ) -> Answers[str, ConsumerConnection | None]:
        """By broker name; None: no member of the group is connected there."""
        header = GetConsumerConnectionListRequestHeader(consumer_group=full)
        ok = (ResponseCode.SUCCESS, ResponseCode.CONSUMER_NOT_ONLINE)

        async def ask(broker: BrokerInfo, address: str) -> ConsumerConnection | None:
            code = RequestCode.GET_CONSUMER_CONNECTION_LIST
            answer = await self._client.request(address, code, header, ok=ok)
            if answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
                return None
            with reading_answer(address):
                body = ConsumerConnection.from_body(answer.body)
            return body if body.connection_set else None

        return await self._brokers.ask(brokers, ask)

    def _subscription(self, data: SubscriptionData) -> SubscriptionInfo:
        kind = CLASS_FILTER if data.class_filter_mode else data.expression_type
        return SubscriptionInfo(self._brokers.short(data.topic), data.sub_string, kind)

    async def producers(self, group: str, topic: str | None = None) -> tuple[ClientInfo, ...]:
        """The producers of a group that are connected, sorted by client id.

        Args:
          topic: ask its brokers only; None: all brokers.

        Raises: RouteNotFoundError: there is no such topic. BrokersError; ServerError; ConnectError.
        """
        if topic is None:
            brokers = await self._brokers.find()
        else:
            brokers = brokers_of(await self._brokers.route(self._brokers.full(topic)))
        header = GetProducerConnectionListRequestHeader(producer_group=self._brokers.full(group))

        async def ask(broker: BrokerInfo, address: str) -> list[Connection]:
            code = RequestCode.GET_PRODUCER_CONNECTION_LIST
            try:
                answer = await self._client.request(address, code, header)
            except ServerError as error:
                # A group without members has no code by itself.
                if error.code == ResponseCode.SYSTEM_ERROR and "not exist" in error.remark:
                    return []
                raise
            with reading_answer(address):
                return ProducerConnection.from_body(answer.body).connection_set

        answers = await self._brokers.ask(brokers, ask)
        merged = _merged(answers.values)
        answers.check(f"the producers of group {group}", merged)
        return merged

    async def running_info(
        self, group: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningInfo:
        """How a consumer says it is.

        Args:
          with_stacks: the stacks of its threads too.

        Raises: NotFoundError: it is not connected. BrokersError; ServerError: it did not answer.
        """
        full = self._brokers.full(group)
        address = await self._broker_of_client(full, client_id)
        return await self._running_info_at(address, full, client_id, with_stacks=with_stacks)

    async def _running_info_at(
        self, address: str, full: str, client_id: str, *, with_stacks: bool = False
    ) -> RunningInfo:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=full, client_id=client_id, jstack_enable=with_stacks
        )
        answer = await self._client.request(
            address,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            header,
            timeout_s=max(self._client.timeout_s, FORWARD_TIMEOUT_S),
        )
        with reading_answer(address):
            return self._read_running_info(client_id, answer)

    async def consume_directly(
        self, group: str, client_id: str, message: ReceivedMessage
    ) -> DirectlyConsumed:
        """Have a consumer handle one message now; offsets and retries are left alone.

        Args:
          message: as one of the look-ups gave it.

        Raises: NotFoundError: the consumer is not connected to the message's broker. ServerError;
          ConnectError.
        """
        full = self._brokers.full(group)
        broker_name = message.queue.broker_name
        address = await self._broker_of_client(full, client_id, broker_name)
        header = ConsumeMessageDirectlyRequestHeader(
            consumer_group=full,
            client_id=client_id,
            msg_id=message.offset_message_id,
            broker_name=broker_name,
            topic=message.queue.topic,
        )
        answer = await self._client.request(
            address,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            header,
            timeout_s=max(self._client.timeout_s, FORWARD_TIMEOUT_S),
        )
        with reading_answer(address):
            tree = _tree(answer)
        return DirectlyConsumed(
            str(tree.get("consumeResult") or ""),
            str(tree.get("remark") or ""),
            _integer(tree.get("spentTimeMills")),
        )

    async def _broker_of_client(
        self, full: str, client_id: str, broker_name: str | None = None
    ) -> str:
        """Address of a broker that a consumer is connected to."""
        brokers = [
            broker for broker in await self._brokers.find() if broker_name in (None, broker.name)
        ]
        answers = await self.consumer_connections(full, brokers)
        for broker in brokers:
            body = answers.values.get(broker.name)
            if body is not None and any(c.client_id == client_id for c in body.connection_set):
                assert broker.address is not None  # it answered
                return broker.address
        answers.check(f"looking for client {client_id}", None)
        where = f" to {broker_name}" if broker_name is not None else ""
        raise NotFoundError(
            f"no consumer of the group {self._brokers.short(full)} with id {client_id} is "
            f"connected{where}"
        )

    def _read_running_info(self, client_id: str, answer: RemotingCommand) -> RunningInfo:
        tree = _tree(answer)
        subscriptions = [
            SubscriptionData.from_tree(each) for each in _list(tree.get("subscriptionSet"))
        ]
        queues = [
            QueueState(
                self._brokers.short(str(queue.get("topic", ""))),
                str(queue.get("brokerName", "")),
                _integer(queue.get("queueId")),
                _members(values),
            )
            for queue, values in _members(tree.get("mqTable"), keys=Mapping).items()
        ]
        queues.sort(key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
        subscriptions.sort(key=lambda data: data.topic)
        stacks = tree.get("jstack")
        return RunningInfo(
            client_id,
            {name: str(value) for name, value in _members(tree.get("properties")).items()},
            tuple(map(self._subscription, subscriptions)),
            tuple(queues),
            {
                self._brokers.short(topic): _members(status)
                for topic, status in _members(tree.get("statusTable")).items()
            },
            None if stacks is None else str(stacks),
        )


def _merged(by_broker: Mapping[str, Iterable[Connection]]) -> tuple[ClientInfo, ...]:
    """Each client once, with the names of all brokers that know it."""
    found: dict[str, tuple[Connection, list[str]]] = {}
    for broker_name in sorted(by_broker):
        for connection in by_broker[broker_name]:
            names = found.setdefault(connection.client_id, (connection, []))[1]
            if broker_name not in names:
                names.append(broker_name)
    return tuple(
        ClientInfo(
            client_id,
            connection.client_addr,
            connection.language,
            version_name(connection.version),
            tuple(names),
        )
        for client_id, (connection, names) in sorted(found.items())
    )


def _tree(answer: RemotingCommand) -> dict[str, Any]:
    return _members(fastjson.loads(answer.body))


def _members(value: object, *, keys: Any = str) -> dict[Any, Any]:
    """An object's members; null has none. Raises: RemoteProtocolError: no object, or other keys."""
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(key, keys) for key in value):
        raise RemoteProtocolError("a consumer's account of itself is of another shape")
    return value


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _integer(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.removeprefix("-").isdecimal():
        return int(value)
    raise RemoteProtocolError("a number is missing in what a consumer answered")
