"""The name server's keys of namesrv.conf: RocketMQ's names in snake_case, its types and defaults.

Pure: the environment is an argument.

Java counterpart: common/namesrv/NamesrvConfig.java and remoting/netty/NettyServerConfig.java of
5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from ..auth.server_config import SERVER_CHECKS, ServerConfig, read_server_config
from ..common.config import Bounds, ConfigError, Entry, KnownKey, is_address, setting
from ..common.known_keys import read_keys


@dataclass(slots=True)
class NamesrvConfig(ServerConfig):
    """The name server's configuration. Times are milliseconds unless the name says otherwise.

    Attributes:
      listen_port: port to listen on; 0 = a free one.
      kv_config_path: file of the KV configuration (order topics).
      order_message_enable: whether route answers carry the order configuration of KV.
      return_order_topic_config_to_broker: whether answers to registrations list all order topics.
      scan_not_active_broker_interval: between scans for brokers whose heartbeats stopped.
      support_acting_master: whether the smallest slave stands in for a lost master.
      notify_min_broker_id_changed: whether brokers are notified when the smallest id changes.
      enable_all_topic_list, enable_topic_list: whether the lists of all topics, and of one
        cluster's, are answered.
      delete_topic_with_broker_registration: whether a topic that a broker no longer registers
        loses that broker's queues.
      need_wait_for_service, wait_seconds_for_service: whether route queries are refused in the
        first seconds after the start, until brokers had time to register.
      cluster_test, product_env_name: whether routes of topics that no broker registered here are
        asked of the name servers of another environment, and its name, for the log.
      product_namesrv_addr: not a key of RocketMQ, which asks an address server for them (jmenv).
        The name servers of that environment, `host:port;host:port`.
    """

    node_type: ClassVar[str] = "namesrv"

    listen_port: int = setting(9876, minimum=0, maximum=65_535, clamp=None)
    kv_config_path: str = setting(
        str(Path.home() / "namesrv" / "kvConfig.json"), guarded="is a path of files"
    )
    config_store_path: str = setting(
        str(Path.home() / "namesrv" / "namesrv.properties"), guarded="is a path of files"
    )
    order_message_enable: bool = setting(False, live=True)
    return_order_topic_config_to_broker: bool = setting(True, live=True)
    scan_not_active_broker_interval: int = setting(5_000, minimum=1, live=Bounds(100, 60_000))
    support_acting_master: bool = setting(False, live=True)
    notify_min_broker_id_changed: bool = setting(False, live=True)
    enable_all_topic_list: bool = setting(True, live=True)
    enable_topic_list: bool = setting(True, live=True)
    delete_topic_with_broker_registration: bool = setting(False, live=True)
    need_wait_for_service: bool = setting(False, live=True)
    wait_seconds_for_service: int = setting(45, minimum=0, live=Bounds(0, 3_600))
    cluster_test: bool = False
    product_env_name: str = "center"
    product_namesrv_addr: str = ""

    @property
    def product_namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers of the other environment, in the order given."""
        addresses = map(str.strip, self.product_namesrv_addr.split(";"))
        return tuple(dict.fromkeys(filter(None, addresses)))


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that RocketMQ reads from a namesrv.conf, supported or not."""
    return read_keys("netty", "namesrv")


def check_values(config: NamesrvConfig) -> None:
    """Check strings with a form of their own, and keys that need others.

    Raises: ConfigError: at the start, or at a change while the name server runs.
    """
    for check in VALUE_CHECKS:
        check(config)


def _check_other_environment(config: NamesrvConfig) -> None:
    for address in config.product_namesrv_addresses:
        if not is_address(address):
            raise ConfigError(
                f"productNamesrvAddr: {address!r} is not host:port; several look like "
                "192.168.0.1:9876;192.168.0.2:9876"
            )
    if config.cluster_test and not config.product_namesrv_addresses:
        raise ConfigError(
            "clusterTest=true needs productNamesrvAddr, the name servers of the other environment, "
            "such as 192.168.0.1:9876;192.168.0.2:9876"
        )


VALUE_CHECKS: Final[tuple[Callable[[NamesrvConfig], None], ...]] = (
    *SERVER_CHECKS,
    _check_other_environment,
)
"""Each raises ConfigError; those of the start and of a change while the name server runs."""


def read_namesrv_config(
    entries: list[Entry], defaults: NamesrvConfig, *, path: str = ""
) -> tuple[NamesrvConfig, list[str]]:
    """The configuration of a namesrv.conf, and its warnings, one line each.

    Args:
      entries: the file's, from `parse_properties`. `tls.*` is left to `remoting/tls_settings.py`.
      defaults: used for keys that the file does not set.
      path: for messages; changed settings are written back to it, as with RocketMQ.
    Raises: ConfigError: unknown key or bad value.
    Source: RocketMQ 5.5.0 namesrv/NamesrvStartup.java.
    """
    return read_server_config(
        entries, defaults, known_keys, VALUE_CHECKS, path=path, server="a name server"
    )
