"""Statistics, look-ups and runtime information of a broker, as administrators ask for them."""

from __future__ import annotations

import json

import pytest
import trio

from trocket.remoting import fastjson
from trocket.remoting.bodies import (
    ConsumeStatsList,
    HeartbeatData,
    KVTable,
    ProducerData,
    TopicList,
)

from ...kit import (
    START_MS,
    broker_and_client,
    broker_client,
    embedded_broker,
    heartbeat,
    pull_fields,
    send_fields,
    subscribed,
)

SEND, PULL, HEARTBEAT, COMMIT, OFFSET = 310, 11, 34, 15, 14
TOPIC_STATS, CONSUME_STATS, TIME_SPAN, VIEW, ALL_CONSUME_STATS = 202, 208, 303, 315, 317
SYSTEM_TOPICS, CORRECTION, CLONE, PRODUCERS, TOPICS_OF, SUBSCRIPTION = 305, 308, 314, 328, 343, 345
RUNTIME, DELETE_TOPIC, DELETE_GROUP, MAKE_GROUP, MAKE_TOPICS = 28, 215, 207, 200, 18


async def two_messages(broker):
    """A client; topic T has two messages, and group CG consumed the first."""
    client = await broker.connect()
    for _ in range(2):
        assert (await client.ask(SEND, send_fields(), b"body")).code == 0
    assert (await client.ask(MAKE_GROUP, {}, b'{"groupName":"CG"}')).code == 0
    fields = {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 1}
    assert (await client.ask(COMMIT, fields)).code == 0
    return client


def by_queue(table):
    """A table whose keys are queues, by queue id."""
    return {dict(key)["queueId"]: value for key, value in table.items()}


async def ask(client, code, fields, body=b""):
    """The tree of an answer's body."""
    answer = await client.ask(code, fields, body)
    assert answer.code == 0, answer.remark
    return fastjson.loads(answer.body)


async def test_the_offsets_of_a_topics_queues(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        tree = await ask(client, TOPIC_STATS, {"topic": "T"})
        table = by_queue(tree["offsetTable"])
        assert len(table) == 4
        assert table[0] == {
            "minOffset": 0, "maxOffset": 2, "lastUpdateTimestamp": START_MS,
        }  # fmt: skip
        assert table[3] == {"minOffset": 0, "maxOffset": 0, "lastUpdateTimestamp": 0}
        await trio.sleep(10.1)
        tree = await ask(client, TOPIC_STATS, {"topic": "T"})
        assert tree["topicPutTps"] == pytest.approx(0.2)


async def test_the_progress_of_a_group(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        answer = await client.ask(PULL, pull_fields(sysFlag=4))
        assert answer.code == 0
        await trio.sleep(10.1)
        for fields in ({}, {"topic": "T"}, {"topicList": "T;"}):
            tree = await ask(client, CONSUME_STATS, {"consumerGroup": "CG", **fields})
            assert by_queue(tree["offsetTable"])[0] == {
                "brokerOffset": 2, "consumerOffset": 1, "pullOffset": 2,
                "lastTimestamp": START_MS,
            }  # fmt: skip
            assert tree["consumeTps"] == pytest.approx(0.2)
        tree = await ask(client, CONSUME_STATS, {"consumerGroup": "nobody"})
        assert tree["offsetTable"] == {}
        tree = await ask(client, ALL_CONSUME_STATS, {"isOrder": "false"})
        assert (tree["totalDiff"], tree["totalInflightDiff"]) == (1, 1)
        (of_group,) = [each["CG"] for each in tree["consumeStatsList"] if "CG" in each]
        assert by_queue(of_group[0]["offsetTable"])[0]["consumerOffset"] == 1
        tree = await ask(client, ALL_CONSUME_STATS, {"isOrder": "true"})
        assert {"CG": []} in tree["consumeStatsList"]


async def test_317_has_the_numbers_of_members_if_asked(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        other = await broker.connect()
        for each in (client, other):
            beat = heartbeat("CG", subscribed("T", "*"), client_id=f"c@{each is other}")
            assert (await each.ask(HEARTBEAT, {}, beat)).code == 0
        assert "members" not in await ask(client, ALL_CONSUME_STATS, {"isOrder": "false"})
        tree = await ask(client, ALL_CONSUME_STATS, {"withMembers": "true"})
        assert tree["members"] == {"CG": 2}
        assert ConsumeStatsList.from_body(fastjson.dumps(tree)).members == {"CG": 2}


@pytest.mark.slow
async def test_the_progress_of_a_group_of_many_topics_lets_other_requests_through(autojump_clock):
    topics = [f"T{number:03}" for number in range(250)]
    async with broker_and_client() as (broker, client):
        configs = [{"topicName": name, "readQueueNums": 16} for name in topics]
        body = json.dumps({"topicConfigList": configs}).encode()
        assert (await client.ask(MAKE_TOPICS, {}, body)).code == 0
        assert (await client.ask(MAKE_GROUP, {}, b'{"groupName":"CG"}')).code == 0
        for name in topics:
            fields = {"consumerGroup": "CG", "topic": name, "queueId": 1, "commitOffset": 0}
            assert (await client.ask(COMMIT, fields)).code == 0
        other = await broker.connect()
        answers = 0

        async def ask_on(until: trio.CancelScope) -> None:
            nonlocal answers
            with until:
                while True:
                    assert (await other.ask(TOPICS_OF, {"group": "nobody"})).code == 0
                    answers += 1

        async with trio.open_nursery() as nursery:
            until = trio.CancelScope()
            nursery.start_soon(ask_on, until)
            tree = await ask(client, CONSUME_STATS, {"consumerGroup": "CG"})
            until.cancel()
        assert sorted(dict(key)["topic"] for key in tree["offsetTable"]) == sorted(topics * 16)
        # 4,000 queues are forty steps, and an answer takes about five turns of the loop.
        assert answers >= 5


async def test_the_progress_of_a_group_in_times(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        await trio.sleep(30)
        tree = await ask(client, TIME_SPAN, {"topic": "T", "group": "CG"})
        first, second, *_ = tree["consumeTimeSpanSet"]
        assert first["messageQueue"]["queueId"] == 0
        assert (first["minTimeStamp"], first["maxTimeStamp"]) == (START_MS, START_MS)
        assert first["consumeTimeStamp"] == START_MS
        assert first["delayTime"] == pytest.approx(30_000, abs=1_000)
        assert (second["minTimeStamp"], second["delayTime"]) == (-1, 0)
        tree = await ask(client, TIME_SPAN, {"topic": "T", "group": "nobody"})
        assert tree["consumeTimeSpanSet"][0]["delayTime"] == pytest.approx(30_000, abs=1_000)


async def test_counters_are_seen_and_dropped_with_their_topic(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        who = {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"}
        assert (await ask(client, VIEW, who))["statsMinute"]["sum"] == 0
        await trio.sleep(10.1)
        tree = await ask(client, VIEW, who)
        assert tree["statsMinute"] == {"sum": 2, "tps": 0.2, "avgpt": 1.0}
        assert tree["statsDay"]["sum"] == 2
        assert (await client.ask(DELETE_TOPIC, {"topic": "T"})).code == 0
        answer = await client.ask(VIEW, who)
        assert (answer.code, answer.remark) == (1, "The stats <TOPIC_PUT_NUMS> <T> not exist")


@pytest.mark.parametrize(
    ("code", "fields", "refused", "remark"),
    [
        (TOPIC_STATS, {"topic": "X"}, 17, "topic[X] not exist"),
        (TIME_SPAN, {"topic": "X", "group": "CG"}, 17, "topic[X] not exist"),
        (VIEW, {"statsName": "X", "statsKey": "Y"}, 1, "The stats <X> <Y> not exist"),
        (ALL_CONSUME_STATS, {}, 0, None),
        (CLONE, {"srcGroup": "CG"}, 1, "the custom field <destGroup> is null"),
        (CLONE, {"srcGroup": "CG", "destGroup": "CID_RMQ_SYS_TRANS"}, 16, None),
    ],
)
async def test_wrong_questions(autojump_clock, code, fields, refused, remark):
    async with broker_client() as client:
        answer = await client.ask(code, fields)
        assert answer.code == refused
        if remark is not None:
            assert answer.remark == remark


async def test_topics_subscriptions_and_offsets_of_groups(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        answer = await client.ask(TOPICS_OF, {"group": "CG"})
        assert TopicList.from_body(answer.body).topic_list == ["T"]
        names = TopicList.from_body((await client.ask(SYSTEM_TOPICS, {})).body).topic_list
        assert {"TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(names)
        tree = await ask(client, SUBSCRIPTION, {"group": "CG", "topic": "T"})
        assert tree == {"group": "CG", "topic": "T"}
        for fields in ({"topic": "T"}, {"topic": " "}, {}):
            target = f"copy{len(fields.get('topic', ''))}"
            clone = {"srcGroup": "CG", "destGroup": target, "offline": "true", **fields}
            assert (await client.ask(CLONE, clone)).code == 0
            where = {"consumerGroup": target, "topic": "T", "queueId": 0}
            answer = await client.ask(OFFSET, {**where, "setZeroIfNotFound": "false"})
            assert answer.ext_fields["offset"] == "1"


async def test_the_least_offsets_of_all_groups(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        clone = {"srcGroup": "CG", "destGroup": "H", "topic": "T", "offline": "true"}
        assert (await client.ask(CLONE, clone)).code == 0
        fields = {"topic": "T", "compareGroup": "H"}
        tree = await ask(client, CORRECTION, fields)
        assert tree == {"correctionOffsets": {0: 1}}
        where = {"consumerGroup": "H", "topic": "T", "queueId": 0}
        assert (await client.ask(MAKE_GROUP, {}, b'{"groupName":"H"}')).code == 0
        assert (await client.ask(COMMIT, {**where, "commitOffset": 0})).code == 0
        tree = await ask(client, CORRECTION, {**fields, "filterGroups": "H,I"})
        assert tree == {"correctionOffsets": {0: 2**63 - 1}}
        answer = await client.ask(OFFSET, {**where, "setZeroIfNotFound": "false"})
        assert answer.ext_fields["offset"] == "0"


async def test_all_connected_producers(autojump_clock):
    async with broker_client() as client:
        beat = HeartbeatData(client_id="c@1", producer_data_set=[ProducerData(group_name="PG")])
        assert (await client.ask(HEARTBEAT, {}, beat.to_body())).code == 0
        await trio.sleep(5)
        tree = json.loads((await client.ask(PRODUCERS, {})).body)
        (found,) = tree["data"]["PG"]
        assert (found["clientId"], found["language"]) == ("c@1", "PYTHON")
        assert found["remoteIP"].startswith("/")
        assert found["lastUpdateTimestamp"] == START_MS


async def test_connected_producers_of_many_groups_come_in_one_answer(autojump_clock):
    groups = sorted(f"PG{number}" for number in range(1200))
    async with broker_client() as client:
        assert json.loads((await client.ask(PRODUCERS, {})).body) == {"data": {}}
        members = [ProducerData(group_name=group) for group in groups]
        beat = HeartbeatData(client_id="c@1", producer_data_set=members)
        assert (await client.ask(HEARTBEAT, {}, beat.to_body())).code == 0
        table = json.loads((await client.ask(PRODUCERS, {})).body)["data"]
        assert sorted(table) == groups
        assert {len(found) for found in table.values()} == {1}


async def test_runtime_information(autojump_clock):
    async with embedded_broker() as broker:
        client = await two_messages(broker)
        await client.ask(PULL, pull_fields(sysFlag=4))
        await trio.sleep(20.1)
        table = KVTable.from_body((await client.ask(RUNTIME, {})).body).table
        assert table["brokerVersionDesc"] == "V5_5_0"
        assert int(table["brokerVersion"]) == 513
        assert table["runtime"] == "[ 0 days, 0 hours, 0 minutes, 20 seconds ]"
        assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("2", "2")
        assert table["putTps"].split() == ["0.0", "0.1", "0.1"]
        assert table["getTransferedTps"] == table["getTransferredTps"] == "0.0 0.1 0.1"
        assert table["putMessageDistributeTime"].startswith("[<=0ms]:")
        assert table["putMessageDistributeTime"].endswith(" ")
        assert table["commitLogDirCapacity"].startswith("Total : ")
        assert table["remainHowManyDataToFlush"].endswith("B")
        assert table["earliestMessageTimeStamp"] == str(START_MS)
        assert 0 <= float(table["commitLogDiskRatio"]) <= 1
        assert table["brokerActive"] == "true"
        assert {"timerReadBehind", "EndTransactionQueueSize"} <= table.keys()
        assert {"queryThreadPoolQueueHeadWaitTimeMills"} <= table.keys()


async def test_a_clone_replaces_all_offsets_of_the_group(autojump_clock):
    async with broker_and_client() as (broker, admin):
        await admin.ask(SEND, send_fields(), b"x")
        offsets = broker.controller.offsets
        offsets.commit_offset("old", "T", 0, 1)
        for queue_id in (0, 1):
            offsets.commit_offset("new", "T", queue_id, 7)
        fields = {"srcGroup": "old", "destGroup": "new", "topic": "T", "offline": "true"}
        assert (await admin.ask(CLONE, fields)).code == 0
        assert offsets.offset_table["T@new"] == {0: 1}
        assert (await admin.ask(CLONE, fields | {"srcGroup": "none"})).code == 0
        assert offsets.offset_table["T@new"] == {0: 1}


async def test_what_a_single_pull_brings_is_not_the_subscription_of_its_group(autojump_clock):
    async with broker_client() as client:
        await client.ask(SEND, send_fields(), b"x")
        pulled = await client.ask(11, pull_fields(subscription="A", sysFlag=4))
        assert pulled.code in (0, 20)
        answer = await client.ask(SUBSCRIPTION, {"group": "CG", "topic": "T"})
    assert json.loads(answer.body) == {"group": "CG", "topic": "T"}
