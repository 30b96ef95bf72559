"""The configuration of an embedded broker: RocketMQ's defaults with small files and exact timers.

The file sizes suit some thousands of messages. Timers are due to the millisecond instead of at the
next full second, so that `advance(hours=2)` delivers a message with `delay_s=7200`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ..broker.settings.config import BrokerConfig
from ..broker.settings.config_checks import read_broker_config
from ..common.config import ConfigError, Entry
from ..namesrv.config import NamesrvConfig, read_namesrv_config
from ..remoting.tls_config import TlsConfig, merge_tls, split_tls
from ..store.config import MessageStoreConfig

Config = Mapping[str, object]
"""Values by RocketMQ's keys: strings as in a broker.conf, numbers, bools or enums."""

BROKER_NAME = "broker-a"

LOG_FILE_SIZE_MIN = 5 * 1024 * 1024
"""Size of a commit log file in bytes: a message of the largest default size, 4 MiB, must fit."""

LOG_FILE_ROOM = 1024 * 1024
"""Bytes of a commit log file in addition to a message of the largest size."""

_OURS = {
    "storePathRootDir": "give the folder as Broker(folder=…)",
    "namesrvAddr": "the broker registers with its own name server",
    "bindAddress": "it listens on 127.0.0.1",
    "listenPort": "give the port as Broker(broker_port=…)",
}


def entries_of(config: Config) -> list[Entry]:
    """Convert configuration values to entries of a configuration file.

    Raises: ConfigError: a key is set by the embedded broker itself.
    """
    for key in config:
        if key in _OURS:
            raise ConfigError(f"{key} cannot be set for an embedded broker: {_OURS[key]}")
    return [Entry(key, _text(value), 0) for key, value in config.items()]


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value.value) if isinstance(value, Enum) else str(value)


def broker_configs(
    config: Config, folder: str, host: str
) -> tuple[BrokerConfig, MessageStoreConfig]:
    """The configurations of a broker and of its store.

    Args:
      config: values that differ from the defaults.
      folder: data folder.
      host: address at which clients reach the broker.

    Raises: ConfigError: a key is unknown (the text names the nearest one), or a value is invalid.
    """
    store = MessageStoreConfig(
        store_path_root_dir=folder,
        mapped_file_size_commit_log=LOG_FILE_SIZE_MIN,
        mapped_file_size_consume_queue=1_000 * 20,
        mapper_file_size_batch_consume_queue=1_000 * 46,
        mapped_file_size_consume_queue_ext=64 * 1024,
        max_hash_slot_num=1_000,
        max_index_num=4_000,
        timer_precision_ms=1,
    )
    broker = BrokerConfig(
        bind_address=host, broker_ip1=host, broker_ip2=host, broker_name=BROKER_NAME
    )
    if config:  # otherwise save some milliseconds
        broker, store, _ = read_broker_config(entries_of(config), broker, store)
    if "mappedFileSizeCommitLog" not in config:
        needed = store.max_message_size + LOG_FILE_ROOM
        store.mapped_file_size_commit_log = max(LOG_FILE_SIZE_MIN, needed)
    return broker, store


def tls_config(config: Config) -> TlsConfig:
    """The settings of TLS among a broker's; errors as `broker_configs`."""
    return merge_tls([], split_tls(entries_of(config))[0])[0]


def namesrv_config(config: Config, folder: str, host: str) -> NamesrvConfig:
    """The configuration of a name server; arguments and errors as `broker_configs`."""
    defaults = NamesrvConfig(
        bind_address=host,
        kv_config_path=f"{folder}/kvConfig.json",
        config_store_path=f"{folder}/namesrv.properties",
    )
    return read_namesrv_config(entries_of(config), defaults)[0] if config else defaults
