"""What a broker tells the name servers: the requests as data, and the loop that sends them.

Every name server is told on its own; one that does not answer delays the others by nothing.

Java counterpart: broker/out/BrokerOuterAPI.java, BrokerController.registerBrokerAll of 5.3.3.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Awaitable, Callable, Sequence

import trio

from ..remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingError, RequestRefused
from ..remoting.headers import (
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
    encode_header,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .config import MASTER_ID, BrokerConfig
from .registration_answer import (
    Master,
    master_of,
    needs_registration,
    order_topics,
    query_data_version_request,
)
from .topic_config_manager import TopicConfigManager

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0
"""For saying goodbye to one name server. RocketMQ: 3,000 ms; those that are gone are not waited
for longer, because a stopping broker must stop."""

MASTER_UNKNOWN_PERIOD_S = 10.0
"""Between the registrations of a slave that knows no master: that is how it hears of one. RocketMQ:
as always, up to 30 s."""

_PERM_RW = 6


def _nobody(_: Master | None) -> None:
    """A master has no master."""


def register_request(
    config: BrokerConfig,
    broker_addr: str,
    ha_server_addr: str,
    topics: dict[str, TopicConfig],
    data_version: DataVersion,
    filter_servers: Sequence[str] = (),
) -> RemotingCommand:
    """REGISTER_BROKER 103 with the whole topic table.

    Args:
      config: the broker's; its permission limits that of every topic.
      broker_addr: `host:port` that clients are told.
      ha_server_addr: `host:port` for slaves.
      topics: by name.
      data_version: of the table.
      filter_servers: `host:port` of each that consumers may pull from.
    Source: BrokerOuterAPI.registerBroker; bodyCrc32 as observed: without the sign bit.
    """
    if config.broker_permission & _PERM_RW != _PERM_RW:
        topics = {
            name: TopicConfig(
                topic_name=name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm & config.broker_permission,
                topic_sys_flag=topic.topic_sys_flag,
            )
            for name, topic in topics.items()
        }
    wrapper = TopicConfigSerializeWrapper(
        topic_config_table=topics,
        data_version=data_version,
        mapping_data_version=DataVersion(timestamp=data_version.timestamp, counter=0),
        topic_queue_mapping_info_map={},
        topic_queue_mapping_detail_map={},
    )
    body = RegisterBrokerBody(
        topic_config_serialize_wrapper=wrapper, filter_server_list=list(filter_servers)
    ).to_body()
    header = RegisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=broker_addr,
        cluster_name=config.broker_cluster_name,
        ha_server_addr=ha_server_addr,
        broker_id=config.broker_id,
        enable_acting_master=False,
        compressed=False,
        body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
    )
    return RemotingCommand(RequestCode.REGISTER_BROKER, encode_header(header), body)


def unregister_request(config: BrokerConfig, broker_addr: str) -> RemotingCommand:
    """UNREGISTER_BROKER 104."""
    header = UnregisterBrokerRequestHeader(
        broker_name=config.broker_name,
        broker_addr=broker_addr,
        cluster_name=config.broker_cluster_name,
        broker_id=config.broker_id,
    )
    return RemotingCommand(RequestCode.UNREGISTER_BROKER, encode_header(header))


class Registrar:
    """Keeps the broker known to its name servers.

    Owner: the controller's nursery, by `run`.

    Args:
      config: the broker's; read at every registration.
      client: running.
      topics: what is registered; its ordered topics are marked as the name servers say.
      broker_addr: gives `host:port` that clients are told.
      ha_server_addr: gives `host:port` for slaves.
      filter_servers: gives the addresses of the broker's filter servers.
      on_master: of a slave; told after each answer what the first of the name servers that knows a
        master says; None: none does.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        topics: TopicConfigManager,
        broker_addr: Callable[[], str],
        ha_server_addr: Callable[[], str],
        filter_servers: Callable[[], tuple[str, ...]],
        on_master: Callable[[Master | None], None] = _nobody,
    ) -> None:
        self._config = config
        self._client = client
        self._topics = topics
        self._broker_addr = broker_addr
        self._ha_server_addr = ha_server_addr
        self._filter_servers = filter_servers
        self._on_master = on_master
        self._masters: dict[str, Master] = {}  # by name server
        self._told_filter_servers: dict[str, tuple[str, ...]] = {}
        self._changed = trio.Event()
        self._unreachable: set[str] = set()

    async def run(self) -> None:
        """Register every period, and soon after `changed` was called; until cancelled."""
        while True:
            with trio.move_on_after(self._period_s):
                await self._changed.wait()
            self._changed = trio.Event()
            await self.register_all()

    @property
    def _period_s(self) -> float:
        wants_master = self._config.broker_id != MASTER_ID and not self._masters
        return MASTER_UNKNOWN_PERIOD_S if wants_master else self._config.register_period_s

    def changed(self) -> None:
        """The topics or the filter servers changed: register at the next opportunity."""
        self._changed.set()

    async def register_all(self) -> None:
        """Tell every name server, and wait for their answers; failures are logged, not raised."""
        await self._each(self._register)

    async def unregister_all(self) -> None:
        """Say goodbye to every name server."""
        await self._each(self._unregister)

    async def _each(self, tell: Callable[[str], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            for address in self._config.namesrv_addresses:
                nursery.start_soon(self._tell, address, tell)

    async def _tell(self, address: str, tell: Callable[[str], Awaitable[None]]) -> None:
        try:
            await tell(address)
        except (RemotingError, RequestRefused) as error:
            # Once, and not every 30 s, while it stays away.
            level = logging.DEBUG if address in self._unreachable else logging.WARNING
            self._unreachable.add(address)
            logger.log(level, "name server %s: %s", address, error)
            return
        if address in self._unreachable:
            self._unreachable.discard(address)
            logger.info("name server %s answers again", address)

    async def _register(self, address: str) -> None:
        """Register with one name server; unless forceRegister, only where it has old topics.

        Their version says nothing of the filter servers: the list is told whenever the name server
        may have another one. A slave always registers: the answer names its master.

        Raises: RemotingError, RequestRefused.
        """
        timeout_s = self._config.register_broker_timeout_mills / 1000
        broker_addr, version = self._broker_addr(), self._topics.data_version
        is_told = self._told_filter_servers.get(address) == self._filter_servers()
        may_ask_first = is_told and self._config.broker_id == MASTER_ID
        if not self._config.force_register and may_ask_first:
            question = query_data_version_request(self._config, broker_addr, version)
            known = await self._client.call(address, question, timeout_s)
            if not needs_registration(known, version):
                return
        filter_servers = self._filter_servers()
        request = register_request(
            self._config,
            broker_addr,
            self._ha_server_addr(),
            self._topics.topic_config_table,
            self._topics.data_version,
            filter_servers,
        )
        self._told_filter_servers.pop(address, None)  # without an answer, who knows
        answer = await self._client.call(address, request, timeout_s)
        if answer.code != ResponseCode.SUCCESS:
            raise RequestRefused(answer.code, f"the registration is refused: {answer.remark}")
        self._told_filter_servers[address] = filter_servers
        self._note_master(address, master_of(answer))
        ordered = order_topics(answer)
        if ordered:
            self._topics.update_order_topics(ordered)

    def _note_master(self, address: str, master: Master | None) -> None:
        """A slave's name servers may differ for a while: the first one that knows a master counts.

        One that does not answer is believed what it said last: the master may be there all the
        same. One that was started again knows none until the master has registered.
        """
        if master is None:
            self._masters.pop(address, None)
        else:
            self._masters[address] = master
        known = map(self._masters.get, self._config.namesrv_addresses)
        self._on_master(next(filter(None, known), None))

    async def _unregister(self, address: str) -> None:
        goodbye = unregister_request(self._config, self._broker_addr())
        await self._client.call(address, goodbye, UNREGISTER_TIMEOUT_S)
