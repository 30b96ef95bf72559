"""The choice of the broker for a pull."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from trocket.client.core.subscription import build_subscription
from trocket.client.errors import ConnectError, ServerError, server_error
from trocket.remoting.bodies import BrokerData, QueueData, TopicRouteData
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.response_codes import ResponseCode
from trocket.spark import cluster as module
from trocket.spark.cluster import Cluster
from trocket.spark.errors import OptionError, SparkConnectorError
from trocket.spark.queue_offsets import Queue
from trocket.spark.source_options import source_options

QUEUE = Queue("T", "b", 0)
NOT_KNOWN = server_error(
    ResponseCode.TOPIC_NOT_EXIST, "No topic route info", "n:1", "GET_ROUTEINFO_BY_TOPIC"
)
NO_TOPIC = server_error(ResponseCode.TOPIC_NOT_EXIST, "topic T not exist", "m", "PULL_MESSAGE")
BUSY = server_error(ResponseCode.SYSTEM_BUSY, "busy", "m", "PULL_MESSAGE")
DENIED = server_error(ResponseCode.NO_PERMISSION, "no", "m", "PULL_MESSAGE")


class FakeClient:
    """A master at `m` and slaves at `s1` and `s3`; the slaves are at offset 10."""

    def __init__(self) -> None:
        self.asked = []
        self.headers = []
        self.looked_up = 0
        self.suggests = 0
        self.is_slave_dead = False
        self.unknown = 0
        self.failures = []

    def with_namespace(self, name):
        return name

    def route(self, topic, *, is_fresh):
        if self.unknown:
            self.unknown -= 1
            raise NOT_KNOWN
        return TopicRouteData(
            queue_datas=[QueueData("b", 1, 1, 6, 0)],
            broker_datas=[BrokerData(cluster="c", broker_name="b", broker_addrs={0: "m"})],
        )

    def broker_address(self, broker_name):
        self.looked_up += 1
        return None if self.unknown else "m"

    def broker_addresses(self):
        return {"b": {0: "m", 3: "s3", 1: "s1"}}

    def request(self, address, code, header, *, ok):
        self.asked.append(address)
        self.headers.append(header)
        if self.failures:
            raise self.failures.pop(0)
        if address != "m" and self.is_slave_dead:
            raise ConnectError(address, "dead")
        has_it = address == "m" or header.queue_offset < 10
        answer = ResponseCode.SUCCESS if has_it else ResponseCode.PULL_OFFSET_MOVED
        fields = {"suggestWhichBrokerId": str(self.suggests), "nextBeginOffset": "1",
                  "minOffset": "0", "maxOffset": "20"}  # fmt: skip
        return RemotingCommand(answer, fields, b"", opaque=1)


@pytest.fixture
def client(monkeypatch):
    client = FakeClient()
    monkeypatch.setattr(module, "client_of", lambda _: client)
    return client


def pull(cluster, offset=0, **given):
    return cluster.pull(
        QUEUE, offset, count=32, group="g", subscription=build_subscription("T", "*"), **given
    )


def cluster_of(**given):
    return Cluster(options_of(**given))


def options_of(**given):
    return source_options(
        {"nameServer": "n:1", "topic": "T", "retryIntervalMs": "0", "numRetries": "2", **given}
    )


def test_the_master_is_asked_and_looked_up_once(client) -> None:
    cluster = cluster_of()
    for _ in range(3):
        pull(cluster, size=1000)
    assert client.asked == ["m", "m", "m"]
    assert client.looked_up == 1
    assert client.headers[0].max_msg_bytes == 1000


def test_a_slave_is_asked_and_its_master_for_what_it_does_not_have(client) -> None:
    cluster = cluster_of(readFrom="slave")
    pull(cluster)
    assert client.asked == ["s1"]
    assert pull(cluster, 15).code == ResponseCode.SUCCESS
    assert client.asked == ["s1", "s1", "m"]
    client.is_slave_dead = True
    pull(cluster)
    assert client.asked[3:] == ["s1", "m"]


def test_who_is_suggested_is_asked_next(client) -> None:
    cluster = cluster_of(readFrom="suggested")
    client.suggests = 3
    pull(cluster)
    client.suggests = 0
    pull(cluster)
    pull(cluster)
    assert client.asked == ["m", "s3", "m"]


def test_a_topic_that_all_brokers_took_with_them_is_waited_for(client) -> None:
    client.unknown = 2
    assert cluster_of().queues(options_of()) == [QUEUE]
    client.unknown = 3
    with pytest.raises(OptionError, match="no name server of n:1 knows the topic T"):
        cluster_of().queues(options_of())
    client.unknown = 2
    assert pull(cluster_of()).code == ResponseCode.SUCCESS


def test_a_request_is_tried_again_only_when_that_may_help(client) -> None:
    cluster = cluster_of()
    client.failures = [BUSY, ConnectError("m", "away")]
    assert pull(cluster).code == ResponseCode.SUCCESS
    assert len(client.asked) == 3
    client.failures = [DENIED, BUSY]
    with pytest.raises(ServerError, match="NO_PERMISSION"):
        pull(cluster)
    client.failures = [NO_TOPIC, BUSY]
    with pytest.raises(SparkConnectorError, match=r"topic T, .*offset 0: the topic was deleted"):
        pull(cluster)
