"""Derived structs equal their declarations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.store import format as store_format

from ..constructs import as_construct

PAIRS = [
    (store_format.CONSUME_QUEUE_UNIT, store_format.UNIT),
    (store_format.INDEX_HEADER, store_format.INDEX_HEAD),
    (store_format.INDEX_SLOT, store_format.SLOT),
    (store_format.INDEX_ENTRY, store_format.ENTRY),
    (store_format.CHECKPOINT, store_format.CHECKPOINT_HEAD),
    (store_format.CHECKPOINT_EXTENSION, store_format.EXTENSION),
    (store_format.INDEX_PROGRESS, store_format.INDEX_PROGRESS_HEAD),
    (store_format.INDEX_FILE_MARK, store_format.FILE_MARK),
]


@pytest.mark.parametrize(("layout", "derived"), PAIRS)
@given(data=st.data())
def test_struct_and_declaration_read_and_write_the_same(layout, derived, data):
    raw = data.draw(st.binary(min_size=derived.size, max_size=derived.size))
    declared = as_construct(layout)
    parsed = declared.parse(raw)
    values = tuple(parsed[name] for name in layout.names())
    assert derived.unpack(raw) == values
    assert derived.pack(*values) == raw == declared.build(parsed)
