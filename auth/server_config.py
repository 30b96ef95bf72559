"""The keys that a name server and a controller share, and the reading of their files.

Pure.

Java counterpart: remoting/netty/NettyServerConfig.java of 5.5.0, and the keys of metrics in
common/ControllerConfig.java.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, TypeVar

from ..common.config import Entry, KnownKey, Problems, at, configure, setting
from ..common.connection_policy import NEVER_IDLE, ConnectionPolicy
from ..common.log_levels import LogLevel, parse_levels
from ..common.metrics_keys import MetricsExporterType, with_labels
from ..remoting.tls_config import split_tls
from .config import AccessConfig, read_access

SHOWN_BY: Final = frozenset({MetricsExporterType.DISABLE, MetricsExporterType.PROM})
"""The values of metricsExporterType that do here what they say."""


@dataclass(slots=True)
class ServerConfig(AccessConfig, ConnectionPolicy):
    """The keys of a server without messages, a name server or a controller.

    The keys of `AccessConfig`, which those of RocketMQ do not have, are for its accounts, those of
    `ConnectionPolicy` limit its connections.

    Attributes:
      bind_address: local address to listen on; 0.0.0.0 = all.
      config_store_path: file that changed settings are written to; with `-c` it is that file.
      server_channel_max_idle_time_seconds: a connection without traffic for this long is closed.
      broker_cluster_name: a key that RocketMQ has for brokers only. The cluster whose rights are
        needed for administration here, beside accounts: `Cluster:NAME` in their rules.
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
    """

    node_type: ClassVar[str]
    """RocketMQ's name for the kind of server, a label of all metrics."""

    bind_address: str = "0.0.0.0"
    config_store_path: str = setting("", guarded="is a path of files")
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1, clamp=NEVER_IDLE)
    broker_cluster_name: str = "DefaultCluster"
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
        return with_labels({"node_type": self.node_type, "node_id": ""}, self.metrics_label)


def _check_levels(config: ServerConfig) -> None:
    parse_levels(config.log_levels)


def _check_limits(config: ServerConfig) -> None:
    config.check_exempt_addresses()


def _check_accounts(config: ServerConfig) -> None:
    read_access(config)


def _check_metrics(config: ServerConfig) -> None:
    config.metrics_labels  # noqa: B018 - only the check


SERVER_CHECKS: Final[tuple[Callable[[ServerConfig], None], ...]] = (
    _check_levels,
    _check_limits,
    _check_accounts,
    _check_metrics,
)
"""Each raises ConfigError; those of the start and of a change while the server runs."""

Config = TypeVar("Config", bound=ServerConfig)


def read_server_config(
    entries: list[Entry],
    defaults: Config,
    known_keys: Callable[[], Mapping[str, KnownKey]],
    checks: Iterable[Callable[[Config], None]],
    *,
    path: str,
    server: str,
) -> tuple[Config, list[str]]:
    """The configuration of a file, and its warnings, one line each.

    Args:
      entries: the file's, from `parse_properties`. `tls.*` is left to `remoting/tls_settings.py`.
      defaults: used for keys that the file does not set.
      checks: of strings with a form of their own, and of keys that need others.
      path: for messages; changed settings are written back to it, as with RocketMQ.
      server: its name in warnings, such as "a name server".
    Raises: ConfigError: unknown key or bad value.
    """
    entries = split_tls(entries)[1]
    problems = Problems(entries, path)
    configs, warnings = configure(entries, (defaults,), known_keys, path=path, problems=problems)
    config: Config = configs[0]
    if path:
        config.config_store_path = path
    for check in checks:
        with problems.collected():
            check(config)
    if config.metrics_exporter_type not in SHOWN_BY:
        warnings.append(
            f"{at(path)}metricsExporterType={config.metrics_exporter_type.name}: "
            f"{server} offers its metrics only with PROM; it offers none now"
        )
    problems.raise_all(warnings)
    return config, warnings
