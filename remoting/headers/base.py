"""Header: the base class of typed headers, and their conversion from and to extFields.

A header class is a frozen msgspec.Struct: a field without default is required (Java's CFNotNull),
`None` means "not sent", the wire name is the field's name in camel case unless declared otherwise.
Subclasses inherit `rename` and `gc`. They repeat `kw_only`, which msgspec does not inherit, and
`frozen`, which type checkers require.

Java counterpart: CommandCustomHeader and RemotingCommand.decodeCommandCustomHeader. Java logs a
missing or malformed field and continues with null, which leads to a NullPointerException and
SYSTEM_ERROR; we refuse with SYSTEM_ERROR at once and name the field, in Java's words.

Source: RocketMQ 5.3.3 remoting/protocol/RemotingCommand.java, FastCodesHeader.java,
rpc/RpcRequestHeader.java, rpc/TopicRequestHeader.java.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Final, TypeVar, get_args

import msgspec

from .. import number_fields as numbers
from ..errors import RequestRefused
from ..number_fields import Range, parse_integer, range_of
from ..response_codes import ResponseCode

Int32 = Annotated[int, numbers.INT32.meta, numbers.INT32]
"""Java's Integer, for answers: a request's field has one of the ranges in `numbers`."""
Int64 = Annotated[int, numbers.INT64.meta, numbers.INT64]
"""Java's Long, for answers."""

_SHOWN_CHARS_MAX: Final = 64  # of a refused value, so that a remark stays short

_HeaderT = TypeVar("_HeaderT", bound="Header")


class Header(msgspec.Struct, frozen=True, kw_only=True, rename="camel", gc=False):
    """Base of all headers; it has no fields."""


class RpcRequestHeader(Header, frozen=True, kw_only=True):
    """Base of the request headers that newer clients address to one broker.

    Attributes:
      namespace: namespace of the client, None: none; wire `ns`.
      namespaced: names in the request already include the namespace; wire `nsd`.
      broker_name: name of the addressed broker; wire `bname`.
      oneway: the client does not wait for an answer; wire `oway`.
    """

    namespace: str | None = msgspec.field(default=None, name="ns")
    namespaced: bool | None = msgspec.field(default=None, name="nsd")
    broker_name: str | None = msgspec.field(default=None, name="bname")
    oneway: bool | None = msgspec.field(default=None, name="oway")


class TopicRequestHeader(RpcRequestHeader, frozen=True, kw_only=True):
    """Base of the request headers about one topic.

    Attributes:
      logical: queue ids are those of a static topic; wire `lo`.
    """

    logical: bool | None = msgspec.field(default=None, name="lo")


def decode(header_class: type[_HeaderT], ext_fields: Mapping[str, str]) -> _HeaderT:
    """Read a typed header from the ext fields of a command.

    Args:
      header_class: the class of the header; unknown fields are ignored.
      ext_fields: strings by wire name. An integer is decimal and in its field's range; msgspec also
        accepts integers as "1e3" and "1.0", and reads "null" as not sent. A boolean is "true" (or
        "1") in any letter case, anything else is false.
    Returns: the header.
    Raises: RequestRefused: SYSTEM_ERROR if a required field is missing or an integer is malformed;
      INVALID_PARAMETER: an integer is outside of the range that its field declares.
    """
    try:
        return msgspec.convert(ext_fields, header_class, strict=False)
    except msgspec.ValidationError:
        return _decode_slowly(header_class, ext_fields)


def encode_header(header: Header) -> dict[str, str]:
    """The ext fields of a header: strings by wire name, without the fields that are None."""
    fields: dict[str, str] = {}
    for attribute, wire_name in _names(type(header)):
        value = getattr(header, attribute)
        if value is None:
            continue
        if value is True:
            fields[wire_name] = "true"
        elif value is False:
            fields[wire_name] = "false"
        else:
            fields[wire_name] = str(value)
    return fields


@cache
def _names(header_class: type[Header]) -> tuple[tuple[str, str], ...]:
    pairs = zip(header_class.__struct_fields__, header_class.__struct_encode_fields__, strict=True)
    return tuple(pairs)


def _decode_slowly(header_class: type[_HeaderT], ext_fields: Mapping[str, str]) -> _HeaderT:
    """Read a header as Java does, more tolerantly; used when the fast conversion fails."""
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(header_class):
        text = ext_fields.get(field.encode_name)
        if text is None:
            if field.required:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR, f"the custom field <{field.encode_name}> is null"
                )
            continue
        values[field.name] = _value(field.encode_name, field.type, text)
    return header_class(**values)


def _value(wire_name: str, kind: object, text: str) -> object:
    declared = range_of(kind)
    if declared is not None:
        return read_number(wire_name, declared, text)
    return text.lower() == "true" if kind is bool or bool in get_args(kind) else text


def read_number(wire_name: str, declared: Range, text: str) -> int:
    """Read one numeric field.

    Args:
      wire_name: the field, for the refusal.
      declared: the range that the number must be in.
      text: from the peer.
    Raises: RequestRefused: SYSTEM_ERROR if it is not a decimal integer of Java's type;
      INVALID_PARAMETER: it is outside of the range.
    """
    number = parse_integer(text)
    # Java's parser would raise an exception here, which Apache's broker answers with this code.
    if number is None or not declared.java.has(number):
        raise RequestRefused(
            ResponseCode.SYSTEM_ERROR,
            f"the custom field <{wire_name}> is not an integer of {declared.bits} bits: "
            f"{text[:_SHOWN_CHARS_MAX]!r}",
        )
    if not declared.has(number):
        raise RequestRefused(
            ResponseCode.INVALID_PARAMETER,
            f"the custom field <{wire_name}> {declared.refusal(number)}",
        )
    return number
