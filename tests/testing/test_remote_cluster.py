"""Topics on a cluster elsewhere, and its URL."""

from __future__ import annotations

import pytest

from trocket.client.errors import ConfigurationError, ConnectError
from trocket.testing import Broker
from trocket.testing.remote_cluster import RemoteCluster


def test_several_name_servers_stand_as_clients_take_them() -> None:
    cluster = RemoteCluster("rocketmq://a:1;b:2?namespace=ns")
    assert cluster.url == "rocketmq://a:1;b:2?namespace=ns"
    assert cluster.namesrv_address == "a:1;b:2"


@pytest.mark.parametrize("url", ["", "rocketmq://", "a:1;b:x", "http://a:1"])
def test_what_is_no_url(url: str) -> None:
    with pytest.raises(ValueError, match=r"write (rocketmq://)?host:port"):
        RemoteCluster(url)


def test_topics_come_and_go() -> None:
    with Broker() as broker:
        cluster = RemoteCluster(broker.url)
        assert (cluster.url, cluster.namesrv_address) == (broker.url, broker.namesrv_address)
        cluster.create_topic("T", queues=3, message_type="FIFO")
        topic = broker._running().broker.topics.topic_config_table["T"]
        assert (topic.write_queue_nums, topic.attributes) == (3, {"message.type": "FIFO"})
        cluster.delete_topic("T")
        assert "T" not in broker._running().broker.topics.topic_config_table
        cluster.delete_topic("T")
        with pytest.raises(ConfigurationError, match="blank"):
            cluster.create_topic("no blanks")


@pytest.mark.slow
def test_a_cluster_that_is_gone_is_an_error() -> None:
    with Broker() as broker:
        cluster = RemoteCluster(broker.url)
    with pytest.raises(ConnectError):
        cluster.create_topic("T")
