"""JSON headers of sends: what the C extension reads in one is what pure Python reads in it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trocket import native
from trocket.native.queue_state import QueueState
from trocket.remoting.answer_template import AnswerTemplate
from trocket.remoting.codec import HEADER_SIZE_MAX, FrameDecoder
from trocket.remoting.record_schema import MAGIC_V1
from trocket.store.format import UNIT_SIZE

from .frames import JSON, frame, odd_json_frame, whole

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

LETTERS: Final = ("a", "b", "e", "f", "g", "h", "i", "j", "m")
WORDS: Final = (
    "producerGroup", "topic", "queueId", "sysFlag", "bornTimestamp", "flag", "properties",
    "reconsumeTimes", "batch",
)  # fmt: skip
TOPICS: Final = ("T", "a/b\\c", 'q"uote', "\x7f")
TEXTS: Final = (
    "v",
    "é",
    "ÿ",
    "Ā",
    "\t",
    "\x1f",
    "\x00",
    "\\",
    '"',
    "/",
    "😀",
    "\ud800",
    "\\u0041",
    "",
)
HOST: Final = bytes(8)
TEMPLATE: Final = AnswerTemplate(("msgId", "queueId", "queueOffset"))


def pack(data: bytes) -> tuple[int, int, int, int, bytes, bytes, bytes] | None:
    """The run at the beginning of some bytes, in queues that are new each time."""
    assert native.extension is not None
    topics = {name: SimpleNamespace(write_queue_nums=4) for name in TOPICS}
    queues = {
        (name, queue_id): QueueState(b"\x01T", 1, MAGIC_V1, UNIT_SIZE)
        for name in TOPICS
        for queue_id in range(4)
    }
    rules: tuple[Any, ...] = (
        topics, set(), queues, b"A\x01b\x02", HOST, b"0" * 16, TEMPLATE.binary_parts,
        TEMPLATE.json_parts, 1 << 20, (),
    )  # fmt: skip
    return native.extension.pack_sends(
        rules, HEADER_SIZE_MAX, data, 0, 1 << 20, HOST, 1, 1, 0, 1 << 30, []
    )


def fields_of(random: Random, code: int) -> dict[str, str]:
    properties = "UNIQ_KEY\x01ABC\x02"
    if random.random() < 0.7:
        properties += f"name\x01{''.join(random.choices(TEXTS, k=3))}\x02"
    values = (
        random.choice(("PG", *TEXTS)), random.choice((*TOPICS, "T", "T")),
        str(random.randrange(4)), random.choice(("0", "0", "1", "769")), "1700000000000", "0",
        properties, random.choice(("0", "")), "false",
    )  # fmt: skip
    return dict(zip(LETTERS if code == 310 else WORDS, values, strict=True))


def check(data: bytes) -> bool:
    """Compare the reading of one frame. Returns: whether the extension takes it."""
    packed = pack(data)
    decoder = FrameDecoder()
    if packed is None:
        return False
    commands = decoder.receive_data(data)
    assert decoder.error is None, data
    (command,) = commands
    assert command.code in (10, 310)
    again = frame(
        command.code, command.ext_fields, command.body, opaque=command.opaque, flag=command.flag
    )
    expected = pack(again)
    assert expected is not None, data
    assert (packed[0], expected[0]) == (len(data), len(again))
    assert (*packed[1:5], packed[6]) == (*expected[1:5], expected[6]), data
    ours, theirs = (FrameDecoder().receive_data(each) for each in (packed[5], expected[5]))
    assert [(each.opaque, each.ext_fields) for each in ours] == [
        (each.opaque, each.ext_fields) for each in theirs
    ], data
    return True


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_headers_in_odd_forms(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        code, opaque = random.choice((310, 310, 10)), random.choice((0, -1, 2**31 - 1, -(2**31)))
        flag = random.choice((0, 0, 2, 1))
        check(odd_json_frame(random, code, fields_of(random, code), b"x", opaque=opaque, flag=flag))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_headers_with_changed_bytes(seed: int) -> None:
    random = Random(seed)
    for _ in range(40):
        fields = fields_of(random, 310)
        data = odd_json_frame(random, 310, fields, b"", opaque=1, flag=0)
        header = bytearray(data[8:])
        for _ in range(random.choice((1, 1, 2))):
            at = random.randrange(len(header))
            header[at] = random.choice((*b'"\\{}:,0u-x', 0, 0x1F, 0x7F, 0x80, 0xC3, 0xED))
        check(whole(bytes(header), b"", JSON))


@pytest.mark.parametrize("code", [310, 10])
def test_usual_headers_are_taken(code: int) -> None:
    names = LETTERS if code == 310 else WORDS
    values = ("PG", "T", "3", "0", "1700000000000", "0", "UNIQ_KEY\x01A\x02имя\x01ключ", "0", "")
    fields = dict(zip(names, values, strict=True))
    assert check(frame(code, fields, b"body", opaque=-5, serialize_type=JSON))
    in_go = (
        b'{"code":%d,"language":"GO","version":401,"opaque":3,"flag":0,"remark":null,"extFields":'
        % code
    )
    texts = [f'"{name}":"{value}"' for name, value in fields.items()]
    members = ",".join(texts).replace("\x01", "\\u0001").replace("\x02", "\\u0002").encode()
    assert check(whole(in_go + b"{" + members + b"}}", b"body", JSON))
