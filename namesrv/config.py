"""The name server's keys of namesrv.conf: RocketMQ's names in snake_case, its types and defaults.

Pure: the environment comes in as an argument.

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
    """What the name server can be told. Times are milliseconds unless the name says otherwise.

    Attributes:
      listen_port: port to listen on; 0 = a free one.
      bind_address: local address to listen on; 0.0.0.0 = all.
      kv_config_path: file of the KV configuration (order topics).
      config_store_path: file that changed settings are written to; with `-c` it is that file.
      order_message_enable: whether route answers carry the order configuration of KV.
      return_order_topic_config_to_broker: whether registering brokers are given all order topics.
      scan_not_active_broker_interval: between looks for brokers whose heartbeats stopped.
      support_acting_master: whether the smallest slave stands in for a lost master.
      notify_min_broker_id_changed: whether brokers are told when the smallest id changes.
      enable_all_topic_list, enable_topic_list: whether the lists of all topics, and of one
        cluster's, are answered.
      delete_topic_with_broker_registration: whether a topic that a broker no longer registers
        loses that broker's queues.
      need_wait_for_service, wait_seconds_for_service: whether route questions are refused in the
        first seconds after the start, until brokers had time to register.
      server_channel_max_idle_time_seconds: a connection without traffic for so long is closed.
      remoting_bytes_max: ours. Bytes that all connections together may hold of half frames, held
        requests and unread answers (`remoting/memory_budget.py`); None: a quarter of the memory,
        at most 1 GiB.
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
      entries: the file's, of `parse_properties`.
      defaults: what counts where the file says nothing.
      path: for messages; and changed settings are written back to it, as with RocketMQ.
    Raises: ConfigError: unknown key or bad value.
    Source: RocketMQ 5.5.0 namesrv/NamesrvStartup.java.
    """
    configs, warnings = configure(entries, (defaults,), known_keys, path=path)
    config: NamesrvConfig = configs[0]
    if path:
        config.config_store_path = path
    return config, warnings
