"""The body of a registration is encoded in steps, and is the text of the whole body."""

from __future__ import annotations

from trocket.broker.cluster.registration_request import (
    BrokerIdentity,
    register_in_steps,
    register_requests,
)
from trocket.broker.settings.config import BrokerConfig
from trocket.common.steps import STEP_ITEMS
from trocket.remoting.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)


def test_a_registration_is_encoded_in_steps_and_is_the_same_text():
    identity = BrokerIdentity(BrokerConfig(), "h:1", "h:2", filter_servers=('"topicConfigTable"',))
    topics = [TopicConfig(topic_name=f"T{number}\u4e2d") for number in range(3 * STEP_ITEMS)]
    version = DataVersion(timestamp=5, counter=7)
    parts = list(register_in_steps(identity, topics, version, size=len(topics)))
    assert parts[:-1] == [None] * 2
    [request] = register_requests(identity, topics, version, size=len(topics))
    assert request == parts[-1]
    whole = RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table={topic.topic_name: topic for topic in topics},
            data_version=version,
            mapping_data_version=DataVersion(timestamp=5, counter=0),
            topic_queue_mapping_info_map={},
            topic_queue_mapping_detail_map={},
        ),
        filter_server_list=['"topicConfigTable"'],
    )
    assert request.body == whole.to_body()


def test_a_broker_without_topics_registers_an_empty_table():
    identity = BrokerIdentity(BrokerConfig(), "h:1", "h:2")
    [request] = register_in_steps(identity, [], DataVersion(timestamp=5, counter=7), size=10)
    table = RegisterBrokerBody.from_body(request.body).topic_config_serialize_wrapper
    assert table.topic_config_table == {}
    assert b'"topicConfigTable":{}' in request.body
