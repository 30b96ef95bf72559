"""Curves of costs: exponents, and whether a claim is kept."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from trocket.bench.scale_curve import COLUMNS, Curve, Point


def curve(grows_as: float, *costs: float, first: int = 10) -> Curve:
    points = tuple(Point.of(first * 10**i, [cost]) for i, cost in enumerate(costs))
    return Curve("a thing", "things", "ms", grows_as, points)


def test_a_point_has_the_median_and_the_spread() -> None:
    assert Point.of(7, [3.0, 1.0, 9.0]) == Point(7, 3.0, 1.0, 9.0)


@pytest.mark.parametrize(
    ("grows_as", "costs", "exponent"),
    [
        (0.0, (2.0, 2.0, 2.0, 2.0), 0.0),
        (1.0, (1.0, 10.0, 100.0, 1000.0), 1.0),
        (2.0, (1.0, 100.0, 10_000.0), 2.0),
    ],
)
def test_a_claim_is_kept(grows_as: float, costs: tuple[float, ...], exponent: float) -> None:
    one = curve(grows_as, *costs)
    assert one.exponent is not None
    assert math.isclose(one.exponent, exponent, abs_tol=1e-9)
    assert one.keeps
    assert one.decades == len(costs) - 1
    assert not curve(grows_as - 0.5, *costs).keeps


def test_a_curve_that_bends_up_at_its_end_does_not_keep_its_claim() -> None:
    bent = curve(1.0, 10.0, 20.0, 40.0, 400.0, 8_000.0)
    assert bent.exponent is not None
    assert bent.exponent < 1.0
    assert not bent.keeps


def test_without_two_points_nothing_is_said() -> None:
    for one in (curve(1.0), curve(1.0, 5.0), curve(1.0, 0.0, 0.0)):
        assert one.exponent is None
        assert one.keeps


def test_nothing_is_claimed_of_anothers_server() -> None:
    one = replace(curve(0.0, 1.0, 10.0, 100.0), grows_as=None)
    assert one.keeps
    assert COLUMNS["claimed"](one) == "-"


def test_a_curve_comes_back_from_json() -> None:
    one = curve(1.0, 10.0, 20.0)
    assert Curve.from_json(json.loads(json.dumps(one.to_json()))) == one


def test_points_of_a_later_run_take_the_place_of_equal_sizes() -> None:
    joined = curve(0.0, 1.0, 2.0).joined(curve(1.0, 5.0, 6.0, first=100))
    assert [(each.size, each.cost) for each in joined.points] == [
        (10, 1.0),
        (100, 5.0),
        (1000, 6.0),
    ]
    assert joined.grows_as == 1.0
