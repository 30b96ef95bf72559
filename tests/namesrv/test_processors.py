"""Effects and refusals of each request; the recorded ones are in the golden test."""

from __future__ import annotations

import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.namesrv.config import NamesrvConfig
from trocket.namesrv.kv_config import NAMESPACE_ORDER_TOPIC_CONFIG
from trocket.namesrv.registration import BrokerAddrInfo
from trocket.remoting.bodies import (
    DataVersion,
    QueueData,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
)
from trocket.remoting.codec import RemotingCommand, decode_frame, encode
from trocket.remoting.errors import RemotingConnectError
from trocket.remoting.request_codes import RequestCode as Code
from trocket.remoting.response_codes import ResponseCode

from .builders import version
from .harness import FakeChannel, Harness

SERVED_BY_APACHE = {
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319,
    322, 327, 901, 904,
}  # fmt: skip
"""The codes of DefaultRequestProcessor and ClientRequestProcessor of 5.3.3."""


def register_fields(name="a", broker_id=0, **more):
    return {
        "brokerName": name,
        "brokerAddr": f"{name}-{broker_id}:10911",
        "clusterName": "C",
        "haServerAddr": f"{name}-{broker_id}:10912",
        "brokerId": str(broker_id),
        "enableActingMaster": "false",
    } | more


def register_body(*topics, counter=1):
    table = {t.topic_name: t for t in topics}
    wrapper = TopicConfigSerializeWrapper(topic_config_table=table, data_version=version(counter))
    return RegisterBrokerBody(wrapper)


TOPICS = (TopicConfig(topic_name="T"), TopicConfig(topic_name="U", topic_sys_flag=3))


def register(harness, name="a", broker_id=0, *, body=None, channel=None, **more):
    content = register_body(*TOPICS).to_body() if body is None else body
    fields = register_fields(name, broker_id, **more)
    return harness.serve(RemotingCommand(103, ext_fields=fields, body=content), channel)


def topics_of(answer):
    return sorted(json.loads(answer.body)["topicList"])


@pytest.fixture
def harness():
    return Harness()


def test_every_code_of_apache_is_served_and_no_other(harness):
    assert {int(code) for code in harness.processors} == SERVED_BY_APACHE


@pytest.mark.parametrize(
    "code", sorted(SERVED_BY_APACHE - {106, 206, 304, 311, 312, 313, 318, 319})
)
def test_a_request_without_its_fields_is_refused(harness, code):
    answer = harness.serve(RemotingCommand(code))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "the custom field <" in answer.remark


# Brokers


def test_a_registration_with_a_damaged_body_is_refused(harness):
    body = register_body(*TOPICS).to_body()
    crc = zlib.crc32(body) & 0x7FFFFFFF
    assert register(harness, body=body, bodyCrc32=str(crc)).code == 0
    answer = register(harness, body=body[:-1] + b" ", bodyCrc32=str(crc))
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


@pytest.mark.parametrize("body", [b"{", b"[1]", b"\xff\xfe", b"x\x9c\x00", b'{"a":' * 500])
def test_a_registration_that_cannot_be_read_is_refused(harness, body):
    answer = register(harness, body=body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(
        "org.apache.rocketmq.remoting.exception.RemotingCommandException: "
        "Failed to decode RegisterBrokerBody"
    )
    assert len(answer.remark) < 1_000
    assert harness.routes.live_brokers() == {}


def test_a_registration_without_a_body_registers_a_broker_without_topics(harness):
    assert register(harness, body=b"").code == 0
    assert harness.routes.broker_addrs("a") == {0: "a-0:10911"}
    assert harness.routes.topics.topics() == []


def test_a_compressed_registration_is_read_whatever_its_header_says(harness):
    body = register_body(*TOPICS).to_compressed_body()
    for said in ("true", "false"):
        assert register(harness, body=body, compressed=said).code == 0
    assert harness.routes.topics.topics() == ["T", "U"]


def test_a_broker_before_3_0_11_registers_its_topic_table_alone(harness):
    table = {"T": TopicConfig(topic_name="T"), "U": TopicConfig(topic_name="U")}
    body = TopicConfigSerializeWrapper(topic_config_table=table).to_body()
    request = RemotingCommand(103, ext_fields=register_fields(), body=body, version=36)
    assert harness.serve(request).code == 0
    assert harness.routes.topics.topics() == ["T", "U"]


def test_a_slave_gets_its_master(harness):
    register(harness)
    answer = register(harness, broker_id=1)
    assert answer.ext_fields == {"masterAddr": "a-0:10911", "haServerAddr": "a-0:10912"}


def test_order_topics_go_to_the_broker_unless_configured_otherwise(harness):
    assert register(harness).body == b""
    harness.kv.put(NAMESPACE_ORDER_TOPIC_CONFIG, "T", "a:4")
    assert register(harness).body == b'{"table":{"T":"a:4"}}'
    harness.config.return_order_topic_config_to_broker = False
    assert register(harness).body == b""


def test_a_broker_is_gone_when_its_unregistration_is_answered(harness):
    register(harness)
    fields = register_fields()
    assert harness.serve(RemotingCommand(104, ext_fields=fields)).code == 0
    assert harness.routes.live_brokers() == {}
    assert harness.serve(RemotingCommand(104, ext_fields=fields)).code == 0


@pytest.mark.parametrize("code", [Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION])
def test_heartbeats_and_questions_for_the_version_keep_a_broker(harness, code):
    register(harness)
    harness.now_ms = 100_000
    body = version().to_body()
    request = RemotingCommand(code, ext_fields=register_fields(), body=body)
    assert harness.serve(request).code == 0
    assert harness.routes.expire(now_ms=220_000).brokers == ()


def test_the_version_of_a_broker_is_compared_and_returned(harness):
    def ask(counter):
        body = version(counter).to_body()
        return harness.serve(RemotingCommand(322, ext_fields=register_fields(), body=body))

    assert (ask(1).ext_fields, ask(1).body) == ({"changed": "true"}, b"")
    register(harness)
    assert ask(1).ext_fields == {"changed": "false"}
    assert ask(2).ext_fields == {"changed": "true"}
    assert DataVersion.from_body(ask(2).body) == version(1)


def test_a_question_for_the_version_without_one_is_refused(harness):
    answer = harness.serve(RemotingCommand(322, ext_fields=register_fields()))
    assert answer.code == ResponseCode.SYSTEM_ERROR


def test_the_members_of_a_group_are_listed_and_an_unknown_group_is_empty(harness):
    register(harness)
    register(harness, broker_id=1)
    known = harness.ask(901, clusterName="C", brokerName="a")
    assert known.remark == "not set any response code"  # Apache's; it sets no code
    assert known.body == (
        b'{"brokerMemberGroup":{"cluster":"C","brokerName":"a",'
        b'"brokerAddrs":{0:"a-0:10911",1:"a-1:10911"}}}'
    )
    unknown = json.loads(harness.ask(901, clusterName="C", brokerName="z").body)
    assert unknown["brokerMemberGroup"]["brokerAddrs"] == {}


def test_the_shell_is_asked_to_tell_of_another_smallest_id(harness):
    register(harness, broker_id=1, enableActingMaster="true")
    register(harness, enableActingMaster="true")
    assert [change.min_broker_id for change in harness.changes] == [0]
    harness.serve(RemotingCommand(104, ext_fields=register_fields()))
    assert [change.min_broker_id for change in harness.changes] == [0, 1]


def test_write_permission_is_wiped_and_added(harness):
    register(harness)
    assert harness.ask(205, brokerName="a").ext_fields == {"wipeTopicCount": "2"}
    assert harness.routes.topics.queues("T")["a"].perm == 4
    assert harness.ask(327, brokerName="a").ext_fields == {"addTopicCount": "2"}
    assert harness.routes.topics.queues("T")["a"].perm == 6
    assert harness.ask(205, brokerName="z").ext_fields == {"wipeTopicCount": "0"}


# Topics


def test_a_missing_topic_is_refused_with_rocketmqs_words(harness):
    answer = harness.ask(105, topic="T")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert answer.remark == (
        "No topic route info in name server for the topic: T\n"
        "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
    )


def test_routes_are_refused_while_brokers_are_waited_for():
    harness = Harness(
        config=NamesrvConfig(need_wait_for_service=True, wait_seconds_for_service=45), now_ms=7_000
    )
    register(harness)
    harness.now_ms = 51_999
    answer = harness.ask(105, topic="T")
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "name server not ready")
    harness.now_ms = 52_000
    assert harness.ask(105, topic="T").code == 0


def test_a_route_has_its_order_configuration_only_when_enabled(harness):
    register(harness)
    harness.kv.put(NAMESPACE_ORDER_TOPIC_CONFIG, "T", "a:4")
    assert b"orderTopicConf" not in harness.ask(105, topic="T").body
    harness.config.order_message_enable = True
    assert json.loads(harness.ask(105, topic="T").body)["orderTopicConf"] == "a:4"
    assert b"orderTopicConf" not in harness.ask(105, topic="U").body


def test_an_acting_master_is_shown_only_when_supported(harness):
    register(harness, broker_id=1, enableActingMaster="true")
    assert b'{"1":"a-1:10911"}' in harness.ask(105, topic="T").body
    harness.config.support_acting_master = True
    assert b'{"0":"a-1:10911"}' in harness.ask(105, topic="T").body


def test_a_client_in_zone_mode_gets_its_zone_and_groups_without_master(harness):
    servers = register_body(*TOPICS)
    servers.filter_server_list = ["f:1"]
    register(harness, "near", __ZONE_NAME="Z1")
    register(harness, "far", __ZONE_NAME="Z2", body=servers.to_body())
    register(harness, "orphan", 1, __ZONE_NAME="Z2")

    def route(**fields):
        request = RemotingCommand(105, ext_fields={"topic": "T", **fields})
        return TopicRouteData.from_body(harness.serve(request).body)

    zone = route(__ZONE_MODE="true", __ZONE_NAME="z1")
    assert [data.broker_name for data in zone.broker_datas] == ["near", "orphan"]
    assert [data.broker_name for data in zone.queue_datas] == ["near", "orphan"]
    assert zone.filter_server_table == {}
    for everywhere in (route(), route(__ZONE_NAME="Z1"), route(__ZONE_MODE="true")):
        assert len(everywhere.broker_datas) == len(everywhere.queue_datas) == 3
        assert everywhere.filter_server_table == {"far-0:10911": ["f:1"]}


def test_topics_are_listed(harness):
    register(harness)
    others = register_body(TOPICS[0], TopicConfig(topic_name="V", topic_sys_flag=2))
    register(harness, "b", clusterName="D", body=others.to_body())
    assert topics_of(harness.ask(206)) == ["T", "U", "V"]
    assert topics_of(harness.ask(224, cluster="C")) == ["T", "U"]
    assert topics_of(harness.ask(224, cluster="none")) == []
    assert topics_of(harness.ask(311)) == ["U"]
    assert topics_of(harness.ask(312)) == ["U", "V"]
    assert topics_of(harness.ask(313)) == ["V"]
    system = json.loads(harness.ask(304).body)
    assert system == {"topicList": ["C", "D", "a", "b"], "brokerAddr": "a-0:10911"}


def test_lists_can_be_disabled(harness):
    harness.config.enable_topic_list = False
    for code in (224, 311, 312, 313):
        answer = harness.ask(code, cluster="C")
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "disable")
    assert harness.ask(206).code == harness.ask(304).code == 0
    harness.config.enable_all_topic_list = False
    assert (harness.ask(206).code, harness.ask(206).remark) == (1, "disable")


def test_a_topic_is_registered_alone_and_deleted_in_a_cluster(harness):
    register(harness)
    queues = QueueData(broker_name="a", read_queue_nums=2, write_queue_nums=2, perm=6)
    body = TopicRouteData(queue_datas=[queues]).to_body()
    assert harness.ask(217, body, topic="N").code == 0
    assert harness.routes.topics.queues("N") == {"a": queues}
    assert harness.ask(217, b"", topic="N").code == 0
    assert harness.ask(217, b"{", topic="N").code == ResponseCode.SYSTEM_ERROR
    assert harness.ask(217, body, topic="../N").code == 0
    assert "../N" not in harness.routes.topics
    assert harness.ask(216, topic="N", clusterName="D").code == 0
    assert "N" in harness.routes.topics
    assert harness.ask(216, topic="N", clusterName="C").code == 0
    assert "N" not in harness.routes.topics
    assert harness.ask(216, topic="T").code == harness.ask(216, topic="T").code == 0


# KV and settings


def test_a_kv_item_is_put_saved_read_listed_and_deleted(harness):
    assert harness.ask(100, namespace="NS", key="k", value="v").code == 0
    assert harness.kv_saves == 1
    assert harness.ask(101, namespace="NS", key="k").ext_fields == {"value": "v"}
    assert harness.ask(219, namespace="NS").body == b'{"table":{"k":"v"}}'
    assert harness.ask(102, namespace="NS", key="k").code == 0
    assert harness.kv_saves == 2
    assert harness.ask(102, namespace="NS", key="k").code == 0
    assert harness.kv_saves == 2
    assert harness.ask(219, namespace="NS").body == b'{"table":{}}'


def test_what_is_not_in_the_kv_table_is_not_found(harness):
    item = harness.ask(101, namespace="NS", key="k")
    assert (item.code, item.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: NS Key: k",
    )
    namespace = harness.ask(219, namespace="NS")
    assert (namespace.code, namespace.remark) == (
        ResponseCode.QUERY_NOT_FOUND,
        "No config item, Namespace: NS",
    )


def test_a_change_that_is_not_on_disk_is_not_answered_with_success(harness):
    harness.disk_is_full = True
    answer = harness.ask(100, namespace="NS", key="k", value="v")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert "not saved: kvConfig.json: No space left on device" in answer.remark


def test_settings_are_shown_changed_and_saved(harness):
    assert b"enableTopicList=true\n" in harness.ask(319).body
    assert harness.ask(318, b"enableTopicList=false").code == 0
    file = harness.disk.open("/n/n.conf")
    assert file.pread(file.size(), 0) == b"enableTopicList=false\n"
    assert b"enableTopicList=false\n" in harness.ask(319).body
    assert harness.ask(318).code == 0
    assert harness.ask(318, b"kvConfigPath=/tmp/x").code == ResponseCode.NO_PERMISSION
    assert file.pread(file.size(), 0) == b"enableTopicList=false\n"


def cluster_test(**elsewhere: RemotingCommand | Exception) -> Harness:
    """A name server that asks those of the other environment, `a` and `b`."""
    config = NamesrvConfig(cluster_test=True, product_namesrv_addr="a:1;b:1")
    harness = Harness(config=config)
    harness.elsewhere = {f"{name}:1": answer for name, answer in elsewhere.items()}
    return harness


FOUND = RemotingCommand(0, body=b"{route}")
UNKNOWN = RemotingCommand(ResponseCode.TOPIC_NOT_EXIST)


@pytest.mark.parametrize(
    ("elsewhere", "found"),
    [
        ({"a": FOUND, "b": UNKNOWN}, True),
        ({"a": UNKNOWN, "b": FOUND}, True),
        ({"a": RemotingConnectError("refused"), "b": FOUND}, True),
        ({"a": UNKNOWN, "b": RemotingConnectError("refused")}, False),
    ],
)
def test_with_cluster_test_an_unknown_topic_is_asked_elsewhere(elsewhere, found):
    answer = cluster_test(**elsewhere).ask(105, topic="T")
    assert (answer.code, answer.body) == ((0, b"{route}") if found else (17, b""))
    if not found:
        assert answer.remark.startswith("No topic route info in name server for the topic: T\nSee ")


def test_with_cluster_test_a_topic_that_is_known_here_is_not_asked_elsewhere():
    harness = cluster_test()  # asking would be a KeyError
    register(harness, "b0", 0)
    assert harness.ask(105, topic="T").code == 0


def test_a_broker_belongs_to_the_channel_it_registered_on(harness):
    mine, other = FakeChannel("1.1.1.1:1"), FakeChannel("2.2.2.2:2")
    register(harness, channel=mine)
    assert harness.routes.channel_closed(other).brokers == ()
    assert harness.routes.channel_closed(mine).brokers == (BrokerAddrInfo("C", "a-0:10911"),)


WIRE_NAMES = [
    "topic", "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId", "bodyCrc32",
    "enableActingMaster", "heartbeatTimeoutMillis", "namespace", "key", "value", "cluster",
    "acceptStandardJsonOnly", "__ZONE_NAME", "__ZONE_MODE", "compressed",
]  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(["T", "a", "a:1", "C", "0", "-1", "true", "../x", "9" * 40]), st.text()
)
BODIES = st.one_of(
    st.binary(max_size=64),
    st.just(register_body(*TOPICS).to_body()),
    st.just(register_body(*TOPICS).to_compressed_body()),
    st.just(TopicRouteData(queue_datas=[QueueData(broker_name="a")]).to_body()),
    st.just(version().to_body()),
    st.just(b'{"topicConfigSerializeWrapper":{"topicQueueMappingInfoMap":{"T":3,"U":{"bname":4}},'
            b'"topicConfigTable":{"T":{"topicName":"T"},"U":{"topicName":"U"}}}}'),
)  # fmt: skip
REQUESTS = st.tuples(
    st.sampled_from(sorted(SERVED_BY_APACHE)),
    st.dictionaries(st.sampled_from(WIRE_NAMES), VALUES),
    BODIES,
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(REQUESTS, min_size=1, max_size=20))
def test_any_requests_in_any_order_are_answered_and_can_be_encoded(requests):
    harness = Harness()
    for code, fields, body in requests:
        if code == Code.REGISTER_BROKER:
            fields = {**register_fields(), "enableActingMaster": "true", **fields}
        answer = harness.serve(RemotingCommand(code, ext_fields=fields, body=body))
        assert decode_frame(encode(answer)).code == answer.code
