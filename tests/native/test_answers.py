"""Answers of the C extension and of pure Python are equal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket import native
from trocket.broker.sending.send_batch import batch_ids
from trocket.remoting.answer_template import AnswerTemplate

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

VALUES = st.text("0123456789ABCDEFabc._-", max_size=255).map(str.encode)


@given(
    st.integers(-(2**31), 2**31 - 1),
    st.tuples(VALUES, VALUES, VALUES),
    st.integers(0, 1 << 20),
    st.sampled_from([0, 1]),
    st.sampled_from([None, "OFFSET_MOVED"]),
    st.integers(0, 40),
)
def test_templates(
    opaque: int,
    values: tuple[bytes, bytes, bytes],
    body_size: int,
    serialize_type: int,
    remark: str | None,
    code: int,
) -> None:
    names, constants = ("msgId", "queueId", "queueOffset"), {"MSG_REGION": "r", "TRACE_ON": "true"}
    pure, ours = (
        AnswerTemplate(names, constants=constants, code=code, remark=remark, native=extension)
        for extension in (None, native.extension)
    )
    assert pure.encode(opaque, serialize_type, *values, body_size) == ours.encode(
        opaque, serialize_type, *values, body_size
    )


@given(st.binary(max_size=20).map(bytes.hex), st.lists(st.integers(0, 2**63 - 1), max_size=5))
def test_ids_of_a_batch(host: str, offsets: list[int]) -> None:
    assert native.extension is not None
    prefix = host.upper().encode()
    assert native.extension.batch_ids(prefix, offsets) == batch_ids(prefix, offsets)
