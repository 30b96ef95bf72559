from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import trocket.filtersrv.workers
from trocket.filtersrv.workers.inside import frames

JAVA_SIDE = Path(trocket.filtersrv.workers.__file__).parent / "java/trocket/filtersrv/Frames.java"


@given(st.lists(st.booleans()))
def test_bits_are_read_as_they_were_written(decisions: list[bool]) -> None:
    packed = frames.pack_bits(decisions)
    assert len(packed) == frames.bits_size(len(decisions))
    assert frames.unpack_bits(packed, len(decisions)) == decisions


def test_the_first_message_is_the_lowest_bit() -> None:
    assert frames.pack_bits([True, False, False, False, False, False, False, True, True]) == bytes(
        [0b1000_0001, 1]
    )


@given(st.text(st.characters(codec="utf-8"), max_size=255), st.binary())
def test_a_class_is_read_as_it_was_written(name: str, content: bytes) -> None:
    assert frames.unpack_named(frames.pack_named(name, content)) == (name, content)


def test_settings_are_read_as_they_were_written() -> None:
    settings = [("read", "/a"), ("memory", "5"), ("read", "/odd=\udcff name"), ("program", "")]
    assert frames.unpack_settings(frames.pack_settings(settings)) == {
        "read": ["/a", "/odd=\udcff name"],
        "memory": ["5"],
        "program": [""],
    }


def test_a_text_is_cut() -> None:
    content = frames.text_frame(frames.FAILED, 1, "ä" * frames.TEXT_BYTES_MAX)[frames.HEAD.size :]
    assert len(content) == frames.TEXT_BYTES_MAX


def test_java_has_the_same_numbers() -> None:
    constants = re.findall(
        r"static final int (\w+) = (\d+);", JAVA_SIDE.read_text(encoding="utf-8")
    )
    assert len(constants) > 7
    names = {"HEAD_SIZE": frames.HEAD.size}
    for name, value in constants:
        assert names.get(name, getattr(frames, name, None)) == int(value), name
