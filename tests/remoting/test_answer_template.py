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
