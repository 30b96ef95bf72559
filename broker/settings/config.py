"""The broker's keys of broker.conf: RocketMQ's names in snake_case, its types, its defaults.

Pure: facts about the machine (its name, its address, the environment) are arguments.
The store's keys, from the same file, are in `store/config.py`.

Java counterpart: common/BrokerConfig.java and remoting/netty/NettyServerConfig.java of 5.5.0.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...auth.config import GUARDED, AccessConfig
from ...common.config import ConfigError, KnownKey, setting
from ...common.connection_policy import NEVER_IDLE
from ...common.filter_policy import FilterPolicy
from ...common.known_keys import read_keys
from ...common.log_levels import LogLevel
from ...common.metrics_keys import MetricsExporterType, name_value_pairs, with_labels
from ...remoting.hosts import join_address
from ...remoting.names import FILTER_SERVERS_MAX
from .controller_mode import ControllerModeConfig
from .limits import BrokerLimits
from .pop_config import PopConfig

MASTER_ID = 0
"""The broker id that is the master of its broker name. Source: RocketMQ MixAll.MASTER_ID."""

PORT_MAX = 65_535

HA_PORT_STEP = 1
"""haListenPort is listenPort + 1 unless the file says otherwise."""

_HEADER_NAME = re.compile(r"[a-z0-9_.-]+(?<!-bin)")
"""gRPC's names of headers; those that end in -bin have values in bytes."""


PUSHED = frozenset({MetricsExporterType.OTLP_GRPC, MetricsExporterType.LOG})
"""The ways in which a broker sends its metrics by itself."""


@dataclass(slots=True)
class BrokerConfig(FilterPolicy, AccessConfig, BrokerLimits, PopConfig, ControllerModeConfig):
    """The broker's configuration. Times are milliseconds unless the name says otherwise.

    The keys of `FilterPolicy` are for the filter servers that the broker keeps alive; those of
    `AccessConfig` for its accounts; of `BrokerLimits` for its clients; of `PopConfig` for pop; of
    `ControllerModeConfig` for a role that a controller gives.

    Attributes:
      broker_cluster_name: the cluster that name servers list it under.
      broker_name: the broker's name; "" until `with_machine` sets it to the host name.
      broker_id: 0 = master; a master's is always 0, whatever the file says, and a slave's never
        (BrokerStartup).
      broker_ip1: the address advertised to clients; "" until `with_machine` sets this machine's.
        Any name or address that the clients can reach, a container's published one for instance.
      broker_ip2: the address advertised to slaves; "" = broker_ip1.
      listen_port: port to listen on and to advertise; 0 = a free one. Port - 2 is the VIP port.
      grpc_server_port: a key of RocketMQ's proxy. A further port, such as 8081, which gRPC clients
        expect; 0 = none. They are served on the other ports, too.
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
      enable_mixed_message_type: whether a topic may have the type MIXED, which takes messages of
        gRPC clients of any type.
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
    grpc_server_port: int = setting(0, minimum=0, maximum=PORT_MAX)
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
    enable_mixed_message_type: bool = setting(False, live=True)
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
