"""The requests of the control port: their bodies as values, and what they refuse. Pure.

docs/test_clock.md has the table of them for users.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

import msgspec

ADVANCE_MS_MAX: Final = 10 * 365 * 24 * 3_600_000
"""Ten years of 365 days. Nothing that a broker keeps is due later, and store times stay far below
the latest that records can have."""


DELAY_MS_MAX: Final = 600_000
"""Ten minutes, beyond every time-out of a client."""

SLOW_MS_MAX: Final = 60_000
"""A minute for one fsync: a broker notices it after seconds."""

INT32_MAX: Final = 2**31 - 1
"""Codes are four bytes in a frame."""


class ControlError(Exception):
    """A request that is refused.

    Attributes:
      status: of the answer: 400, 404, 405, 409, 413 or 500.
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


FaultKind = Literal[
    "answer", "change", "delay", "disconnect", "drop", "duplicate", "hang", "swallow"
]

_KINDS_OF: Final[Mapping[str, tuple[FaultKind, ...]]] = {
    "delay_ms": ("delay",),
    "answer_code": ("answer", "change"),
    "remark": ("answer", "change"),
}
"""The kinds of faults that have a field."""

Code = Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)]


class NewFault(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A fault to inject.

    Attributes:
      kind: what happens to a request.
      code: of the requests; null: all of them.
      times: the number of requests; null: all until the fault is deleted.
      delay_ms: for "delay".
      answer_code, remark: for "answer" and "change".
      server: whose requests.
    """

    kind: FaultKind
    code: Code | None = None
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    delay_ms: Annotated[int, msgspec.Meta(ge=0, le=DELAY_MS_MAX)] | None = None
    answer_code: Code | None = None
    remark: str | None = None
    server: Literal["broker", "namesrv"] = "broker"

    def check(self) -> None:
        """Raises: ControlError: 400: a field is of another kind."""
        for name, kinds in _KINDS_OF.items():
            if getattr(self, name) is not None and self.kind not in kinds:
                are = " or ".join(kinds)
                raise ControlError(400, f"{name} is for faults of kind {are}, not {self.kind}")


class Crash(msgspec.Struct, forbid_unknown_fields=True):
    """A crash of the servers.

    Attributes:
      power_loss: what was not synced is lost; null: with a disk in memory.
    """

    power_loss: bool | None = None


class DiskState(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How the disk is to behave; what is left out stays.

    Attributes:
      full: nothing is free: sends are refused.
      failing_fsync: every fsync of the commit log fails.
      slow_ms: each fsync of the commit log takes so long.
    """

    full: bool | None = None
    failing_fsync: bool | None = None
    slow_ms: Annotated[int, msgspec.Meta(ge=0, le=SLOW_MS_MAX)] | None = None


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
