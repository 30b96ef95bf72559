"""The producers and consumers of a client, their heartbeats, and the requests of brokers to them.

Java counterpart: MQClientInstance (producerTable, consumerTable, heartbeats), and
ClientRemotingProcessor's way to the member that a request is for.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import anyio

from ..remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from ..remoting.codec import RemotingCommand, encode
from ..remoting.errors import RemotingError, RequestRefused
from ..remoting.headers import HeartbeatRequestHeader, UnregisterClientRequestHeader
from ..remoting.headers.base import Header
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .connection import Connection, request_name
from .errors import ClientError, ConfigurationError
from .ticker import Ticker

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S: Final = 3.0
"""How long closing waits for brokers to take note. RocketMQ: mqClientApiTimeout 3,000."""

Process: TypeAlias = Callable[[Connection, RemotingCommand], Awaitable[RemotingCommand | None]]
"""Answers a request that a broker sends to the client."""


class Requests(Protocol):
    """Carries requests to brokers: what members need of their client."""

    @property
    def client_id(self) -> str:
        """`ip@instance`, by which brokers know the client."""
        ...

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """All known brokers: broker name to broker id to `host:port`."""
        ...

    def open_connection(self, address: str) -> Connection | None:
        """The connection to an address, if there is one."""
        ...

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Send a request and take its answer. Raises: ClientError."""
        ...

    def refresh_soon(self) -> None:
        """Look at all routes now instead of at the next turn."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run something in the background."""


def _nothing() -> None:
    """For a member that need not hear of it."""


class GroupMember:
    """A producer or a consumer as its client sees it.

    Args:
      group: its group, with namespace.
      describe: how heartbeats describe it now.
      topics: the topics whose routes it needs fresh now, with namespace.
      processors: what it does for requests of brokers, by request code; None: nothing.
      on_routes_changed: called when a route of its topics may have changed.
      on_heartbeat: called after each heartbeat.
    """

    def __init__(
        self,
        group: str,
        describe: Callable[[], ProducerData | ConsumerData],
        topics: Callable[[], Iterable[str]],
        *,
        processors: Mapping[int, Process] | None = None,
        on_routes_changed: Callable[[], None] = _nothing,
        on_heartbeat: Callable[[], None] = _nothing,
    ) -> None:
        self.group = group
        self.describe = describe
        self.topics = topics
        self.processors: Mapping[int, Process] = {} if processors is None else processors
        self.on_routes_changed = on_routes_changed
        self.on_heartbeat = on_heartbeat

    @property
    def is_consumer(self) -> bool:
        """Whether it consumes; else it produces."""
        return isinstance(self.describe(), ConsumerData)


class Members:
    """The members of one client.

    Lifecycle: made with its client; `run` is a background task of it.

    Args:
      client: carries the requests.
      heartbeat_s: seconds between heartbeats.
    """

    def __init__(self, client: Requests, heartbeat_s: float) -> None:
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._heartbeat = Ticker()
        self._members: list[GroupMember] = []
        self._beating = anyio.Lock()

    def add(self, member: GroupMember) -> None:
        """Take a member in; brokers hear of it at once.

        Raises: ConfigurationError: its group has a member of its kind here already.
        """
        for other in self._members:
            if other.group == member.group and other.is_consumer == member.is_consumer:
                raise ConfigurationError(
                    f"the client {self._client.client_id} has a member of the group "
                    f"{member.group} already; use one, or another client"
                )
        self._members.append(member)
        self._heartbeat.tick_now()

    def of_group(self, group: str) -> list[GroupMember]:
        """The producers and consumers of a group."""
        return [member for member in self._members if member.group == group]

    async def remove(self, member: GroupMember) -> None:
        """Let a member go, and tell the brokers, as far as they can be reached."""
        self._members.remove(member)
        header = UnregisterClientRequestHeader(
            client_id=self._client.client_id,
            consumer_group=member.group if member.is_consumer else None,
            producer_group=None if member.is_consumer else member.group,
        )

        async def tell(address: str) -> None:
            try:
                await self._client.request(
                    address,
                    RequestCode.UNREGISTER_CLIENT,
                    header,
                    timeout_s=UNREGISTER_TIMEOUT_S,
                )
            except ClientError as error:
                logger.debug("could not unregister: %s", error)

        # Behind the heartbeat that is under way: brokers work on the two at the same time, and one
        # that heard of a member after its end would keep queues for it for two minutes.
        with anyio.move_on_after(UNREGISTER_TIMEOUT_S):
            async with self._beating, anyio.create_task_group() as group:
                for addresses in self._client.broker_addresses().values():
                    for address in addresses.values():
                        if self._client.open_connection(address):
                            group.start_soon(tell, address)

    # What routes bring: see RouteListener

    def wanted_topics(self) -> set[str]:
        """The topics of all members, with namespace."""
        return {topic for member in self._members for topic in member.topics()}

    def on_route_changed(self, topic: str) -> None:
        """Tell the members that need this topic."""
        for member in self._members:
            if topic in member.topics():
                member.on_routes_changed()

    def on_brokers_changed(self) -> None:
        """A broker that is new to us does not know us."""
        self._heartbeat.tick_now()

    # Heartbeats

    def heartbeat_soon(self) -> None:
        """Tell the brokers now instead of at the next turn."""
        self._heartbeat.tick_now()

    async def heartbeat(self) -> None:
        """Tell all known brokers who is here; a broker that cannot be reached is logged."""
        async with self._beating:
            await self._beat()

    async def _beat(self) -> None:
        client = self._client
        members = [member.describe() for member in self._members]
        consumers = [data for data in members if isinstance(data, ConsumerData)]
        producers = [data for data in members if isinstance(data, ProducerData)]
        if not members:
            return
        body = HeartbeatData(
            client_id=client.client_id, producer_data_set=producers, consumer_data_set=consumers
        ).to_body()

        async def beat(name: str, address: str) -> None:
            try:
                await client.request(
                    address, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), body
                )
            except ClientError as error:
                logger.warning("no heartbeat to broker %s: %s", name, error)
                client.refresh_soon()

        async with anyio.create_task_group() as group:
            for name, addresses in client.broker_addresses().items():
                for broker_id, address in addresses.items():
                    # Slaves serve consumers only.
                    if broker_id == 0 or consumers:
                        group.start_soon(beat, name, address)
        for member in self._members:
            member.on_heartbeat()

    async def run(self) -> None:
        """Send heartbeats again and again."""
        while True:
            await self._heartbeat.wait(self._heartbeat_s)
            await self.heartbeat()

    # Requests of brokers

    def on_request(self, connection: Connection, command: RemotingCommand) -> None:
        """Take a request of a broker; the answer goes out by itself."""
        if any(command.code in member.processors for member in self._members):
            self._client.start_soon(self._answer, connection, command)
        elif not command.is_oneway:
            remark = f" request type {command.code} not supported"
            answer = command.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            connection.send_oneway(encode(answer))

    async def _answer(self, connection: Connection, command: RemotingCommand) -> None:
        answer: RemotingCommand | None
        try:
            answer = await self._dispatch(connection, command)
        except (ClientError, RemotingError, RequestRefused) as error:
            logger.warning(
                "%s: %s failed", connection.address, request_name(command.code), exc_info=True
            )
            answer = command.answer(ResponseCode.SYSTEM_ERROR, str(error))
        if answer is not None and not command.is_oneway and not connection.closed:
            connection.send_oneway(encode(answer))

    async def _dispatch(self, connection: Connection, command: RemotingCommand) -> RemotingCommand:
        """Hand a request to the members that it may be for, until one answers it."""
        group = command.ext_fields.get("consumerGroup") or command.ext_fields.get("group")
        for member in list(self._members):
            process = member.processors.get(command.code)
            if process is not None and group in (None, member.group):
                answer = await process(connection, command)
                if answer is not None:
                    return answer
        return command.answer(ResponseCode.SYSTEM_ERROR, f"nobody here is of the group {group}")
