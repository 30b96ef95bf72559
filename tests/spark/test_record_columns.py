"""Columns of many records say what `decode_record` says of each."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

np = pytest.importorskip("numpy", reason="numpy is of the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="pyarrow is of the extra `spark`")

from trocket.remoting.body_compression import CompressionType, compress  # noqa: E402
from trocket.remoting.errors import RemoteProtocolError  # noqa: E402
from trocket.remoting.message_codec import (  # noqa: E402
    decode_record,
    encode_blank,
    encode_record,
)
from trocket.spark.columns import COMMITLOG  # noqa: E402
from trocket.spark.record_columns import (  # noqa: E402
    RecordColumns,
    column_of,
    is_blank,
    topic_kind,
    walk,
)

V4 = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
V6 = bytes(15) + b"\x01\x00\x00\x2a\x9f"
NOT_OF_BYTES = {"brokerName", "segment", "position", "valid"}

ITEMS = st.lists(
    st.one_of(
        st.sampled_from([b"KEYS\x01a b", b"TAGS\x01t", b"TAGS\x01u", b"UNIQ_KEY\x01x", b"\x01v"]),
        st.sampled_from(
            [b"", b"n\x01", b"name", b"n\x01v\x01w", b"\xff\x01\xfe", b"n\x00\x01\x00"]
        ),
        st.builds(b"%b\x01%b".__mod__, st.tuples(st.binary(max_size=3), st.binary(max_size=3))),
    ),
    max_size=6,
)
PROPERTIES = st.builds(
    lambda items, end: b"\x02".join(items) + end, ITEMS, st.just(b"\x02") | st.just(b"")
)
RECORD = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "%RETRY%g", "ü", "x" * 127, "y" * 128, "z" * 255]),
        "body": st.binary(max_size=30),
        "properties": PROPERTIES,
        "queue_id": st.integers(0, 2**31 - 1),
        "queue_offset": st.integers(0, 2**63 - 1),
        "born_host": st.sampled_from([V4, V6]),
        "store_host": st.sampled_from([V4, V6]),
        "flag": st.integers(-(2**31), 2**31 - 1),
        "sys_flag": st.sampled_from([0, 4, 8, 12]),
        "born_timestamp_ms": st.integers(0, 2**42),
        "store_timestamp_ms": st.integers(0, 2**42),
        "reconsume_times": st.integers(0, 16),
        "prepared_transaction_offset": st.integers(0, 2**62),
    }
)


def pack(records, base=1000):
    """The records one after the other, at their physical offsets."""
    packed = b""
    for record in records:
        packed += encode_record(physical_offset=base + len(packed), **record)
    return packed


def columns(data, base=None):
    starts, end = walk(data, 0, len(data))
    records = RecordColumns(data, starts)
    return records.first(records.good_count(base)), end


def expected(message):
    """A row as `decode_record` has it."""
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "body": message.body,
        "keys": message.keys,
        "tags": message.tags,
        "uniqKey": message.unique_key,
        "properties": list(message.properties.items()),
        "bornTimestamp": message.born_timestamp_ms,
        "storeTimestamp": message.store_timestamp_ms,
        "bornHost": message.born_host_text,
        "storeHost": message.store_host_text,
        "msgId": message.offset_message_id,
        "reconsumeTimes": message.reconsume_times,
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bodyCrc": message.body_crc,
        "commitLogOffset": message.physical_offset,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "size": message.store_size,
        "magic": message.magic,
        "topicKind": topic_kind(message.topic),
    }


def rows(records):
    """The rows of the columns, times in ms."""
    found = {name: column_of(records, name) for name in COMMITLOG if name not in NOT_OF_BYTES}
    for name in ("bornTimestamp", "storeTimestamp"):
        found[name] = pa.array([us // 1000 for us in found[name].cast(pa.int64()).to_pylist()])
    for column in found.values():
        column.validate(full=True)
    return pa.table(found).to_pylist()


@pytest.mark.slow
@given(st.lists(RECORD, min_size=1, max_size=8))
@example([])
def test_columns_are_what_each_record_says(sample) -> None:
    data = pack(sample)
    records, end = columns(data, base=1000)
    assert (len(records), end) == (len(sample), len(data))
    messages = [decode_record(data, int(at), inflate=False) for at in records.starts]
    assert rows(records) == [expected(message) for message in messages]
    assert records.raw_properties().to_pylist() == [
        str(message.properties_bytes, "utf-8", "replace") for message in messages
    ]


ORDINARY = st.builds(
    lambda items, end: b"\x02".join(items) + end,
    st.lists(
        st.sampled_from([b"KEYS\x01k", b"TAGS\x01t", b"UNIQ_KEY\x010A", b"n\x01\xff"]), max_size=5
    ),
    st.just(b"\x02") | st.just(b""),
)
"""Properties as clients write them: no mark within a value, and nothing empty."""


@pytest.mark.slow
@given(
    st.lists(st.builds(lambda r, p: {**r, "properties": p}, RECORD, ORDINARY), max_size=8),
    st.lists(st.booleans(), min_size=8, max_size=8),
    st.tuples(st.integers(0, 8), st.integers(0, 8)),
)
def test_some_of_the_records_say_the_same_as_among_all(sample, mask, cut) -> None:
    data = pack(sample)
    records, _ = columns(data, base=1000)
    whole = rows(records)
    assert whole == [expected(decode_record(data, int(at), inflate=False)) for at in records.starts]
    begin, end = sorted(cut)
    assert rows(records.part(begin, end)) == whole[begin:end]
    wanted = np.array(mask[: len(sample)], np.bool_)
    assert rows(records.where(wanted)) == [
        row for row, is_in in zip(whole, mask, strict=False) if is_in
    ]


PLAIN = {"topic": "T", "body": b"body", "queue_id": 1, "queue_offset": 7, "born_host": V4,
         "store_host": V4, "born_timestamp_ms": 1, "store_timestamp_ms": 2}  # fmt: skip


def test_more_names_than_bits_still_stand_once_each() -> None:
    many = b"".join(b"n%d\x01v\x02" % number for number in range(100))
    twice = many + b"n7\x01again\x02"
    records, _ = columns(pack([{**PLAIN, "properties": many}, {**PLAIN, "properties": twice}]))
    first, second = (dict(row) for row in records.properties.map_column().to_pylist())
    assert first["n7"] == "v"
    assert second == {**first, "n7": "again"}


@given(
    st.lists(RECORD, min_size=2, max_size=4),
    st.integers(0, 10_000),
    st.integers(0, 255),
)
def test_whatever_the_bytes_good_records_are_those_that_decode(sample, place, byte) -> None:
    data = bytearray(pack(sample))
    data[place % len(data)] = byte
    records, _ = columns(bytes(data), base=1000)
    at = 0
    for start in records.starts:
        message = decode_record(data, at, check_crc=False)
        assert (start, message.physical_offset) == (at, 1000 + at)
        at += message.store_size
    try:
        message = decode_record(data, at, check_crc=False)
    except RemoteProtocolError:
        return
    # It decodes, and yet is none: it lies elsewhere, or has no topic.
    assert message.physical_offset != 1000 + at or not message.topic


@pytest.mark.parametrize("kind", CompressionType)
def test_compressed_bodies_are_inflated_and_bad_ones_reported(kind) -> None:
    body = b"much of the same " * 50
    flag = kind.sys_flag
    good = {**PLAIN, "properties": b"", "body": compress(body, kind), "sys_flag": flag}
    bad = {**good, "body": b"no such thing"}
    plain = {**PLAIN, "properties": b""}
    records, _ = columns(pack([plain, good, bad, plain]))
    refused: list[tuple[int, str]] = []
    inflated = records.inflated(lambda row, reason: refused.append((row, reason)))
    assert inflated.to_pylist() == [b"body", body, b"no such thing", b"body"]
    assert [row for row, _ in refused] == [2]
    assert records.bodies.to_pylist()[1] == good["body"]


def test_the_walk_ends_at_a_blank_at_zeros_and_at_its_stop() -> None:
    one = pack([{**PLAIN, "properties": b""}])
    data = one * 3 + encode_blank(100)
    starts, end = walk(data, 0, len(data))
    assert (list(starts), end) == ([0, len(one), 2 * len(one)], 3 * len(one))
    assert is_blank(data, end, 100)
    assert not is_blank(data, end, 99)
    assert list(walk(data, 0, len(one) + 1)[0]) == [0, len(one)]
    assert list(walk(bytes(500), 0, 500)[0]) == []


@pytest.mark.parametrize(
    ("topic", "kind"),
    [
        ("Orders", "normal"), ("%RETRY%g", "retry"), ("%DLQ%g", "dlq"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "half"), ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "op"),
        ("SCHEDULE_TOPIC_XXXX", "schedule"), ("rmq_sys_wheel_timer", "system"),
        ("TBW102", "system"),
    ],
)  # fmt: skip
def test_kinds_of_topics(topic, kind) -> None:
    assert topic_kind(topic) == kind
