"""34, 35 and 46."""

from __future__ import annotations

import pytest

from trocket.broker.settings.config import BrokerConfig
from trocket.remoting.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
    SubscriptionData,
    SubscriptionGroupConfig,
)
from trocket.remoting.request_codes import RequestCode

from ..harness import BrokerTables, FakeChannel, consumer, heartbeat, subscription


def broker_with(**config):
    return BrokerTables(BrokerConfig(broker_cluster_name="C", broker_name="broker-a", **config))


def test_a_first_heartbeat_makes_the_group_and_its_retry_topic_and_registers_it():
    broker = BrokerTables()
    answer = broker.heartbeat(FakeChannel())
    assert answer.code == 0
    assert answer.ext_fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
    assert broker.groups.contains("g")
    retry = broker.topics.select("%RETRY%g")
    assert (retry.read_queue_nums, retry.perm, retry.order) == (1, 6, False)
    assert broker.registrations == [1]


def test_a_further_heartbeat_makes_nothing_and_is_answered_at_once():
    broker = BrokerTables()
    channel = FakeChannel()
    broker.heartbeat(channel)
    saves = broker.saves
    assert broker.heartbeat(channel).code == 0
    assert (broker.registrations, broker.saves, channel.notified) == ([1], saves, ["g"])


def test_a_heartbeat_of_many_new_groups_is_saved_once():
    broker = BrokerTables()
    groups = [consumer(f"g{n}", subscription("T")) for n in range(20)]
    broker.heartbeat(FakeChannel(), heartbeat("c1", *groups))
    assert broker.saves == 2
    assert len(broker.consumers.consumer_table) == 20


def test_producers_register_too_but_none_without_a_name():
    broker = BrokerTables()
    broker.heartbeat(FakeChannel(), heartbeat("c1", producers=["p", ""]))
    assert set(broker.producers.group_table) == {"p"}
    assert broker.registrations == []


def test_the_retry_topic_follows_the_group_and_the_order_of_its_topics():
    broker = BrokerTables()
    broker.create_topic("T", order="true")
    broker.groups.update([SubscriptionGroupConfig(group_name="g", retry_queue_nums=3)])
    data = consumer("g", subscription("T"))
    data.unit_mode = True
    broker.heartbeat(FakeChannel(), heartbeat("c1", data))
    retry = broker.topics.select("%RETRY%g")
    assert (retry.read_queue_nums, retry.order, retry.topic_sys_flag) == (3, True, 2)


def test_a_group_that_may_not_be_created_is_not_registered():
    broker = broker_with(auto_create_subscription_group=False)
    assert broker.heartbeat(FakeChannel()).code == 0
    assert broker.consumers.get_consumer_group_info("g") is None
    assert broker.topics.select("%RETRY%g") is None


@pytest.mark.parametrize("group", ["", "a/b", "g" * 121])
def test_a_group_with_a_bad_name_is_not_registered(group):
    broker = BrokerTables()
    broker.heartbeat(FakeChannel(), heartbeat("c1", consumer(group, subscription("T"))))
    assert broker.consumers.consumer_table == {}
    assert broker.registrations == []


@pytest.mark.parametrize(("rejected", "registered"), [(True, False), (False, True)])
def test_pull_consumers_can_be_rejected(rejected, registered):
    broker = broker_with(reject_pull_consumer_enable=rejected)
    data = ConsumerData(group_name="g", consume_type=ConsumeType.CONSUME_ACTIVELY)
    broker.heartbeat(FakeChannel(), heartbeat("c1", data))
    assert (broker.consumers.get_consumer_group_info("g") is not None) is registered


def test_a_group_may_switch_notifications_off():
    broker = BrokerTables()
    broker.groups.update(
        [SubscriptionGroupConfig(group_name="g", notify_consumer_ids_changed_enable=False)]
    )
    staying, leaving = FakeChannel(), FakeChannel()
    for channel in (staying, leaving):
        broker.heartbeat(channel)
    fields = {"clientID": "c1", "consumerGroup": "g"}
    broker.ask(RequestCode.UNREGISTER_CLIENT, fields, channel=leaving)
    assert (staying.notified, leaving.notified) == ([], [])


def beat(broker, channel, fingerprint, *, is_without_sub=False):
    subscriptions = [] if is_without_sub else [subscription("T")]
    data = heartbeat(
        "c1", consumer("g", *subscriptions), fingerprint=fingerprint, is_without_sub=is_without_sub
    )
    return broker.heartbeat(channel, data).ext_fields["IS_SUB_CHANGE"]


def test_a_fingerprint_that_is_known_needs_no_subscriptions():
    broker = BrokerTables()
    channel = FakeChannel()
    assert beat(broker, channel, 7) == "false"
    assert beat(broker, channel, 7, is_without_sub=True) == "false"
    assert broker.consumers.find_subscription_data("g", "T") is not None


def test_another_fingerprint_wants_the_subscriptions_again():
    broker = BrokerTables()
    channel = FakeChannel()
    beat(broker, channel, 7)
    assert beat(broker, channel, 8, is_without_sub=True) == "true"
    assert beat(broker, channel, 8) == "false"


def test_after_a_restart_of_the_broker_the_subscriptions_are_wanted_again():
    assert beat(BrokerTables(), FakeChannel(), 7, is_without_sub=True) == "true"


def test_a_heartbeat_without_fingerprint_never_leaves_subscriptions_out():
    broker = BrokerTables()
    channel = FakeChannel()
    broker.heartbeat(channel)
    data = heartbeat("c1", consumer("g"), is_without_sub=True)
    broker.heartbeat(channel, data)
    assert broker.consumers.find_subscription_data("g", "T") is None


def test_goodbye_leaves_the_groups_that_are_named():
    broker = BrokerTables()
    channel = FakeChannel()
    broker.heartbeat(
        channel, heartbeat("c1", consumer("g", subscription("T")), producers=["p", "q"])
    )
    fields = {"clientID": "c1", "producerGroup": "p"}
    assert broker.ask(RequestCode.UNREGISTER_CLIENT, fields, channel=channel).code == 0
    assert set(broker.producers.group_table) == {"q"}
    fields = {"clientID": "c1", "consumerGroup": "g"}
    answer = broker.ask(RequestCode.UNREGISTER_CLIENT, fields, channel=channel)
    assert (answer.code, dict(answer.ext_fields)) == (0, {})
    assert broker.consumers.consumer_table == {}


def test_goodbye_of_a_stranger_is_answered_and_creates_no_group():
    broker = BrokerTables()
    fields = {"clientID": "c1", "consumerGroup": "h", "producerGroup": "p"}
    assert broker.ask(RequestCode.UNREGISTER_CLIENT, fields).code == 0
    assert not broker.groups.contains("h")


@pytest.mark.parametrize(
    ("data", "code", "remark"),
    [
        (None, 0, None),
        (subscription("T", "a || b"), 0, None),
        (
            SubscriptionData(topic="T", sub_string="a > 1", expression_type="SQL92"),
            1,
            "The broker does not support consumer to filter message by SQL92",
        ),
    ],
)
def test_a_client_may_subscribe_by_tags_only(data, code, remark):
    body = CheckClientRequestBody(client_id="c1", group="g", subscription_data=data).to_body()
    answer = BrokerTables().ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.code, answer.remark) == (code, remark)


@pytest.mark.parametrize("body", [b"", b"null"])
def test_a_check_of_no_subscription_finds_nothing_wrong(body):
    answer = BrokerTables().ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.code, answer.remark) == (0, None)


def sql(text, topic="T", version=1):
    return SubscriptionData(
        topic=topic, sub_string=text, expression_type="SQL92", sub_version=version
    )


@pytest.mark.parametrize(
    ("data", "code", "remark"),
    [
        (subscription("T", "a || b"), 0, None),
        (sql("a > 1 AND b = 'x'"), 0, None),
        (sql("a > > 1"), 23, "line 1, column 5: > is not expected here"),
        (sql(""), 23, "line 1, column 1: the expression ends too early"),
        (
            SubscriptionData(topic="T", sub_string="a", expression_type="GROOVY"),
            23,
            "'GROOVY' is not an expression type; use TAG or SQL92",
        ),
    ],
)
def test_with_the_key_a_client_may_subscribe_by_expressions_that_are_right(data, code, remark):
    broker = broker_with(enable_property_filter=True)
    body = CheckClientRequestBody(client_id="c1", group="g", subscription_data=data).to_body()
    answer = broker.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)
    assert (answer.code, answer.remark) == (code, remark)
    assert broker.filters.find("T", "g") is None, "only heartbeats register"


def test_one_heartbeat_compiles_a_bounded_part_of_the_expressions_of_all_its_groups(monkeypatch):
    limit = "trocket.broker.clients.client_manage.HEARTBEAT_CHARACTERS_MAX"
    monkeypatch.setattr(limit, 10)
    broker = broker_with(enable_property_filter=True)
    groups = [consumer(f"g{n}", sql(f"a = {n}")) for n in range(3)]
    channel = FakeChannel()
    broker.heartbeat(channel, heartbeat("c1", *groups))
    assert [broker.filters.find("T", f"g{n}") is None for n in range(3)] == [False, False, True]
    broker.heartbeat(channel, heartbeat("c1", *groups))
    assert broker.filters.find("T", "g2").text == "a = 2"


def test_a_heartbeat_that_leaves_subscriptions_out_leaves_the_filters_alone():
    broker = broker_with(enable_property_filter=True)
    channel = FakeChannel()
    broker.heartbeat(channel, heartbeat("c1", consumer("g", sql("a = 1")), fingerprint=7))
    again = heartbeat("c1", consumer("g"), fingerprint=7, is_without_sub=True)
    broker.heartbeat(channel, again)
    assert broker.filters.find("T", "g").text == "a = 1"
    fields = {"clientID": "c1", "consumerGroup": "g"}
    broker.ask(RequestCode.UNREGISTER_CLIENT, fields, channel=channel)
    assert broker.filters.find("T", "g") is None


@pytest.mark.parametrize(
    ("code", "body"),
    [
        *((RequestCode.HEART_BEAT, body) for body in (b"", b"{", b"null", b"\0")),
        (RequestCode.HEART_BEAT, b'{"consumerDataSet":1}'),
        (RequestCode.CHECK_CLIENT_CONFIG, b"{"),
        (RequestCode.CHECK_CLIENT_CONFIG, b"\0"),
        (RequestCode.CHECK_CLIENT_CONFIG, b'{"clientId":2,"subscriptionData":1}'),
    ],
)
def test_a_body_that_is_none_is_refused_and_registers_nothing(code, body):
    broker = BrokerTables()
    answer = broker.ask(code, body=body)
    assert answer.code == 1
    assert "cannot be read" in answer.remark
    assert broker.saves == 0
