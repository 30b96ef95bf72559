"""Reading a log that may hold anything: records as they are, and a reason where they end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_record, encode_record
from trocket.remoting.message_crc import crc_property
from trocket.store.log.commit_log import CommitLog, blank
from trocket.store.log.log_bytes import has_unwritten_sector
from trocket.store.log.log_reader import Hole, LogReader, LogRecord, find_record, record_at

from .support import HOST, HOST_V6

SIZE = 8192


def record(offset, body=b"body", *, topic="T", properties=b"A\x01b\x02", **more):
    fields = {
        "queue_id": 3,
        "queue_offset": 7,
        "born_timestamp_ms": 1,
        "born_host": HOST,
        "store_timestamp_ms": 1000 + offset,
        "store_host": HOST,
        **more,
    }
    return encode_record(topic, physical_offset=offset, body=body, properties=properties, **fields)


def log_of(*files):
    """A log whose files begin with these bytes."""
    disk = MemoryDisk()
    for number, data in enumerate(files):
        disk.contents[f"/log/{number * SIZE:020d}"] = bytearray(data.ljust(SIZE, b"\0"))
    log = CommitLog(disk, "/log", SIZE)
    log.load()
    return log


def chain(count, start=0, **more):
    """Records one after the other."""
    data = b""
    for number in range(count):
        data += record(start + len(data), b"%d" % number, **more)
    return data


KINDS = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "topic": st.sampled_from(["T", "%RETRY%g", "U" * 200, "\u4e2d"]),
        "properties": st.sampled_from([b"", b"A\x01b\x02", b"TAGS\x01a\x02KEYS\x01" + b"k" * 200]),
        "born_host": st.sampled_from([HOST, HOST_V6]),
        "store_host": st.sampled_from([HOST, HOST_V6]),
        "sys_flag": st.sampled_from([0, 1, 4, 8]),
        "queue_id": st.integers(0, 5),
        "queue_offset": st.integers(0, 1 << 40),
    }
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(KINDS, max_size=40),
    st.sampled_from([8, 91, 100, 333, 4096, 1 << 20]),
    st.booleans(),
)
def test_records_of_every_kind_are_read_as_the_decoder_reads_them(kinds, chunk_size, check_crc):
    files, expected, messages = [b""], [], []
    for fields in kinds:
        offset = (len(files) - 1) * SIZE + len(files[-1])
        raw = record(offset, **fields)
        if len(files[-1]) + len(raw) + 8 > SIZE:
            files[-1] = (files[-1] + blank(SIZE - len(files[-1]))).ljust(SIZE, b"\0")
            files.append(b"")
            raw = record(offset := (len(files) - 1) * SIZE, **fields)
        files[-1] += raw
        message = decode_record(raw)
        messages.append(message)
        expected.append(
            (
                offset, len(raw), message.topic, message.queue_id, message.queue_offset,
                message.sys_flag, message.store_timestamp_ms, message.properties_bytes,
            )
        )  # fmt: skip
    log = log_of(*files)
    reader = LogReader(log, 0, check_crc=check_crc, chunk_size=chunk_size)
    assert list(reader.scan()) == expected
    assert reader.reason == ""
    assert reader.end == (len(files) - 1) * SIZE + len(files[-1])
    reader = LogReader(log, 0, check_crc=check_crc, chunk_size=chunk_size)
    assert [(reader.message(), record) for record in reader.records()] == [
        (replace(message, body=b""), LogRecord(*each))
        for message, each in zip(messages, expected, strict=True)
    ]


def damaged(position, value):
    data = bytearray(chain(3))
    second = len(data) // 3
    data[second + position : second + position + len(value)] = value
    return log_of(bytes(data)), second


@pytest.mark.parametrize(
    ("position", "value", "reason"),
    [
        pytest.param(4, b"\1\2\3\4", "no record starts here", id="magic"),
        pytest.param(0, b"\0\0\0\x20", "a record of 32 bytes", id="too small"),
        pytest.param(0, b"\x7f\0\0\0", "left in the file", id="too large"),
        pytest.param(0, b"\0\0\0\x67", "fields of 97", id="another size"),
        pytest.param(8, b"\0", "CRC of the body", id="CRC"),
        pytest.param(35, b"\1", "says it lies at", id="physical offset"),
        pytest.param(39, b"\x10", "no room", id="another kind of host"),
        pytest.param(84, b"\xff\xff\xff\xff", "body of -1", id="negative body"),
        pytest.param(87, b"\x40", "body of 64", id="long body"),
        pytest.param(88, b"X", "CRC of the body", id="body"),
        pytest.param(89, b"\0", "fields of", id="no topic"),
        pytest.param(89, b"\xff", "topic of -1", id="long topic"),
        pytest.param(90, b"/", "topic is", id="a topic no folder can have"),
        pytest.param(90, b"\xff", "topic is", id="a topic that is not UTF-8"),
        pytest.param(91, b"\xff", "fields of", id="negative properties"),
        pytest.param(0, blank(77), "a blank of 77 bytes", id="a blank that does not fit"),
    ],
)
@pytest.mark.parametrize("chunk_size", [8, 200, 1 << 20])
def test_a_damaged_record_ends_the_log_and_the_reason_says_how(position, value, reason, chunk_size):
    log, second = damaged(position, value)
    reader = LogReader(log, 0, chunk_size=chunk_size)
    assert len(list(reader.scan())) == 1
    assert reader.end == second
    assert reason in reader.reason


def test_without_the_checksum_a_damaged_body_passes():
    log, _ = damaged(88, b"X")
    assert len(list(LogReader(log, 0, check_crc=False).scan())) == 3


@pytest.mark.parametrize(
    ("properties", "whole"),
    [
        pytest.param(b"A\x01b\x02", True, id="plain"),
        pytest.param(b"A\x01b\0\0\0", False, id="torn"),
        pytest.param(b"__CRC32#\x010000000000\x02", False, id="a CRC property that is wrong"),
    ],
)
def test_bytes_of_our_own_must_have_whole_properties(properties, whole):
    data = record(0) + record(len(record(0)), properties=properties)
    assert len(list(LogReader(log_of(data), 0, own_from=0).scan())) == 1 + whole
    assert len(list(LogReader(log_of(data), 0, own_from=1).scan())) == 1 + whole
    assert len(list(LogReader(log_of(data), 0, own_from=len(data)).scan())) == 2


def test_a_right_crc_property_vouches_for_a_nul():
    properties = b"A\x01\0\x02"
    raw = record(0, properties=properties + bytes(20))[:-20]
    data = raw + crc_property([raw])
    assert len(list(LogReader(log_of(data), 0, own_from=0).scan())) == 1


def test_reading_stops_at_the_given_offset_and_continues_when_it_moves():
    data = chain(5)
    step = len(data) // 5
    stop = 2 * step
    reader = LogReader(log_of(data), 0, stop=lambda: stop)
    assert len(list(reader.scan())) == 2
    stop = 5 * step
    assert len(list(reader.scan())) == 3
    assert reader.end == len(data)


def test_a_missing_file_ends_the_log_without_a_reason():
    data = chain(1)
    log = log_of(data + blank(SIZE - len(data)))
    reader = LogReader(log, 0)
    assert len(list(reader.scan())) == 1
    assert (reader.end, reader.reason) == (SIZE, "")


def test_a_few_bytes_at_a_files_end_hold_nothing():
    reader = LogReader(log_of(b""), SIZE - 5)
    assert list(reader.scan()) == []
    assert "5 bytes are left" in reader.reason


def test_what_lies_behind_damage_is_a_hole_and_reading_goes_on_there():
    log, second = damaged(88, b"X")
    reader = LogReader(log, 0)
    assert len(list(reader.scan())) == 1
    assert reader.skip_damage() == Hole(second, 2 * second, "the CRC of the body is wrong")
    assert [record.physical_offset for record in reader.records()] == [2 * second]
    assert reader.skip_damage() is None
    assert reader.end == 3 * second


def test_a_record_is_looked_up_anywhere():
    log, second = damaged(88, b"X")
    assert record_at(log, 2 * second).size == second
    assert record_at(log, second) is None
    assert record_at(log, second, check_crc=False).physical_offset == second
    assert record_at(log, 5) is None
    reader = LogReader(log, 0)
    assert reader.at(second) is None
    assert reader.reason == "the CRC of the body is wrong"
    assert reader.at(2 * second).physical_offset == 2 * second
    assert reader.raw() == bytes(log.read(2 * second, second))


def test_a_look_up_reads_anew_unless_it_is_given_what_was_read():
    log = log_of(chain(3))
    size = len(chain(3)) // 3
    reader = LogReader(log, 0)
    assert reader.at(0).size == size
    before = log.files[0].pread(size, 0)
    log.files[0].pwrite(b"X", 88)
    assert reader.at(0) is None
    assert reader.at(0, size, before).size == size


def test_a_look_up_does_not_go_on_behind_a_blank():
    data = chain(1)
    log = log_of(data + blank(SIZE - len(data)), record(SIZE))
    assert record_at(log, len(data)) is None
    assert record_at(log, SIZE).physical_offset == SIZE


def test_a_look_up_outside_of_the_log_finds_nothing():
    log, _ = damaged(88, b"X")
    assert record_at(log, 7 * SIZE) is None


# ---- what lies behind ------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["T", "U" * 200])
@pytest.mark.parametrize("at", [101, 150, 4093, 6000])
def test_a_record_is_found_wherever_it_lies(monkeypatch, topic, at):
    monkeypatch.setattr("trocket.store.log.log_bytes.CHUNK", 64)
    log = log_of(b"\xaa" * at + record(at, topic=topic))
    assert find_record(log, 1, SIZE) == at
    assert find_record(log, 1, SIZE, lambda found: found.store_timestamp_ms == 1000 + at) == at
    assert find_record(log, 1, SIZE, lambda found: False) == -1, "of an older time line"
    assert find_record(log, at + 1, SIZE) == -1
    assert find_record(log, 1, at) == -1


def test_a_record_in_a_later_file_is_found():
    log = log_of(b"\xaa" * 50, record(SIZE))
    assert find_record(log, 50, 2 * SIZE) == SIZE


def test_a_record_that_says_another_offset_is_none():
    log = log_of(b"\xaa" * 50 + record(7777))
    assert find_record(log, 1, SIZE) == -1


def test_many_leftovers_are_passed_over_in_one_go():
    data = chain(70)
    log = log_of(data)
    reads = []
    log.disk.fault = lambda name, path: reads.append(name) if name == "pread" else None
    assert find_record(log, 1, SIZE, lambda found: False) == -1
    assert len(reads) <= 3 * 70


@pytest.mark.parametrize(
    ("start", "data", "unwritten"),
    [
        pytest.param(100, b"x" * 2000, False, id="all written"),
        pytest.param(100, b"x" * 512 + bytes(512) + b"x" * 976, True, id="one sector left out"),
        pytest.param(100, b"x" * 700 + bytes(324) + b"x" * 976, True, id="one torn in two"),
        pytest.param(100, b"x" * 100 + bytes(412) + b"x" * 1488, True, id="from the start on"),
        pytest.param(508, b"x" * 508 + bytes(4) + b"x" * 1488, True, id="4 bytes of the first"),
        pytest.param(100, b"x" * 600 + bytes(300) + b"x" * 1100, False, id="zeros inside a sector"),
        pytest.param(100, b"x" * 1009 + bytes(15) + b"x" * 976, False, id="as many as a head has"),
    ],
)
def test_unwritten_sectors_are_distinguished_from_damage(start, data, unwritten):
    log = log_of(data + b"x" * 100)
    assert has_unwritten_sector(log, start, 2000) is unwritten


def test_a_file_that_is_missing_is_no_unwritten_sector():
    log = log_of(b"x" * SIZE)
    assert not has_unwritten_sector(log, 0, 3 * SIZE)
