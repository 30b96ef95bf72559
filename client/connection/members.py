"""The producers and consumers of a client, their heartbeats, and requests of brokers to them.

Java counterpart: MQClientInstance (producerTable, consumerTable, heartbeats), and the dispatch of
ClientRemotingProcessor.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias

import anyio

from ...remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from ...remoting.codec import RemotingCommand, encode
from ...remoting.errors import RemotingError, RequestRefused
from ...remoting.headers import HeartbeatRequestHeader, UnregisterClientRequestHeader
from ...remoting.headers.base import Header
from ...remoting.request_codes import RequestCode
from ...remoting.response_codes import ResponseCode
from ..errors import ClientError, ConfigurationError
from ..tasks.task_group import TaskGroup
from ..tasks.ticker import Ticker
from .connection import Connection, request_name
from .connection_log import failure_level

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S: Final = 3.0
"""Time limit for unregistering at the brokers. RocketMQ: mqClientApiTimeout 3,000."""

Processor: TypeAlias = Callable[[Connection, RemotingCommand], Awaitable[RemotingCommand | None]]
"""Processes a request of a broker and returns the answer; None: the request is for another member.

The result for a oneway request is ignored.
"""


class Requests(Protocol):
    """The part of a Client that its members use."""

    @property
    def client_id(self) -> str:
        """The id by which brokers identify the client: `ip@instance`."""
        ...

    def broker_addresses(self) -> dict[str, dict[int, str]]:
        """All known brokers: broker name to broker id to `host:port`."""
        ...

    def open_connection(self, address: str) -> Connection | None:
        """The open connection to an address; None if there is none."""
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
        """Send a request and wait for its answer. Raises: ClientError."""
        ...

    def refresh_soon(self) -> None:
        """Refresh all routes now; does not wait."""

    def start_soon(self, function: Callable[..., Awaitable[Any]], *args: Any) -> None:
        """Run an async function in the background."""


def _no_op() -> None:
    pass


class GroupMember:
    """A producer or consumer, as its client knows it.

    Args:
      group: name of its group, with namespace.
      describe: returns its current description for heartbeats.
      topics: returns the topics whose routes it needs, with namespace.
      processors: its processors of requests that brokers send, by request code; None: none.
      on_routes_changed: called when a route of its topics may have changed.
      on_heartbeat: called after each heartbeat.
    """

    def __init__(
        self,
        group: str,
        describe: Callable[[], ProducerData | ConsumerData],
        topics: Callable[[], Iterable[str]],
        *,
        processors: Mapping[int, Processor] | None = None,
        on_routes_changed: Callable[[], None] = _no_op,
        on_heartbeat: Callable[[], None] = _no_op,
    ) -> None:
        self.group = group
        self.describe = describe
        self.topics = topics
        self.processors: Mapping[int, Processor] = {} if processors is None else processors
        self.on_routes_changed = on_routes_changed
        self.on_heartbeat = on_heartbeat

    @property
    def is_consumer(self) -> bool:
        """Whether it is a consumer; otherwise it is a producer."""
        return isinstance(self.describe(), ConsumerData)


class Members:
    """The members of one client.

    Lifecycle: created with its client, which runs `run` as a background task.

    Args:
      client: sends the requests.
      heartbeat_s: seconds between heartbeats.
    """

    def __init__(self, client: Requests, heartbeat_s: float) -> None:
        self._client = client
        self._heartbeat_s = heartbeat_s
        self._heartbeat = Ticker()
        self._members: list[GroupMember] = []
        # By address: an unregistration waits for the heartbeat that is under way.
        self._turns: dict[str, anyio.Lock] = {}

    def add(self, member: GroupMember) -> None:
        """Add a member; a heartbeat announces it to the brokers at once.

        Raises: ConfigurationError: the client already has a producer, or a consumer, of its group.
        """
        for other in self._members:
            if other.group == member.group and other.is_consumer == member.is_consumer:
                raise ConfigurationError(
                    f"the client {self._client.client_id} already has a member of the group "
                    f"{member.group}: share that member, or use another client"
                )
        self._members.append(member)
        self._heartbeat.tick_now()

    def of_group(self, group: str) -> list[GroupMember]:
        """The producers and consumers of a group."""
        return [member for member in self._members if member.group == group]

    async def remove(self, member: GroupMember) -> None:
        """Remove a member, and unregister it at the brokers that have a connection."""
        self._members.remove(member)
        header = UnregisterClientRequestHeader(
            client_id=self._client.client_id,
            consumer_group=member.group if member.is_consumer else None,
            producer_group=None if member.is_consumer else member.group,
        )

        async def unregister(address: str) -> None:
            # Wait for a heartbeat that is under way. A broker may process the two in either order,
            # and a heartbeat after the unregistration would keep the member's queues for two
            # minutes.
            async with self._turn(address):
                if self._client.open_connection(address) is None:
                    return
                try:
                    await self._client.request(
                        address,
                        RequestCode.UNREGISTER_CLIENT,
                        header,
                        timeout_s=UNREGISTER_TIMEOUT_S,
                    )
                except ClientError as error:
                    logger.debug("could not unregister: %s", error)

        with anyio.move_on_after(UNREGISTER_TIMEOUT_S):
            async with TaskGroup() as group:
                for addresses in self._client.broker_addresses().values():
                    for address in addresses.values():
                        group.start_soon(unregister, address)

    # RouteListener

    def wanted_topics(self) -> set[str]:
        """The topics of all members, with namespace."""
        return {topic for member in self._members for topic in member.topics()}

    def on_route_changed(self, topic: str) -> None:
        """Notify the members that need this topic."""
        for member in self._members:
            if topic in member.topics():
                member.on_routes_changed()

    def on_brokers_changed(self) -> None:
        """Send a heartbeat, because a new broker does not know this client."""
        self._heartbeat.tick_now()

    # Heartbeats

    def heartbeat_soon(self) -> None:
        """Send a heartbeat now rather than after `heartbeat_s`; does not wait."""
        self._heartbeat.tick_now()

    def _turn(self, address: str) -> anyio.Lock:
        return self._turns.setdefault(address, anyio.Lock())

    async def heartbeat(self, address: str | None = None) -> None:
        """Send a heartbeat to all known brokers at once; failures are logged.

        Args:
          address: only to the broker at this `host:port`.
        """
        client = self._client
        has_consumers = any(member.is_consumer for member in self._members)
        if not self._members:
            return

        async def send(name: str, to: str) -> None:
            async with self._turn(to):
                if not self._members:
                    return  # the last one has just left
                try:
                    await client.request(
                        to, RequestCode.HEART_BEAT, HeartbeatRequestHeader(), self._body()
                    )
                except ClientError as error:
                    level = failure_level(error)
                    logger.log(level, "the heartbeat to broker %s failed: %s", name, error)
                    client.refresh_soon()

        async with TaskGroup() as group:
            for name, addresses in client.broker_addresses().items():
                for broker_id, each in addresses.items():
                    # Slaves serve consumers only.
                    if address in (None, each) and (broker_id == 0 or has_consumers):
                        group.start_soon(send, name, each)
        if address is None:
            for member in self._members:
                member.on_heartbeat()

    def _body(self) -> bytes:
        """The members as they are now: one that has left meanwhile is not announced again."""
        members = [member.describe() for member in self._members]
        return HeartbeatData(
            client_id=self._client.client_id,
            producer_data_set=[data for data in members if isinstance(data, ProducerData)],
            consumer_data_set=[data for data in members if isinstance(data, ConsumerData)],
        ).to_body()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            await self._heartbeat.wait(self._heartbeat_s)
            await self.heartbeat()

    # Requests of brokers

    def on_request(self, connection: Connection, command: RemotingCommand) -> None:
        """Process a request of a broker in the background, and send the answer."""
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
        """Pass a request to the members of its group, until one answers it."""
        group = command.ext_fields.get("consumerGroup") or command.ext_fields.get("group")
        for member in list(self._members):
            process = member.processors.get(command.code)
            if process is not None and group in (None, member.group):
                answer = await process(connection, command)
                if answer is not None:
                    return answer
        return command.answer(
            ResponseCode.SYSTEM_ERROR, f"this client has no member of the group {group}"
        )
