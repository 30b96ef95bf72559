"""What a broker tells the name servers: the requests as data, and the loop that sends them.

Every name server is told on its own; one that does not answer delays the others by nothing.

Java counterpart: broker/out/BrokerOuterAPI.java, BrokerController.registerBrokerAll of 5.3.3.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable

import trio

from ..remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from ..remoting.client import RemotingClient
from ..remoting.codec import RemotingCommand
from ..remoting.errors import RemotingError
from ..remoting.headers import (
    RegisterBrokerRequestHeader,
    UnregisterBrokerRequestHeader,
    encode_header,
)
from ..remoting.request_codes import RequestCode
from ..remoting.response_codes import ResponseCode
from .config import BrokerConfig

logger = logging.getLogger(__name__)

UNREGISTER_TIMEOUT_S = 3.0
"""For saying goodbye to one name server. RocketMQ: 3,000 ms; those that are gone are not waited
for longer, because a stopping broker must stop."""

_PERM_RW = 6


def register_request(
    config: BrokerConfig,
    broker_addr: str,
    ha_server_addr: str,
    topics: dict[str, TopicConfig],
    data_version: DataVersion,
) -> RemotingCommand:
    """REGISTER_BROKER 103 with the whole topic table.

    Args:
      config: the broker's; its permission limits that of every topic.
      broker_addr: `host:port` that clients are told.
      ha_server_addr: `host:port` for slaves.
      topics: by name.
      data_version: of the table.
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
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper).to_body()
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
      make_request: the registration as it stands now.
      make_goodbye: the opposite.
    """

    def __init__(
        self,
        config: BrokerConfig,
        client: RemotingClient,
        make_request: Callable[[], RemotingCommand],
        make_goodbye: Callable[[], RemotingCommand],
    ) -> None:
        self._config = config
        self._client = client
        self._make_request = make_request
        self._make_goodbye = make_goodbye
        self._changed = trio.Event()
        self._unreachable: set[str] = set()

    async def run(self) -> None:
        """Register every period, and soon after `changed` was called; until cancelled."""
        while True:
            with trio.move_on_after(self._config.register_period_s):
                await self._changed.wait()
            self._changed = trio.Event()
            await self.register_all()

    def changed(self) -> None:
        """The topics changed: register at the next opportunity."""
        self._changed.set()

    async def register_all(self) -> None:
        """Tell every name server, and wait for their answers; failures are logged, not raised."""
        timeout_s = self._config.register_broker_timeout_mills / 1000
        async with trio.open_nursery() as nursery:
            for address in self._config.namesrv_addresses:
                nursery.start_soon(self._tell, address, self._make_request(), timeout_s)

    async def unregister_all(self) -> None:
        """Say goodbye to every name server."""
        async with trio.open_nursery() as nursery:
            for address in self._config.namesrv_addresses:
                nursery.start_soon(self._tell, address, self._make_goodbye(), UNREGISTER_TIMEOUT_S)

    async def _tell(self, address: str, command: RemotingCommand, timeout_s: float) -> None:
        code = command.code
        try:
            answer = await self._client.call(address, command, timeout_s)
        except RemotingError as error:
            # Once, and not every 30 s, while it stays away.
            level = logging.DEBUG if address in self._unreachable else logging.WARNING
            self._unreachable.add(address)
            logger.log(level, "name server %s: %s", address, error)
            return
        if address in self._unreachable:
            self._unreachable.discard(address)
            logger.info("name server %s answers again", address)
        if answer.code != ResponseCode.SUCCESS:
            logger.error(
                "name server %s refuses request %d: %d %s",
                address, code, answer.code, answer.remark,
            )  # fmt: skip
