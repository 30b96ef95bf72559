"""Hostile numbers in requests of every code: each is answered, none is a traceback, none is kept.

The broker runs whole, on a memory disk; a name server's processors are asked directly.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Mapping
from random import Random

import msgspec
import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting import headers
from trocket.remoting.bodies import out_of_range
from trocket.remoting.codec import EXT_FIELDS_MAX, RemotingCommand
from trocket.remoting.headers import SEND_MESSAGE_V2_LETTERS, Header
from trocket.remoting.number_fields import QUEUE_COUNT_MAX, range_of
from trocket.remoting.request_codes import RequestCode

from ..kit import START_MS, TrioClock, broker_and_client, embedded_broker, send_fields
from ..namesrv.harness import Harness

ROUNDS = 8
WRITES = [10, 11, 15, 17, 18, 34, 41, 200, 225, 310, 320, 361]
"""The requests whose numbers a broker keeps: asked more often than the others."""
HOSTILE = [
    -(2**63) - 1, -(2**63), -(2**31) - 1, -(2**31), -2, -1, 0, 1, 4, 12, 65_535, 65_536, 65_537,
    2**31 - 1, 2**31, 2**32, 10**15, 2**63 - 1, 2**63, 2**64, 10**30,
]  # fmt: skip
TEXTS = ["", " 5", "+5", "1e3", "0x10", "1_000", "٣", "five", "NaN", "null", "1.0", "-0"]

PLAUSIBLE = {
    "topic": "T", "b": "T", "lite_topic": "", "default_topic": "TBW102", "c": "TBW102",
    "producerGroup": "PG", "a": "PG", "consumerGroup": "CG", "group": "CG", "groupName": "CG",
    "topicFilterType": "SINGLE_TAG", "order": "false", "subscription": "*",
    "expressionType": "TAG", "defaultTopic": "TBW102", "i": "UNIQ_KEY\x010123456789ABCDEF\x02",
    "properties": "UNIQ_KEY\x010123456789ABCDEF\x02", "clientID": "c", "clientId": "c",
    "brokerName": "b", "clusterName": "C", "brokerAddr": "192.0.2.1:10911",
    "haServerAddr": "192.0.2.1:10912", "key": "K", "namespace": "N", "value": "V",
    "bornTimestamp": str(START_MS), "g": str(START_MS), "queueId": "0", "e": "0",
    "defaultTopicQueueNums": "4", "d": "4", "readQueueNums": "4", "writeQueueNums": "4",
    "perm": "6", "commitOffset": "0", "dataVersion": "",
}  # fmt: skip
"""Texts with which a request is served; every other field is "0" where it is a number."""


def fields_of_all_requests() -> tuple[dict[str, str], list[str]]:
    """A text for each field that any request has, and the names of the numbers among them."""
    texts: dict[str, str] = {}
    numbers: set[str] = set()
    for name in headers.__all__:
        made = getattr(headers, name)
        if not (isinstance(made, type) and issubclass(made, Header)) or "Response" in name:
            continue
        for field in msgspec.structs.fields(made):
            is_number = range_of(field.type) is not None
            numbers |= {field.encode_name} if is_number else set()
            text = PLAUSIBLE.get(field.encode_name, "0" if is_number else None)
            if text is not None:
                texts[field.encode_name] = text
    return texts, sorted(numbers)


FIELDS, NUMBERS = fields_of_all_requests()

BODIES: dict[int, Mapping[str, object]] = {
    18: {"topicConfigList": [{"topicName": "U", "readQueueNums": 1, "writeQueueNums": 1,
        "perm": 6, "topicSysFlag": 0}]},
    34: {"clientID": "c", "heartbeatFingerprint": 0, "consumerDataSet": [{"groupName": "CG",
        "subscriptionDataSet": [{"topic": "T", "subString": "*", "subVersion": 1,
        "codeSet": [1]}]}]},
    41: {"consumerGroup": "CG", "clientId": "c", "mqSet": [{"topic": "T", "brokerName": "b",
        "queueId": 0}]},
    42: {"consumerGroup": "CG", "clientId": "c", "mqSet": [{"topic": "T", "brokerName": "b",
        "queueId": 0}]},
    46: {"clientId": "c", "group": "CG", "subscriptionData": {"topic": "T", "subVersion": 1}},
    103: {"topicConfigSerializeWrapper": {"dataVersion": {"timestamp": 1, "counter": 1,
        "stateVersion": 0}, "topicConfigTable": {"T": {"topicName": "T", "readQueueNums": 4,
        "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0}, "U": {"topicName": "U"}}},
        "filterServerList": []},
    200: {"groupName": "CG", "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1, "groupSysFlag": 0, "consumeTimeoutMinute": 15,
        "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1,
        "max": 2, "multiplier": 3}}},
    225: {"groupConfigList": [{"groupName": "CG2", "retryQueueNums": 1, "groupSysFlag": 0}]},
    322: {"timestamp": 1, "counter": 1, "stateVersion": 0},
}  # fmt: skip


def places_of(tree: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where the numbers of a JSON tree are."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found = []
    for name, value in items:
        if isinstance(value, dict | list):
            found += places_of(value, (*path, name))
        elif isinstance(value, int):
            found.append((*path, name))
    return found


def hostile_tree(random: Random, tree: Mapping[str, object]) -> object:
    """A copy of the tree in which some numbers are hostile, mostly one."""
    made = json.loads(json.dumps(tree))
    places = places_of(made)
    for *path, name in random.sample(places, min(random.choice([0, 1, 1, 1, 3]), len(places))):
        parent = made
        for step in path:
            parent = parent[step]
        parent[name] = random.choice([*HOSTILE, *HOSTILE, *TEXTS])
    return made


def hostile_request(random: Random, code: int) -> RemotingCommand:
    fields = dict(FIELDS)
    for name in random.sample(NUMBERS, random.choice([0, 1, 1, 1, 3, len(NUMBERS) // 2])):
        fields[name] = random.choice([*map(str, HOSTILE), *TEXTS])
    for name in random.sample(sorted(fields), random.choice([0, 0, 0, 1])):
        del fields[name]
    body = b"body"
    if code in BODIES:
        body = json.dumps(hostile_tree(random, BODIES[code])).encode()
    return RemotingCommand(code, fields, body, serialize_type=random.choice([0, 1]))


@pytest.fixture
def random() -> Random:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    return Random(seed)


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.exc_info]


def test_the_fields_are_a_header_that_is_read() -> None:
    assert len(FIELDS) <= EXT_FIELDS_MAX
    assert {"queueId", "commitOffset", "defaultTopicQueueNums", "e", "l"} <= set(NUMBERS)
    assert set(SEND_MESSAGE_V2_LETTERS) - {"i", "k", "m", "n"} <= set(FIELDS)


def check_tables(controller) -> None:
    for topic in controller.topics.topic_config_table.values():
        assert out_of_range(topic) is None
        assert 1 <= topic.read_queue_nums <= QUEUE_COUNT_MAX
    for group in controller.groups.subscription_group_table.values():
        assert out_of_range(group) is None
    store = controller.store
    for key, offsets in controller.offsets.offset_table.items():
        topic = key.partition("@")[0]
        for queue_id, offset in offsets.items():
            assert 0 <= queue_id < QUEUE_COUNT_MAX
            assert 0 <= offset <= store.max_offset(topic, queue_id)


@pytest.mark.slow
async def test_a_broker_answers_every_code_and_keeps_nothing_that_is_out_of_range(
    autojump_clock, caplog, random
):
    caplog.set_level(logging.WARNING)
    disk, clock = MemoryDisk(), TrioClock()
    codes = [*map(int, RequestCode), *WRITES * 8] * ROUNDS
    random.shuffle(codes)
    async with broker_and_client(disk, clock=clock) as (broker, client):
        for code in codes:
            await client.send(hostile_request(random, code))
            # Some codes leave a request without an answer, as RocketMQ does: ask for one more.
            answer = await client.ask(30, {"topic": "T", "queueId": 0})
            assert answer.code == 0
            check_tables(broker.controller)  # a later request may bring good numbers
        answers = client.unasked
        assert len(answers) > len(codes) * 0.9
        assert any(answer.code == 0 for answer in answers)
        assert tracebacks(caplog) == []
        answer = await client.ask(310, send_fields("Fresh", -1), b"x")
        assert answer.code == 0
    async with embedded_broker(disk, clock=clock) as broker:
        check_tables(broker.controller)
        assert broker.controller.topics.select("Fresh") is not None
    assert tracebacks(caplog) == []


@pytest.mark.slow
def test_a_name_server_answers_every_code_and_keeps_nothing_that_is_out_of_range(random):
    namesrv = Harness()
    codes = [code for code in namesrv.processors for _ in range(20 * ROUNDS)]
    random.shuffle(codes)
    served = 0
    for code in codes:
        served += namesrv.serve(hostile_request(random, code)).code == 0
        for topic in namesrv.routes.topics.topics():
            for queue_data in namesrv.routes.topics.queues(topic).values():
                assert out_of_range(queue_data) is None
        for data in namesrv.routes.cluster_info().broker_addr_table.values():
            assert all(broker_id >= 0 for broker_id in data.broker_addrs)
    assert served > len(codes) // 4
