"""Transaction messages: how they wait, and what they become."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.broker.messages.admission import STRIPPED_NAMES
from trocket.broker.messages.half_messages import (
    check_times,
    ended_offsets,
    final_message,
    half_message,
    immunity_ms,
    op_message,
    parked_half,
    question,
    renewed_half,
    usual_half,
)
from trocket.broker.messages.inner_message import InnerMessage
from trocket.common.message_properties import properties_from_bytes
from trocket.remoting.message_codec import decode_record, encode_record

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
SENT = InnerMessage(
    "T", 3, b"body", b"UNIQ_KEY\1K\2TAGS\1a\2TRAN_MSG\1true\2PGROUP\1PG\2", 7, HOST, HOST,
    flag=5, sys_flag=4 | 0x101,
)  # fmt: skip


def stored(message, *, queue_offset=9, physical_offset=1000):
    return decode_record(
        encode_record(
            message.topic, message.queue_id, queue_offset, physical_offset, message.body,
            message.properties,
            born_timestamp_ms=message.born_timestamp_ms, born_host=message.born_host,
            store_timestamp_ms=50, store_host=message.store_host, flag=message.flag,
            sys_flag=message.sys_flag, reconsume_times=message.reconsume_times,
            prepared_transaction_offset=message.prepared_transaction_offset,
        )
    )  # fmt: skip


def half():
    return stored(half_message(replace(SENT)))


def test_a_half_message_remembers_where_it_belongs():
    waiting = half()
    assert (waiting.topic, waiting.queue_id) == ("RMQ_SYS_TRANS_HALF_TOPIC", 0)
    assert (waiting.sys_flag, waiting.flag, waiting.body) == (0x101, 5, b"body")
    assert waiting.properties == {
        "UNIQ_KEY": "K", "TAGS": "a", "TRAN_MSG": "true", "PGROUP": "PG",
        "__transactionId__": "K", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


def test_a_committed_one_is_what_was_sent():
    final = final_message(half())
    assert (final.topic, final.queue_id, final.body, final.flag) == ("T", 3, b"body", 5)
    assert (final.sys_flag, final.prepared_transaction_offset) == (0x101 | 8, 1000)
    properties = properties_from_bytes(SENT.properties) | {"__transactionId__": "K"}
    assert properties_from_bytes(final.properties) == properties


@pytest.mark.parametrize("properties", [b"", b"REAL_TOPIC\1T\2", b"REAL_TOPIC\1T\2REAL_QID\1x\2",
                                        b"REAL_TOPIC\1T\2REAL_QID\x01-1\2"])  # fmt: skip
def test_one_that_does_not_say_where_it_belongs_is_not_committed(properties):
    with pytest.raises((KeyError, ValueError)):
        final_message(stored(replace(SENT, properties=properties)))


def test_a_renewed_one_counts_its_checks_and_the_question_shows_the_real_place():
    waiting = half()
    assert check_times(waiting) == 0
    again = stored(renewed_half(waiting, 4))
    assert (check_times(again), again.topic) == (4, "RMQ_SYS_TRANS_HALF_TOPIC")
    asked = decode_record(question(again, 2000, 10))
    assert (asked.topic, asked.queue_id, asked.queue_offset) == ("T", 3, 10)
    assert (asked.physical_offset, asked.body, asked.unique_key) == (2000, b"body", "K")
    assert check_times(asked) == 5
    assert parked_half(again).topic == "TRANS_CHECK_MAX_TIME_TOPIC"


@pytest.mark.parametrize(
    ("body", "offsets"),
    [(b"7", [7]), (b"0,1,", [0, 1]), (b"5,x,6,", [5, 6]), (b"", []), (b"-1,", []),
     (b"99999999999999999999,3", [3])],
)  # fmt: skip
def test_op_messages_of_4_and_5_are_read(body, offsets):
    op = replace(op_message([1], HOST, 5), body=body)
    assert ended_offsets(stored(op)) == offsets
    assert ended_offsets(stored(replace(op, properties=b"TAGS\1x\2"))) == []


def test_an_op_message_names_many():
    assert op_message([3, 4, 70], HOST, 5).body == b"3,4,70,"


@pytest.mark.parametrize(
    ("properties", "wanted"),
    [(b"", 6_000), (b"CHECK_IMMUNITY_TIME_IN_SECONDS\00110\2", 10_000),
     (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x01-1\2", 6_000),
     (b"CHECK_IMMUNITY_TIME_IN_SECONDS\1soon\2", 6_000),
     (b"CHECK_IMMUNITY_TIME_IN_SECONDS\x011234567890\2", 6_000)],
)  # fmt: skip
def test_a_message_may_have_its_own_immunity(properties, wanted):
    assert immunity_ms(properties, 6_000) == wanted


@pytest.mark.parametrize(
    "again", [final_message, parked_half, lambda message: renewed_half(message, 1)]
)
def test_the_checksum_of_the_record_as_it_was_does_not_go_along(again):
    waiting = half()
    with_crc = waiting.properties_bytes + b"__CRC32#\x011234567890\2"
    assert b"__CRC32#" not in again(replace(waiting, properties_bytes=with_crc)).properties


USUAL = b"UNIQ_KEY\1K\2TRAN_MSG\1true\2PGROUP\1PG\2MSG_REGION\1R\2"


@pytest.mark.parametrize(
    ("own", "tags"),
    [(b"", 0), (b"TAGS\1a\2", 97), (b"TAGS\1b\2TAGS\1a\2", 97), (b"KEYS\1a b\2own\1TAGS\2", 0),
     (b"A_TRAN\1REAL_TOPIC\2", 0), (b"own\1" + b"x" * 2000 + b"\2TAGS\1a\2", 97)],
)  # fmt: skip
def test_a_usual_half_message_is_known_by_its_properties(own, tags):
    assert usual_half(USUAL + own) == (b"K", ("PG", tags, True))
    assert usual_half(own + USUAL) == (b"K", ("PG", tags, True))
    assert usual_half(own + USUAL + b"WAIT\1false\2") == (b"K", ("PG", tags, False))


@pytest.mark.parametrize(
    "properties",
    [USUAL + f"{name}\x011\2".encode() for name in STRIPPED_NAMES]
    + [USUAL + own + b"\2" for own in (
        b"CHECK_IMMUNITY_TIME_IN_SECONDS\x0160", b"DELAY\x012", b"TIMER_DELAY_MS\x012",
        b"__transactionId__\1K", b"own\1a#", b"own\1a\0", b"UNIQ_KEY\1L", b"TRAN_MSG\1true",
        b"MSG_REGION\1S", b"_SYS_MSG_PRIORITY_\x011")]
    + [USUAL.replace(*each) for each in (
        (b"true", b"false"), (b"\1K", b"\1k y"), (b"\1K", b"\1k\"y"), (b"\1K", b"\1"),
        (b"\1K", b"\1\xc3\xa9"), (b"\1K", b"\1" + b"k" * 256), (b"PGROUP\1PG\2", b""),
        (b"UNIQ_KEY", b"XUNIQ_KEY"), (b"TRAN_MSG", b"XTRAN_MSG"))]
    + [b"", b"\2", b"TRAN_MSG\1true\2PGROUP\1PG\2"],
)  # fmt: skip
def test_any_other_half_message_takes_the_general_path(properties):
    assert usual_half(properties) is None
