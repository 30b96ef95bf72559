"""Queues as values, and their locks."""

from __future__ import annotations

import pytest

from trocket.remoting import fastjson
from trocket.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from trocket.remoting.errors import RemoteProtocolError

QUEUE = MessageQueue("t", "b", 1)


def test_queues_are_values_that_can_be_keys_and_are_sorted_by_topic_broker_and_id() -> None:
    assert {MessageQueue("t", "b", 1): "x"}[QUEUE] == "x"
    queues = [
        MessageQueue("t", "b", 10),
        MessageQueue("t", "b", 9),
        MessageQueue("t", "a", 11),
        MessageQueue("s", "z", 12),
    ]
    assert sorted(queues) == queues[::-1]
    with pytest.raises(AttributeError):
        QUEUE.queue_id = 2  # type: ignore[misc]


def test_a_queue_is_written_as_the_key_of_a_map() -> None:
    assert fastjson.dumps({QUEUE: 8}) == b'{{"topic":"t","brokerName":"b","queueId":1}:8}'


def test_a_request_to_lock_is_read() -> None:
    body = LockBatchRequestBody.from_body(
        b'{"clientId":"c","consumerGroup":"g",'
        b'"mqSet":[{"brokerName":"b","queueId":1,"topic":"t"}],"onlyThisBroker":true}'
    )
    assert body == LockBatchRequestBody("g", "c", True, [QUEUE])


def test_a_queue_without_a_name_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="missing required field `brokerName`"):
        LockBatchRequestBody.from_body(b'{"mqSet":[{"topic":"t","queueId":1}]}')


def test_the_answer_spells_its_member_as_rocketmq_does() -> None:
    body = LockBatchResponseBody([QUEUE])
    assert body.to_body() == b'{"lockOKMQSet":[{"topic":"t","brokerName":"b","queueId":1}]}'
