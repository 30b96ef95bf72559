"""The filter server's keys: RocketMQ's names in snake_case, its types, its defaults.

Java counterpart: filtersrv/FiltersrvConfig.java and FiltersrvStartup.java of 4.2.0. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..common.config import ConfigError, Entry, KnownKey, configure, setting
from ..common.filter_policy import FilterPolicy
from ..common.known_keys import read_keys
from ..remoting.client import split_address
from ..remoting.hosts import join_address
from ..remoting.memory_budget import BUDGET_MIN

REGISTER_INTERVAL_S = 10.0
"""Between two 301. Source: 4.2.0 FiltersrvController.initialize; the broker forgets after 30 s."""


@dataclass(slots=True)
class FiltersrvConfig(FilterPolicy):
    """What a filter server can be told, beside `FilterPolicy`.

    Attributes:
      connect_which_broker: `host:port` of the broker that it pulls from.
      filter_server_ip: the address that consumers are told; "" until the controller puts this
        machine's.
      bind_address: local address to listen on; 0.0.0.0 = all.
      listen_port: port to listen on and to tell consumers; 0 = a free one, as with RocketMQ, which
        has no such key (in a broker's own file listenPort is the broker's).
      server_channel_max_idle_time_seconds: a connection without traffic for so long is closed.
      remoting_bytes_max: ours. Bytes that all connections together may hold of half frames, held
        requests and unread answers (`remoting/memory_budget.py`); None: a quarter of the memory,
        at most 1 GiB.
    """

    connect_which_broker: str = ""
    filter_server_ip: str = ""
    bind_address: str = "0.0.0.0"
    listen_port: int = setting(0, minimum=0, maximum=65_535)
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1)
    remoting_bytes_max: int | None = setting(None, minimum=BUDGET_MIN)

    def address(self, port: int) -> str:
        """What consumers are told for a port of ours."""
        return join_address(self.filter_server_ip, port)


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that a broker.conf may hold, and those of 4.2.0's filter server."""
    return read_keys("netty", "store", "broker", "filtersrv")


def read_filtersrv_config(
    entries: list[Entry], *, path: str = ""
) -> tuple[FiltersrvConfig, list[str]]:
    """The configuration of a file, and its warnings, one line each.

    The file may be the broker's own: with a `listenPort` and without `connectWhichBroker` it names
    the broker on this machine.

    Args:
      entries: the file's, of `parse_properties`.
      path: for messages only.
    Raises: ConfigError: unknown key, bad value, or no broker.
    Source: FiltersrvStartup.createController of 4.2.0.
    """
    configs, warnings = configure(entries, (FiltersrvConfig(),), known_keys, path=path)
    config: FiltersrvConfig = configs[0]
    if not config.connect_which_broker and config.listen_port:
        config.connect_which_broker = f"127.0.0.1:{config.listen_port}"
        config.listen_port = 0
    try:
        split_address(config.connect_which_broker)
    except ValueError as error:
        raise ConfigError(f"connectWhichBroker: {error}", path=path) from error
    return config, warnings
