"""What administrators and metrics see of pops: subscriptions, progress, counters, lag."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trocket.remoting import fastjson
from trocket.remoting.receipt import Receipt

from ...kit import START_MS, Broker, embedded_broker
from ..metrics.test_service import Page, read, service
from .consumer import REVIVE, Consumer, consumer, seconds

STATS, SUBSCRIPTION, MEMBERS, CONNECTIONS = 208, 345, 38, 203
FORBID, RESET, VIEW, DELETE_GROUP, ALL_STATS = 353, 222, 315, 207, 317
LAG = ("rocketmq_consumer_lag_messages", "rocketmq_consumer_inflight_messages",
       "rocketmq_consumer_ready_messages")  # fmt: skip


async def popping(broker: Broker, count: int) -> Consumer:
    made = await consumer(broker)
    await made.send(count)
    return made


async def progress(group: Consumer, topic: str = "T", **more: object) -> list[int]:
    """End, committed and popped offset of queue 0, as 208 has them."""
    answer = await group.client.ask(STATS, {"consumerGroup": "G", "topic": topic, **more})
    assert answer.code == 0, answer.remark
    tree: Any = fastjson.loads(answer.body)
    (row,) = [row for queue, row in tree["offsetTable"].items() if queue["queueId"] == 0]
    return [row["brokerOffset"], row["consumerOffset"], row["pullOffset"]]


def lag_of(page: Page, is_retry: str = "false") -> list[float]:
    labels = {"consumer_group": "G", "topic": "T", "is_retry": is_retry}
    return [page.value(name, **labels) for name in LAG]


@pytest.mark.slow
async def test_a_pop_without_a_heartbeat_makes_a_subscription(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await popping(broker, 1)
        assert (await group.ask_pop(exp="a || b", expType="TAG")).code == 210  # none matches
        answer = await group.client.ask(SUBSCRIPTION, {"group": "G", "topic": "T"})
        data = json.loads(answer.body)["subscriptionData"]
        assert (data["subString"], data["subVersion"]) == ("a || b", START_MS)
        answer = await group.client.ask(SUBSCRIPTION, {"group": "G", "topic": "%RETRY%G_T"})
        assert json.loads(answer.body)["subscriptionData"]["subString"] == "*"
        codes = [
            (await group.client.ask(code, {"consumerGroup": "G"})).code
            for code in (MEMBERS, CONNECTIONS)
        ]
        assert codes == [1, 206]  # as with Apache's: no client is connected
        await seconds(611)
        group = await consumer(broker)
        answer = await group.client.ask(SUBSCRIPTION, {"group": "G", "topic": "T"})
        assert "subscriptionData" not in json.loads(answer.body)


async def test_208_has_how_far_a_group_has_popped(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await popping(broker, 5)
        got = await group.pop(maxMsgNums=3)
        assert await progress(group) == [5, 0, 3]
        await group.ack(got[0])
        assert await progress(group) == [5, 0, 3]
        assert await progress(group, topicList="T;") == [5, 0, 3]
        everything: Any = fastjson.loads(
            (await group.client.ask(ALL_STATS, {"isOrder": "false"})).body
        )
        assert (everything["totalDiff"], everything["totalInflightDiff"]) == (5, 3)
        await seconds(12)  # the check point is stored
        assert await progress(group) == [5, 3, 3]


async def test_208_has_the_check_points_in_memory_if_asked(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await popping(broker, 5)
        await group.send(1, queue_id=1)
        got = await group.pop(maxMsgNums=3, queueId=0)
        (other_queue,) = await group.pop(maxMsgNums=1, queueId=1)
        await group.ack(got[1])
        records = [
            Receipt.from_text(each.receipt).revive_queue_id for each in (got[0], other_queue)
        ]

        async def asked(**more: object) -> Any:
            fields = {"consumerGroup": "G", "topic": "T", **more}
            return fastjson.loads((await group.client.ask(STATS, fields)).body)

        assert "popCheckPoints" not in await asked()
        tree = await asked(withPops="true")
        assert [
            tuple(point[name] for name in ("q", "so", "n", "bm", "pt", "it", "rq"))
            for point in tree["popCheckPoints"]
        ] == [
            (0, 0, 3, 0b010, START_MS, 60_000, records[0]),
            (1, 0, 1, 0, START_MS, 60_000, records[1]),
        ]
        assert tree["popCheckPointsLeftOut"] == 0
        other = await asked(withPops="true", consumerGroup="H")
        assert other["popCheckPoints"] == []
        await seconds(12)
        assert (await asked(withPops="true"))["popCheckPoints"] == []


@pytest.mark.slow
async def test_lag_counts_what_is_popped_and_not_acknowledged(autojump_clock) -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        group = await popping(broker, 6)
        got = await group.pop(maxMsgNums=4)
        assert lag_of(await read(metrics)) == [6, 4, 2]
        await group.ack(got[0])
        await seconds(1)  # the offset is committed
        assert lag_of(await read(metrics)) == [5, 3, 2]
        await seconds(12)  # stored
        assert lag_of(await read(metrics)) == [5, 3, 2]
        await group.ack(got[1])
        await group.ack(got[1])
        changed = await group.change(got[2], 30_000)
        assert changed.code == 0
        await seconds(70)  # revived
        page = await read(metrics)
        assert lag_of(page)[1:] == [0, 2]
        assert lag_of(page, is_retry="true") == [2, 0, 2]
        await group.pop(maxMsgNums=1, queueId=0)


@pytest.mark.slow
async def test_records_are_counted_as_rocketmq_counts_them(autojump_clock) -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        group = await popping(broker, 3)
        got = await group.pop(maxMsgNums=2, invisibleTime=20_000)
        await group.ack(got[0])
        queue = str(Receipt.from_text(got[0].receipt).revive_queue_id)
        page = await read(metrics)
        assert page.value("rocketmq_pop_checkpoint_buffer_size") == 1
        assert page.value("rocketmq_pop_offset_buffer_size") == 1
        await seconds(30)
        page = await read(metrics)
        place = {"consumer_group": "G", "topic": "T"}
        for kind in ("CK", "ACK"):
            put = {"revive_message_type": kind, "put_status": "PUT_OK", **place}
            assert page.value("rocketmq_pop_revive_in_message_total", **put) == 1
            got_once = {"revive_message_type": kind, "queue_id": queue, **place}
            assert page.value("rocketmq_pop_revive_out_message_total", **got_once) == 1
        retried = {"put_status": "PUT_OK", **place}
        assert page.value("rocketmq_pop_revive_retry_messages_total", **retried) == 1
        assert page.value("rocketmq_pop_checkpoint_buffer_size") == 0
        assert page.count("rocketmq_pop_revive_lag_milliseconds") == 8
        assert page.value("rocketmq_pop_revive_lag_milliseconds", queue_id=queue) == 0
        assert page.value("rocketmq_pop_revive_latency_milliseconds", queue_id=queue) == 0
        assert page.value("rocketmq_pop_buffer_scan_time_consume_milliseconds_count") >= 1
        base = await read(metrics, "?units=base")
        assert base.value("rocketmq_pop_revive_lag", queue_id=queue) == 0
        assert "rocketmq_pop_revive_latency_seconds" in base.names()
        broker.controller.config.enable_pop_metrics = False
        assert not [name for name in (await read(metrics)).names() if "_pop_" in name]


async def test_315_counts_check_points_and_acknowledgements(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await popping(broker, 4)
        await group.ack_batch(await group.pop(maxMsgNums=3))
        await seconds(1)
        stats = broker.controller.parts.stats.manager
        for name, key in (("GROUP_CK_NUMS", "T@G"), ("BROKER_CK_NUMS", "DefaultCluster")):
            answer = await group.client.ask(VIEW, {"statsName": name, "statsKey": key})
            assert answer.code == 0, answer.remark
        values = {
            name: {key: item.value for key, item in items.items()}
            for name, items in ((name, stats.items(name)) for name in stats_names())
        }
        assert values == {
            "GROUP_CK_NUMS": {"T@G": 1}, "BROKER_CK_NUMS": {"DefaultCluster": 1},
            "GROUP_ACK_NUMS": {"T@G": 3}, "BROKER_ACK_NUMS": {"DefaultCluster": 3},
        }  # fmt: skip
        await group.client.ask(DELETE_GROUP, {"groupName": "G"})
        assert not stats.items(stats_names()[0])


def stats_names() -> list[Any]:
    from trocket.broker.stats.broker_stats_manager import StatsName

    return [
        StatsName.GROUP_CK_NUMS, StatsName.BROKER_CK_NUMS,
        StatsName.GROUP_ACK_NUMS, StatsName.BROKER_ACK_NUMS,
    ]  # fmt: skip


async def test_a_group_that_may_not_read_a_topic_pops_nothing(autojump_clock) -> None:
    async with embedded_broker() as broker:
        group = await popping(broker, 1)
        await group.client.ask(FORBID, {"group": "G", "topic": "T", "readable": "false"})
        answer = await group.ask_pop()
        assert (answer.code, answer.remark) == (
            16, "the consumer group[G] is forbidden for topic[T]",
        )  # fmt: skip
        await group.client.ask(FORBID, {"group": "G", "topic": "T", "readable": "true"})
        assert len(await group.pop()) == 1


async def test_a_reset_while_popping_begins_anew(autojump_clock) -> None:
    async with embedded_broker() as broker:
        metrics = service(broker)
        group = await popping(broker, 6)
        got = await group.pop(maxMsgNums=4)
        fields = {"topic": "T", "group": "G", "timestamp": -1, "isForce": "true", "queueId": 0,
                  "offset": 1}  # fmt: skip
        assert (await group.client.ask(RESET, fields)).code == 0
        again = await group.pop(maxMsgNums=2)
        assert [each.message.queue_offset for each in again] == [1, 2]
        assert await progress(group) == [6, 1, 3]
        assert lag_of(await read(metrics))[1] == 2
        assert (await group.ack(got[0])).code == 0  # its check point is still there
        for each in again:
            await group.ack(each)
        await seconds(1)
        assert group.committed() == 3
        assert lag_of(await read(metrics))[1:] == [0, 3]


async def test_the_records_are_readable_as_topics(autojump_clock) -> None:
    """For tools: the topics of records have routes."""
    async with embedded_broker() as broker:
        table = broker.controller.topics.topic_config_table
        assert (table[REVIVE].read_queue_nums, table["rmq_sys_wheel_timer"].perm) == (8, 6)
