"""`find_property` of the C extension and of pure Python are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.common.message_properties import pure_find_property

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

PIECES = st.sampled_from([b"\1", b"\2", b"A", b"AB", b"TAGS", b"UNIQ_KEY", b"\xff", b"\0"])


@given(st.lists(PIECES, max_size=12).map(b"".join), st.sampled_from([b"A", b"AB", b"TAGS", b"B"]))
def test_one_property(raw: bytes, name: bytes) -> None:
    assert native.extension is not None
    assert native.extension.find_property(raw, name) == pure_find_property(raw, name)
