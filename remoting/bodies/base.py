"""Body: the base class of all bodies, with their reading and writing.

A body is a msgspec.Struct with Java's defaults; its JSON members have the fields' names in camel
case. Unknown members are ignored; a member that is missing or null gets the default. A member that
is None is not written, as with fastjson.

Java counterpart: RemotingSerializable.
"""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum
from typing import Annotated, Final, TypeVar, cast

import msgspec

from .. import fastjson
from .. import number_fields as numbers
from ..errors import RemoteProtocolError

Int32 = Annotated[int, numbers.INT32.meta, numbers.INT32]
"""Java's int, for answers and files: a request's member has one of the ranges in `numbers`."""
Int64 = Annotated[int, numbers.INT64.meta, numbers.INT64]
"""Java's long, for answers and files."""

REQUEST_SIZE_MAX: Final = 1024 * 1024
"""Bytes of a request's JSON body, at most: parsing it blocks the loop for 10 to 20 ms. It holds a
heartbeat of 7,000 subscriptions. Registrations may be longer."""
MISTYPED_SIZE_MAX: Final = 128 * 1024
"""The same for JSON with other types than Java's, such as strings for numbers from the C++ client:
it is parsed twice and converted."""

_REASON_CHARS_MAX: Final = 200  # it may quote what the peer sent

_BodyT = TypeVar("_BodyT", bound="Body")


class Body(msgspec.Struct, rename="camel", gc=False):
    """Base of all JSON bodies and their parts.

    A body is a tree without cycles, so the garbage collector can skip it (`gc=False`): with 50,000
    topics and 20,000 groups in the tables, each full collection blocked the loop for 70 ms.
    """

    @classmethod
    def from_body(cls: type[_BodyT], body: bytes) -> _BodyT:
        """Read a body as Java's fastjson would.

        Raises: RemoteProtocolError: not JSON, or not of this shape; the message names the member.
        """
        fastjson.check_size(body)
        try:
            return msgspec.json.decode(body, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return cls.from_tree(fastjson.loads(body))

    @classmethod
    def from_body_in_steps(cls: type[_BodyT], body: bytes) -> Generator[None, None, _BodyT]:
        """`from_body` in steps if the text is not plain JSON; subclasses divide plain JSON, too.

        Raises: RemoteProtocolError: as `from_body`.
        """
        fastjson.check_size(body)
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.ValidationError:
            tree = fastjson.loads(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            tree = yield from fastjson.loads_in_steps(body)
        yield
        return (yield from cls.from_tree_in_steps(tree))

    @classmethod
    def from_request(cls: type[_BodyT], body: bytes) -> _BodyT:
        """Read the body of a request to a server, whose loop is blocked meanwhile.

        Raises: RemoteProtocolError: as `from_body`, or it is longer than REQUEST_SIZE_MAX,
          MISTYPED_SIZE_MAX or REQUEST_TOLERANT_SIZE_MAX.
        """
        if len(body) > REQUEST_SIZE_MAX:
            raise RemoteProtocolError(
                f"a {cls.__name__} of {len(body)} bytes, the limit is {REQUEST_SIZE_MAX}: "
                "divide the request"
            )
        fastjson.check_size(body)
        try:
            return msgspec.json.decode(body, type=cls)
        except msgspec.ValidationError as error:
            # Such as numbers as strings, from the C++ client: parsed twice and converted, so only
            # if it is small.
            if len(body) > MISTYPED_SIZE_MAX:
                reason = str(error)[:_REASON_CHARS_MAX]
                raise RemoteProtocolError(f"not a {cls.__name__}: {reason}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
        size_max = fastjson.REQUEST_TOLERANT_SIZE_MAX
        # What fastjson takes, too: bare keys, and numbers as strings.
        return cls.from_tree(fastjson.loads(body, tolerant_size_max=size_max))

    @classmethod
    def from_tree(cls: type[_BodyT], tree: object) -> _BodyT:
        """Convert the result of `fastjson.loads`; numbers may be strings.

        Raises: RemoteProtocolError: not of this shape; the message names the member.
        """
        try:
            return msgspec.convert(fastjson.without_nulls(tree), cls, strict=False)
        except msgspec.ValidationError as error:
            reason = str(error)[:_REASON_CHARS_MAX]
            raise RemoteProtocolError(f"not a {cls.__name__}: {reason}") from error

    @classmethod
    def from_tree_in_steps(cls: type[_BodyT], tree: object) -> Generator[None, None, _BodyT]:
        """`from_tree` in steps; one step, unless the subclass divides it.

        Raises: RemoteProtocolError: as `from_tree`.
        """
        return cls.from_tree(tree)
        yield  # makes this a generator

    def to_body(self, *, quote_int_keys: bool = True) -> bytes:
        """Write the body: UTF-8, no whitespace, no null members.

        Args:
          quote_int_keys: false: integer keys are not quoted, fastjson's default.
        Raises: LocalProtocolError: a string has half of a surrogate pair.
        """
        return fastjson.dumps(self, quote_int_keys=quote_int_keys)


def members_of(body: bytes) -> dict[str, msgspec.Raw] | None:
    """The unparsed members of a JSON object, so that each can be parsed in a separate step.

    Returns: None if it is not plain JSON, or not an object.
    """
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def object_of(members: dict[str, msgspec.Raw]) -> bytes:
    """The JSON object with these members."""
    return msgspec.json.encode(members)


def name_of_ordinal(enum_class: type[StrEnum], value: object) -> object:
    """The name of an enum member that is given by its ordinal, as the C++ client sends it and
    fastjson accepts it; any other value is returned unchanged."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(enum_class):
        return cast("list[StrEnum]", list(enum_class))[value].value
    return value
