"""Requests of the worst size, by request code, for a broker and a name server with full tables.

`make` gives the frame's parts when it is needed: some are 16 MiB. `fill` puts into the tables what
an attacker, or a large installation, would have there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.kit import START_MS
from trocket.broker.controller import BrokerController
from trocket.common.steps import at_once
from trocket.namesrv.controller import NamesrvController
from trocket.namesrv.registration import BrokerRegistration
from trocket.remoting.bodies import DataVersion, SubscriptionGroupConfig, TopicConfig
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.message_batch import BATCH_COUNT_MAX

TOPICS = 50_000
GROUPS = 20_000
OFFSETS = 100_000
CLIENTS = 10_000


class Client:
    """A channel of a client that sends nothing and reads nothing."""

    closed = False

    def __init__(self, number: int) -> None:
        self.remote_address = f"192.0.2.{number % 256}:{number % 65_536}"

    def send_oneway(self, command: RemotingCommand) -> None:
        encode(command)

    def close(self, reason: str = "") -> None:
        self.closed = True


def fill_broker(broker: BrokerController) -> None:
    """Topics, groups and offsets as many as the limits of this module say."""
    topics = [TopicConfig(f"topic-{i}", 4, 4) for i in range(TOPICS)]
    broker.topics.update(topics)
    groups = [SubscriptionGroupConfig(f"group-{i}") for i in range(GROUPS)]
    broker.groups.update(groups)
    for i in range(OFFSETS):
        broker.offsets.commit_offset(f"group-{i % GROUPS}", f"topic-{i // 100}", i % 4, i)


def fill_name_server(name_server: NamesrvController) -> None:
    """The topics of one broker, which is connected."""
    registration = BrokerRegistration(
        cluster_name="C",
        broker_addr="192.0.2.9:10911",
        broker_name="filled",
        broker_id=0,
        data_version=DataVersion(),
        topics=[TopicConfig(f"topic-{i}", 4, 4) for i in range(TOPICS)],
    )
    routes = name_server.routes
    at_once(routes.register_broker_in_steps(registration, channel=object(), now_ms=START_MS))


def joined(item: bytes, count: int) -> bytes:
    """Items of a JSON list; `%d` in one is its number."""
    if b"%d" not in item:
        return b",".join([item] * count)
    places = item.count(b"%d")
    return b",".join([item % ((i,) * places) for i in range(count)])


SUBSCRIPTION = (
    b'{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*",'
    b'"subVersion":1700000000000,"tagsSet":[],"topic":"t%d"}'
)
TOPIC = (
    b'{"attributes":{},"order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG",'
    b'"topicName":"new-%d","topicSysFlag":0,"writeQueueNums":8}'
)
QUEUE = b'{"brokerName":"b","queueId":%d,"topic":"t"}'
EMPTY_MESSAGE = b"\x00\x00\x00\x16" + b"\x00" * 16 + b"\x00\x00"
MIB = 1024 * 1024


def heartbeat(consumers: bytes, producers: bytes = b"") -> bytes:
    return (
        b'{"clientID":"c","consumerDataSet":[' + consumers + b'],"producerDataSet":['
        + producers + b"]}"
    )  # fmt: skip


def subscriptions(count: int) -> bytes:
    return b'{"groupName":"g","subscriptionDataSet":[' + joined(SUBSCRIPTION, count) + b"]}"


def locks(count: int) -> bytes:
    return b'{"clientId":"c","consumerGroup":"g","mqSet":[' + joined(QUEUE, count) + b"]}"


def registration(count: int, *, static: bool = False) -> bytes:
    topics = b",".join([b'"new-%d":%s' % (i, TOPIC % i) for i in range(count)])
    mapping = b"{0:1}" if static else b"{}"
    return (
        b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":1,'
        b'"timestamp":1,"stateVersion":0},"topicConfigTable":{' + topics + b"},"
        b'"topicQueueMappingInfoMap":{"t":{"currIdMap":' + mapping + b"}}}}"
    )


REGISTRATION = {
    "brokerName": "b", "brokerAddr": "192.0.2.1:10911", "clusterName": "C", "brokerId": "0",
    "haServerAddr": "192.0.2.1:10912",
}  # fmt: skip

PULL = {
    "consumerGroup": "group-1", "topic": "topic-1", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "15000",
    "subscription": "*", "subVersion": "0", "expressionType": "TAG",
}  # fmt: skip


def many_tags() -> str:
    return "||".join([f"tag{i}" for i in range(25_000)])[: 240 * 1024]


@dataclass(frozen=True)
class Attack:
    """One request.

    Attributes:
      name: what is bad about it.
      code: its request code.
      make: its extFields and its body.
      raw_header: a whole JSON header in place of one from the fields.
    """

    name: str
    code: int
    make: Callable[[], tuple[dict[str, str], bytes]]
    raw_header: Callable[[], bytes] | None = None


def _body(make: Callable[[], bytes], **fields: str) -> Callable[[], tuple[dict[str, str], bytes]]:
    return lambda: (fields, make())


def _fields(**fields: str) -> Callable[[], tuple[dict[str, str], bytes]]:
    return lambda: (fields, b"")


LONG_TEXT = "x" * (200 * 1024)

BROKER_ATTACKS = [
    Attack("heartbeat, tolerant, 3.7 MiB", 34, _body(
        lambda: heartbeat(joined(b"{'groupName':'g'}", 220_000)))),
    Attack("heartbeat, tolerant, at the limit", 34, _body(
        lambda: heartbeat(joined(b"{'groupName':'g'}", 1_800)))),
    Attack("heartbeat, 16 MiB of consumers", 34, _body(
        lambda: heartbeat(joined(b'{"groupName":"g%d"}', 600_000)))),
    Attack("heartbeat, 1 MiB of consumers of one group", 34, _body(
        lambda: heartbeat(joined(b'{"groupName":"g"}', 55_000)))),
    Attack("heartbeat, 1 MiB of consumers", 34, _body(
        lambda: heartbeat(joined(b'{"groupName":"g%d"}', 40_000)))),
    Attack("heartbeat, 1 MiB of producers", 34, _body(
        lambda: heartbeat(b"", joined(b'{"groupName":"p%d"}', 40_000)))),
    Attack("heartbeat, 7,000 subscriptions", 34, _body(lambda: heartbeat(subscriptions(7_000)))),
    Attack("heartbeat, 50,000 short subscriptions", 34, _body(lambda: heartbeat(
        b'{"groupName":"g","subscriptionDataSet":[' + joined(b'{"topic":"t%d"}', 50_000) + b"]}"))),
    Attack("heartbeat, mistyped, at the limit", 34, _body(
        lambda: heartbeat(joined(b'{"groupName":"g","consumeType":1}', 3_800)))),
    Attack("heartbeat, one consumer", 34, _body(lambda: heartbeat(b'{"groupName":"g"}'))),
    Attack("lock of 100,000 queues", 41, _body(lambda: locks(100_000))),
    Attack("lock of 20,000 queues", 41, _body(lambda: locks(20_000))),
    Attack("unlock of 20,000 queues", 42, _body(lambda: locks(20_000))),
    Attack("20,000 topics", 18, _body(
        lambda: b'{"topicConfigList":[' + joined(TOPIC, 20_000) + b"]}")),
    Attack("5,000 topics", 18, _body(
        lambda: b'{"topicConfigList":[' + joined(TOPIC, 5_000) + b"]}")),
    Attack("20,000 groups", 225, _body(
        lambda: b'{"groupConfigList":[' + joined(b'{"groupName":"new-%d"}', 20_000) + b"]}")),
    Attack("group of 1 MiB", 200, _body(
        lambda: b'{"groupName":"g","x":[' + joined(b"[]", 300_000) + b"]}")),
    Attack("check of a client, SQL", 46, _body(
        lambda: b'{"clientId":"c","group":"g","subscriptionData":{"expressionType":"SQL92",'
        b'"subString":"a > ' + b"-" * 32_000 + b'1","topic":"t"}}')),
    Attack("all topics", 21, _fields()),
    Attack("all groups", 201, _fields()),
    Attack("all offsets", 43, _fields()),
    Attack("all delay offsets", 45, _fields()),
    Attack("topics of a group", 343, _fields(group="group-1")),
    Attack("groups of a topic", 300, _fields(topic="topic-1")),
    Attack("consume stats", 208, _fields(consumerGroup="group-1")),
    Attack("consume stats of the broker", 317, _fields(isOrder="false")),
    Attack("topic stats", 202, _fields(topic="topic-1")),
    Attack("reset of offsets", 222, _fields(
        topic="topic-1", group="group-1", timestamp="0", isForce="true")),
    Attack("clone of offsets", 314, _fields(
        srcGroup="group-1", destGroup="group-2", topic="", offline="true")),
    Attack("deletion of a topic", 215, _fields(topic="topic-2")),
    Attack("deletion of a group", 207, _fields(groupName="group-2", cleanOffset="true")),
    Attack("creation of a topic", 17, _fields(
        topic="one-more", defaultTopic="TBW102", readQueueNums="4", writeQueueNums="4", perm="6",
        topicFilterType="SINGLE_TAG", topicSysFlag="0", order="false")),
    Attack("pull by 25,000 tags", 11, lambda: ({**PULL, "subscription": many_tags()}, b"")),
    Attack("pull by SQL", 11, lambda: ({
        **PULL, "expressionType": "SQL92", "subscription": "a > " + "-" * 32_000 + "1"}, b"")),
    Attack("search by key", 12, _fields(
        topic="topic-1", key="k", maxNum="2147483647", beginTimestamp="0",
        endTimestamp="9223372036854775807")),
    Attack("search by time", 29, _fields(topic="topic-1", queueId="0", timestamp="1")),
    Attack("view by id", 33, _fields(offset="0")),
    Attack("running info of a client", 307, _fields(consumerGroup="group-1", clientId=LONG_TEXT)),
    Attack("long header", 35, _fields(clientID=LONG_TEXT, consumerGroup=LONG_TEXT)),
    Attack("send with a long topic", 310, _fields(
        a="g", b=LONG_TEXT, c="TBW102", d="4", e="0", f="0", g="0", h="0", i="", j="0")),
    Attack("send with many properties", 310, lambda: ({
        "a": "g", "b": "topic-1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": "".join(f"p{i}\x01v\x02" for i in range(4_000)), "j": "0"}, b"x")),
    Attack("batch of empty messages", 320, lambda: ({
        "a": "g", "b": "topic-1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": "", "j": "0", "m": "true"},
        EMPTY_MESSAGE * 100_000)),
    Attack("batch at the limit", 320, lambda: ({
        "a": "g", "b": "topic-1", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0",
        "i": "", "j": "0", "m": "true"}, EMPTY_MESSAGE * BATCH_COUNT_MAX)),
    Attack("unknown code, 16 MiB", 999, _body(lambda: b"x" * (15 * MIB))),
    Attack("tolerant header, 200 KiB", 35, _fields(), lambda: (
        b"{code:35,opaque:1,extFields:{" + joined(b"k%d:1", 20_000) + b"}}")),
    Attack("tolerant header, at the limit", 35, _fields(), lambda: (
        b"{code:35,opaque:1,extFields:{" + b",".join([b"k:1"] * 8_000) + b"}}")),
    Attack("strict header of 19,000 fields", 35, _fields(), lambda: (
        b'{"code":35,"opaque":1,"extFields":{' + b",".join(
            [b'"k%d":""' % i for i in range(19_000)]) + b"}}")),
]  # fmt: skip

NAME_SERVER_ATTACKS = [
    Attack("registration of 50,000 topics", 103, lambda: (REGISTRATION, registration(50_000))),
    Attack("the same again, changed", 103, lambda: (
        REGISTRATION, registration(50_000).replace(b'"counter":1', b'"counter":2'))),
    Attack("registration with bare keys, 20,000 topics", 103, lambda: (
        REGISTRATION, registration(20_000, static=True))),
    Attack("registration with bare keys, 100 topics", 103, lambda: (
        REGISTRATION, registration(100, static=True))),
    Attack("end of a broker", 104, lambda: (REGISTRATION, b"")),
    Attack("all topics", 206, _fields()),
    Attack("topics of a cluster", 224, _fields(cluster="C")),
    Attack("unit topics", 311, _fields()),
    Attack("wipe", 205, _fields(brokerName="filled")),
    Attack("permission back", 327, _fields(brokerName="filled")),
    Attack("system topics", 304, _fields()),
    Attack("cluster", 106, _fields()),
    Attack("route", 105, _fields(topic="topic-1")),
    Attack("static route", 217, _body(lambda: b'{"queueDatas":[' + joined(
        b'{"brokerName":"b%d","perm":6}', 30_000) + b"]}", topic="static")),
    Attack("version", 322, _body(lambda: b'{"x":[' + joined(b"[]", 300_000) + b"]}",
        **REGISTRATION)),
    Attack("settings", 318, _body(lambda: b"".join(b"k%d=v\n" % i for i in range(100_000)))),
]  # fmt: skip
