"""The work of the route table does not grow with brokers and topics that it does not concern.

Work is counted, not timed: reads of the state of brokers, and hashes of names.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

import pytest

from trocket.common.steps import at_once
from trocket.namesrv import route_info_manager
from trocket.namesrv.limits import QUEUE_DATA_MAX, TOPICS_MAX
from trocket.namesrv.registration import BrokerLiveInfo
from trocket.namesrv.route_info_manager import RouteInfoManager
from trocket.namesrv.topic_table import TopicTable
from trocket.remoting.bodies import QueueData

from .builders import registration

FEW = 10
MANY = 200


class CountedName(str):
    """A name that counts how often a table looks it up."""

    looked_up: ClassVar[Counter[str]] = Counter()

    def __hash__(self):
        CountedName.looked_up["all"] += 1
        return super().__hash__()


@pytest.fixture(autouse=True)
def _no_counts():
    CountedName.looked_up.clear()


def register(routes, name, topics=("T", "U"), *, channel=None, cluster="C"):
    # New strings, as in each decoded registration.
    one = registration(name, 0, [f"{each}."[:-1] for each in topics], cluster_name=cluster)
    return at_once(routes.register_broker_in_steps(one, channel=channel or name, now_ms=0))


def test_the_end_of_a_connection_reads_no_broker_of_another_one(monkeypatch):
    reads = Counter()

    class CountedLive(BrokerLiveInfo):
        def __getattribute__(self, name):
            reads[name] += 1
            return super().__getattribute__(name)

    monkeypatch.setattr(route_info_manager, "BrokerLiveInfo", CountedLive)
    counts = []
    for brokers in (FEW, MANY):
        routes = RouteInfoManager()
        channels = [object() for _ in range(brokers)]
        for number, channel in enumerate(channels):
            register(routes, f"b{number}", channel=channel)
        reads.clear()
        assert routes.channel_closed(object()).brokers == ()
        assert sum(reads.values()) == 0
        assert len(routes.channel_closed(channels[3]).brokers) == 1
        counts.append(sum(reads.values()))
    assert counts[0] == counts[1]


def test_a_connection_ends_with_all_brokers_that_registered_on_it_last():
    routes = RouteInfoManager()
    first, second = object(), object()
    for name in ("a", "b", "c"):
        register(routes, name, channel=first)
    register(routes, "b", channel=second)
    register(routes, "c", channel=second)
    register(routes, "c", channel=first)
    assert [each.broker_addr for each in routes.channel_closed(first).brokers] == [
        "a-0:10911",
        "c-0:10911",
    ]
    assert routes.channel_closed(first).brokers == ()
    assert len(routes.channel_closed(second).brokers) == 1
    assert routes.live_brokers() == {}


@pytest.mark.parametrize("mappings", [FEW, MANY])
def test_a_broker_that_leaves_looks_up_no_static_topic_of_another_one(mappings):
    table = TopicTable()
    for number in range(mappings):
        name = CountedName(f"static-{number}")
        assert table.put(name, QueueData(broker_name="a"))
        assert table.put_mapping(name, "a", {"bname": "a"})
    assert table.put("T", QueueData(broker_name="b"))
    CountedName.looked_up.clear()
    table.remove_broker("b")
    assert not CountedName.looked_up
    assert "T" not in table


def test_a_static_topic_goes_with_its_last_broker_and_makes_room():
    table = TopicTable()
    for name in ("a", "b"):
        assert table.put("T", QueueData(broker_name=name))
    assert table.put_mapping("T", "a", {"bname": "a"})
    table.remove_broker("a")
    assert table.mappings("T") is not None
    table.remove_broker("b")
    assert table.mappings("T") is None
    assert table.put("T", QueueData(broker_name="b"))
    assert table.mappings("T") is None


@pytest.mark.parametrize("brokers", [FEW, MANY])
def test_a_topic_that_is_deleted_in_a_cluster_looks_up_only_its_brokers(brokers):
    routes = RouteInfoManager()
    for number in range(brokers):
        register(routes, CountedName(f"b{number}"), ("T" if number == 0 else "V", "W"))
    register(routes, "other", ("T", "W"), cluster="D")
    CountedName.looked_up.clear()
    routes.delete_topic("T", "C")
    assert 0 < CountedName.looked_up["all"] < FEW
    assert list(routes.topics.queues("T")) == ["other"]


def test_brokers_share_the_names_of_topics_and_a_broker_its_equal_queue_data():
    routes = RouteInfoManager()
    for name in ("a", "b"):
        register(routes, name, ("topic-1", "topic-2"))
    table = routes.topics
    known = {id(topic) for topic in table.topics()}
    for name in ("a", "b"):
        assert {id(topic) for topic in table.topics_of_broker(name)} == known
        assert table.queues("topic-1")[name] is table.queues("topic-2")[name]
    at_once(routes.wipe_write_perm("a"))
    assert table.queues("topic-1")["a"] is table.queues("topic-2")["a"]
    assert table.queues("topic-1")["a"].perm == 4
    assert table.queues("topic-1")["b"].perm == 6


def test_the_name_of_a_topic_is_kept_no_longer_than_the_topic():
    table = TopicTable()
    for _ in range(2):
        assert table.put("T", QueueData(broker_name="a"))
        assert table.put("T", QueueData(broker_name="b"))
        table.remove("T", "a")
        table.remove_broker("b")
        assert (table.topics(), len(table)) == ([], 0)


def test_a_thousand_brokers_with_ten_thousand_topics_each_fit():
    assert QUEUE_DATA_MAX >= 1_000 * 10_000
    assert TOPICS_MAX >= 10_000
