"""broker.conf: Apache's files start ours, RocketMQ's keys are known, nonsense is named."""

from __future__ import annotations

import dataclasses
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.broker.settings.config import BrokerConfig, from_environment, known_keys, with_machine
from trocket.broker.settings.config_checks import read_broker_config
from trocket.common.config import ConfigError, ConfigErrors, key_of, parse_properties, to_properties
from trocket.store.config import BrokerRole, FlushDiskType, MessageStoreConfig

Read = tuple[BrokerConfig, MessageStoreConfig, list[str]]

APACHE_BROKER_CONF = """\
# distribution/conf/broker.conf of RocketMQ 5.5.0, without its licence header
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""

APACHE_CONTAINER_CONF = """\
#Master\xe9\x85\x8d\xe7\xbd\xae
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
brokerRole=SYNC_MASTER
flushDiskType=ASYNC_FLUSH
storePathRootDir=/root/broker-a/store
storePathCommitLog=/root/broker-a/store/commitlog
listenPort=10911
haListenPort=10912
totalReplicas=2
inSyncReplicas=2
minInSyncReplicas=1
enableAutoInSyncReplicas=true
slaveReadEnable=true
brokerHeartbeatInterval=1000
brokerNotActiveTimeoutMillis=5000
sendHeartbeatTimeoutMillis=1000
enableSlaveActingMaster=true
"""


def read(text: str, **given: str | None) -> Read:
    entries = parse_properties(text)
    return read_broker_config(entries, BrokerConfig(), MessageStoreConfig(), **given)


def test_the_broker_conf_of_apaches_distribution_is_read() -> None:
    broker, store, _ = read(APACHE_BROKER_CONF)
    assert (broker.broker_cluster_name, broker.broker_name) == ("DefaultCluster", "broker-a")
    assert broker.broker_id == 0
    assert store.broker_role is BrokerRole.ASYNC_MASTER
    assert store.flush_disk_type is FlushDiskType.ASYNC_FLUSH


def test_a_file_of_apaches_containers_is_read_with_warnings_for_what_is_missing() -> None:
    broker, store, warnings = read(APACHE_CONTAINER_CONF)
    assert broker.listen_port == 10911
    assert store.store_path_root_dir == "/root/broker-a/store"
    assert store.broker_role is BrokerRole.SYNC_MASTER
    warned = {warning.split()[2] for warning in warnings}
    assert {"totalReplicas", "enableSlaveActingMaster"} <= warned
    assert (store.in_sync_replicas, store.ha_listen_port) == (2, 10912)
    assert broker.slave_read_enable
    assert all("acting masters" in warning for warning in warnings)


def test_the_folklore_of_guides_warns_and_does_not_stop() -> None:
    _, _, warnings = read("storePathConsumeQueue=/x\nabortFile=/y\nmapedFileSizeCommitLog=1")
    assert len(warnings) == 3
    assert "follows from storePathRootDir" in warnings[0]


def test_a_mistyped_key_names_the_right_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown key 'brokerip1'; .* brokerIP1"):
        read("brokerip1=192.0.2.1")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("aclEnable=true", "aclEnable=true: set aclConfigPath"),
        (
            "aclEnable=true\nauthenticationEnabled=true\naclConfigPath=/c",
            "a broker has accounts of one generation",
        ),
        ("migrateAuthFromV1Enabled=true", "needs authenticationEnabled=true"),
        (
            "migrateAuthFromV1Enabled=true\nauthenticationEnabled=true",
            "migrateAuthFromV1Enabled=true: set aclConfigPath",
        ),
        (
            "aclEnable=true\naclConfigPath=/c\nfilterServerNums=1\njavaFilterEnable=true",
            "filter servers do not check accounts of ACL 1.0",
        ),
    ],
)
def test_accounts_of_1_0_that_cannot_be_used_are_refused(lines: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        read(lines)


def test_accounts_of_1_0_are_in_rocketmqs_folder() -> None:
    assert from_environment({"ROCKETMQ_HOME": "/r"}) == {"acl_config_path": "/r/conf"}
    broker, _, warnings = read("aclEnable=true\naclConfigPath=/c")
    assert (broker.acl_enable, broker.acl_config_path, warnings) == (True, "/c", [])


def test_a_slave_has_an_id_of_its_own() -> None:
    broker, store, warnings = read("brokerRole=SLAVE\nbrokerId=1")
    assert (store.broker_role, broker.broker_id, warnings) == (BrokerRole.SLAVE, 1, [])
    for line in ("", "brokerId=0"):
        with pytest.raises(ConfigError, match=r"b\.conf.*a slave's brokerId is 1 or more"):
            read(f"brokerRole=SLAVE\n{line}", path="b.conf")


@pytest.mark.parametrize(
    ("lines", "percent"),
    [("", 30), ("accessMessageInMemoryMaxRatio=55", 45), ("accessMessageInMemoryMaxRatio=5", 0)],
)
def test_a_slave_sends_its_consumers_back_before_the_master_sends_them(
    lines: str, percent: int
) -> None:
    _, store, _ = read(f"{lines}\nbrokerRole=SLAVE\nbrokerId=1")
    assert store.access_message_in_memory_max_ratio == percent
    assert read(lines)[1].access_message_in_memory_max_ratio == {30: 40, 45: 55, 0: 5}[percent]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("haMasterAddress=192.0.2.1", "not host:port of the master's haListenPort"),
        ("listenPort=65535", "haListenPort is listenPort \\+ 1, which is not a port"),
        ("brokerRole=SLAVE\nbrokerId=-1", "brokerId"),
        ("slaveSyncInterval=0", "slaveSyncInterval"),
        ("haTlsEnable=true\nhaTlsKeyPath=k", "needs haTlsCertPath, haTlsTrustCertPath, too"),
    ],
)
def test_replication_that_cannot_be_is_refused(lines: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(lines)


def test_files_for_tls_that_is_not_enabled_are_warned_of() -> None:
    (warning,) = read("haTlsCertPath=c\nhaTlsKeyPath=k")[2]
    assert warning.startswith("haTlsCertPath, haTlsKeyPath: nothing is encrypted")
    assert read("haTlsEnable=true\nhaTlsCertPath=c\nhaTlsKeyPath=k\nhaTlsTrustCertPath=a")[2] == []


def test_replication_that_can_be_is_taken() -> None:
    assert read("haMasterAddress=mq-a.example.org:10912")[2] == []
    assert read("listenPort=65535\nhaListenPort=10912")[2] == []


def test_bit_maps_that_nothing_would_use_are_warned_of() -> None:
    keys = [
        "enableCalcFilterBitMap=true",
        "enablePropertyFilter=true",
        "enableConsumeQueueExt=true",
    ]
    needs = "enablePropertyFilter and enableConsumeQueueExt"
    warning = f"enableCalcFilterBitMap does nothing without {needs}"
    assert [read("\n".join(keys[:number]))[2] for number in (1, 2, 3)] == [[warning]] * 2 + [[]]


NO_FILTER = "filterServerNums: the filter servers would have no filter"
NO_GROUPS = "do nothing without filterUploadGroups"


@pytest.mark.parametrize(
    ("lines", "warned"),
    [
        ("filterServerNums=1", [NO_FILTER]),
        ("filterServerNums=1;filterClassesFile=/f.json", []),
        ("filterServerNums=1;javaFilterEnable=true", [NO_GROUPS]),
        ("filterServerNums=1;pythonFilterEnable=true;filterUploadGroups=g", []),
        ("javaFilterEnable=true;clientUploadFilterClassEnable=false", ["filterClassRepertoryUrl"]),
        (
            "javaFilterEnable=true;clientUploadFilterClassEnable=false;filterClassRepertoryUrl=u",
            [],
        ),
        ("filterUploadGroups=*", []),
    ],
)
def test_class_filters_that_cannot_work_are_warned_of(lines: str, warned: list[str]) -> None:
    _, _, warnings = read(lines.replace(";", "\n"), path="b.conf")
    assert [words in warning for words, warning in zip(warned, warnings, strict=True)] == [
        True for _ in warned
    ]
    assert all(warning.startswith("b.conf: ") for warning in warnings)


@pytest.mark.parametrize(("count", "used"), [("-1", 0), ("65", 64)])
def test_there_are_0_to_64_filter_servers(count: str, used: int) -> None:
    broker, _, warnings = read(f"filterServerNums={count}")
    assert broker.filter_server_nums == used
    assert f"filterServerNums={count} is outside of" in warnings[0]


def test_a_number_of_filter_servers_is_no_command() -> None:
    with pytest.raises(ConfigError, match="filterServerNums must be a plain whole number"):
        read("filterServerNums=1; reboot")


def test_a_master_is_broker_0_whatever_the_file_says() -> None:
    broker, _, warnings = read("brokerId=3")
    assert broker.broker_id == 0
    assert warnings == ["brokerId: ignored, a ASYNC_MASTER always has brokerId 0"]


@pytest.mark.parametrize(
    "addresses", ["localhost", "localhost:", ":9876", "h:0", "h:65536", "h:9876x", "a:1,b:2"]
)
def test_name_server_addresses_must_be_host_and_port(addresses: str) -> None:
    with pytest.raises(ConfigError, match="not host:port"):
        read(f"namesrvAddr={addresses}")


def test_name_servers_are_parted_by_semicolons_and_named_once() -> None:
    broker, _, _ = read("namesrvAddr=a:1; [::1]:2 ;;a:1")
    assert broker.namesrv_addresses == ("a:1", "[::1]:2")


def test_the_flag_counts_more_than_the_file_and_the_file_more_than_the_environment() -> None:
    defaults = BrokerConfig(**from_environment({"NAMESRV_ADDR": "env:1"}))
    entries = parse_properties("namesrvAddr=file:1")
    store = MessageStoreConfig()
    assert read_broker_config([], defaults, store)[0].namesrv_addr == "env:1"
    assert read_broker_config(entries, defaults, store)[0].namesrv_addr == "file:1"
    flag = read_broker_config(entries, defaults, store, namesrv_addr="flag:1")[0]
    assert flag.namesrv_addr == "flag:1"


@pytest.mark.parametrize(
    ("written", "seconds"), [(30_000, 30), (1, 10), (10_001, 10.001), (60_001, 60)]
)
def test_the_registration_period_stays_between_10_and_60_s(written: int, seconds: float) -> None:
    broker, _, _ = read(f"registerNameServerPeriod={written}")
    assert broker.register_period_s == seconds


@pytest.mark.parametrize("port", ["1", "2", "65536", "-1"])
def test_the_vip_port_must_be_a_port_too(port: str) -> None:
    with pytest.raises(ConfigError, match="listenPort"):
        read(f"listenPort={port}")


def test_what_the_file_leaves_open_comes_from_the_machine() -> None:
    broker = with_machine(BrokerConfig(), host_name="vm", local_address=lambda: "192.0.2.7")
    assert (broker.broker_name, broker.broker_ip1, broker.broker_ip2) == ("vm", *["192.0.2.7"] * 2)
    broker = BrokerConfig(broker_name="b", broker_ip1="mq.example.org")
    with_machine(broker, host_name="vm", local_address=lambda: pytest.fail("not needed"))
    assert broker.address(10911) == "mq.example.org:10911"
    assert broker.broker_ip2 == "mq.example.org"
    nameless = with_machine(BrokerConfig(), host_name="", local_address=lambda: "::1")
    assert nameless.broker_name == "DEFAULT_BROKER"
    assert nameless.address(1) == "[::1]:1"


DIFFERENT_DEFAULTS = {
    "brokerName": "filled in by with_machine",
    "brokerIP1": "filled in by with_machine",
    "brokerIP2": "filled in by with_machine",
    "namesrvAddr": "from_environment",
    "storePathRootDir": "(home)/store, as text",
    "allAckInSyncStateSet": "true: with false, acknowledged messages can be lost",
    "enablePopBufferMerge": "true: the buffer keeps the order of commits and loses nothing",
}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("deleteWhen=25", "not an hour from 0 to 23"),
        ("deleteWhen=04,16", "several look like 04;16"),
        ("fileReservedTime=-1", "fileReservedTime"),
        ("storeBytesMax=1000", "three commit log files"),
    ],
)
def test_a_bad_value_of_retention_is_an_error_at_the_start(line: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(line)


def supported() -> dict[str, object]:
    configs = (BrokerConfig(), MessageStoreConfig())
    return {
        key_of(field): getattr(config, field.name)
        for config in configs
        for field in dataclasses.fields(config)
    }


def test_every_supported_key_is_rocketmqs_with_rocketmqs_default() -> None:
    known = known_keys()
    written = dict(
        pair for config in (BrokerConfig(), MessageStoreConfig()) for pair in to_properties(config)
    )
    assert set(supported()) <= set(known)
    differing = {
        key: (written[key], known[key].default)
        for key in supported()
        if key not in DIFFERENT_DEFAULTS and (written.get(key, "") or "-") != known[key].default
    }
    assert differing == {}


@pytest.mark.slow
def test_every_known_key_is_accepted_or_warned_of_by_name() -> None:
    fields = supported()
    for key, fact in known_keys().items():
        if key in fields:
            continue
        _, _, warnings = read(f"{key}={fact.default}")
        assert len(warnings) == 1
        assert f" {key} has no effect: " in warnings[0]


def test_rocketmqs_keys_are_all_known() -> None:
    known = known_keys()
    assert len(known) > 500
    for key in ("brokerIP1", "maxMessageSize", "serverWorkerThreads", "dLegerGroup", "useTLS"):
        assert key in known


KEYS = st.sampled_from(sorted(known_keys())) | st.text(max_size=12)
VALUES = st.text(max_size=12) | st.integers().map(str) | st.sampled_from(["true", "SLAVE", "1"])


@pytest.mark.slow
@given(st.lists(st.tuples(KEYS, VALUES), max_size=4))
def test_any_lines_are_a_configuration_or_a_config_error(lines: list[tuple[str, str]]) -> None:
    text = "\n".join(f"{key}={value}" for key, value in lines)
    try:
        broker, store, warnings = read(text)
    except ConfigError as error:
        said = str(error).split("\n")
    else:
        assert isinstance(broker, BrokerConfig)
        assert isinstance(store, MessageStoreConfig)
        said = warnings
    assert all(line and "\n" not in line for line in said)


def test_all_errors_of_a_file_are_told_at_once_in_the_order_of_their_lines() -> None:
    with pytest.raises(ConfigErrors) as caught:
        read(
            "brokerName=a b\nlistenPort=port\nmessageDelayLevel=1s,5s\nnmasrvAddr=x\n"
            "haAllowedSlaves=99\nbrokerRole=SLAVE\nnamesrvAddr=nowhere\ndeleteWhen=25\n"
        )
    told = str(caught.value).split("\n")
    for line, words in (
        (1, "brokerName='a b' has a blank"),
        (2, "listenPort must be a plain whole number"),
        (3, "messageDelayLevel='1s,5s': write durations"),
        (4, "unknown key 'nmasrvAddr'; the nearest key there is: namesrvAddr"),
        (5, "haAllowedSlaves='99'"),
        (6, "brokerRole=SLAVE: a slave's brokerId is 1 or more"),
        (7, "namesrvAddr"),
        (8, "deleteWhen"),
    ):
        assert any(f"line {line}: {words}" in each for each in told), (words, told)
    assert len(told) == 8


@pytest.mark.parametrize(
    "name", ["a b", "a/b", 'a"b', "x" * 256, "a;b", "a\u200bb", ".."], ids=repr
)
@pytest.mark.parametrize("key", ["brokerName", "brokerClusterName"])
def test_a_name_that_would_be_no_folder_is_told_when_the_file_is_read(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"line 1: {key}="):
        read(f"{key}={name}".encode("ascii", "backslashreplace").decode())


def test_a_blank_cluster_name_is_told_and_a_blank_broker_name_is_the_machines() -> None:
    with pytest.raises(ConfigError, match="brokerClusterName='' is blank"):
        read("brokerClusterName=")
    assert read("brokerName=")[0].broker_name == ""


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("grpcBossLoopNum", "rmq-proxy.json, the file of RocketMQ's proxy"),
        ("proxyMode", "rmq-proxy.json, the file of RocketMQ's proxy"),
        ("controllerDLegerPeers", "controller.conf, the file of RocketMQ's controller"),
        ("scanNotActiveBrokerInterval", "namesrv.conf, the file of the name server"),
        ("kvConfigPath", "namesrv.conf, the file of the name server"),
        ("connectWhichBroker", "filtersrv.conf, the file of a filter server"),
    ],
)
def test_a_key_of_another_programs_file_is_a_warning_that_names_the_file(
    key: str, file: str
) -> None:
    _, _, warnings = read(f"{key}=1")
    assert warnings == [f"line 1: {key} has no effect: it is a key of {file}"]


def test_no_key_is_called_the_nearest_that_is_far_away() -> None:
    with pytest.raises(ConfigError) as caught:
        read("zzqxjw=1")
    assert "nearest" not in str(caught.value)


@pytest.mark.parametrize("value", ["1w", "1s,5s", "s", "5", "1s 5x", "-1s"])
def test_a_delay_table_that_cannot_be_read_is_told_with_its_line(value: str) -> None:
    with pytest.raises(ConfigError, match="line 1: messageDelayLevel="):
        read(f"messageDelayLevel={value}")


def read_metrics(*lines: str) -> BrokerConfig:
    text = "".join(f"{line}\n" for line in lines)
    return read_broker_config(
        parse_properties(text), BrokerConfig(), MessageStoreConfig(), path="b.conf"
    )[0]


def test_metrics_may_be_sent_to_a_collector() -> None:
    read = read_metrics(
        "metricsExporterType=OTLP_GRPC",
        "metricsGrpcExporterTarget=collector:4317",
        "metricsGrpcExporterHeader=Authorization: Bearer x:y, x-zone:a",
        "metricsInDelta=true",
    )
    assert read.metrics_headers == (("authorization", "Bearer x:y"), ("x-zone", "a"))
    assert read.metrics_labels["aggregation"] == "delta"
    assert read.metric_grpc_exporter_interval_in_mills == 60_000
    for target in ("http://127.0.0.1:4317", "https://collector:4317/", "[::1]:4317"):
        read_metrics("metricsExporterType=OTLP_GRPC", f"metricsGrpcExporterTarget={target}")


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        (["metricsExporterType=OTLP_GRPC"], "metricsGrpcExporterTarget ''"),
        (["metricsExporterType=OTLP_GRPC", "metricsGrpcExporterTarget=ftp://x"], "ftp://x"),
        (["metricsExporterType=OTLP_GRPC", "metricsGrpcExporterTarget=x:70000"], "x:70000"),
        (["metricsGrpcExporterHeader=a:1,secret"], "header 2 is not name:value"),
        (["metricsGrpcExporterHeader=a-bin:1"], "header 1"),
        (["metricsGrpcExporterHeader=a:ü"], "header 1"),
        (["metricsInDelta=true", "metricsLabel=aggregation:x"], "metricsLabel"),
        (["metricGrpcExporterIntervalInMills=0.5"], "metricGrpcExporterIntervalInMills"),
        (["metricsExporterType=NATS"], "metricsExporterType"),
    ],
)
def test_metrics_that_cannot_be_sent_are_refused(lines: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=r"b\.conf") as refused:
        read_metrics(*lines)
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(ConfigError, match=r"needs the package grpc: pip install 'trocket\[otlp\]'"):
        read_metrics("metricsExporterType=OTLP_GRPC", "metricsGrpcExporterTarget=c:4317")
