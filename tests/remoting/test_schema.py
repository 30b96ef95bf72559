"""remoting/schema.py: derived structs equal their declarations."""

from __future__ import annotations

import construct
import pytest
from construct import Bytes, Const, Default, Int8ub, Int16ub, Int32sb, Int32sl, Int64sb, Struct
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.schema import derive_struct, field_names

UNIT = Struct("offset" / Int64sb, "size" / Int32sb, "tags_code" / Int64sb)
NESTED = Struct(
    "kind" / Int8ub,
    "head" / Struct("magic" / Const(7, Int16ub), "id" / Bytes(3)),
    "count" / Default(Int32sb, 0),
    "tail" / Bytes(construct.this.count),
)


def test_a_declaration_of_plain_integers_becomes_one_format():
    assert derive_struct(UNIT).format == ">qiq"
    assert derive_struct(UNIT).size == UNIT.sizeof() == 20
    assert field_names(UNIT) == ("offset", "size", "tags_code")


@given(raw=st.binary(min_size=20, max_size=20))
def test_a_derived_struct_reads_and_writes_what_construct_does(raw):
    parsed = UNIT.parse(raw)
    values = derive_struct(UNIT).unpack(raw)
    assert values == tuple(parsed[name] for name in field_names(UNIT))
    assert derive_struct(UNIT).pack(*values) == UNIT.build(parsed) == raw


def test_wrapped_and_nested_fields_are_taken_up_to_the_one_named():
    derived = derive_struct(NESTED, until="count")
    assert derived.format == ">BH3si"
    assert field_names(NESTED, until="count") == ("kind", "magic", "id", "count")
    assert derived.unpack(NESTED.build({"kind": 1, "head": {"id": b"abc"}, "tail": b""})) == (
        (1, 7, b"abc", 0)
    )


def test_a_length_that_follows_from_the_context_is_fixed():
    assert derive_struct(NESTED, context={"count": 5}).format == ">BH3si5s"


def test_little_endian_declarations_stay_little_endian():
    assert derive_struct(Struct("a" / Int32sl, "b" / Int32sl)).format == "<ii"


@pytest.mark.parametrize(
    ("schema", "until"),
    [
        pytest.param(NESTED, None, id="a length that nothing tells"),
        pytest.param(UNIT, "nothing", id="no field of that name"),
        pytest.param(Struct("a" / Int32sb, "b" / Int32sl), None, id="mixed byte orders"),
        pytest.param(Struct("a" / construct.VarInt), None, id="a field of no fixed size"),
    ],
)
def test_a_declaration_without_a_fixed_part_is_refused(schema, until):
    with pytest.raises(ValueError, match=r".+"):
        derive_struct(schema, until=until)
