"""The requests of the control port: their bodies as values, and what they refuse. Pure.

docs/test_clock.md has the table of them for users.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec

ADVANCE_MS_MAX: Final = 10 * 365 * 24 * 3_600_000
"""Ten years of 365 days. Nothing that a broker keeps is due later, and store times stay far below
the latest that records can have."""


class ControlError(Exception):
    """A request that is refused.

    Attributes:
      status: of the answer: 400, 404, 405 or 409.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Advance(msgspec.Struct, forbid_unknown_fields=True):
    """By how much the clock is advanced, in milliseconds."""

    ms: Annotated[int, msgspec.Meta(ge=0, le=ADVANCE_MS_MAX)]


class SetTime(msgspec.Struct, forbid_unknown_fields=True):
    """To which time the clock is set, ms since 1970 UTC."""

    now_ms: Annotated[int, msgspec.Meta(ge=0)]


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that needs none: `{}`, or no bytes."""


T = TypeVar("T", bound=msgspec.Struct)


def read_body(body: bytes, kind: type[T]) -> T:
    """The value of a body; no bytes count as `{}`.

    Raises: ControlError: 400: it is no JSON, or has a wrong, missing or unknown field.
    """
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise ControlError(400, f"the body is wrong: {error}") from error
