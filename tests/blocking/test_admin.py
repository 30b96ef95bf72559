"""The blocking Admin; what its methods do is tested with the async one."""

from __future__ import annotations

import pytest

from trocket.blocking import Admin, Client, Producer
from trocket.client import ClosedError, Message, RouteNotFoundError
from trocket.testing import Broker


def test_topics_groups_and_messages(broker: Broker, topic: str, group: str) -> None:
    with Client(broker.url) as client, Admin(client) as admin, Producer(client) as producer:
        assert topic in admin.topics()
        assert admin.topic(topic).brokers[0].addresses[0] == broker.broker_address
        admin.create_group(group)
        assert group in admin.groups()
        result = producer.send(Message(topic, "one"))
        assert admin.message(result.offset_message_id, topic).text == "one"
        assert [m.text for m in admin.messages_by_time(topic, 0)] == ["one"]
        assert [each.end for each in admin.offsets(topic)] == [1]
        assert [each.end for each in admin.lag(group, topic).queues] == [1]
        assert admin.cluster().brokers
        admin.delete_topic(topic)
        with pytest.raises(RouteNotFoundError):
            admin.topic(topic)


def test_after_the_end(broker: Broker) -> None:
    with Admin(broker.url) as admin:
        assert admin.client.broker_addresses() == {}
    with pytest.raises(ClosedError):
        admin.topics()
