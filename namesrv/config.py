"""The name server's keys of namesrv.conf: RocketMQ's names in snake_case, its types and defaults.

Pure: the environment is an argument.

Java counterpart: common/namesrv/NamesrvConfig.java and remoting/netty/NettyServerConfig.java of
5.5.0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..common.config import Entry, KnownKey, configure, setting
from ..common.known_keys import read_keys
from ..remoting.memory_budget import BUDGET_MIN


@dataclass(slots=True)
class NamesrvConfig:
    """The name server's configuration. Times are milliseconds unless the name says otherwise.

    Attributes:
      listen_port: port to listen on; 0 = a free one.
      bind_address: local address to listen on; 0.0.0.0 = all.
      kv_config_path: file of the KV configuration (order topics).
      config_store_path: file that changed settings are written to; with `-c` it is that file.
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
      server_channel_max_idle_time_seconds: a connection without traffic for this long is closed.
      remoting_bytes_max: not a key of RocketMQ. Bytes that all connections together may hold of
        incomplete frames, held requests and unread answers (`remoting/memory_budget.py`); None: a
        quarter of the memory, at most 1 GiB.
    """

    listen_port: int = setting(9876, minimum=0, maximum=65_535)
    bind_address: str = "0.0.0.0"
    kv_config_path: str = str(Path.home() / "namesrv" / "kvConfig.json")
    config_store_path: str = str(Path.home() / "namesrv" / "namesrv.properties")
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    scan_not_active_broker_interval: int = setting(5_000, minimum=1)
    support_acting_master: bool = False
    notify_min_broker_id_changed: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    delete_topic_with_broker_registration: bool = False
    need_wait_for_service: bool = False
    wait_seconds_for_service: int = setting(45, minimum=0)
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1)
    remoting_bytes_max: int | None = setting(None, minimum=BUDGET_MIN)


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that RocketMQ reads from a namesrv.conf, supported or not."""
    return read_keys("netty", "namesrv")


def read_namesrv_config(
    entries: list[Entry], defaults: NamesrvConfig, *, path: str = ""
) -> tuple[NamesrvConfig, list[str]]:
    """The configuration of a namesrv.conf, and its warnings, one line each.

    Args:
      entries: the file's, from `parse_properties`.
      defaults: used for keys that the file does not set.
      path: for messages; changed settings are written back to it, as with RocketMQ.
    Raises: ConfigError: unknown key or bad value.
    Source: RocketMQ 5.5.0 namesrv/NamesrvStartup.java.
    """
    configs, warnings = configure(entries, (defaults,), known_keys, path=path)
    config: NamesrvConfig = configs[0]
    if path:
        config.config_store_path = path
    return config, warnings
