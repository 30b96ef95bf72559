"""Prepared answers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.codec import RemotingCommand, encode_head

INT32 = st.integers(-(2**31), 2**31 - 1)


@given(
    opaque=INT32,
    values=st.tuples(*[st.integers(0, 2**63 - 1)] * 3),
    serialize_type=st.sampled_from([0, 1]),
    remark=st.sampled_from([None, "FOUND"]),
    body_size=st.integers(0, 1000),
    constant=st.sampled_from(["0", "50 %", "%b", 'a "region"', "Région"]),
)
def test_a_template_gives_the_bytes_of_encode(
    opaque: int,
    values: tuple[int, int, int],
    serialize_type: int,
    remark: str | None,
    body_size: int,
    constant: str,
) -> None:
    template = AnswerTemplate(
        ("first", "n2", "n3"), constants={"c": constant}, code=19, remark=remark
    )
    fields = {"first": str(values[0]), "n2": str(values[1]), "n3": str(values[2]), "c": constant}
    command = RemotingCommand(
        19, fields, remark=remark, opaque=opaque, flag=1, serialize_type=serialize_type
    )
    raw = [b"%d" % value for value in values]
    ours = template.encode(opaque, serialize_type, *raw, body_size)
    assert ours == encode_head(command, body_size)
    assert template.encode_all(opaque, serialize_type, tuple(raw), body_size) == ours


@given(
    opaque=INT32,
    values=st.lists(st.integers(0, 2**63 - 1), max_size=6),
    serialize_type=st.sampled_from([0, 1]),
)
def test_a_template_may_have_any_number_of_fields(
    opaque: int, values: list[int], serialize_type: int
) -> None:
    fields = {f"n{number}": str(value) for number, value in enumerate(values)}
    template = AnswerTemplate(tuple(fields), constants={"c": "50 %"}, remark="FOUND")
    command = RemotingCommand(
        0, fields | {"c": "50 %"}, remark="FOUND", opaque=opaque, flag=1,
        serialize_type=serialize_type,
    )  # fmt: skip
    raw = tuple(b"%d" % value for value in values)
    assert template.encode_all(opaque, serialize_type, raw) == encode_head(command, 0)
