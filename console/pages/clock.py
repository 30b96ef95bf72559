"""The clock of a broker under test: what it shows, and moving it on."""

from __future__ import annotations

from typing import Final

import msgspec

from ..clock import Clock
from ..errors import PageError
from ..roles import Role
from .audited import audited
from .page import Ask, Change, Done

SECONDS_MAX: Final = 366 * 86_400
"""A year: tests of retention need no more, and a slip of the pen is no century."""
STEPS: Final = (1, 60, 3_600, 86_400)
"""Seconds of the buttons: a second, a minute, an hour, a day."""


class ClockPage(msgspec.Struct, frozen=True, rename="camel"):
    """A broker's clock.

    Attributes:
      now_ms: what it shows, ms since 1970.
      steps: seconds by which a button moves it.
    """

    now_ms: int
    steps: tuple[int, ...] = STEPS


def _clock(ask: Ask) -> Clock:
    if ask.console.clock is None:
        raise PageError(400, "no_clock")
    return ask.console.clock


async def shown(ask: Ask) -> ClockPage:
    """What the clock shows."""
    return ClockPage(await _clock(ask).now_ms())


async def move(ask: Ask) -> Done:
    """Move the clock on."""
    clock = _clock(ask)
    seconds = ask.number("seconds")
    if not 1 <= seconds <= SECONDS_MAX:
        raise PageError(400, "wrong_seconds", limit=SECONDS_MAX)
    with audited(ask, "clock", {}, before=await clock.now_ms()) as line:
        await clock.advance(seconds)
        line.after = await clock.now_ms()
    return Done("clock", {}, "clock", {"seconds": seconds, "number": line.number})


CHANGES = (Change("clock", Role.OPERATE, shown, move),)
