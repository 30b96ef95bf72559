"""A JSON header could have any number of fields; a binary one with more than 256 is refused.

19,002 were taken. One limit holds for both, with the header's size and the numbers of its frame.
"""

from __future__ import annotations

import json
import struct

import pytest

from trocket.remoting.codec import (
    EXT_FIELDS_MAX,
    HEADER_SIZE_MAX,
    FrameDecoder,
    RemotingCommand,
    encode,
)


def frame(header: bytes, serialize_type: int = 0) -> bytes:
    return struct.pack(">ii", 4 + len(header), serialize_type << 24 | len(header)) + header


def received(data: bytes) -> tuple[list[RemotingCommand], str]:
    decoder = FrameDecoder()
    commands = decoder.receive_data(data)
    return commands, "" if decoder.error is None else str(decoder.error)


def fields(count: int) -> dict[str, str]:
    return {f"field{number}": "x" for number in range(count)}


def loose(header: bytes) -> bytes:
    """The header as only fastjson reads it: a key without quotes."""
    return header.replace(b'"code"', b"code", 1)


WAYS = {
    "binary": lambda f: encode(RemotingCommand(10, f, serialize_type=1)),
    "JSON": lambda f: encode(RemotingCommand(10, f)),
    "loose JSON": lambda f: frame(loose(json.dumps({"code": 10, "extFields": f}).encode())),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_every_way_to_write_a_header_has_the_same_limit_of_fields(write):
    commands, error = received(write(fields(EXT_FIELDS_MAX)))
    assert (len(commands[0].ext_fields), error) == (EXT_FIELDS_MAX, "")
    for count in (EXT_FIELDS_MAX + 1, 1_500):
        commands, error = received(write(fields(count)))
        assert commands == []
        assert f"more than {EXT_FIELDS_MAX} extFields" in error


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_every_way_to_write_a_header_has_the_same_limit_of_bytes(serialize_type):
    size = HEADER_SIZE_MAX + 1
    _, error = received(frame(b" " * size, serialize_type))
    assert f"header of {size} bytes, the limit is {HEADER_SIZE_MAX}" in error


@pytest.mark.parametrize("depth", [1, 2])
def test_a_field_that_is_itself_an_object_is_its_text_as_apache_reads_it(depth):
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    ((command,), error) = received(frame(b'{"code":10,"extFields":{"a":%b}}' % nested))
    assert (command.ext_fields, error) == ({"a": nested.decode()}, "")


def test_a_field_that_is_nested_too_deeply_is_refused():
    nested = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    commands, error = received(frame(b'{"code":10,"extFields":{"a":%b}}' % nested[:250_000]))
    assert commands == []
    assert "JSON" in error or "header of" in error


@pytest.mark.parametrize("depth", [2_000, 30_000])
def test_a_header_that_is_nested_too_deeply_closes_its_connection_only(depth):
    """The recursion of the JSON decoder ended the broker: an hour of all attacks found it."""
    commands, error = received(frame(b'{"a":' * depth))
    assert commands == []
    assert "JSON" in error


@pytest.mark.parametrize("member", ["code", "flag", "opaque", "version"])
@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**63, 10**30])
def test_a_number_of_a_frame_that_is_no_int_is_refused_as_java_refuses_it(member, number):
    """A version of 10**30 could not be written again, in an answer that lists the clients."""
    header = {"code": 10, "opaque": 1} | {member: number}
    commands, error = received(frame(json.dumps(header).encode()))
    assert commands == []
    assert member in error
