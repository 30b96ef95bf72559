"""The table of consumers, and the notifications of its changes."""

from __future__ import annotations

import pytest

from trocket.broker.clients import consumer_group_info, consumer_manager
from trocket.broker.clients.consumer_manager import ConsumerManager
from trocket.common.steps import STEP_ITEMS, at_once
from trocket.remoting.bodies import ConsumerData, ConsumeType, MessageModel
from trocket.remoting.request_codes import RequestCode

from ..harness import FakeChannel, client, consumer, subscription


def test_a_consumer_and_its_subscriptions_are_there_from_the_first_heartbeat():
    table = ConsumerManager()
    channel = FakeChannel()
    data = consumer("g", subscription("T", "a || bb"), subscription("%RETRY%g"))
    assert table.register(data, client(channel))
    info = table.get_consumer_group_info("g")
    assert (info.consume_type, info.message_model) == (
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
    )
    assert info.all_client_ids() == ["c1"]
    assert info.all_channels() == [channel]
    assert info.find_channel("c1").channel is channel
    assert info.find_channel("c2") is None
    found = table.find_subscription_data("g", "T")
    assert found is info.find_subscription_data("T")
    assert (found.code_set, found.tags_codes) == (frozenset({1, 2}), frozenset({1, 2}))
    assert info.find_subscription_data("%RETRY%g").tags_codes is None
    assert table.find_subscription_data("g", "U") is None
    assert table.find_subscription_data("h", "T") is None
    assert table.query_topic_consume_by_who("T") == {"g"}


def test_the_whole_group_is_notified_of_a_new_client():
    table = ConsumerManager()
    first, second = FakeChannel(), FakeChannel()
    table.register(consumer("g", subscription("T")), client(first, "c1"))
    table.register(consumer("g", subscription("T")), client(second, "c2"))
    assert (first.notified, second.notified) == (["g", "g"], ["g"])
    command = first.sent[0]
    assert command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    assert command.ext_fields == {"consumerGroup": "g"}


def test_a_heartbeat_that_changes_nothing_notifies_no_client():
    table = ConsumerManager()
    channel = FakeChannel()
    data = consumer("g", subscription("T"))
    table.register(data, client(channel))
    assert not table.register(data, client(channel))
    assert channel.notified == ["g"]


@pytest.mark.parametrize(
    ("version", "expression", "kept"), [(2, "b", "b"), (1, "b", "a"), (0, "b", "a")]
)
def test_a_subscription_is_replaced_only_by_a_later_one(version, expression, kept):
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g", subscription("T", "a", 1)), client(channel))
    changed = table.register(consumer("g", subscription("T", expression, version)), client(channel))
    assert table.find_subscription_data("g", "T").sub_string == kept
    assert not changed
    assert channel.notified == ["g"]


def test_a_topic_more_or_less_is_a_change():
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g", subscription("T")), client(channel))
    assert table.register(consumer("g", subscription("T"), subscription("U")), client(channel))
    assert table.register(consumer("g", subscription("U")), client(channel))
    assert set(table.get_consumer_group_info("g").subscription_table) == {"U"}
    assert channel.notified == ["g"] * 3


def test_a_heartbeat_without_subscriptions_leaves_them_as_they_are():
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g", subscription("T")), client(channel))
    assert not table.register(consumer("g"), client(channel), with_subscriptions=False)
    assert table.find_subscription_data("g", "T") is not None


def test_the_others_are_notified_when_a_client_unregisters():
    table = ConsumerManager()
    staying, leaving = FakeChannel(), FakeChannel()
    for channel, name in ((staying, "c1"), (leaving, "c2")):
        table.register(consumer("g", subscription("T")), client(channel, name))
    notified = len(staying.notified), len(leaving.notified)
    assert table.unregister("g", leaving)
    assert not table.unregister("g", leaving)
    assert (len(staying.notified), len(leaving.notified)) == (notified[0] + 1, notified[1])
    assert table.get_consumer_group_info("g").all_client_ids() == ["c1"]
    table.unregister("g", staying)
    assert table.get_consumer_group_info("g") is None


def test_a_closed_connection_leaves_all_its_groups():
    table = ConsumerManager()
    staying, closed = FakeChannel(), FakeChannel()
    for group in ("g", "h"):
        table.register(consumer(group, subscription("T")), client(closed, "c1"))
        table.register(consumer(group, subscription("T")), client(staying, "c2"))
    staying.sent.clear()
    assert table.channel_closed(closed)
    assert not table.channel_closed(closed)
    assert sorted(staying.notified) == ["g", "h"]


def test_a_silent_client_is_dropped_after_120_s_and_the_others_are_notified():
    table = ConsumerManager()
    silent, alive = FakeChannel(), FakeChannel()
    table.register(consumer("g", subscription("T")), client(silent, "c1", last_update_s=0))
    table.register(consumer("g", subscription("T")), client(alive, "c2", last_update_s=0))
    table.register(consumer("g", subscription("T")), client(alive, "c2", last_update_s=60))
    alive.sent.clear()
    assert at_once(table.scan_inactive(120)) == []
    assert at_once(table.scan_inactive(120.5)) == [silent]
    assert (silent.closed, alive.closed, alive.notified) == (True, False, ["g"])


@pytest.mark.parametrize("groups", [1, 2 * STEP_ITEMS])
def test_a_scan_pauses_among_many_clients_and_spares_who_beats_meanwhile(groups):
    """In one group or in many."""
    table = ConsumerManager()
    channels = [FakeChannel() for _ in range(2 * STEP_ITEMS)]
    for number, channel in enumerate(channels):
        data = consumer(f"g{number % groups}", subscription("T"))
        table.register(data, client(channel, f"c{number}", last_update_s=60), notify=False)
    steps = table.scan_inactive(120)
    next(steps)  # some were looked at, and not all
    last = 2 * STEP_ITEMS - 1
    data = consumer(f"g{last % groups}", subscription("T"))
    table.register(data, client(channels[last], f"c{last}", last_update_s=179), notify=False)
    assert at_once(steps) == []
    steps = table.scan_inactive(180.5)
    pauses = closed = 0
    for _ in steps:
        before, closed = closed, sum(channel.closed for channel in channels)
        assert closed <= before + 1
        pauses += 1
    assert pauses >= last
    assert [channel.closed for channel in channels] == [True] * last + [False]
    assert list(table.consumer_table) == [f"g{last % groups}"]


def test_a_group_that_broadcasts_or_does_not_want_it_is_not_notified():
    table = ConsumerManager()
    channels = [FakeChannel() for _ in range(2)]
    broadcast = consumer("b", subscription("T"), message_model=MessageModel.BROADCASTING)
    for channel in channels:
        table.register(broadcast, client(channel))
        table.register(consumer("g", subscription("T")), client(channel), notify=False)
    table.unregister("g", channels[0], notify=False)
    table.unregister("b", channels[0])
    assert table.get_consumer_group_info("b").is_broadcasting
    assert [channel.notified for channel in channels] == [[], []]


def test_no_group_is_notified_if_the_broker_does_not_want_it():
    table = ConsumerManager(notify=lambda group, channels: None)
    channel = FakeChannel()
    table.register(consumer("g", subscription("T")), client(channel))
    assert channel.notified == []


def test_clients_of_one_group_that_subscribe_to_different_things_are_named_once(caplog):
    table = ConsumerManager()
    first, second = FakeChannel("192.0.2.2:1"), FakeChannel("192.0.2.2:2")
    table.register(consumer("g", subscription("T", "a")), client(first, "c1"))
    for _ in range(3):
        table.register(consumer("g", subscription("T", "b")), client(second, "c2"))
    warnings = [
        r.getMessage() for r in caplog.records if "different subscriptions" in r.getMessage()
    ]
    assert len(warnings) == 1
    assert "c2 192.0.2.2:2" in warnings[0]
    assert "c1 192.0.2.2:1" in warnings[0]
    assert "T (TAG 'b' against TAG 'a')" in warnings[0]


def test_one_client_that_changes_its_subscription_is_no_mixed_group(caplog):
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g", subscription("T", "a")), client(channel))
    table.register(consumer("g", subscription("T", "b", 2)), client(channel))
    assert "different subscriptions" not in caplog.text


def test_two_clients_on_one_connection_are_logged_and_the_new_one_counts(caplog):
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g", subscription("T")), client(channel, "c1"))
    assert not table.register(consumer("g", subscription("T")), client(channel, "c2"))
    assert table.get_consumer_group_info("g").all_client_ids() == ["c2"]
    assert "two clients must not share one" in caplog.text


def test_groups_of_a_connection_and_subscriptions_of_a_group_are_bounded(monkeypatch, caplog):
    monkeypatch.setattr(consumer_manager, "GROUPS_PER_CHANNEL_MAX", 1)
    monkeypatch.setattr(consumer_group_info, "SUBSCRIPTIONS_PER_GROUP_MAX", 2)
    table = ConsumerManager()
    channel = FakeChannel()
    topics = [subscription(f"T{n}") for n in range(3)]
    assert table.register(consumer("g", *topics), client(channel))
    assert set(table.get_consumer_group_info("g").subscription_table) == {"T0", "T1"}
    assert not table.register(consumer("h", *topics), client(channel))
    assert table.get_consumer_group_info("h") is None
    assert "only the first 2 are used" in caplog.text


def test_the_last_heartbeat_says_how_the_group_consumes():
    table = ConsumerManager()
    channel = FakeChannel()
    table.register(consumer("g"), client(channel))
    pull = ConsumerData(group_name="g", consume_type=ConsumeType.CONSUME_ACTIVELY)
    table.register(pull, client(channel))
    info = table.get_consumer_group_info("g")
    assert info.consume_type is ConsumeType.CONSUME_ACTIVELY
