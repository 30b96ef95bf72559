"""The settings of each broker of `trocket up` with several brokers."""

from __future__ import annotations

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.broker.settings.config_checks import read_broker_config
from trocket.cli.up.plan import BROKERS_MAX, ConfigFile, Member, Shape, plan, shape_of
from trocket.common.config import ConfigError, parse_properties
from trocket.store.config import BrokerRole, MessageStoreConfig

NOTHING = ConfigFile("", ())


def file(text: str, path: str = "all.conf") -> ConfigFile:
    return ConfigFile(path, parse_properties(text))


def planned(
    shape: Shape = Shape(2, 1, False),  # noqa: B008 - immutable
    common: ConfigFile = NOTHING,
    own: dict[str, ConfigFile] | None = None,
    **base: object,
) -> list[Member]:
    broker, store, _ = read_broker_config(
        list(common.entries),
        BrokerConfig(bind_address="127.0.0.1", broker_ip1="127.0.0.1"),
        MessageStoreConfig(store_path_root_dir="/data"),
    )
    for name, value in base.items():
        setattr(broker, name, value)
    return plan(shape, broker, store, common, own or {})[0]


def configured(member: Member) -> tuple[BrokerConfig, MessageStoreConfig]:
    """The configuration that a broker reads from its keys."""
    entries = parse_properties(member.properties("127.0.0.1:9876"))
    broker, store, warnings = read_broker_config(entries, BrokerConfig(), MessageStoreConfig())
    assert warnings == []
    return broker, store


def test_the_cluster_of_two_masters_and_two_slaves() -> None:
    members = planned()
    assert [(m.name, m.broker_name, m.broker_id, m.role.name) for m in members] == [
        ("broker-a", "broker-a", 0, "ASYNC_MASTER"),
        ("broker-b", "broker-b", 0, "ASYNC_MASTER"),
        ("broker-a-1", "broker-a", 1, "SLAVE"),
        ("broker-b-1", "broker-b", 1, "SLAVE"),
    ]
    assert [int(m.keys["listenPort"]) for m in members] == [10911, 10921, 10931, 10941]
    assert [m.store for m in members] == [f"/data/{m.name}" for m in members]
    for member in members:
        broker, store = configured(member)
        assert broker.namesrv_addr == "127.0.0.1:9876"
        assert broker.slave_read_enable
        assert store.broker_role is member.role
        assert store.store_path_root_dir == member.store


def test_message_traces_have_a_topic_unless_a_file_switches_it_off() -> None:
    assert {configured(m)[0].trace_topic_enable for m in planned()} == {True}
    off = file("traceTopicEnable=false\n")
    assert {configured(m)[0].trace_topic_enable for m in planned(common=off)} == {False}


def test_more_slaves_move_no_master() -> None:
    few, many = planned(Shape(2, 0, False)), planned(Shape(2, 3, False))
    assert [m.keys["listenPort"] for m in few] == [m.keys["listenPort"] for m in many[:2]]
    assert len({m.keys["listenPort"] for m in many}) == 8


def test_port_0_is_a_free_one_for_each() -> None:
    assert {m.keys["listenPort"] for m in planned(listen_port=0)} == {"0"}


def test_ports_that_are_none_are_refused() -> None:
    with pytest.raises(ConfigError, match="listenPort"):
        planned(listen_port=65_520)


def test_a_file_counts_for_all_and_one_of_its_own_counts_more() -> None:
    common = file("flushDiskType=SYNC_FLUSH\nfileReservedTime=48\nstorePathCommitLog=/log\n")
    own = file("flushDiskType=ASYNC_FLUSH\nlistenPort=20911\n", "slave.conf")
    *others, last = planned(common=common, own={"broker-b-1": own})
    assert [configured(m)[1].flush_disk_type.name for m in others] == ["SYNC_FLUSH"] * 3
    assert configured(last)[1].flush_disk_type.name == "ASYNC_FLUSH"
    assert last.keys["listenPort"] == "20911"
    assert {configured(m)[1].file_reserved_time for m in (*others, last)} == {48}
    assert configured(last)[1].commit_log_folder == "/log/broker-b-1"


@pytest.mark.parametrize(
    ("shape", "text"), [(Shape(1, 1, True), ""), (Shape(1, 1, False), "brokerRole=SYNC_MASTER\n")]
)
def test_masters_that_wait_for_their_slaves(shape: Shape, text: str) -> None:
    master, slave = planned(shape, file(text))
    assert (master.role, slave.role) == (BrokerRole.SYNC_MASTER, BrokerRole.SLAVE)


def test_slaves_connect_here_even_if_another_address_is_advertised() -> None:
    for text, address in (("", "127.0.0.1"), ("brokerIP2=10.0.0.2\n", "10.0.0.2")):
        master, _ = planned(Shape(1, 1, False), file(text), broker_ip1="mq.example.org")
        broker, _ = configured(master)
        assert (broker.broker_ip1, broker.broker_ip2) == ("mq.example.org", address)


def test_apaches_own_file_and_whatever_a_value_holds() -> None:
    common = file("brokerName = broker-a\nbrokerId = 0\nbrokerRole = ASYNC_MASTER\n")
    assert len(planned(common=common)) == 4
    odd = file("filterClassRepertoryUrl = two\\nlines \\\\ \\u00e9\n")
    found = configured(planned(common=odd)[0])[0].filter_class_repertory_url
    assert found == "two\nlines \\ é"


def test_a_key_without_effect_is_not_passed_to_each_broker() -> None:
    common = file("sendMessageThreadPoolNums=8\n")
    assert "sendMessageThreadPoolNums" not in planned(common=common)[0].keys


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\nbrokerName=mine\n", r"all\.conf, line 2: brokerName: .* broker-a, broker-b"),
        ("brokerId=3\n", "brokerId"),
        ("haListenPort=20000\n", "haListenPort"),
        ("haMasterAddress=10.0.0.1:10912\n", "haMasterAddress"),
        ("enableControllerMode=true\ncontrollerAddr=10.0.0.1:9878\n", "enableControllerMode"),
        ("brokerRole=SLAVE\nbrokerId=1\n", "brokerId"),
        ("brokerRole=SYNC_MASTER\ninSyncReplicas=3\n", "inSyncReplicas=3: .* are only 2"),
    ],
)
def test_what_is_settled_already_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        planned(common=file(text))


def test_a_file_of_its_own_may_not_make_a_slave_either() -> None:
    with pytest.raises(ConfigError, match=r"one\.conf"):
        planned(own={"broker-a": file("brokerRole=SLAVE\nbrokerId=0\n", "one.conf")})
    with pytest.raises(ConfigError, match=r"one\.conf, line 1: unknown key"):
        planned(own={"broker-a": file("brokerNam=x\n", "one.conf")})
    with pytest.raises(ConfigError, match="the brokers are broker-a, broker-b, broker-a-1"):
        planned(own={"broker-c": NOTHING})


def test_a_sync_master_needs_a_slave() -> None:
    with pytest.raises(ConfigError, match="add --slaves 1"):
        planned(Shape(2, 0, False), file("brokerRole=SYNC_MASTER\n"))


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ((None, None, None), None),
        ((2, None, None), Shape(2, 0, False)),
        ((2, 1, None), Shape(2, 1, False)),
        ((None, 1, None), Shape(1, 1, False)),
        ((None, None, 3), Shape(3, 0, False)),
    ],
)
def test_what_the_flags_mean(given: tuple[int | None, ...], shape: Shape | None) -> None:
    assert shape_of(*given, is_sync=False) == shape


@pytest.mark.parametrize(
    "given", [(2, None, 2), (None, 0, 2), (0, 1, None), (27, 0, None), (2, -1, None), (11, 2, None)]
)
def test_flags_that_cannot_be(given: tuple[int | None, ...]) -> None:
    with pytest.raises(ConfigError):
        shape_of(*given, is_sync=False)


@pytest.mark.parametrize(
    ("given", "shape"),
    [
        ((None, None, None), Shape(1, 1, False, True)),
        ((2, 2, None), Shape(2, 2, False, True)),
    ],
)
def test_what_failover_means(given: tuple[int | None, ...], shape: Shape) -> None:
    assert shape_of(*given, is_sync=False, is_failover=True) == shape


@pytest.mark.parametrize(
    ("given", "is_sync"), [((None, 0, None), False), ((None, None, 2), False), ((1, 1, None), True)]
)
def test_flags_that_contradict_failover(given: tuple[int | None, ...], is_sync: bool) -> None:
    with pytest.raises(ConfigError, match="--failover"):
        shape_of(*given, is_sync=is_sync, is_failover=True)


def test_brokers_with_failover_get_their_roles_from_the_controller() -> None:
    for member in planned(Shape(1, 1, False, True)):
        assert not {"brokerRole", "brokerId"} & member.keys.keys()
        text = member.properties("127.0.0.1:9876", "127.0.0.1:9878")
        assert "enableControllerMode=true\ncontrollerAddr=127.0.0.1:9878\n" in text


@pytest.mark.slow
def test_as_many_as_one_machine_may_have() -> None:
    assert shape_of(16, 1, None, is_sync=True) == Shape(16, 1, True)
    assert len(planned(Shape(16, 1, True))) == BROKERS_MAX
