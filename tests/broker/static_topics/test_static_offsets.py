"""Offsets that consumers commit in logic queues of static topics."""

from __future__ import annotations

from trocket.remoting.bodies import LogicQueueMappingItem, TopicQueueMappingDetail
from trocket.remoting.codec import RemotingCommand, encode

from ...kit import broker_client, send_fields, topic_fields
from ..harness import consumer, heartbeat, subscription

STATIC, SEND, QUERY, UPDATE, HEART_BEAT = 513, 310, 14, 15, 34
TOPIC = "Static"


async def test_of_several_commits_at_once_the_last_one_stays() -> None:
    async with broker_client() as client:
        items = [LogicQueueMappingItem(bname="b")]
        mapping = TopicQueueMappingDetail(
            topic=TOPIC, total_queues=1, bname="b", epoch=1, hosted_queues={0: items}
        )
        answer = await client.ask(STATIC, topic_fields(TOPIC), mapping.to_body())
        assert answer.code == 0, answer.remark
        body = heartbeat("c1", consumer("CG", subscription(TOPIC))).to_body()
        assert (await client.ask(HEART_BEAT, {}, body)).code == 0
        for _ in range(20):
            assert (await client.ask(SEND, send_fields(TOPIC), b"x")).code == 0
        queue = {"consumerGroup": "CG", "topic": TOPIC, "queueId": "0"}
        commits = [
            RemotingCommand(UPDATE, queue | {"commitOffset": str(offset)}, flag=2)
            for offset in range(1, 21)
        ]
        await client.write(b"".join(map(encode, commits)))
        found = await client.ask(QUERY, queue)
        assert found.ext_fields["offset"] == "20"
