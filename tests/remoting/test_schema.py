"""remoting/schema.py: the struct of a layout reads and writes what construct does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trocket.remoting.schema import (
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    Layout,
    bytes_of,
    sized_by,
)

from ..constructs import as_construct

UNIT = Layout(offset=I64, size=I32, tags_code=I64)
ALL = Layout(a=I8, b=U8, c=I16, d=U16, e=I32, f=U32, g=I64, h=bytes_of(0), i=bytes_of(3))
SIZED = Layout(
    kind=U8,
    count=lambda values: I32 if values["kind"] else I8,
    tail=sized_by("count"),
    end=I16,
)


def test_a_layout_of_plain_integers_becomes_one_format():
    assert UNIT.struct().format == ">qiq"
    assert UNIT.names() == ("offset", "size", "tags_code")


@pytest.mark.parametrize("layout", [UNIT, ALL])
@given(data=st.data())
def test_a_struct_reads_and_writes_what_construct_does(layout, data):
    derived, declared = layout.struct(), as_construct(layout)
    assert derived.size == declared.sizeof()
    raw = data.draw(st.binary(min_size=derived.size, max_size=derived.size))
    parsed = declared.parse(raw)
    values = derived.unpack(raw)
    assert values == tuple(parsed[name] for name in layout.names())
    assert derived.pack(*values) == declared.build(parsed) == raw


def test_the_fields_are_taken_up_to_the_one_named():
    assert UNIT.struct(until="size").format == ">qi"
    assert UNIT.names(until="size") == ("offset", "size")


@pytest.mark.parametrize(
    ("context", "format_"),
    [({"kind": 0, "count": 5}, ">Bb5sh"), ({"kind": 1, "count": 70_000}, ">Bi70000sh")],
)
def test_a_format_that_follows_from_the_context_is_fixed(context, format_):
    assert SIZED.struct(context=context).format == format_


@pytest.mark.parametrize(
    ("layout", "until", "words"),
    [
        pytest.param(SIZED, None, "the format of count depends on 'kind'", id="unknown value"),
        pytest.param(UNIT, "nothing", "has no field 'nothing'", id="no field of that name"),
    ],
)
def test_a_layout_without_a_fixed_part_is_refused(layout, until, words):
    with pytest.raises(ValueError, match=words):
        layout.struct(until=until)


def test_a_structure_is_made_of_others():
    assert Layout(**UNIT.fields, more=bytes_of(2)).struct().format == ">qiq2s"
    with pytest.raises(TypeError, match="size"):
        Layout(**UNIT.fields, **SIZED.fields, size=I32)
