"""Receipts of popped messages, and the offsets in the answer to a pop."""

from __future__ import annotations

import pytest

from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.receipt import (
    QueueKey,
    Receipt,
    TopicForm,
    decode_offsets,
    decode_start_offsets,
    encode_offsets,
    encode_start_offsets,
)

TEXT = "12 1700000000000 60000 3 2 broker-a 1 14"
"""As Apache's broker writes it in POP_CK."""


def test_a_receipt_is_read_and_written_as_it_was() -> None:
    receipt = Receipt.from_text(TEXT)
    assert receipt == (12, 1700000000000, 60000, 3, TopicForm.RETRY_V2, "broker-a", 1, 14)
    assert receipt.to_text() == TEXT
    assert Receipt.from_text(f"{TEXT} 4096") == receipt  # as a proxy sends it
    assert receipt.revive_time == 1700000060000
    assert (receipt.in_order, receipt._replace(revive_queue_id=999).in_order) == (False, True)


@pytest.mark.parametrize(
    "text",
    ["", "1 2 3 4 0 b 1", TEXT.replace("60000", "x"), TEXT.replace(" 2 b", " 3 b"), "9" * 99],
)
def test_what_is_not_a_receipt_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        Receipt.from_text(text)


@pytest.mark.parametrize(
    ("form", "topic"),
    [
        (TopicForm.NORMAL, "orders"),
        (TopicForm.RETRY_V1, "%RETRY%g_orders"),
        (TopicForm.RETRY_V2, "%RETRY%g+orders"),
    ],
)
def test_the_form_of_a_topic(form: TopicForm, topic: str) -> None:
    assert TopicForm.of(topic) is form
    assert form.real_topic("orders", "g") == topic


def test_offsets_of_an_answer() -> None:
    first, second = QueueKey(TopicForm.RETRY_V1, 0), QueueKey(TopicForm.NORMAL, 3)
    starts, offsets = [(first, 5), (second, 0)], [(first, [5]), (second, [0, 1, 7])]
    assert encode_start_offsets(starts) == "1 0 5;0 3 0"
    assert encode_offsets(offsets) == "1 0 5;0 3 0,1,7"
    assert decode_start_offsets(encode_start_offsets(starts)) == dict(starts)
    assert decode_offsets(encode_offsets(offsets)) == dict(offsets)
    assert decode_offsets("") == {}


@pytest.mark.parametrize(
    "text", ["0 3", "0 3 1;0 3 2", "7 3 1", "0 x 1", "0 3 x", ";".join("a" * 2000)]
)
def test_malformed_offsets_are_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_start_offsets(text)
    with pytest.raises(RemoteProtocolError):
        decode_offsets(text)
