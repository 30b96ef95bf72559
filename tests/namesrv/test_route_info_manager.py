"""The route table, with times as numbers and connections as strings."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec.structs import replace

from trocket.common.steps import at_once
from trocket.namesrv import route_info_manager, topic_table
from trocket.namesrv.limits import HEARTBEAT_TIMEOUT_MS_MAX
from trocket.namesrv.registration import BrokerAddrInfo, MinBrokerIdChange
from trocket.namesrv.route_info_manager import UNIT_FLAG, UNIT_SUB_FLAG, RouteInfoManager
from trocket.remoting.bodies import QueueData
from trocket.remoting.errors import RequestRefused

from .builders import CLUSTER, addr_info, address, registration, topic, version


@pytest.fixture
def routes():
    return RouteInfoManager()


@cache
def _channel(name, broker_id):
    return f"channel of {name}-{broker_id}"


def channel_of(name, broker_id=0):
    return _channel(name, broker_id)  # always the same object: they are compared by identity


def register(routes, name, broker_id=0, *args, channel=None, now_ms=0, delete=False, **more):
    steps = routes.register_broker_in_steps(
        registration(name, broker_id, *args, **more),
        channel=channel or channel_of(name, broker_id),
        now_ms=now_ms,
        delete_missing_topics=delete,
    )
    return at_once(steps)


def perms(routes, topic_name="T"):
    return {name: data.perm for name, data in routes.topics.queues(topic_name).items()}


# Register


def test_a_registered_broker_is_in_route_cluster_and_lists(routes):
    register(routes, "a", 0, ["T", topic("U", queues=7, perm=2, sys_flag=1)])
    route = routes.pick_up_topic_route_data("U")
    assert route is not None
    (queues,) = route.queue_datas
    assert (queues.broker_name, queues.read_queue_nums, queues.write_queue_nums) == ("a", 7, 7)
    assert (queues.perm, queues.topic_sys_flag) == (2, 1)
    (broker,) = route.broker_datas
    assert (broker.cluster, broker.broker_name) == (CLUSTER, "a")
    assert dict(broker.broker_addrs) == {0: address("a")}
    assert route.filter_server_table == {}
    assert route.topic_queue_mapping_by_broker is None
    info = routes.cluster_info()
    assert list(info.broker_addr_table) == ["a"]
    assert {name: list(names) for name, names in info.cluster_addr_table.items()} == {
        CLUSTER: ["a"]
    }
    assert routes.topics.topics() == ["T", "U"]
    assert at_once(routes.topics_of_cluster(CLUSTER)) == ["T", "U"]
    assert routes.system_topics() == ([CLUSTER, "a"], address("a"))
    assert routes.broker_addrs("a") == {0: address("a")}


def test_an_empty_name_server_answers_empty(routes):
    assert routes.pick_up_topic_route_data("T") is None
    assert at_once(routes.topics_of_cluster("none")) == []
    assert routes.system_topics() == ([], None)
    assert routes.broker_addrs("none") == {}
    assert routes.data_version(addr_info("none")) is None
    assert at_once(routes.wipe_write_perm("none")) == at_once(routes.add_write_perm("none")) == 0


def test_two_brokers_share_a_topic(routes):
    register(routes, "a")
    register(routes, "b")
    route = routes.pick_up_topic_route_data("T")
    assert route is not None
    assert [data.broker_name for data in route.queue_datas] == ["a", "b"]
    assert [data.broker_name for data in route.broker_datas] == ["a", "b"]


def test_a_registration_of_one_topic_deletes_nothing_even_when_missing_topics_are_deleted(routes):
    register(routes, "a", 0, ["T", "U"])
    register(routes, "a", 0, ["V"], counter=2, delete=True)
    assert routes.topics.topics() == ["T", "U", "V"]


def test_topics_missing_in_a_whole_registration_stay_unless_configured(routes):
    register(routes, "a", 0, ["T", "U"])
    register(routes, "b", 0, ["T", "X"])
    register(routes, "a", 0, ["V", "W"], counter=2)
    assert routes.topics.topics() == ["T", "U", "X", "V", "W"]
    register(routes, "a", 0, ["V", "W"], counter=3, delete=True)
    assert routes.topics.topics() == ["T", "X", "V", "W"]
    assert list(routes.topics.queues("T")) == ["b"]


def test_topics_of_a_broker_with_queue_mappings_are_never_deleted_as_missing(routes):
    register(routes, "a", 0, ["T", "U"])
    mappings = {"V": {"bname": "a"}}
    register(routes, "a", 0, ["V", "W"], counter=2, delete=True, queue_mappings=mappings)
    assert "T" in routes.topics


def test_one_topic_of_a_broker_that_never_registered_is_refused_and_leaves_no_trace(routes):
    with pytest.raises(RequestRefused, match="register broker failed"):
        register(routes, "a", 0, ["T"])
    assert routes.live_brokers() == {}
    assert routes.cluster_info().broker_addr_table == {}
    assert routes.cluster_info().cluster_addr_table == {}


@pytest.mark.parametrize(
    "numbers",
    [
        {"read_queue_nums": 65_537},
        {"write_queue_nums": 2**31 - 1},
        {"write_queue_nums": -1},
        {"perm": 16},
        {"perm": -1},
    ],
)
def test_a_topic_with_numbers_that_make_no_sense_is_left_out_of_a_registration(
    routes, numbers, caplog
):
    bad = replace(topic("T"), **numbers)
    register(routes, "a", topics=[topic("TBW102"), bad, topic("U")])
    assert routes.topics.topics() == ["TBW102", "U"]
    assert f"{next(iter(numbers.values()))}, and a " in caplog.text
    register(routes, "a", topics=[topic("TBW102"), topic("T"), topic("U")], counter=2)
    register(routes, "a", topics=[topic("TBW102"), bad, topic("U")], counter=3)
    assert routes.topics.queues("T")["a"].read_queue_nums == 4, "what was known stays"


def test_an_unchanged_data_version_changes_no_topic_but_adds_missing_ones(routes):
    register(routes, "a", 0, [topic("T", queues=4), "U"], counter=5)
    register(routes, "a", 0, [topic("T", queues=8), "V"], counter=5)
    assert routes.topics.queues("T")["a"].read_queue_nums == 4
    assert "V" in routes.topics
    register(routes, "a", 0, [topic("T", queues=8), "V"], counter=6)
    assert routes.topics.queues("T")["a"].read_queue_nums == 8


def test_a_slave_registers_no_topics_while_there_is_a_master_and_gets_its_address(routes):
    assert register(routes, "a").master_addr is None
    result = register(routes, "a", 1, ["T", "SLAVE"])
    assert (result.master_addr, result.ha_server_addr) == (address("a"), "a-0:10912")
    assert "SLAVE" not in routes.topics
    assert routes.broker_addrs("a") == {0: address("a"), 1: address("a", 1)}


def test_a_slave_without_master_registers_topics_only_if_it_is_of_5_x(routes):
    result = register(routes, "old", 1, ["T", "U"], acting=None)
    assert (result.master_addr, result.ha_server_addr) == (None, None)
    assert routes.topics.topics() == []
    register(routes, "new", 1, ["T", "U"], acting=False)
    assert perms(routes) == {"new": 6}
    register(routes, "new", 2, ["T", "V"], acting=False)
    assert "V" not in routes.topics


def test_a_broker_that_changes_its_id_stands_only_under_the_new_one(routes):
    register(routes, "a", 1, broker_addr="x:1")
    register(routes, "a", 0, broker_addr="x:1")
    assert routes.broker_addrs("a") == {0: "x:1"}
    register(routes, "a", 3, broker_addr="x:1", counter=2)
    assert routes.broker_addrs("a") == {3: "x:1"}


def test_another_address_takes_over_a_broker_id(routes):
    register(routes, "a", 0, broker_addr="old:1", filter_servers=["f:1"])
    register(routes, "a", 0, broker_addr="new:1", channel="new")
    assert routes.broker_addrs("a") == {0: "new:1"}
    assert routes.live_brokers() == {BrokerAddrInfo(CLUSTER, "new:1"): "a"}
    assert routes.channel_closed(channel_of("a")).brokers == ()
    assert "T" in routes.topics


def test_an_older_state_does_not_take_over_a_broker_id(routes):
    register(routes, "a", 0, broker_addr="good:1", state=7)
    register(routes, "a", 1, broker_addr="stale:1", state=6)
    result = register(routes, "a", 0, broker_addr="stale:1", state=6)
    assert result.master_addr is None
    assert routes.broker_addrs("a") == {0: "good:1"}
    assert BrokerAddrInfo(CLUSTER, "stale:1") not in routes.live_brokers()
    register(routes, "a", 0, broker_addr="newer:1", state=7)
    assert routes.broker_addrs("a") == {0: "newer:1"}


def test_an_address_that_changes_its_broker_name_leaves_the_old_one(routes):
    register(routes, "a", 0, ["T", "U"], broker_addr="x:1")
    register(routes, "b", 0, ["T", "V"], broker_addr="x:1")
    assert routes.live_brokers() == {BrokerAddrInfo(CLUSTER, "x:1"): "b"}
    assert routes.topics.topics() == ["T", "V"]


def test_a_broker_name_belongs_to_one_cluster(routes):
    register(routes, "a")
    with pytest.raises(RequestRefused, match="taken in cluster C"):
        register(routes, "a", 1, cluster_name="D")
    routes.channel_closed(channel_of("a"))
    register(routes, "a", cluster_name="D")
    assert list(routes.cluster_info().cluster_addr_table) == ["D"]


@pytest.mark.parametrize(
    "wrong",
    [{"cluster_name": "C\n"}, {"broker_name": ""}, {"broker_name": "$(a)"},
     {"broker_addr": "nowhere"}, {"ha_server_addr": "x"}, {"zone_name": "z\n"}],
    ids=lambda wrong: next(iter(wrong)),
)  # fmt: skip
def test_a_registration_with_an_illegal_name_or_address_is_refused(routes, wrong):
    with pytest.raises(RequestRefused, match="illegal"):
        register(routes, "a", **wrong)
    assert routes.live_brokers() == {}


@pytest.mark.parametrize("name", ["a b", "a/b", 'a"b', "a'b", "..", "x" * 255, "名"])
def test_names_that_rocketmqs_name_server_takes_are_registered(routes, name):
    register(routes, "a", broker_name=name, cluster_name=name)
    assert name in routes.cluster_info().broker_addr_table
    assert list(routes.cluster_info().cluster_addr_table) == [name]


def test_an_illegal_topic_is_left_out_and_the_others_are_taken(routes):
    register(routes, "a", 0, ["../../../../topic2020", "T", ""])
    assert routes.topics.topics() == ["T"]


def test_a_full_name_server_takes_no_new_broker_and_renews_the_old_ones(routes, monkeypatch):
    monkeypatch.setattr(route_info_manager, "BROKERS_MAX", 1)
    register(routes, "a")
    with pytest.raises(RequestRefused, match="full"):
        register(routes, "b")
    register(routes, "a", counter=2)
    assert list(routes.live_brokers()) == [addr_info("a")]


@pytest.mark.parametrize(("limit", "kept"), [("TOPICS_MAX", 2), ("QUEUE_DATA_MAX", 1)])
def test_a_full_topic_table_takes_no_new_entries(routes, monkeypatch, limit, kept):
    monkeypatch.setattr(topic_table, limit, 2)
    register(routes, "a", 0, ["T", "U", "V"])
    register(routes, "b", 0, ["T", "W"])
    assert routes.topics.topics() == ["T", "U"]
    assert len(routes.topics.queues("T")) == kept


# Write permission


def test_wiped_write_permission_lasts_until_the_topics_change(routes):
    register(routes, "a", 0, ["T", topic("TBW102", perm=7)])
    register(routes, "b")
    assert at_once(routes.wipe_write_perm("a")) == 2
    assert perms(routes) == {"a": 4, "b": 6}
    assert perms(routes, "TBW102") == {"a": 5, "b": 6}
    register(routes, "a", 0, ["T", topic("TBW102", perm=7)])
    assert perms(routes)["a"] == 4
    register(routes, "a", 0, ["T", topic("TBW102", perm=7)], counter=2)
    assert perms(routes)["a"] == 6


def test_added_write_permission_is_read_and_write_and_nothing_else(routes):
    register(routes, "a", 0, [topic("T", perm=7), topic("U", perm=0)])
    assert at_once(routes.add_write_perm("a")) == 2
    assert perms(routes, "T") == perms(routes, "U") == {"a": 6}


# Topics


def test_a_topic_is_deleted_everywhere_or_in_one_cluster(routes):
    register(routes, "a")
    register(routes, "b", cluster_name="D")
    routes.delete_topic("T", "D")
    assert list(routes.topics.queues("T")) == ["a"]
    routes.delete_topic("T", "no such cluster")
    routes.delete_topic("no such topic", "D")
    routes.delete_topic("T")
    assert routes.pick_up_topic_route_data("T") is None
    routes.delete_topic("T")


def test_a_deleted_topic_comes_back_with_the_next_registration_that_has_it(routes):
    register(routes, "a")
    routes.delete_topic("T")
    register(routes, "a")
    assert "T" in routes.topics


def queue_data(name, queues=3):
    return QueueData(
        broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6, topic_sys_flag=0
    )


def test_one_topic_can_be_registered_for_brokers_that_are_there(routes):
    register(routes, "a")
    assert routes.register_topic("N", [queue_data("a")])
    assert routes.topics.queues("N") == {"a": queue_data("a")}
    assert not routes.register_topic("M", [queue_data("ghost")])
    assert "M" not in routes.topics


def test_topics_are_listed_by_the_bits_of_their_first_broker(routes):
    flags = {"none": 0, "unit": UNIT_FLAG, "sub": UNIT_SUB_FLAG, "both": UNIT_FLAG | UNIT_SUB_FLAG}
    register(routes, "a", 0, [topic(name, sys_flag=flag) for name, flag in flags.items()])
    assert routes.topics.topics_with_flags(wanted=UNIT_FLAG) == ["unit", "both"]
    assert routes.topics.topics_with_flags(wanted=UNIT_SUB_FLAG) == ["sub", "both"]
    assert routes.topics.topics_with_flags(wanted=UNIT_SUB_FLAG, unwanted=UNIT_FLAG) == ["sub"]


def test_queue_mappings_of_static_topics_are_passed_through_until_the_topic_goes(routes):
    mapping = {"bname": "a", "topic": "T", "totalQueues": 8, "currIdMap": {0: 0}}
    register(routes, "a", 0, ["T", "U"], queue_mappings={"T": mapping, "absent": {"bname": "a"}})
    route = routes.pick_up_topic_route_data("T")
    assert route is not None
    assert route.topic_queue_mapping_by_broker == {"a": mapping}
    assert routes.topics.mappings("absent") is None
    routes.delete_topic("T")
    register(routes, "a", 0, ["T", "U"])
    assert routes.topics.mappings("T") is None


def test_mappings_end_at_their_limit(routes, monkeypatch):
    monkeypatch.setattr(topic_table, "QUEUE_MAPPINGS_MAX", 1)
    mappings = {"T": {"bname": "a"}, "U": {"bname": "a"}}
    register(routes, "a", 0, ["T", "U"], queue_mappings=mappings)
    assert (routes.topics.mappings("T"), routes.topics.mappings("U")) == (
        {"a": {"bname": "a"}},
        None,
    )


@pytest.mark.parametrize("filling", ["x" * 65_536, "\ud800"], ids=["large", "surrogate"])
def test_a_mapping_that_is_too_large_or_cannot_be_sent_is_left_out(routes, filling):
    mapping = {"bname": "a", "filling": filling}
    register(routes, "a", 0, ["T", "U"], queue_mappings={"T": mapping})
    assert routes.topics.mappings("T") is None


# Filter servers


def test_filter_servers_are_in_the_route_until_an_empty_list_comes(routes):
    servers = ["f1:1", "not an address", "f2:2"]
    register(routes, "a", filter_servers=servers)
    register(routes, "b")
    route = routes.pick_up_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {address("a"): ["f1:1", "f2:2"]}
    register(routes, "a", filter_servers=None)
    assert routes.pick_up_topic_route_data("T").filter_server_table != {}
    register(routes, "a", filter_servers=[])
    assert routes.pick_up_topic_route_data("T").filter_server_table == {}


# Expiry


def test_a_silent_broker_expires_after_two_minutes_and_not_before(routes):
    register(routes, "a", now_ms=1_000)
    assert routes.expire(now_ms=121_000).brokers == ()
    removal = routes.expire(now_ms=121_001)
    assert removal.brokers == (addr_info("a"),)
    assert removal.channels == (channel_of("a"),)
    assert routes.topics.topics() == []
    assert routes.cluster_info().cluster_addr_table == {}


def test_heartbeats_and_renewals_keep_a_broker_alive(routes):
    register(routes, "a", now_ms=0)
    register(routes, "b", now_ms=0)
    routes.update_heartbeat(addr_info("a"), now_ms=100_000)
    register(routes, "b", now_ms=100_000)
    routes.update_heartbeat(addr_info("ghost"), now_ms=100_000)
    assert routes.expire(now_ms=220_000).brokers == ()
    assert len(routes.expire(now_ms=220_001).brokers) == 2


@pytest.mark.parametrize(
    ("wanted_ms", "timeout_ms"),
    [(None, 120_000), (10_000, 10_000), (-5, 1_000), (2**62, HEARTBEAT_TIMEOUT_MS_MAX)],
)
def test_a_broker_may_ask_for_its_own_time_out_within_limits(routes, wanted_ms, timeout_ms):
    register(routes, "a", now_ms=0, heartbeat_timeout_ms=wanted_ms)
    assert routes.expire(now_ms=timeout_ms).brokers == ()
    assert routes.expire(now_ms=timeout_ms + 1).brokers == (addr_info("a"),)


def test_a_broker_goes_at_once_when_the_connection_closes_that_it_registered_on_last(routes):
    register(routes, "a", channel="first")
    register(routes, "a", channel="second")
    assert routes.channel_closed("first").brokers == ()
    assert routes.channel_closed("a client's").brokers == ()
    assert routes.channel_closed("second").brokers == (addr_info("a"),)
    assert routes.channel_closed("second").brokers == ()


def test_all_brokers_of_one_connection_go_with_it(routes):
    register(routes, "a", channel="shared")
    register(routes, "b", channel="shared")
    register(routes, "c")
    assert routes.channel_closed("shared").brokers == (addr_info("a"), addr_info("b"))
    assert list(routes.topics.queues("T")) == ["c"]


def test_an_unregistered_broker_is_gone_and_one_under_another_name_is_left_alone(routes):
    register(routes, "a")
    assert routes.unregister_broker(addr_info("a"), "b").brokers == ()
    assert routes.unregister_broker(addr_info("a", cluster="D"), "a").brokers == ()
    assert routes.unregister_broker(addr_info("a"), "a").brokers == (addr_info("a"),)
    assert routes.unregister_broker(addr_info("a"), "a").brokers == ()
    assert routes.live_brokers() == {}


def test_topics_stay_when_a_slave_or_a_master_with_slave_goes(routes):
    register(routes, "a")
    register(routes, "a", 1)
    routes.channel_closed(channel_of("a"))
    route = routes.pick_up_topic_route_data("T", support_acting_master=True)
    assert route is not None
    assert dict(route.broker_datas[0].broker_addrs) == {1: address("a", 1)}
    assert perms(routes) == {"a": 6}


def test_data_version_is_that_of_the_last_registration(routes):
    register(routes, "a", counter=1)
    register(routes, "a", counter=9)
    assert routes.data_version(addr_info("a")) == version(9)


# Acting master


def test_without_its_master_a_group_is_read_only_and_its_slave_is_shown_as_master(routes):
    register(routes, "a", 0, acting=True)
    register(routes, "a", 1, acting=True)
    register(routes, "a", 2, acting=True)
    routes.channel_closed(channel_of("a"))
    assert perms(routes) == {"a": 4}
    route = routes.pick_up_topic_route_data("T", support_acting_master=True)
    assert route is not None
    assert route.broker_datas[0].enable_acting_master
    assert dict(route.broker_datas[0].broker_addrs) == {0: address("a", 1), 2: address("a", 2)}
    plain = routes.pick_up_topic_route_data("T")
    assert plain is not None
    assert dict(plain.broker_datas[0].broker_addrs) == {1: address("a", 1), 2: address("a", 2)}
    assert routes.broker_addrs("a") == {1: address("a", 1), 2: address("a", 2)}


def test_topics_of_an_acting_slave_are_read_only_until_the_master_is_back(routes):
    register(routes, "a", 1, ["T", topic("TBW102", perm=7)], acting=True)
    assert perms(routes) == {"a": 4}
    assert perms(routes, "TBW102") == {"a": 5}
    register(routes, "a", 0, ["T", topic("TBW102", perm=7)], acting=True)
    assert perms(routes) == {"a": 6}


def test_the_topic_of_member_groups_never_shows_an_acting_master(routes):
    name = "rmq_sys_SYNC_BROKER_MEMBER_a"
    register(routes, "a", 1, [name, "T"], acting=True)
    route = routes.pick_up_topic_route_data(name, support_acting_master=True)
    assert route is not None
    assert list(route.broker_datas[0].broker_addrs) == [1]


# Notifications of another smallest id


def test_earlier_brokers_are_notified_of_a_new_smallest_id(routes):
    register(routes, "a", 1, acting=True)
    register(routes, "a", 2, acting=True)
    result = register(routes, "a", 0, acting=True)
    assert result.change == MinBrokerIdChange(
        "a", 0, address("a"), None, "a-0:10912", (address("a", 1), address("a", 2))
    )
    assert register(routes, "a", 3, acting=True).change is None
    assert register(routes, "a", 0, acting=True).change is None


def test_the_rest_is_notified_once_when_the_smallest_ids_go_together(routes):
    for broker_id in (0, 1, 2):
        register(routes, "a", broker_id, acting=True)
    removal = routes.remove_brokers([addr_info("a"), addr_info("a", 1)])
    assert removal.changes == (
        MinBrokerIdChange("a", 2, address("a", 2), address("a", 1), None, (address("a", 2),)),
    )


def test_no_broker_is_notified_when_another_id_goes_or_the_group_does_not_act_or_is_gone(routes):
    for broker_id in (0, 1):
        register(routes, "a", broker_id, acting=True)
        register(routes, "b", broker_id, acting=False)
    assert routes.remove_brokers([addr_info("a", 1), addr_info("b")]).changes == ()
    assert routes.remove_brokers([addr_info("a")]).changes == ()


# Duplicates


def test_two_connected_brokers_of_one_name_and_id_are_reported(routes, caplog):
    for at_ms, port in enumerate((1, 2, 1, 2)):
        result = register(
            routes, "a", broker_addr=f"10.0.0.1:{port}", channel=f"channel {port}", now_ms=at_ms
        )
    text = (
        "broker a id 0 is registered by several brokers, at 10.0.0.1:1 and 10.0.0.1:2: each "
        "registration replaces the other one, and messages are split between them. Give each its "
        "own brokerName (a slave its own brokerId), or stop one"
    )
    assert result.warning == text
    assert routes.warnings() == [text]
    # Once for a pair, not at every registration.
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [text]
    assert register(routes, "b").warning == ""


@pytest.mark.parametrize("how", ["closes", "unregisters", "falls silent"])
def test_a_duplicate_that_leaves_is_no_longer_reported(routes, how):
    channels = ("one channel", "another channel")
    for port, channel in enumerate(channels, 1):
        register(routes, "a", broker_addr=f"10.0.0.1:{port}", channel=channel)
    assert len(routes.warnings()) == 1
    if how == "closes":
        routes.channel_closed(channels[0])
    elif how == "unregisters":
        routes.unregister_broker(BrokerAddrInfo(CLUSTER, "10.0.0.1:1"), "a")
    else:
        again = {"broker_addr": "10.0.0.1:2", "channel": channels[1], "now_ms": 100_000}
        register(routes, "a", **again)
        routes.expire(now_ms=120_001)
    assert routes.warnings() == []
    assert routes.broker_addrs("a") == {0: "10.0.0.1:2"}


def test_a_broker_that_restarts_at_another_port_is_no_duplicate(routes):
    register(routes, "a", broker_addr="10.0.0.1:1", channel=channel_of("a"))
    routes.channel_closed(channel_of("a"))
    assert register(routes, "a", broker_addr="10.0.0.1:2", channel=channel_of("b")).warning == ""
    assert routes.warnings() == []
