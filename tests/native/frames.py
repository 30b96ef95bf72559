"""Frames of requests in both serializations, written without the product's encoder.

Both players of a comparison must send the same bytes, so these bytes cannot come from code that may
run in C in one of them. Values may break every rule that a client keeps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

JSON, ROCKETMQ = 0, 1


def frame(
    code: int,
    fields: Mapping[str, str] | None,
    body: bytes = b"",
    *,
    opaque: int = 0,
    flag: int = 0,
    serialize_type: int = ROCKETMQ,
    remark: bytes = b"",
    language: int = 0,
    version: int = 513,
) -> bytes:
    """A whole frame; `fields` None: none at all."""
    if serialize_type == JSON:
        head = {
            "code": code, "extFields": fields, "flag": flag, "language": "JAVA",
            "opaque": opaque, "serializeTypeCurrentRPC": "JSON", "version": version,
        }  # fmt: skip
        header = json.dumps(head, ensure_ascii=False).encode("utf-8", "surrogatepass")
    else:
        block = binary_fields([(_raw(k), _raw(v)) for k, v in (fields or {}).items()])
        header = binary_header(code, block, opaque, flag, remark, language, version)
    return whole(header, body, serialize_type)


def binary_fields(fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    """The fields of a binary header; names may be given twice."""
    return b"".join(
        struct.pack(">H", len(name)) + name + struct.pack(">i", len(value)) + value
        for name, value in fields
    )


def binary_header(
    code: int,
    block: bytes,
    opaque: int = 0,
    flag: int = 0,
    remark: bytes = b"",
    language: int = 0,
    version: int = 513,
) -> bytes:
    """A binary header over encoded fields."""
    head = struct.pack(">HBHii", code & 0xFFFF, language, version, opaque, flag)
    return head + struct.pack(">i", len(remark)) + remark + struct.pack(">i", len(block)) + block


def whole(header: bytes, body: bytes, serialize_type: int = ROCKETMQ) -> bytes:
    """A frame around a header."""
    mark = serialize_type << 24 | len(header)
    return struct.pack(">iI", 4 + len(header) + len(body), mark) + header + body


NUMBERS: Final = (
    "0", "-0", "01", "-1", "1.0", "1e1", "+1", "310", "10", "2147483647", "2147483648",
    "-2147483648", "-2147483649", "99999999999", "", "null", '"1"', "true", "0x1",
)  # fmt: skip
SPACES: Final = ("", "", " ", "\n", "\t", "\r ", "  ")
ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\n": "\\n", "\t": "\\t", "\b": "\\b"}


def odd_json_frame(
    random: Random, code: int, fields: Mapping[str, str], body: bytes, *, opaque: int, flag: int
) -> bytes:
    """A frame with a JSON header in any form that JSON allows, and now and then in another."""
    values = [(name, _odd_string(random, text)) for name, text in fields.items()]
    members = [
        ("code", str(code)),
        ("extFields", _odd_object(random, values)),
        ("flag", str(flag)),
        ("language", random.choice(('"JAVA"', '"GO"', '"CPP"', '"X"', '""', "1"))),
        ("opaque", str(opaque)),
        ("serializeTypeCurrentRPC", random.choice(('"JSON"', '"ROCKETMQ"', '""'))),
        ("version", random.choice(("401", "0", "-1", random.choice(NUMBERS)))),
    ]
    if random.random() < 0.3:
        members.append(("remark", random.choice(("null", '""', '"text"', "0"))))
    if random.random() < 0.2:
        members.append((random.choice(("more", "code", "flag", "extFields")), "0"))
    if random.random() < 0.2:
        at = random.randrange(len(members))
        members[at] = (members[at][0], random.choice((*NUMBERS, "{}", "[]")))
    if random.random() < 0.2:
        del members[random.randrange(len(members))]
    if random.random() < 0.3:
        random.shuffle(members)
    text = random.choice(SPACES) + _odd_object(random, members) + random.choice(SPACES)
    if random.random() < 0.25:
        at = random.randrange(len(text) + 1)
        odd = random.choice(
            ('"', "\\", "\x00", "\x1f", "\x7f", ",", "}", "{", "é", "\ud800", "\\u00e9")
        )
        text = text[:at] + odd + text[at:]
    return whole(text.encode("utf-8", "surrogatepass"), body, JSON)


def _odd_object(random: Random, members: Sequence[tuple[str, str]]) -> str:
    is_spaced, comma = random.random() < 0.3, ","

    def space() -> str:
        return random.choice(SPACES) if is_spaced else ""

    texts = [
        f"{space()}{_odd_string(random, name)}{space()}:{space()}{value}{space()}"
        for name, value in members
    ]
    if random.random() < 0.02:
        comma = random.choice((",,", ";", ", ,", " "))
    return "{" + comma.join(texts) + random.choice(("}",) * 50 + (",}", "", "}}"))


def _odd_string(random: Random, text: str) -> str:
    share = random.choice((0.0, 0.0, 0.0, 0.1))
    pieces = []
    for character in text:
        if character < " " or character in '"\\' or random.random() < share:
            form = random.choice(("\\u{:04x}", "\\u{:04X}", "short"))
            if form == "short" and character in ESCAPES:
                pieces.append(ESCAPES[character])
            elif ord(character) > 0xFFFF:
                pieces.append(character)
            else:
                pieces.append(form.replace("short", "\\u{:04x}").format(ord(character)))
        else:
            pieces.append(character)
    return '"' + "".join(pieces) + '"'


def batch_entry(
    body: bytes, properties: bytes, flag: int = 0, *, claimed: int | None = None
) -> bytes:
    """A message of a batch; `claimed`: the size of its body as the entry says it."""
    size = len(body) if claimed is None else claimed
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, flag, size)
    return head + body + struct.pack(">H", len(properties)) + properties


def properties(*pairs: tuple[str, str], end: bool = True) -> bytes:
    """Encoded properties, with or without the last separator."""
    text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
    return (text + ("\x02" if end and pairs else "")).encode("utf-8", "surrogatepass")


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
