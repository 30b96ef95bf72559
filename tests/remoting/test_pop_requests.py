"""remoting/pop_requests.py: what is sent, and what is made of usual and of odd answers."""

from __future__ import annotations

import base64
import json

import pytest

from trocket.client.core.subscription import build_subscription
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.headers.base import encode_header
from trocket.remoting.pop_requests import (
    BATCH_SPAN_MAX,
    Place,
    PopOrder,
    Settled,
    ack_header,
    batch_ack_body,
    change_header,
    pop_header,
    read_change,
    read_pop,
    split_batch,
)
from trocket.remoting.receipt import Receipt, TopicForm
from trocket.remoting.response_codes import ResponseCode

from ..client.core.pop_answers import TIME_MS, found, record

PLACE = Place("T", "b")
ALL = build_subscription("T")
RECEIPT = Receipt(10, TIME_MS, 60000, 3, TopicForm.NORMAL, "b", 0, 12)
RETRIED = Receipt(5, TIME_MS, 60000, 3, TopicForm.RETRY_V1, "b", 0, 5)


def test_a_pop_says_what_it_wants() -> None:
    header = pop_header(
        PLACE, "G", build_subscription("T", "a"), count=32, invisible_ms=9, poll_ms=7, init_mode=1
    )
    assert encode_header(header) == {
        "consumerGroup": "G",
        "topic": "T",
        "queueId": "-1",
        "maxMsgNums": "32",
        "invisibleTime": "9",
        "pollTime": "7",
        "bornTime": "0",
        "initMode": "1",
        "expType": "TAG",
        "exp": "a",
        "order": "false",
        "bname": "b",
    }
    in_order = pop_header(
        PLACE, "G", ALL, count=1, invisible_ms=9, poll_ms=0, init_mode=0, order=PopOrder("x")
    )
    assert (in_order.order, in_order.attempt_id) == (True, "x")


@pytest.mark.parametrize("code", [209, 210, 19])
def test_no_messages(code: int) -> None:
    answer = read_pop(RemotingCommand(code, {}), PLACE, ALL)
    assert (list(answer.messages), answer.is_polling_full) == ([], code == 209)


def test_each_message_gets_the_receipt_of_its_queue() -> None:
    answer = read_pop(
        found(
            [record("T", 1, 7), record("T", 0, 12), record("T", 0, 10)],
            "0 1 7;0 0 10",
            "0 1 7;0 0 10,12",
        ),
        PLACE,
        ALL,
    )
    assert [each.receipt for each in answer.messages] == [
        RECEIPT._replace(start_offset=7, queue_id=1, offset=7),
        RECEIPT,
        RECEIPT._replace(offset=10),
    ]


def test_a_message_of_a_retry_topic_has_its_receipt_or_the_topics_name() -> None:
    in_property = record("T", 0, 5, {"POP_CK": RETRIED.to_text()}, tries=1)
    by_name = record("%RETRY%G+T", 0, 6, tries=2)
    texts = "0 0 5;1 0 5;2 0 6"
    answer = read_pop(found([record("T", 0, 5), in_property, by_name], texts, texts), PLACE, ALL)
    assert [each.receipt.form for each in answer.messages] == list(TopicForm)
    assert answer.messages[1].receipt == RETRIED
    assert ack_header(RETRIED, "T", "G").topic == "%RETRY%G_T"
    assert ack_header(answer.messages[2].receipt, "T", "G").topic == "%RETRY%G+T"


def test_the_receipt_of_an_old_pop_does_not_count() -> None:
    """A message that was sent again with all its properties has such a one."""
    stale = RETRIED._replace(pop_time=TIME_MS - 1).to_text()
    copied = record("T", 0, 12, {"POP_CK": stale})
    (message,) = read_pop(found([copied], "0 0 10", "0 0 12"), PLACE, ALL).messages
    assert message.receipt == RECEIPT
    retried = record("T", 0, 5, {"POP_CK": stale})
    (message,) = read_pop(found([retried], "1 0 5", "1 0 5"), PLACE, ALL).messages
    assert message.receipt == RETRIED


def test_a_broker_without_start_offsets_counts_from_the_first_message() -> None:
    answer = read_pop(found([record("T", 0, 10), record("T", 0, 12)], None, None), PLACE, ALL)
    assert [each.receipt for each in answer.messages] == [RECEIPT._replace(offset=10), RECEIPT]


@pytest.mark.parametrize(
    ("records", "starts", "offsets", "text"),
    [
        ([record("T", 0, 1)], "0 0 1;0 0 1", "0 0 1", "twice"),
        ([record("T", 0, 1)] * 2, "0 0 1", "0 0 1", "no receipt"),
        ([record("T", 0, 1, {"POP_CK": f"1 {TIME_MS} 9 3 0 b 0 1"})] * 2, "", "", "twice"),
        ([record("T", 0, 1)], "0 1 1", "0 1 1", "no receipt"),
        ([record("T", 0, 1)], "0 0 1", "0 0 2", "no receipt"),
        ([record("T", 0, 1)], "0 0 1", None, "no receipt"),
        ([record("%RETRY%G_T", 0, 1)], "0 0 1", "0 0 1", "no receipt"),
        ([record("T", 0, 1)], "0 0", "0 0 1", "three fields"),
        ([record("T", 0, 1)], "0 0 1", "0 0 x", "not an integer"),
        ([record("T", 0, 1, {"POP_CK": "nonsense"})], "0 0 1", "0 0 1", "a receipt"),
        ([record("T", 0, 1)[:-1]], "0 0 1", "0 0 1", "."),
    ],
)
def test_an_answer_that_would_lose_or_double_a_message_is_refused(
    records: list[bytes], starts: str, offsets: str | None, text: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        read_pop(found(records, starts, offsets), PLACE, ALL)


def test_tags_are_compared_again() -> None:
    """The broker compares hash codes: those of "Aa" and "BB" are equal in Java."""
    records = [record("T", 0, 1, {"TAGS": "Aa"}), record("T", 0, 2, {"TAGS": "BB"})]
    answer = read_pop(found(records, "0 0 1", "0 0 1,2"), PLACE, build_subscription("T", "Aa"))
    assert [each.is_selected for each in answer.messages] == [True, False]


def test_a_pop_in_order_counts_the_tries() -> None:
    records = [record("T", 0, offset) for offset in (1, 2, 3)] + [record("T", 1, 9)]
    answer = read_pop(
        found(
            records,
            "0 0 1;0 1 9",
            "0 0 1,2,3;0 1 9",
            revive_queue=999,
            counts="0 qo0%1 2;0 qo0%2 0;0 0 1;0 1 4",
        ),
        PLACE,
        ALL,
        in_order=True,
    )
    assert [each.ext.reconsume_times for each in answer.messages] == [2, 0, 1, 4]
    assert all(each.receipt.in_order for each in answer.messages)


@pytest.mark.parametrize("counts", ["0 0", "3 0 1", "0 x 1", "0 qo0%x 1", "0 0 x"])
def test_malformed_counts_are_refused(counts: str) -> None:
    with pytest.raises(RemoteProtocolError, match="orderCountInfo"):
        read_pop(found([], "", "", counts=counts), PLACE, ALL, in_order=True)


def test_a_changed_message_has_a_new_receipt() -> None:
    header = change_header(RECEIPT, "T", "G", 3000)
    assert (header.offset, header.extra_info, header.suspend) == (12, RECEIPT.to_text(), None)
    assert change_header(RECEIPT, "T", "G", 3000, suspend=True).suspend is True
    fields = {"popTime": "8", "invisibleTime": "3000", "reviveQid": "5"}
    changed = read_change(RemotingCommand(ResponseCode.SUCCESS, fields), RECEIPT)
    assert changed == Receipt(12, 8, 3000, 5, TopicForm.NORMAL, "b", 0, 12)


def test_a_batch_has_one_entry_for_each_pop_and_queue() -> None:
    far = RECEIPT._replace(offset=10 + BATCH_SPAN_MAX)
    settled = [
        Settled("T", RECEIPT),
        Settled("T", RECEIPT._replace(offset=10)),
        Settled("T", RECEIPT._replace(offset=19)),
        Settled("T", RETRIED),
        Settled("T", far),
        Settled("T", RECEIPT._replace(offset=9)),
    ]
    near, alone = split_batch(settled)
    assert alone == settled[4:]
    body = json.loads(batch_ack_body("b", "G", near))
    assert body["brokerName"] == "b"
    assert body["acks"] == [
        {
            "c": "G",
            "t": "T",
            "r": "0",
            "so": 10,
            "q": 0,
            "rq": 3,
            "pt": TIME_MS,
            "it": 60000,
            "b": base64.b64encode(bytes([0b101, 0b10])).decode(),
        },
        {
            "c": "G",
            "t": "T",
            "r": "1",
            "so": 5,
            "q": 0,
            "rq": 3,
            "pt": TIME_MS,
            "it": 60000,
            "b": base64.b64encode(b"\x01").decode(),
        },
    ]
