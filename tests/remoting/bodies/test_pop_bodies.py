"""Bodies of pop consumption, as clients of other makers write them."""

from __future__ import annotations

from trocket.remoting.bodies import BATCH_ACKS_MAX, BatchAck, BatchAckMessageRequestBody

SHORT = BatchAck(
    group="G",
    topic="T",
    retry="1",
    start_offset=7,
    queue_id=2,
    revive_queue_id=3,
    pop_time=1_700_000_000_000,
    invisible_time=60_000,
    bit_set="Bw==",
)
LONG = b"""{"brokerName":"b","acks":[{"consumerGroup":"G","topic":"T","retry":"1","startOffset":7,
"queueId":2,"reviveQueueId":3,"popTime":1700000000000,"invisibleTime":60000,"bitSet":"Bw=="}]}"""


def test_an_entry_of_a_batch_may_have_long_names() -> None:
    assert BatchAckMessageRequestBody.from_request(LONG).acks == [SHORT]


def test_all_entries_that_a_broker_serves_may_have_long_names() -> None:
    entries = b",".join([b'{"consumerGroup":"G"}'] * BATCH_ACKS_MAX)
    body = BatchAckMessageRequestBody.from_request(b'{"acks":[%b]}' % entries)
    assert {entry.group for entry in body.acks or ()} == {"G"}


def test_an_entry_of_a_batch_is_written_with_short_names() -> None:
    body = BatchAckMessageRequestBody(broker_name="b", acks=[SHORT]).to_body()
    assert b'"c":"G"' in body
    assert b"consumerGroup" not in body
    assert BatchAckMessageRequestBody.from_body(body).acks == [SHORT]
