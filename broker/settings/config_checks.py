"""The check of a broker's configuration: all that is wrong in a file, and what it warns of.

Pure, as `config.py`, which has the keys.

Java counterpart: BrokerStartup.buildBrokerController of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Final

from ...auth.config import read_access
from ...common.config import ConfigError, Entry, Problems, at, configure, is_address
from ...common.delay_levels import delay_levels_ms
from ...common.log_levels import parse_levels
from ...common.metrics_keys import MetricsExporterType
from ...common.networks import parse_networks
from ...remoting.hosts import join_address
from ...remoting.names import NAME_SHOWN_MAX, why_no_name
from ...remoting.tls_config import split_tls
from ...store.config import BrokerRole, MessageStoreConfig
from ...store.retention.retention_rules import delete_hours
from .config import HA_PORT_STEP, MASTER_ID, PORT_MAX, BrokerConfig, known_keys

REGION_LENGTH_MAX = 255
"""Characters of regionId, which each stored message has. RocketMQ has no bound."""

OTLP_PACKAGES = ("grpc", "opentelemetry.proto")
"""What the extra `otlp` installs."""

SLAVE_MEMORY_RATIO_LESS = 10
"""Percentage points by which a slave's accessMessageInMemoryMaxRatio is below the configured one.
Source: RocketMQ BrokerStartup."""

SYNC_REPLICAS_MIN = 2
"""The smallest inSyncReplicas of a SYNC_MASTER, itself and a slave; 1 counts as this (L12)."""


def read_broker_config(
    entries: list[Entry],
    broker: BrokerConfig,
    store: MessageStoreConfig,
    *,
    path: str = "",
    namesrv_addr: str | None = None,
) -> tuple[BrokerConfig, MessageStoreConfig, list[str]]:
    """Both configurations of a broker.conf, and its warnings, one line each.

    Args:
      entries: the file's, from `parse_properties`; empty: the defaults, which are checked, too.
        `tls.*` is left to `remoting/tls_settings.py`.
      broker, store: the defaults, from the environment for instance.
      path: for messages only.
      namesrv_addr: from the command line, which overrides the file; None: not given.
    Raises: ConfigError: unknown key, bad value, or a combination that cannot run.
    """
    entries = split_tls(entries)[1]
    problems = Problems(entries, path)
    configs, warnings = configure(
        entries, (broker, store), known_keys, path=path, problems=problems
    )
    broker, store = configs
    if namesrv_addr is not None:
        broker.namesrv_addr = namesrv_addr
    for warn in (
        partial(_apply_role, broker, store, path),
        partial(_check_ha_tls, store, path),
        partial(_idle_settings, broker, store),
    ):
        with problems.collected():
            warnings += [f"{at(path)}{text}" for text in warn()]
    with problems.collected():
        warnings += _check_replication(entries, broker, store, path)
    with problems.collected():
        check_namesrv_addresses(broker.namesrv_addresses, path=path)
    for check in (_check_ports, _check_names, *VALUE_CHECKS):
        with problems.collected():
            check(broker, store)
    problems.raise_all(warnings)
    return broker, store, warnings


def check_values(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Check strings with a form of their own, and numbers that depend on others.

    Raises: ConfigError: at the start, or at a change while the broker runs.
    """
    for check in VALUE_CHECKS:
        check(broker, store)


def _check_ports(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    if not 0 <= broker.listen_port <= PORT_MAX or broker.listen_port in (1, 2):
        raise ConfigError(
            f"listenPort={broker.listen_port}: listenPort - 2, the VIP port, must be a port, too: "
            f"write 3 to {PORT_MAX}, such as 10911, or 0 for a free one"
        )


def _check_names(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Raises: ConfigErrors: a name by which no name server would register the broker."""
    problems = Problems((), "")
    for key, name, example in (
        ("brokerName", broker.broker_name, "broker-a"),
        ("brokerClusterName", broker.broker_cluster_name, "DefaultCluster"),
    ):
        # Without brokerName the machine's name is used.
        why = why_no_name(name) if name or key != "brokerName" else None
        if why is not None:
            problems.add(
                ConfigError(
                    f"{key}={name[:NAME_SHOWN_MAX]!r} {why}: write a name such as {example}"
                )
            )
    for key, address in (("brokerIP1", broker.broker_ip1), ("brokerIP2", broker.broker_ip2)):
        if address and not is_address(join_address(address, 1)):
            problems.add(
                ConfigError(
                    f"{key}={address[:NAME_SHOWN_MAX]!r} is not an address or host name, such as "
                    "192.168.0.1 or broker-a.example.com"
                )
            )
    problems.raise_all()


def _check_forms(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Raises: ConfigErrors: strings that the parts of the broker would refuse at the start."""
    problems = Problems((), "")
    try:
        delay_levels_ms(store.message_delay_level)
    except ValueError:
        problems.add(
            ConfigError(
                f"messageDelayLevel={store.message_delay_level[:NAME_SHOWN_MAX]!r}: write "
                "durations with blanks between them, each a number and s, m, h or d, such as "
                "1s 5s 10m 2h"
            )
        )
    try:
        parse_networks(store.ha_allowed_slaves)
    except ValueError as error:
        problems.add(
            ConfigError(
                f"haAllowedSlaves={store.ha_allowed_slaves[:NAME_SHOWN_MAX]!r}: {error}; several "
                "look like 10.0.0.7;192.168.0.0/16"
            )
        )
    with problems.collected():
        parse_levels(broker.log_levels)
    with problems.collected():
        broker.check_exempt_addresses()
    problems.raise_all()


def _check_retention(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    try:
        delete_hours(store.delete_when)
    except ValueError as error:
        reason = f"deleteWhen: {error}; several look like 04;16"
        raise ConfigError(reason) from error
    least = 3 * store.mapped_file_size_commit_log
    if 0 < store.store_bytes_max < least:
        raise ConfigError(
            f"storeBytesMax must hold three commit log files, {least} bytes; or be 0, no limit"
        )


def _check_metrics(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Raises ConfigError if the metrics cannot leave the broker as its keys say."""
    broker.metrics_labels  # noqa: B018 - only the check
    broker.metrics_headers  # noqa: B018
    if broker.metrics_exporter_type is not MetricsExporterType.OTLP_GRPC:
        return
    target = broker.metrics_grpc_exporter_target.strip()
    without_scheme = target.removeprefix("http://").removeprefix("https://").removesuffix("/")
    if not is_address(without_scheme):
        raise ConfigError(
            f"metricsExporterType=OTLP_GRPC: metricsGrpcExporterTarget {target!r} is not the "
            "address of a collector; it looks like http://127.0.0.1:4317, or host:4317 with TLS"
        )
    for package in OTLP_PACKAGES:
        if not _is_installed(package):
            raise ConfigError(
                f"metricsExporterType=OTLP_GRPC needs the package {package}: "
                "pip install 'trocket[otlp]'"
            )


def _check_accounts(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    access = read_access(broker)
    if broker.filter_server_nums and broker.acl_enable:
        raise ConfigError(
            "aclEnable=true does not go together with filterServerNums: filter servers do not "
            "check accounts of ACL 1.0, so their consumers would get every message"
        )
    if broker.filter_server_nums and access.is_enabled and access.inner is None:
        raise ConfigError(
            "filterServerNums with authenticationEnabled=true needs "
            "innerClientAuthenticationCredentials: filter servers copy the accounts with it, and "
            "sign their pulls"
        )
    _check_plain_acl(broker)


def _check_region(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    region = broker.region_id
    if len(region) > REGION_LENGTH_MAX or not region.isprintable():
        raise ConfigError(
            f"regionId must be at most {REGION_LENGTH_MAX} printable characters: each message has "
            "it among its properties"
        )


VALUE_CHECKS: Final[tuple[Callable[[BrokerConfig, MessageStoreConfig], None], ...]] = (
    _check_retention,
    _check_forms,
    _check_metrics,
    _check_accounts,
    _check_region,
)
"""Each raises ConfigError; those of the start and of a change while the broker runs."""


def _check_plain_acl(broker: BrokerConfig) -> None:
    """Raises ConfigError if accounts of 1.0 cannot be used as their keys say."""
    if broker.acl_enable and broker.authentication_enabled:
        raise ConfigError(
            "aclEnable=true and authenticationEnabled=true: a broker has accounts of one "
            "generation. To keep those of plain_acl.yml in 2.0, set aclEnable=false and "
            "migrateAuthFromV1Enabled=true"
        )
    if broker.migrate_auth_from_v1_enabled and not broker.authentication_enabled:
        raise ConfigError(
            "migrateAuthFromV1Enabled=true needs authenticationEnabled=true: accounts are migrated "
            "to 2.0"
        )
    if not (broker.acl_enable or broker.migrate_auth_from_v1_enabled):
        return
    key = "aclEnable" if broker.acl_enable else "migrateAuthFromV1Enabled"
    if not broker.acl_config_path:
        raise ConfigError(
            f"{key}=true: set aclConfigPath to the folder of plain_acl.yml, or ROCKETMQ_HOME to "
            "the folder whose conf has it"
        )
    if not _is_installed("yaml"):
        raise ConfigError(f"{key}=true needs the package pyyaml: pip install 'trocket[broker]'")


def _apply_role(broker: BrokerConfig, store: MessageStoreConfig, path: str) -> Iterator[str]:
    """Make brokerId agree with brokerRole; yield a warning for each change.

    Raises: ConfigError: a slave has the master's id.
    Source: BrokerStartup.buildBrokerController.
    """
    if broker.enable_controller_mode:
        if not broker.controller_addresses:
            raise ConfigError(
                "enableControllerMode=true needs controllerAddr, the controllers' addresses, such "
                "as 10.0.0.1:9878;10.0.0.2:9878",
                path=path,
            )
        for address in broker.controller_addresses:
            if not is_address(address):
                raise ConfigError(
                    f"controllerAddr: {address!r} is not host:port, such as 10.0.0.1:9878",
                    path=path,
                )
    elif store.broker_role is BrokerRole.SLAVE:
        if broker.broker_id == MASTER_ID:
            raise ConfigError("brokerRole=SLAVE: a slave's brokerId is 1 or more", path=path)
        # On a slave, fewer messages count as in memory: a consumer that was sent there returns to
        # the master only after it has caught up by a tenth of the memory.
        ratio = store.access_message_in_memory_max_ratio - SLAVE_MEMORY_RATIO_LESS
        store.access_message_in_memory_max_ratio = max(ratio, 0)
    elif broker.broker_id != MASTER_ID:
        yield f"brokerId: ignored, a {store.broker_role.name} always has brokerId 0"
        broker.broker_id = MASTER_ID


def _check_replication(
    entries: list[Entry], broker: BrokerConfig, store: MessageStoreConfig, path: str
) -> list[str]:
    """Check the keys of replication with one another; return the warnings.

    Raises: ConfigError: a combination that would not replicate as configured.
    """
    is_sync = store.broker_role is BrokerRole.SYNC_MASTER
    warnings = [
        f"{at(path)}line {entry.line}: inSyncReplicas=1: counts as 2 for a "
        "SYNC_MASTER, whose sends wait for a slave. To wait for none, be an ASYNC_MASTER"
        for entry in entries
        if is_sync and entry.key == "inSyncReplicas" and store.in_sync_replicas < SYNC_REPLICAS_MIN
    ]
    if not store.ha_listen_port and broker.listen_port + HA_PORT_STEP > PORT_MAX:
        raise ConfigError("haListenPort is listenPort + 1, which is not a port: set it", path=path)
    if store.ha_master_address and not is_address(store.ha_master_address):
        raise ConfigError(
            f"haMasterAddress={store.ha_master_address} is not host:port of the master's "
            "haListenPort, such as 192.168.0.1:10912",
            path=path,
        )
    return warnings


def _check_ha_tls(store: MessageStoreConfig, path: str) -> Iterator[str]:
    """Yield a warning for settings of TLS between master and slaves that have no effect.

    Raises: ConfigError: a file that haTlsEnable needs is not set.
    """
    files = {
        "haTlsCertPath": store.ha_tls_cert_path,
        "haTlsKeyPath": store.ha_tls_key_path,
        "haTlsTrustCertPath": store.ha_tls_trust_cert_path,
    }
    if not store.ha_tls_enable:
        set_keys = [key for key, value in files.items() if value]
        if set_keys:
            yield f"{', '.join(set_keys)}: nothing is encrypted without haTlsEnable=true"
        return
    missing = [key for key, value in files.items() if not value]
    if missing:
        raise ConfigError(f"haTlsEnable=true needs {', '.join(missing)}, too", path=path)


def _idle_settings(broker: BrokerConfig, store: MessageStoreConfig) -> Iterator[str]:
    """Yield a warning for settings of filters that have no effect."""
    if broker.enable_calc_filter_bit_map and not (
        broker.enable_property_filter and store.enable_consume_queue_ext
    ):
        yield (
            "enableCalcFilterBitMap does nothing without enablePropertyFilter and "
            "enableConsumeQueueExt"
        )
    runs_source = broker.java_filter_enable or broker.python_filter_enable
    uploads = broker.client_upload_filter_class_enable
    if broker.filter_server_nums and not (runs_source or broker.filter_classes_file):
        yield (
            "filterServerNums: the filter servers would have no filter: set filterClassesFile, "
            "javaFilterEnable or pythonFilterEnable"
        )
    if runs_source and uploads and not broker.filter_upload_groups:
        yield "javaFilterEnable and pythonFilterEnable do nothing without filterUploadGroups"
    if runs_source and not uploads and not broker.filter_class_repertory_url:
        yield "clientUploadFilterClassEnable=false does nothing without filterClassRepertoryUrl"


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even what the package is in
        return False


def check_namesrv_addresses(addresses: tuple[str, ...], *, path: str = "") -> None:
    """Raises ConfigError unless each is `host:port`. Source: RocketMQ BrokerStartup."""
    for address in addresses:
        if not is_address(address):
            reason = (
                f"namesrvAddr: the name server address {address!r} is not host:port; "
                "several look like 127.0.0.1:9876;192.168.0.1:9876"
            )
            raise ConfigError(reason, path=path)
