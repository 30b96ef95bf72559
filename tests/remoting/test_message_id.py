"""remoting/message_id.py; ids in the tables were made by Apache's broker and Java clients."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.errors import LocalProtocolError, RemoteProtocolError
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message_id import (
    OFFSET_ID_V4,
    OFFSET_ID_V6,
    UNIQUE_ID_V4,
    UNIQUE_ID_V6,
    OffsetId,
    UniqueId,
    UniqueIdGenerator,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    month_bounds_ms,
    unique_id_time_ms,
)

from ..constructs import as_construct

APACHE_UNIQUE_ID = "FD00000000000000000000000000000235E34E0E2F2A68547D50005A"


def ms(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7F00000100002A9F0000000000031BD3", OffsetId("127.0.0.1", 10911, 203731)),
        (
            "20010DB800000000000000000000000200002A9F00000000000002A8",
            OffsetId("2001:db8::2", 10911, 680),
        ),
    ],
)
def test_apaches_offset_ids_are_read_and_written(text, expected):
    assert decode_offset_id(text) == decode_offset_id(text.lower()) == expected
    assert encode_offset_id(host_bytes(expected.ip, expected.port), expected.physical_offset) == (
        text
    )


@pytest.mark.slow
@given(host=st.ip_addresses(), offset=st.integers(0, (1 << 63) - 1))
def test_an_offset_id_is_the_hexadecimal_of_the_declaration(host, offset):
    layout = OFFSET_ID_V4 if host.version == 4 else OFFSET_ID_V6
    built = as_construct(layout).build(
        {"ip": host.packed, "port": 10911, "physical_offset": offset}
    )
    raw_host = host.packed + (10911).to_bytes(4, "big")
    text = encode_offset_id(raw_host, offset)
    assert text == built.hex().upper()
    assert decode_offset_id(text) == (str(host).partition("%")[0], 10911, offset)


@pytest.mark.parametrize(("host", "offset"), [(bytes(7), 0), (bytes(8), -1), (bytes(8), 1 << 63)])
def test_a_place_that_no_message_can_have_is_refused(host, offset):
    with pytest.raises(LocalProtocolError, match="host and offset"):
        encode_offset_id(host, offset)


@pytest.mark.parametrize("decode", [decode_offset_id, decode_unique_id])
@given(text=st.text(max_size=60) | st.text("0123456789ABCDEF ", max_size=60))
def test_any_text_is_an_id_or_the_documented_error(decode, text):
    try:
        decode(text)
    except RemoteProtocolError:
        return
    assert len(text) in (32, 56)


@pytest.mark.parametrize("text", ["", "7F", "G" * 32, "7F " * 16, "0" * 31, "0" * 40, "é" * 32])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(RemoteProtocolError, match="not a message id"):
        decode_offset_id(text)


def test_an_id_from_a_java_client_is_taken_apart():
    assert decode_unique_id(APACHE_UNIQUE_ID) == UniqueId(
        "fd00::2", 0x35E3, 0x4E0E2F2A, 0x68547D50, 0x5A
    )


def test_an_id_from_a_java_client_tells_its_time():
    # Born at 1795241567568 (21 November 2026); the recording machine's zone was UTC.
    now_ms = 1795241567568 + 60_000
    assert abs(unique_id_time_ms(APACHE_UNIQUE_ID, now_ms, UTC) - 1795241567568) < 1000


def test_an_id_later_than_now_is_of_the_month_before():
    generator = UniqueIdGenerator(bytes(4), 1, 2, UTC)
    made = generator.next_id(ms(2026, 1, 31, 23))
    assert unique_id_time_ms(made, ms(2026, 2, 1, 1), UTC) == ms(2026, 1, 31, 23)


@given(
    ip=st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16),
    pid=st.integers(0, 1 << 22),
    loader_hash=st.integers(0, (1 << 32) - 1),
    span_ms=st.integers(0, 30 * 86_400_000),
)
def test_a_made_id_is_the_hexadecimal_of_the_declaration(ip, pid, loader_hash, span_ms):
    generator = UniqueIdGenerator(ip, pid, loader_hash, UTC)
    layout = UNIQUE_ID_V4 if len(ip) == 4 else UNIQUE_ID_V6
    for counter in range(2):
        text = generator.next_id(ms(2026, 1, 1) + span_ms)
        fields = {
            "ip": ip,
            "pid": pid & 0xFFFF,
            "loader_hash": loader_hash,
            "month_span_ms": span_ms,
            "counter": counter,
        }
        assert text == as_construct(layout).build(fields).hex().upper()


def test_ids_of_one_millisecond_differ_until_the_counter_wraps():
    generator = UniqueIdGenerator(bytes(4), 1, 2, UTC)
    ids = [generator.next_id(ms(2026, 5, 5)) for _ in range(65_537)]
    assert len(set(ids)) == 65_536
    assert ids[0] == ids[-1]


def test_the_span_begins_again_with_each_month_and_does_not_go_below_0():
    generator = UniqueIdGenerator(bytes(4), 1, 2, UTC)
    spans = [
        decode_unique_id(generator.next_id(now)).month_span_ms
        for now in (ms(2026, 12, 31), ms(2027, 1, 1) + 5, ms(2026, 12, 31))
    ]
    assert spans == [30 * 86_400_000, 5, 0]


def test_an_address_of_another_size_is_refused():
    with pytest.raises(LocalProtocolError, match="5 bytes"):
        UniqueIdGenerator(bytes(5), 1, 2)


@given(now_ms=st.integers(0, 4_000_000_000_000))
def test_a_moment_lies_within_its_month(now_ms):
    begin, end = month_bounds_ms(now_ms, UTC)
    assert begin <= now_ms < end
    assert 28 <= (end - begin) / 86_400_000 <= 31


@given(now_ms=st.integers(-(1 << 70), 1 << 70))
def test_a_month_has_bounds_in_any_year(now_ms):
    for timezone in (UTC, ZoneInfo("Pacific/Auckland"), ZoneInfo("America/Los_Angeles"), None):
        begin, end = month_bounds_ms(now_ms, timezone)
        assert begin <= now_ms < end


@pytest.mark.parametrize("now_ms", [-(1 << 63), -1, 1 << 50, 253_402_300_799_999, (1 << 63) - 1])
def test_an_id_is_made_at_any_time(now_ms):
    assert len(UniqueIdGenerator(bytes(4), 1, 2).next_id(now_ms)) == 32


def test_months_begin_at_the_zones_midnight_over_a_change_of_its_clock():
    berlin = ZoneInfo("Europe/Berlin")
    begin, end = month_bounds_ms(ms(2026, 3, 30), berlin)
    assert (begin, end) == (ms(2026, 2, 28, 23), ms(2026, 3, 31, 22))


def test_without_a_zone_the_machines_counts():
    begin, _ = month_bounds_ms(ms(2026, 6, 15))
    local = datetime.fromtimestamp(begin / 1000)
    assert (local.month, local.day, local.hour, local.minute) == (6, 1, 0, 0)
