"""What all bodies have in common: how they are read and written.

A body is a msgspec.Struct with Java's defaults; its members are called as the fields are, in camel
case. What a peer sends beyond the fields is ignored; what it leaves out, or sends as null, takes
the default. A member that is None is not written, as with fastjson.

Java counterpart: RemotingSerializable.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeVar, cast

import msgspec

from .. import fastjson
from ..errors import RemoteProtocolError

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""Java's int."""
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's long."""

_REASON_CHARS_MAX: Final = 200  # it may quote what the peer sent

_BodyT = TypeVar("_BodyT", bound="Body")


class Body(msgspec.Struct, rename="camel"):
    """Base of everything that travels as a JSON body, or as a part of one."""

    @classmethod
    def from_body(cls: type[_BodyT], body: bytes) -> _BodyT:
        """Read a body as Java's fastjson would.

        Raises: RemoteProtocolError: not JSON, or not of this shape; the text names the member.
        """
        fastjson.check_size(body)
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls.from_tree(fastjson.loads(body))

    @classmethod
    def from_tree(cls: type[_BodyT], tree: object) -> _BodyT:
        """Make the body from what `fastjson.loads` returned; texts may stand for numbers.

        Raises: RemoteProtocolError: not of this shape; the text names the member.
        """
        try:
            return msgspec.convert(fastjson.without_nulls(tree), cls, strict=False)
        except msgspec.ValidationError as error:
            reason = str(error)[:_REASON_CHARS_MAX]
            raise RemoteProtocolError(f"not a {cls.__name__}: {reason}") from error

    def to_body(self, *, quote_int_keys: bool = True) -> bytes:
        """Write the body: UTF-8, no whitespace, no null members.

        Args:
          quote_int_keys: false: integer keys stand bare, as fastjson writes them by itself.
        Raises: LocalProtocolError: a text has half of a surrogate pair.
        """
        return fastjson.dumps(self, quote_int_keys=quote_int_keys)


def name_of_ordinal(enum_class: type[StrEnum], value: object) -> object:
    """The name of an enum member given by its number, as fastjson takes it and the C++ client
    sends it; anything else comes back as it is."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(enum_class):
        return cast("list[StrEnum]", list(enum_class))[value].value
    return value
