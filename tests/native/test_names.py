"""Limits and sizes that C and Python both have are equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from re import findall
from typing import Final

import pytest

from trocket import native
from trocket.broker.processors import send_numbers
from trocket.remoting import codec, message_codec, pull_templates, record_schema, sys_flag
from trocket.remoting.request_codes import RequestCode
from trocket.store import format as store_format
from trocket.store.index import index_file

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

LIMITS: Final[Mapping[str, int]] = {
    "QUEUE_ID_MAX": send_numbers.QUEUE_ID_MAX,
    "BORN_DIGITS": send_numbers.BORN_DIGITS,
    "SEND_MESSAGE": RequestCode.SEND_MESSAGE,
    "SEND_MESSAGE_V2": RequestCode.SEND_MESSAGE_V2,
    "PULL_MESSAGE": RequestCode.PULL_MESSAGE,
    "ONEWAY_FLAG": codec.ONEWAY_FLAG,
    "FRAME_SIZE_MAX": codec.FRAME_SIZE_MAX,
    "FRAME_START_SIZE": codec.FRAME.sizeof(),
    "HEADER_SIZE": pull_templates.HEADER_SIZE,
    "MAGIC_V1": record_schema.MAGIC_V1,
    "RECORD_HEAD_SIZE": record_schema.RECORD_HEAD.size,
    "TOPIC_SIZE_MAX_V1": record_schema.TOPIC_SIZE_MAX_V1,
    "PROPERTIES_SIZE_MAX": message_codec.PROPERTIES_SIZE_MAX,
    "COMPRESSED": sys_flag.COMPRESSED,
    "COMPRESSION_TYPE_MASK": sys_flag.COMPRESSION_TYPE_MASK,
    "HOSTS_V6": sys_flag.BORNHOST_V6 | sys_flag.STOREHOSTADDRESS_V6,
    "UNIT_SIZE": store_format.UNIT_SIZE,
    "ENTRY_SIZE": index_file.PACKED_ENTRY.size,
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_the_extension_is_that_of_python(name: str) -> None:
    assert getattr(native.extension, name) & 0xFFFFFFFF == LIMITS[name] & 0xFFFFFFFF


def test_all_limits_are_compared() -> None:
    header = Path(native.__file__).with_name("limits.h").read_text("ascii")
    assert set(findall(r"#define ([A-Z_0-9]+) \S", header)) == set(LIMITS)
