"""The configuration of the filter server: RocketMQ's keys in snake_case, types and defaults.

Java counterpart: filtersrv/FiltersrvConfig.java and FiltersrvStartup.java of 4.2.0. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..auth.config import AccessConfig, read_access
from ..common.config import ConfigError, Entry, KnownKey, Problems, configure, setting
from ..common.connection_policy import NEVER_IDLE, ConnectionPolicy
from ..common.filter_policy import FilterPolicy
from ..common.known_keys import read_keys
from ..remoting.hosts import join_address
from ..remoting.tls_config import split_tls

REGISTER_INTERVAL_S = 10.0
"""Interval of registrations (301) at the broker, where they expire after 30 s.

Source: 4.2.0 FiltersrvController.initialize.
"""


@dataclass(slots=True)
class FiltersrvConfig(FilterPolicy, AccessConfig, ConnectionPolicy):
    """The configuration of a filter server, in addition to `FilterPolicy`, `AccessConfig` and
    `ConnectionPolicy`.

    With authenticationEnabled the accounts are the broker's.

    Attributes:
      connect_which_broker: address of the broker that it pulls from, `host:port`.
      filter_server_ip: address that is announced to consumers; "" until it is set to this
        machine's address.
      bind_address: local address to listen on; 0.0.0.0: all.
      listen_port: port to listen on; 0: a free one, as with RocketMQ, which has no such key. (In
        the file of a broker, listenPort is the broker's port.)
      server_channel_max_idle_time_seconds: seconds without traffic after which a connection is
        closed.
      allow_remote_administration: trocket's own key: whether other machines may upload and remove
        filter classes. With accounts, rights decide instead.
      broker_cluster_name: the broker's cluster, on which administrators have rights.
    """

    connect_which_broker: str = ""
    filter_server_ip: str = ""
    bind_address: str = "0.0.0.0"
    listen_port: int = setting(0, minimum=0, maximum=65_535, clamp=None)
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1, clamp=NEVER_IDLE)
    allow_remote_administration: bool = setting(False, guarded="protects the server")
    broker_cluster_name: str = "DefaultCluster"

    def address(self, port: int) -> str:
        """The address that is announced to consumers, `host:port`, for a local port."""
        return join_address(self.filter_server_ip, port)


def check_access(config: FiltersrvConfig) -> None:
    """Raises: ConfigError: the keys of accounts contradict each other, or one is missing."""
    access = read_access(config)
    if access.is_enabled and access.inner is None:
        raise ConfigError(
            "authenticationEnabled=true needs innerClientAuthenticationCredentials, a super user "
            "of the broker: the filter server copies the broker's accounts, and signs its pulls"
        )
    if access.inner is not None and not access.is_enabled:
        raise ConfigError(
            "innerClientAuthenticationCredentials needs authenticationEnabled=true: without it the "
            "filter server would give the broker's messages to everyone"
        )


def known_keys() -> Mapping[str, KnownKey]:
    """All keys of a broker.conf, and those of the filter server of 4.2.0."""
    return read_keys("netty", "store", "broker", "filtersrv")


def read_filtersrv_config(
    entries: list[Entry], *, path: str = ""
) -> tuple[FiltersrvConfig, list[str]]:
    """Read a configuration file.

    The file may be that of a broker: if it has a `listenPort` and no `connectWhichBroker`, the
    filter server connects to that port on this machine.

    Args:
      entries: entries of the file, from `parse_properties`. `tls.*` is left to
        `remoting/tls_settings.py`.
      path: path of the file, for error messages.

    Returns: the configuration, and warnings of one line each.
    Raises: ConfigError: a key is unknown, a value is invalid, or there is no broker.
    Source: FiltersrvStartup.createController of 4.2.0.
    """
    entries = split_tls(entries)[1]
    problems = Problems(entries, path)
    configs, warnings = configure(
        entries, (FiltersrvConfig(),), known_keys, path=path, problems=problems
    )
    config: FiltersrvConfig = configs[0]
    if not config.connect_which_broker and config.listen_port:
        config.connect_which_broker = f"127.0.0.1:{config.listen_port}"
        config.listen_port = 0
    with problems.collected():
        config.check_exempt_addresses()
    with problems.collected():
        check_access(config)
    from ..remoting.opener import split_address  # not for the help: it brings trio

    try:
        split_address(config.connect_which_broker)
    except ValueError as error:
        problems.add(ConfigError(f"connectWhichBroker: {error}, such as 127.0.0.1:10911"))
    problems.raise_all(warnings)
    return config, warnings
