"""The delay levels of messages: RocketMQ's default ones, and how the setting is read. Pure."""

from __future__ import annotations

from typing import Final

MESSAGE_DELAY_LEVEL: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Source: MessageStoreConfig.messageDelayLevel."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def delay_levels_ms(text: str) -> list[int]:
    """The delays of messageDelayLevel, level 1 first.

    Args:
      text: such as "1s 5s 2h"; units s, m, h, d.

    Raises:
      ValueError: a duration is not a number and a unit.
    """
    delays_ms = []
    for word in text.split():
        number, unit = word[:-1], word[-1]
        if not (number.isascii() and number.isdecimal() and unit in _SECONDS):
            raise ValueError(f"{word!r} is not a number and s, m, h or d")
        delays_ms.append(int(number) * _SECONDS[unit] * 1000)
    return delays_ms or [1000]
