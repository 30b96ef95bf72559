"""How a cost grows with a number: points over some decades, and the exponent between them.

A cost that grows as `n` to the power 1 doubles when its number doubles. What a benchmark of scale
claims is such an exponent, and `Curve.keeps` says whether the measured points keep the claim.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from trocket.bench.kit import Columns, number_text

SLACK: Final = 0.15
"""By which a measured exponent may be above what is claimed: two timings of one thing differ by a
few per cent, and a fixed cost bends the beginning of a curve."""
DECADES: Final = 3.0
"""Over which a curve shows how a cost grows."""


@dataclass(frozen=True)
class Point:
    """A cost at one size.

    Attributes:
      size: the number that the cost grows with, at least 1.
      cost: the median of the measurements, in the curve's unit.
      low, high: the smallest and the largest of them.
    """

    size: int
    cost: float
    low: float
    high: float

    @classmethod
    def of(cls, size: int, costs: Iterable[float]) -> Point:
        """The point of one measurement or more."""
        values = list(costs)
        return cls(size, statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Curve:
    """What one thing costs, by the number of something.

    Attributes:
      what: is paid for, such as "a registration".
      per: names the number, such as "topics of the broker".
      unit: of the cost, such as "ms" or "MB".
      grows_as: the exponent that is claimed; 0: the cost does not depend on the number; None:
        nothing is claimed, as it is the cost of another's server, or a rate.
      points: in the order of their sizes.
    """

    what: str
    per: str
    unit: str
    grows_as: float | None
    points: tuple[Point, ...]

    @property
    def decades(self) -> float:
        """Over how many powers of ten the sizes reach."""
        return math.log10(self.points[-1].size / self.points[0].size) if self.points else 0.0

    @property
    def exponent(self) -> float | None:
        """The slope of a straight line through the points on logarithmic scales, by least squares.

        None: fewer than two points with a cost above 0.
        """
        places = [
            (math.log(each.size), math.log(each.cost)) for each in self.points if each.cost > 0
        ]
        if len({x for x, _ in places}) < 2:
            return None
        xs, ys = zip(*places, strict=True)
        return statistics.linear_regression(xs, ys).slope

    @property
    def last_exponent(self) -> float | None:
        """The slope between the last two points: what comes next, if nothing breaks."""
        return Curve(self.what, self.per, self.unit, self.grows_as, self.points[-2:]).exponent

    @property
    def keeps(self) -> bool:
        """Whether the cost grows no faster than is claimed, as a whole and at its end."""
        if self.grows_as is None:
            return True
        slopes = [each for each in (self.exponent, self.last_exponent) if each is not None]
        return all(slope <= self.grows_as + SLACK for slope in slopes)

    def joined(self, newer: Curve) -> Curve:
        """The points of both curves, where both have a size the newer one's; else as the newer."""
        points = {each.size: each for each in (*self.points, *newer.points)}
        return replace(newer, points=tuple(points[size] for size in sorted(points)))

    def to_json(self) -> dict[str, Any]:
        """For `--json`: the points, and what follows from them."""
        return {
            **asdict(self),
            "decades": self.decades,
            "exponent": self.exponent,
            "last_exponent": self.last_exponent,
            "keeps": self.keeps,
        }

    @classmethod
    def from_json(cls, members: Mapping[str, Any]) -> Curve:
        """The curve of `to_json`. Raises: KeyError, TypeError: the members are not those."""
        points = tuple(Point(**each) for each in members["points"])
        what, per, unit, grows_as = (members[key] for key in ("what", "per", "unit", "grows_as"))
        return cls(what, per, unit, grows_as, points)


def _slope(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _points(points: Sequence[Point]) -> str:
    return "  ".join(f"{each.size:,}: {number_text(each.cost)}" for each in points)


COLUMNS: Columns[Curve] = {
    "cost": lambda one: one.what,
    "by the number of": lambda one: one.per,
    "points": lambda one: f"{_points(one.points)} {one.unit}",
    "claimed": lambda one: "-" if one.grows_as is None else f"n^{one.grows_as:g}",
    "measured": lambda one: _slope(one.exponent),
    "at the end": lambda one: _slope(one.last_exponent),
    "": lambda one: "" if one.keeps else "GROWS FASTER",
}
