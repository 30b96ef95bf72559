"""Type variables by which a checker knows the bodies of messages, and what becomes of them.

A variable without a type counts as `Any`, so that a program which writes `PushedMessage` without
brackets is checked as far as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    BodyT_co = TypeVar("BodyT_co", covariant=True, default=Any)
    """The body of a message to send."""
    SentT = TypeVar("SentT", default=Any)
    """What a producer's `serializer` converts to bytes."""
    ValueT = TypeVar("ValueT", default=Any)
    """What a consumer's `deserializer` makes of bodies."""
    ValueT_co = TypeVar("ValueT_co", covariant=True, default=Any)
    """The value of a received message."""
else:  # a default needs Python 3.13, or a package that only checkers need
    from typing import TypeVar

    BodyT_co = TypeVar("BodyT_co", covariant=True)
    SentT = TypeVar("SentT")
    ValueT = TypeVar("ValueT")
    ValueT_co = TypeVar("ValueT_co", covariant=True)

PlainBody: TypeAlias = bytes | str | bytearray | memoryview
"""A body that a producer sends without a serializer."""
