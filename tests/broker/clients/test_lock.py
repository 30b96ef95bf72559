"""41 and 42."""

from __future__ import annotations

import pytest

from trocket.remoting.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from trocket.remoting.request_codes import RequestCode

from ..harness import BrokerTables

QUEUES = [MessageQueue("T", "broker-a", queue_id) for queue_id in range(2)]


def body(client_id, queues=QUEUES):
    return LockBatchRequestBody(
        consumer_group="g", client_id=client_id, mq_set=list(queues)
    ).to_body()


def lock(broker, client_id, queues=QUEUES):
    answer = broker.ask(RequestCode.LOCK_BATCH_MQ, body=body(client_id, queues))
    assert (answer.code, answer.remark) == (0, None)
    return LockBatchResponseBody.from_body(answer.body).lock_ok_mq_set


def test_the_answer_tells_what_the_client_holds():
    broker = BrokerTables()
    assert lock(broker, "c1", QUEUES[:1]) == QUEUES[:1]
    assert lock(broker, "c2") == QUEUES[1:]


def test_time_passes_by_the_brokers_clock():
    broker = BrokerTables()
    lock(broker, "c1")
    broker.clock.advance(60_000)
    assert lock(broker, "c2") == []
    broker.clock.advance(1)
    assert lock(broker, "c2") == QUEUES


def test_unlocked_queues_are_free():
    broker = BrokerTables()
    lock(broker, "c1")
    assert broker.ask(RequestCode.UNLOCK_BATCH_MQ, body=body("c1", QUEUES[:1])).code == 0
    assert lock(broker, "c2") == QUEUES[:1]


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize("text", [b"", b"{", b'{"mqSet":[{"topic":"T"}]}'])
def test_a_body_that_is_none_is_refused(code, text):
    answer = BrokerTables().ask(code, body=text)
    assert answer.code == 1
    assert "cannot be read" in answer.remark
