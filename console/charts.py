"""Charts of numbers over time as paths of SVG, which a page draws without a script."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

import msgspec

WIDTH: Final = 360
HEIGHT: Final = 92
_TOP: Final = 6
_BOTTOM: Final = 88
"""Where 0 is drawn; the greatest value is at _TOP."""


class Timed(Protocol):
    """Something at a time, ms since 1970."""

    @property
    def timestamp_ms(self) -> int: ...


P = TypeVar("P", bound=Timed)


class Chart(msgspec.Struct, frozen=True, rename="camel"):
    """A chart of one or two lines over one hour at most.

    Attributes:
      lines: data of an SVG path for each line; a gap where nothing is known.
      area: the path of the area below the first line.
      top: the value at the upper edge.
      begin_ms, end_ms: the times at the left and the right edge, ms since 1970.
    """

    lines: tuple[str, ...]
    area: str
    top: float
    begin_ms: int
    end_ms: int


NO_CHART: Final = Chart((), "", 0.0, 0, 0)


def chart_of(
    points: Sequence[P], *values: Callable[[P], float | None], top: float | None = None
) -> Chart:
    """Draw values over time.

    Args:
      top: the value at the upper edge; None: the greatest one.
    """
    if not points:
        return NO_CHART
    begin_ms, end_ms = points[0].timestamp_ms, points[-1].timestamp_ms
    span_ms = max(end_ms - begin_ms, 1)
    known = [value for of in values for each in points if (value := of(each)) is not None]
    upper = top if top is not None else max(known, default=0.0)

    def place(point: P, value: float) -> tuple[float, float]:
        x = (point.timestamp_ms - begin_ms) / span_ms * WIDTH
        share = min(value / upper, 1.0) if upper > 0 else 0.0
        return x, _BOTTOM - share * (_BOTTOM - _TOP)

    lines = []
    for of in values:
        parts: list[str] = []
        is_open = False
        for point in points:
            value = of(point)
            if value is None:
                is_open = False
                continue
            x, y = place(point, value)
            parts.append(f"{'L' if is_open else 'M'}{x:.1f} {y:.1f}")
            is_open = True
        lines.append(" ".join(parts))
    area = lines[0]
    if area and area.count("M") == 1:
        area = f"{area} L{WIDTH} {_BOTTOM} L{area[1:].split(' ')[0]} {_BOTTOM}Z"
    else:
        area = ""
    return Chart(tuple(lines), area, upper, begin_ms, end_ms)
