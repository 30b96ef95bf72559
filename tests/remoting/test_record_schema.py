"""remoting/record_schema.py: the derived structs equal the declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting import record_schema
from trocket.remoting.record_schema import (
    BATCH_ENTRY_HEAD,
    BLANK,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEAD,
    RECORD_HEADS,
    RECORD_PREFIX,
    RECORD_SIZE_MIN,
    SYS_FLAG_POSITION,
)

from ..constructs import BATCH_ENTRY, RECORD, as_construct

HEAD_NAMES = record_schema.RECORD.names(until="body_length")


def test_the_magic_numbers_are_apaches():
    assert MAGIC_V1 & 0xFFFFFFFF == 0xDAA320A7
    assert MAGIC_V2 & 0xFFFFFFFF == 0xDAA320AB
    assert MAGIC_BLANK & 0xFFFFFFFF == 0xCBD43194


@pytest.mark.parametrize("v6_bits", range(4))
@given(data=st.data())
def test_each_head_reads_what_the_declaration_reads(v6_bits, data):
    head = RECORD_HEADS[v6_bits]
    raw = bytearray(data.draw(st.binary(min_size=head.size, max_size=head.size)))
    sys_flag = data.draw(st.integers(0, 0x7FF)) & ~0x30 | v6_bits << 4
    raw[SYS_FLAG_POSITION : SYS_FLAG_POSITION + 4] = sys_flag.to_bytes(4, "big")
    raw[-4:] = bytes(4)  # no body
    parsed = RECORD.parse(bytes(raw) + bytes(4))
    values = head.unpack(raw)
    assert values == tuple(parsed[name] for name in HEAD_NAMES)
    assert head.pack(*values) == bytes(raw)


def test_the_smallest_record_is_the_declarations():
    fields = dict.fromkeys(HEAD_NAMES, 0)
    fields |= {"magic": MAGIC_V1, "born_host": bytes(8), "store_host": bytes(8)}
    fields |= {"body": b"", "topic": b"", "topic_length": 0}
    fields |= {"properties": b"", "properties_length": 0}
    assert len(RECORD.build(fields)) == RECORD_SIZE_MIN == RECORD_HEAD.size + 3


@given(size=st.integers(8, (1 << 31) - 1))
def test_a_blank_begins_as_the_declaration_says(size):
    assert RECORD_PREFIX.pack(size, MAGIC_BLANK) == as_construct(BLANK).build(
        {"total_size": size, "magic": MAGIC_BLANK}
    )


@given(raw=st.binary(min_size=16, max_size=16))
def test_the_head_of_a_batch_entry_reads_what_the_declaration_reads(raw):
    parsed = BATCH_ENTRY.parse(raw + bytes(4 + 2))
    names = record_schema.BATCH_ENTRY.names(until="body_length")
    assert BATCH_ENTRY_HEAD.unpack(raw + bytes(4)) == tuple(parsed[name] for name in names)
