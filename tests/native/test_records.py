"""Messages decoded by the C extension and by pure Python are equal, whatever the bytes."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.remoting import message_codec
from trocket.remoting.errors import RemoteProtocolError
from trocket.remoting.message_codec import decode_messages, encode_record, plain_records
from trocket.remoting.record_schema import RECORD_HEAD, SYS_FLAG_POSITION

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
HOSTS = st.sampled_from([bytes(8), b"\x7f\0\0\1\0\0\x2a\x9f", bytes(range(20))])
BODIES = st.binary(max_size=60) | st.just(zlib.compress(b"text" * 50))

records = st.builds(
    encode_record,
    topic=st.sampled_from(["", "T", "Topic", "t" * 127, "t" * 128, "ü"]),
    queue_id=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    body=BODIES,
    properties=st.binary(max_size=60) | st.just(b"A\1b\2" * 1000),
    born_timestamp_ms=INT64,
    born_host=HOSTS,
    store_timestamp_ms=INT64,
    store_host=HOSTS,
    flag=INT32,
    sys_flag=st.sampled_from([0, 0, 0, 1, 4, 8]) | INT32,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
)


def outcome(extension: native.Extension | None, data: bytes, **options: Any) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message_codec, "_decode_plain", plain_records(extension))
        try:
            return decode_messages(data, **options)
        except RemoteProtocolError as error:
            return str(error)


def assert_equal(data: bytes, **options: Any) -> None:
    assert outcome(native.extension, data, **options) == outcome(None, data, **options)


@given(
    st.lists(records, max_size=6),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1 << 20, 300, 0]),
)
def test_whole_records(sent: list[bytes], check_crc: bool, inflate: bool, total_max: int) -> None:
    data = b"".join(sent)
    assert_equal(data, check_crc=check_crc, inflate=inflate, inflated_total_max=total_max)


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_records_with_changed_bytes(sent: list[bytes], choices: st.DataObject) -> None:
    data = bytearray(b"".join(sent))
    for _ in range(choices.draw(st.integers(1, 3))):
        data[choices.draw(st.integers(0, len(data) - 1))] = choices.draw(st.integers(0, 255))
    del data[choices.draw(st.integers(len(data) // 2, len(data))) :]
    assert_equal(bytes(data))


@given(
    st.sampled_from(["size", "body", "topic", "properties"]),
    st.integers(-3, 3) | st.sampled_from([127, 128, 255, 2**31 - 91, 2**31 - 1, 2**32 - 1]),
)
def test_lengths_that_contradict_each_other(which: str, change: int) -> None:
    body, topic, properties = b"body", b"topic", b"A\1b\2"
    record = encode_record(
        topic.decode(), 0, 0, 0, body, properties, born_timestamp_ms=0, born_host=bytes(8),
        store_timestamp_ms=0, store_host=bytes(8),
    )  # fmt: skip
    topic_at = RECORD_HEAD.size + len(body)
    at, size = {
        "size": (0, 4),
        "body": (RECORD_HEAD.size - 4, 4),
        "topic": (topic_at, 1),
        "properties": (topic_at + 1 + len(topic), 2),
    }[which]
    value = int.from_bytes(record[at : at + size]) + change & (1 << 8 * size) - 1
    assert_equal(record[:at] + value.to_bytes(size) + record[at + size :] + record)


def test_plain_records_are_decoded_by_the_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("pure Python was asked")

    record = encode_record(
        "Topic", 1, 2, 3, b"body", b"A\1b\2", born_timestamp_ms=4, born_host=bytes(8),
        store_timestamp_ms=5, store_host=bytes(8),
    )  # fmt: skip
    monkeypatch.setattr(message_codec, "_decode_plain", plain_records(native.extension))
    monkeypatch.setattr(message_codec, "decode_record", refuse)
    messages = decode_messages(record * 3)
    assert [message.queue_offset for message in messages] == [2, 2, 2]
    assert messages[0].born_host is messages[2].born_host


@pytest.mark.parametrize("sys_flag", [0x10, 0x20, 0x30, 0x01])
def test_flags_that_contradict_the_rest(sys_flag: int) -> None:
    record = encode_record(
        "Topic", 1, 2, 3, b"body", b"A\1b\2", born_timestamp_ms=4, born_host=bytes(8),
        store_timestamp_ms=5, store_host=bytes(8),
    )  # fmt: skip
    at = SYS_FLAG_POSITION
    assert_equal(record[:at] + sys_flag.to_bytes(4) + record[at + 4 :] + record)
