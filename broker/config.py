"""The broker's keys of broker.conf: RocketMQ's names in snake_case, its types, its defaults.

Pure: facts about the machine (its name, its address, the environment) are arguments.
The store's keys, from the same file, are in `store/config.py`.

Java counterpart: common/BrokerConfig.java and remoting/netty/NettyServerConfig.java of 5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

from ..auth.config import GUARDED, AccessConfig, read_access
from ..common.config import (
    ConfigError,
    Entry,
    KnownKey,
    Problems,
    configure,
    is_address,
    setting,
)
from ..common.connection_policy import NEVER_IDLE
from ..common.filter_policy import FilterPolicy
from ..common.known_keys import read_keys
from ..common.log_levels import LogLevel, parse_levels
from ..common.metrics_keys import MetricsExporterType, name_value_pairs, with_labels
from ..common.networks import parse_networks
from ..remoting.hosts import join_address
from ..remoting.memory_budget import BUDGET_MIN
from ..remoting.names import FILTER_SERVERS_MAX, NAME_SHOWN_MAX, why_no_name
from ..remoting.tls_config import split_tls
from ..store.config import BrokerRole, MessageStoreConfig
from ..store.queues.projection import delay_levels_ms
from ..store.retention.retention_rules import delete_hours
from .limits import BrokerLimits
from .pop_config import PopConfig

MASTER_ID = 0
"""The broker id that is the master of its broker name. Source: RocketMQ MixAll.MASTER_ID."""

PORT_MAX = 65_535

REGION_LENGTH_MAX = 255
"""Characters of regionId, which each stored message has. RocketMQ has no bound."""

OTLP_PACKAGES = ("grpc", "opentelemetry.proto")
"""What the extra `otlp` installs."""

HA_PORT_STEP = 1
"""haListenPort is listenPort + 1 unless the file says otherwise."""

SLAVE_MEMORY_RATIO_LESS = 10
"""Percentage points by which a slave's accessMessageInMemoryMaxRatio is below the configured one.
Source: RocketMQ BrokerStartup."""

SYNC_REPLICAS_MIN = 2
"""The smallest inSyncReplicas of a SYNC_MASTER, itself and a slave; 1 counts as this (L12)."""

_HEADER_NAME = re.compile(r"[a-z0-9_.-]+(?<!-bin)")
"""gRPC's names of headers; those that end in -bin have values in bytes."""


PUSHED = frozenset({MetricsExporterType.OTLP_GRPC, MetricsExporterType.LOG})
"""The ways in which a broker sends its metrics by itself."""


@dataclass(slots=True)
class BrokerConfig(FilterPolicy, AccessConfig, BrokerLimits, PopConfig):
    """The broker's configuration. Times are milliseconds unless the name says otherwise.

    The keys of `FilterPolicy` are for the filter servers that the broker keeps alive; those of
    `AccessConfig` for its accounts; of `BrokerLimits` for its clients; of `PopConfig` for pop.

    Attributes:
      broker_cluster_name: the cluster that name servers list it under.
      broker_name: the broker's name; "" until `with_machine` sets it to the host name.
      broker_id: 0 = master; a master's is always 0, whatever the file says, and a slave's never
        (BrokerStartup).
      broker_ip1: the address advertised to clients; "" until `with_machine` sets this machine's.
        Any name or address that the clients can reach, a container's published one for instance.
      broker_ip2: the address advertised to slaves; "" = broker_ip1.
      listen_port: port to listen on and to advertise; 0 = a free one. Port - 2 is the VIP port.
        RocketMQ's class says 6888, its BrokerStartup 10911.
      bind_address: local address to listen on; 0.0.0.0 = all.
      namesrv_addr: name servers, `host:port;host:port`; "" = none, and no client finds the broker.
      broker_permission: 2 = write, 4 = read, 6 = both; what the route of every topic is limited to.
      default_topic_queue_nums: most queues of a topic that the first send to it creates.
      auto_create_topic_enable: whether a send to an unknown topic creates it, from TBW102.
      cluster_topic_enable, broker_topic_enable: whether the topics with the names of the cluster
        and of the broker, to which RocketMQ's tools send, may be read and written.
      auto_create_subscription_group: whether an unknown consumer group may consume.
      trace_topic_enable, msg_trace_topic_name: whether the trace topic exists, and its name.
      flush_consumer_offset_interval: between writes of consumer offsets to disk.
      forward_timeout: for an answer of another broker of a static topic.
      long_polling_enable: whether pulls that find nothing wait.
      short_polling_time_mills: how long they wait where long polling is off.
      enable_property_filter: whether consumers may filter by SQL92 expressions over properties.
      enable_calc_filter_bit_map: whether the expressions of a topic are evaluated when a message is
        stored, so that pulls can skip it unread; needs enableConsumeQueueExt, too.
      expect_consumer_num_use_filter, max_error_rate_of_bloom_filter: groups of a topic, and percent
        of messages that are read though they do not match; they determine the bit maps' size.
      filter_data_clean_time_span: how long expressions of groups that left are kept.
      filter_support_retry: whether an expression on a group's retry topic means that each message
        is filtered by the group's expression for the topic it comes from.
      filter_server_nums: filter servers that are kept alive as processes; 0 = none.
      delay_offset_update_version_step: deliveries between two versions of delayOffset.json.
      transaction_time_out: how long a producer has until its transaction is checked.
      transaction_check_max: how often it is checked.
      transaction_check_interval: between two checks.
      reject_transaction_message: refuse transactions.
      send_thread_pool_queue_capacity: sends whose answers wait for the disk, under SYNC_FLUSH; more
        are refused with SYSTEM_BUSY.
      lite_pull_message_enable: whether lite pull consumers of 5.x may pull.
      recall_message_enable: whether timer messages may be taken back (RECALL_MESSAGE).
      store_reply_message_enable: whether replies to requests are stored, too.
      enable_detail_stat: whether single queues have counters of stored messages, 3 KB each.
      clear_retry_topic_when_delete_topic: whether 215 deletes the retry topics of the topic's pop
        consumers, too.
      use_server_side_reset_offset: whether 222 resets the offsets of a group on the broker, so that
        they change without its clients, too; false: its connected clients reset themselves.
      notify_consumer_ids_changed_enable: whether groups are notified of members that join or leave.
      region_id, trace_on: sent to producers with each answer (MSG_REGION, TRACE_ON).
      register_broker_timeout_mills: for one registration with one name server.
      register_name_server_period: between registrations; clamped to 10,000 to 60,000 as RocketMQ
        does, because a name server forgets a broker after 120,000.
      force_register: register even where the name server's copy of the topics is current.
      enable_split_registration, split_registration_size: register a table of more topics than that
        in parts. One of more than 5,000 topics is registered in parts without that key, too.
      compressed_register: register the table deflated and in one part. For name servers with
        deleteTopicWithBrokerRegistration, which treat each part as the whole table.
      reject_pull_consumer_enable: refuse consumers that only pull (heartbeat says
        CONSUME_ACTIVELY).
      server_channel_max_idle_time_seconds: a connection without traffic for this long is closed.
      channel_expired_timeout: a client without a heartbeat for this long leaves its groups.
      slave_read_enable: a master may send consumers that are far behind to a slave
        (whichBrokerWhenConsumeSlowly of their group), and a slave answers pulls.
      metrics_exporter_type: whether Prometheus may read metrics (PROM), or they are sent to a
        collector (OTLP_GRPC) or logged (LOG).
      metrics_prom_exporter_port, metrics_prom_exporter_host: where HTTP serves `/metrics` and
        `/health`; port 0: a free one; host "": bind_address (RocketMQ: brokerIP1).
      metrics_tls_enable: not a key of RocketMQ. Whether metrics and health are served by TLS only,
        with the certificate of the other listeners.
      metrics_label: further labels of all metrics, `name:value,name:value`.
      metrics_grpc_exporter_target: the collector that OTLP_GRPC sends to, `host:port` (by TLS) or
        `http://host:port` (without).
      metrics_grpc_exporter_header: headers for it, such as a token's, `name:value,name:value`.
      metric_grpc_exporter_time_out_in_mills: for one request to the collector.
      metric_grpc_exporter_interval_in_mills: between two times that OTLP_GRPC sends the metrics.
      metric_logging_exporter_interval_in_mills: between two times that LOG logs the metrics.
      metrics_in_delta: send and log what counters have gained since the last time, and label all
        metrics aggregation=delta.
      metrics_export_batch_max_data_points: samples of one request to the collector.
      metrics_otel_cardinality_limit: samples that one metric may have; further ones are left out.
      enable_stats_metrics, enable_remoting_metrics, enable_request_metrics,
        enable_connection_metrics, enable_lag_and_dlq_metrics, enable_transaction_metrics,
        enable_message_store_metrics: the groups of RocketMQ's metrics.
      metrics_of_exporter: not a key of RocketMQ. Whether the names of rocketmq-exporter are there,
        too, which published boards and alerts use.
      metrics_per_queue: not a key of RocketMQ. Whether lag is stated by queue, too.
      remoting_bytes_max: not a key of RocketMQ. Bytes that all connections together may hold of
        incomplete frames, held pulls, unread answers and subscriptions
        (`remoting/memory_budget.py`); None: a quarter of the memory, at most 1 GiB. RocketMQ has
        the limits of its JVM.
      acl_enable: whether requests need the signature of an account of plain_acl.yml, ACL 1.0.
      acl_config_path: not a key of RocketMQ. The folder of plain_acl.yml and of the folder acl with
        further files; "": `conf` in the environment's ROCKETMQ_HOME.
      migrate_auth_from_v1_enabled: at each start, create users and rules of 2.0 for the accounts
        of plain_acl.yml that are no users yet.
      allow_remote_administration: not a key of RocketMQ. Without accounts, whether other machines
        may delete and change what `auth/dangerous.py` lists, too.
      log_level: not a key of RocketMQ. The lowest level of log lines; DEFAULT: that of
        `--log-level`.
      log_levels: not a key of RocketMQ. Levels of single parts, `part:LEVEL,part:LEVEL`.
      slave_sync_interval: not a key of RocketMQ. Between two requests of a slave for its master's
        topics, groups and offsets. RocketMQ: 10,000 in 4.9, 60,000 in 5.x.
    """

    broker_cluster_name: str = "DefaultCluster"
    broker_name: str = ""
    broker_id: int = setting(MASTER_ID, minimum=0)
    broker_ip1: str = ""
    broker_ip2: str = ""
    listen_port: int = setting(10911, minimum=0, maximum=PORT_MAX, clamp=None)
    bind_address: str = "0.0.0.0"
    namesrv_addr: str = ""
    broker_permission: int = setting(6, minimum=0, maximum=7, live=True)
    default_topic_queue_nums: int = setting(8, minimum=1, maximum=65_535, live=True)
    auto_create_topic_enable: bool = setting(True, live=True)
    cluster_topic_enable: bool = setting(True, live=True)
    broker_topic_enable: bool = setting(True, live=True)
    auto_create_subscription_group: bool = setting(True, live=True)
    trace_topic_enable: bool = setting(False, live=True)
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    flush_consumer_offset_interval: int = setting(5_000, minimum=1, live=True)
    delay_offset_update_version_step: int = setting(200, minimum=1)
    transaction_time_out: int = setting(6_000, minimum=1, live=True)
    transaction_check_max: int = setting(15, minimum=1, live=True)
    transaction_check_interval: int = setting(30_000, minimum=1, live=True)
    reject_transaction_message: bool = setting(False, live=True)
    send_thread_pool_queue_capacity: int = setting(10_000, minimum=1, live=True)
    lite_pull_message_enable: bool = setting(True, live=True)
    recall_message_enable: bool = setting(False, live=True)
    store_reply_message_enable: bool = setting(True, live=True)
    enable_property_filter: bool = False
    enable_calc_filter_bit_map: bool = False
    expect_consumer_num_use_filter: int = setting(32, minimum=1, maximum=25_000)
    max_error_rate_of_bloom_filter: int = setting(20, minimum=1, maximum=99)
    filter_data_clean_time_span: int = setting(86_400_000, minimum=0, live=True)
    filter_support_retry: bool = setting(False, live=True)
    filter_server_nums: int = setting(
        0, minimum=0, maximum=FILTER_SERVERS_MAX, guarded="starts processes"
    )
    forward_timeout: int = setting(3_000, minimum=1, live=True)
    long_polling_enable: bool = setting(True, live=True)
    short_polling_time_mills: int = setting(1_000, minimum=0, live=True)
    notify_consumer_ids_changed_enable: bool = setting(True, live=True)
    enable_detail_stat: bool = True
    clear_retry_topic_when_delete_topic: bool = setting(True, live=True)
    use_server_side_reset_offset: bool = setting(True, live=True)
    region_id: str = setting("DefaultRegion", live=True)
    trace_on: bool = setting(True, live=True)
    register_broker_timeout_mills: int = setting(24_000, minimum=1, live=True)
    register_name_server_period: int = setting(30_000, minimum=1, live=True)
    force_register: bool = setting(True, live=True)
    enable_split_registration: bool = setting(False, live=True)
    split_registration_size: int = setting(800, minimum=10, live=True)
    compressed_register: bool = setting(False, live=True)
    reject_pull_consumer_enable: bool = setting(False, live=True)
    server_channel_max_idle_time_seconds: int = setting(120, minimum=1, clamp=NEVER_IDLE)
    channel_expired_timeout: int = setting(120_000, minimum=1, live=True)
    slave_read_enable: bool = setting(False, live=True)
    slave_sync_interval: int = setting(10_000, minimum=100, live=True)
    metrics_exporter_type: MetricsExporterType = MetricsExporterType.DISABLE
    metrics_prom_exporter_port: int = setting(5557, minimum=0, maximum=PORT_MAX, clamp=None)
    metrics_prom_exporter_host: str = ""
    metrics_tls_enable: bool = setting(False, guarded="protects connections")
    metrics_label: str = ""
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = setting("", secret=True)
    metric_grpc_exporter_time_out_in_mills: int = setting(3_000, minimum=1)
    metric_grpc_exporter_interval_in_mills: int = setting(60_000, minimum=100)
    metric_logging_exporter_interval_in_mills: int = setting(10_000, minimum=100)
    metrics_in_delta: bool = False
    metrics_export_batch_max_data_points: int = setting(1_000, minimum=1)
    metrics_otel_cardinality_limit: int = setting(50_000, minimum=1, live=True)
    enable_stats_metrics: bool = setting(True, live=True)
    enable_remoting_metrics: bool = setting(True, live=True)
    enable_request_metrics: bool = setting(True, live=True)
    enable_connection_metrics: bool = setting(True, live=True)
    enable_lag_and_dlq_metrics: bool = setting(True, live=True)
    enable_transaction_metrics: bool = setting(True, live=True)
    enable_message_store_metrics: bool = setting(True, live=True)
    metrics_of_exporter: bool = True
    metrics_per_queue: bool = setting(False, live=True)
    remoting_bytes_max: int | None = setting(None, minimum=BUDGET_MIN)
    acl_enable: bool = setting(False, guarded=GUARDED)
    acl_config_path: str = setting("", guarded=GUARDED)
    migrate_auth_from_v1_enabled: bool = setting(False, guarded=GUARDED)
    allow_remote_administration: bool = setting(False, guarded="protects the server")
    log_level: LogLevel = setting(LogLevel.DEFAULT, live=True)  # noqa: RUF009 - a field
    log_levels: str = setting("", live=True)

    @property
    def has_accounts(self) -> bool:
        """Whether each request must have the signature of an account, of ACL 1.0 or 2.0."""
        return self.authentication_enabled or self.acl_enable

    @property
    def namesrv_addresses(self) -> tuple[str, ...]:
        """The name servers, `host:port` each, in the order given, without repetitions."""
        return tuple(dict.fromkeys(filter(None, map(str.strip, self.namesrv_addr.split(";")))))

    @property
    def metrics_labels(self) -> dict[str, str]:
        """The labels of all metrics: those of RocketMQ, and those of metricsLabel.

        Raises: ConfigError: metricsLabel is not as it should be.
        """
        labels = {
            "cluster": self.broker_cluster_name,
            "node_type": "broker",
            "node_id": self.broker_name,
        }
        if self.metrics_in_delta:
            labels["aggregation"] = "delta"
        return with_labels(labels, self.metrics_label)

    @property
    def metrics_headers(self) -> tuple[tuple[str, str], ...]:
        """The headers for the collector of metrics.

        Raises: ConfigError: metricsGrpcExporterHeader is not as it should be. Its text has no
          values, which may be secret.
        """
        headers: list[tuple[str, str]] = []
        for name, value in name_value_pairs(self.metrics_grpc_exporter_header):
            name = name.lower()  # as HTTP/2 has them
            is_text = value is not None and value.isascii() and value.isprintable()
            if value is None or not is_text or not _HEADER_NAME.fullmatch(name):
                raise ConfigError(
                    f"metricsGrpcExporterHeader: header {len(headers) + 1} is not name:value in "
                    "ASCII with a name of letters, digits, -, _ and .; several look like "
                    "authorization:token,x-a:b"
                )
            headers.append((name, value))
        return tuple(headers)

    @property
    def register_period_s(self) -> float:
        """Seconds between two registrations, 10 to 60. Source: BrokerController.start."""
        return max(10_000, min(self.register_name_server_period, 60_000)) / 1000

    def address(self, port: int) -> str:
        """The advertised `host:port` of a port; IPv6 in brackets, as RocketMQ writes it."""
        return join_address(self.broker_ip1, port)


def known_keys() -> Mapping[str, KnownKey]:
    """Every key that RocketMQ reads from a broker.conf, supported or not."""
    return read_keys("netty", "store", "broker")


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
            warnings += [f"{path}{': ' if path else ''}{text}" for text in warn()]
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
    """Check texts with a form of their own, and numbers that depend on others.

    Raises: ConfigError: at the start, or at a change while the broker runs.
    """
    for check in VALUE_CHECKS:
        check(broker, store)


def _check_ports(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    if not 0 <= broker.listen_port <= PORT_MAX or broker.listen_port in (1, 2):
        raise ConfigError("listenPort - 2, the VIP port, must be a port too")


def _check_names(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Raises: ConfigErrors: a name by which no name server would register the broker."""
    problems = Problems((), "")
    for key, name in (
        ("brokerName", broker.broker_name),
        ("brokerClusterName", broker.broker_cluster_name),
    ):
        # Without brokerName the machine's name is used.
        why = why_no_name(name) if name or key != "brokerName" else None
        if why is not None:
            problems.add(ConfigError(f"{key}={name[:NAME_SHOWN_MAX]!r} {why}"))
    for key, address in (("brokerIP1", broker.broker_ip1), ("brokerIP2", broker.broker_ip2)):
        if address and not is_address(join_address(address, 1)):
            problems.add(
                ConfigError(f"{key}={address[:NAME_SHOWN_MAX]!r} is no address or host name")
            )
    problems.raise_all()


def _check_forms(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    """Raises: ConfigErrors: texts that the parts of the broker would refuse at the start."""
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
            ConfigError(f"haAllowedSlaves={store.ha_allowed_slaves[:NAME_SHOWN_MAX]!r}: {error}")
        )
    with problems.collected():
        parse_levels(broker.log_levels)
    with problems.collected():
        broker.check_exempt_addresses()
    problems.raise_all()


def _check_store(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    _check_retention(store)


def _check_outlets(broker: BrokerConfig, store: MessageStoreConfig) -> None:
    _check_metrics(broker)


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
    _check_store,
    _check_forms,
    _check_outlets,
    _check_accounts,
    _check_region,
)
"""Each raises ConfigError; those of the start and of a change while the broker runs."""


def _check_plain_acl(broker: BrokerConfig) -> None:
    """Raises ConfigError if accounts of 1.0 cannot be used as their keys say."""
    if broker.acl_enable and broker.authentication_enabled:
        raise ConfigError(
            "aclEnable=true and authenticationEnabled=true: a broker has accounts of one "
            "generation. To go on with those of plain_acl.yml in 2.0, set aclEnable=false and "
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

    On a slave, messages count as in memory only when they are nearer to the log's end: a consumer
    that was sent there returns to the master only after it has caught up by a tenth of the memory.

    Raises: ConfigError: a slave has the master's id.
    Source: BrokerStartup.buildBrokerController.
    """
    if store.broker_role is BrokerRole.SLAVE:
        if broker.broker_id == MASTER_ID:
            raise ConfigError("brokerRole=SLAVE: a slave's brokerId is 1 or more", path=path)
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
        f"{path}{': ' if path else ''}line {entry.line}: inSyncReplicas=1: counts as 2 for a "
        "SYNC_MASTER, whose sends wait for a slave. To wait for none, be an ASYNC_MASTER"
        for entry in entries
        if is_sync and entry.key == "inSyncReplicas" and store.in_sync_replicas < SYNC_REPLICAS_MIN
    ]
    if not store.ha_listen_port and broker.listen_port + HA_PORT_STEP > PORT_MAX:
        raise ConfigError("haListenPort is listenPort + 1, which is no port: set it", path=path)
    if store.ha_master_address and not is_address(store.ha_master_address):
        raise ConfigError(
            f"haMasterAddress={store.ha_master_address} is not host:port of the master's "
            "haListenPort",
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


def _check_metrics(broker: BrokerConfig) -> None:
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


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even what the package is in
        return False


def _check_retention(store: MessageStoreConfig) -> None:
    try:
        delete_hours(store.delete_when)
    except ValueError as error:
        reason = f"deleteWhen: {error}; hours are 0 to 23, several look like 04;16"
        raise ConfigError(reason) from error
    least = 3 * store.mapped_file_size_commit_log
    if 0 < store.store_bytes_max < least:
        raise ConfigError(
            f"storeBytesMax must hold three commit log files, {least} bytes; or be 0, no limit"
        )


def check_namesrv_addresses(addresses: tuple[str, ...], *, path: str = "") -> None:
    """Raises ConfigError unless each is `host:port`. Source: RocketMQ BrokerStartup."""
    for address in addresses:
        if not is_address(address):
            reason = (
                f"namesrvAddr: the name server address {address!r} is not host:port; "
                "several look like 127.0.0.1:9876;192.168.0.1:9876"
            )
            raise ConfigError(reason, path=path)


def with_machine(
    config: BrokerConfig, *, host_name: str, local_address: Callable[[], str]
) -> BrokerConfig:
    """Fill in what the file left open from this machine; return the same object.

    Args:
      host_name: the default of broker_name; "" becomes DEFAULT_BROKER as in RocketMQ.
      local_address: returns the default of broker_ip1, which is in turn that of broker_ip2.
    Source: RocketMQ BrokerIdentity.defaultBrokerName, BrokerConfig.
    """
    config.broker_name = config.broker_name or host_name or "DEFAULT_BROKER"
    config.broker_ip1 = config.broker_ip1 or local_address()
    config.broker_ip2 = config.broker_ip2 or config.broker_ip1
    return config


def from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The fields that the environment sets: NAMESRV_ADDR, and ROCKETMQ_HOME for plain_acl.yml, as
    Apache's broker reads them."""
    fields = {"namesrv_addr": environment.get("NAMESRV_ADDR", "")}
    home = environment.get("ROCKETMQ_HOME", "")
    if home:
        fields["acl_config_path"] = f"{home}/conf"
    return {name: value for name, value in fields.items() if value}
