"""The name server's keys of namesrv.conf: RocketMQ's names in snake_case, its types and defaults.

Pure: the environment is an argument.

Java counterpart: common/namesrv/NamesrvConfig.java and remoting/netty/NettyServerConfig.java of
5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..auth.config import AccessConfig, read_access
from ..common.config import (
    Bounds,
    ConfigError,
    Entry,
    KnownKey,
    Problems,
    at,
    configure,
    is_address,
    setting,
)
from ..common.connection_policy import NEVER_IDLE, ConnectionPolicy
from ..common.known_keys import read_keys
from ..common.log_levels import LogLevel, parse_levels
from ..common.metrics_keys import MetricsExporterType, with_labels
from ..remoting.memory_budget import BUDGET_MIN
from ..remoting.tls_config import split_tls

SHOWN_BY: Final = frozenset({MetricsExporterType.DISABLE, MetricsExporterType.PROM})
"""The values of metricsExporterType that do here what they say."""


@dataclass(slots=True)
class NamesrvConfig(AccessConfig, ConnectionPolicy):
    """The name server's configuration. Times are milliseconds unless the name says otherwise.

    The keys of `AccessConfig`, which RocketMQ's name server does not have, are for its accounts,
    those of `ConnectionPolicy` limit its connections.

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
      cluster_test, product_env_name: whether routes of topics that no broker registered here are
        asked of the name servers of another environment, and its name, for the log.
      product_namesrv_addr: not a key of RocketMQ, which asks an address server for them (jmenv).
        The name servers of that environment, `host:port;host:port`.
      metrics_exporter_type: PROM serves metrics and health by HTTP; the other ways of brokers are
        not there. RocketMQ's name server has these keys of metrics as a controller.
      metrics_prom_exporter_port, metrics_prom_exporter_host: port (0: any free one) and address of
        that server; "": bindAddress.
      metrics_label: further labels of all metrics, `name:value,name:value`.
      metrics_tls_enable: not a key of RocketMQ. Whether that server speaks TLS only.
      allow_remote_administration: not a key of RocketMQ. Without accounts, whether other machines
        may delete and change what `auth/dangerous.py` lists, too.
      log_level: not a key of RocketMQ. The lowest level of log lines; DEFAULT: that of
        `--log-level`.
      log_levels: not a key of RocketMQ. Levels of single parts, `part:LEVEL,part:LEVEL`.
      broker_cluster_name: not a key of RocketMQ's name server. The cluster whose rights are needed
        for administration here, beside accounts: `Cluster:NAME` in their rules.
      remoting_bytes_max: not a key of RocketMQ. Bytes that all connections together may hold of
        incomplete frames, held requests and unread answers (`remoting/memory_budget.py`); None: a
        quarter of the memory, at most 1 GiB.
    """

    listen_port: int = setting(9876, minimum=0, maximum=65_535, clamp=None)
    bind_address: str = "0.0.0.0"
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
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1, clamp=NEVER_IDLE)
    cluster_test: bool = False
    product_env_name: str = "center"
    product_namesrv_addr: str = ""
    broker_cluster_name: str = "DefaultCluster"
    remoting_bytes_max: int | None = setting(None, minimum=BUDGET_MIN)
    metrics_exporter_type: MetricsExporterType = MetricsExporterType.DISABLE
    metrics_prom_exporter_port: int = setting(5557, minimum=0, maximum=65_535, clamp=None)
    metrics_prom_exporter_host: str = ""
    metrics_label: str = ""
    metrics_tls_enable: bool = setting(False, guarded="protects connections")
    allow_remote_administration: bool = setting(False, guarded="protects the server")
    log_level: LogLevel = setting(LogLevel.DEFAULT, live=True)  # noqa: RUF009 - a field
    log_levels: str = setting("", live=True)

    @property
    def metrics_labels(self) -> dict[str, str]:
        """The labels of all metrics beside `node_id`, the address that it listens on.

        Raises: ConfigError: metricsLabel is not as it should be.
        """
        return with_labels({"node_type": "namesrv", "node_id": ""}, self.metrics_label)

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


def _check_levels(config: NamesrvConfig) -> None:
    parse_levels(config.log_levels)


def _check_limits(config: NamesrvConfig) -> None:
    config.check_exempt_addresses()


def _check_accounts(config: NamesrvConfig) -> None:
    read_access(config)


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


def _check_metrics(config: NamesrvConfig) -> None:
    config.metrics_labels  # noqa: B018 - only the check


VALUE_CHECKS: Final[tuple[Callable[[NamesrvConfig], None], ...]] = (
    _check_levels,
    _check_limits,
    _check_accounts,
    _check_other_environment,
    _check_metrics,
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
    entries = split_tls(entries)[1]
    problems = Problems(entries, path)
    configs, warnings = configure(entries, (defaults,), known_keys, path=path, problems=problems)
    config: NamesrvConfig = configs[0]
    if path:
        config.config_store_path = path
    for check in VALUE_CHECKS:
        with problems.collected():
            check(config)
    if config.metrics_exporter_type not in SHOWN_BY:
        warnings.append(
            f"{at(path)}metricsExporterType={config.metrics_exporter_type.name}: "
            "a name server offers its metrics only with PROM; it offers none now"
        )
    problems.raise_all(warnings)
    return config, warnings
