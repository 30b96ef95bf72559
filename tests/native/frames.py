"""Frames of requests in both serializations, written without the product's encoder.

Both players of a comparison must send the same bytes, so these bytes cannot come from code that may
run in C in one of them. Values may break every rule that a client keeps.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence

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
