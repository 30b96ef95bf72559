"""The benchmark of pops: its frames, its groups, and what it makes of the rounds."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import pytest

from trocket.bench.frames import OPAQUE_FIRST
from trocket.bench.pop import Outcome, medians, ratios
from trocket.bench.pop_load import (
    ACK_OPAQUE_FIRST,
    TOPIC,
    Groups,
    ack_frames,
    batch_ack_frame,
    pop_frame,
)
from trocket.remoting.bodies import BatchAckMessageRequestBody
from trocket.remoting.codec import FrameDecoder, RemotingCommand
from trocket.remoting.headers import AckMessageRequestHeader, PopMessageRequestHeader, decode
from trocket.remoting.receipt import Receipt, TopicForm

ANSWER = {
    "popTime": "1700000000000", "invisibleTime": "10000", "reviveQid": "3",
    "startOffsetInfo": "0 2 40;1 0 7", "msgOffsetInfo": "0 2 40,41,44;1 0 7",
}  # fmt: skip


def decoded(data: bytes) -> list[RemotingCommand]:
    return list(FrameDecoder().receive_data(data))


def test_a_pop_is_as_apaches_client_sends_it():
    (pop,) = decoded(pop_frame("G-0", opaque=OPAQUE_FIRST, invisible_ms=10_000))
    header = decode(PopMessageRequestHeader, pop.ext_fields)
    assert (pop.code, pop.opaque) == (200050, OPAQUE_FIRST)
    assert (header.consumer_group, header.topic, header.queue_id) == ("G-0", TOPIC, -1)
    assert (header.max_msg_nums, header.invisible_time, header.order) == (32, 10_000, False)


def test_each_message_of_an_answer_is_acknowledged_with_its_receipt():
    frames = ack_frames("G-0", ANSWER, ACK_OPAQUE_FIRST)
    acks = decoded(b"".join(frames))
    headers = [decode(AckMessageRequestHeader, ack.ext_fields) for ack in acks]
    receipts = [Receipt.from_text(header.extra_info) for header in headers]
    assert [ack.opaque for ack in acks] == [ACK_OPAQUE_FIRST + n for n in range(4)]
    assert [(r.start_offset, r.form, r.queue_id, r.offset) for r in receipts] == [
        (40, TopicForm.NORMAL, 2, 40), (40, TopicForm.NORMAL, 2, 41),
        (40, TopicForm.NORMAL, 2, 44), (7, TopicForm.RETRY_V1, 0, 7),
    ]  # fmt: skip
    assert [(h.queue_id, h.offset) for h in headers] == [(r.queue_id, r.offset) for r in receipts]


def test_a_batch_has_a_bit_for_each_message():
    (batch,) = decoded(batch_ack_frame("G-0", ANSWER, ACK_OPAQUE_FIRST))
    acks = BatchAckMessageRequestBody.from_body(batch.body).acks
    assert acks is not None
    assert [(a.retry, a.start_offset, a.queue_id, a.revive_queue_id) for a in acks] == [
        ("0", 40, 2, 3), ("1", 7, 0, 3),
    ]  # fmt: skip
    assert [int.from_bytes(b64decode(a.bit_set), "little") for a in acks] == [0b10011, 1]


def test_the_next_group_begins_when_one_has_popped_everything():
    groups = Groups(64, "G")
    groups.popped("G-0", 32)
    assert groups.current == "G-0"
    groups.popped("G-0", 32)
    groups.popped("G-0", 32)  # another connection's, of before
    assert groups.current == "G-1"


def outcome(side: str, rate: float, cpu_us: float, later_cpu_us: float) -> Outcome:
    return Outcome(side, "8 connections", 1, rate, cpu_us, later_cpu_us, 1.0, 2.0, 0, 0, 0.1)


def test_ratios_are_of_the_rounds_with_the_cpu_of_what_comes_due():
    ours = [outcome("trocket", rate, 8.0, 2.0) for rate in (100.0, 120.0, 300.0)]
    theirs = [outcome("apache", 100.0, 15.0, 5.0)] * 3
    (ratio,) = ratios(ours + theirs, "trocket")
    assert (ratio.side, ratio.beside) == ("trocket", "apache")
    assert (ratio.rate, ratio.least_rate, ratio.most_rate) == (1.2, 1.0, 3.0)
    assert ratio.cpu == pytest.approx(0.5)
    assert medians(ours) == [replace(ours[0], messages_per_s=120.0)]
