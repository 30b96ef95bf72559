"""The numbers of RocketMQ's versions."""

from __future__ import annotations

import pytest

from trocket.remoting import mq_version
from trocket.remoting.mq_version import version_name


@pytest.mark.parametrize(
    ("version", "number"),
    [  # Recorded from running programs, except 4.0.0 and 5.9.9, the ends of the list.
        ((4, 0, 0), 213),
        ((4, 2, 0), 253),
        ((4, 9, 4), 401),
        ((4, 9, 7), 407),
        ((5, 3, 3), 479),
        ((5, 5, 0), 513),
        ((5, 9, 9), 611),
    ],
)
def test_a_version_has_the_number_that_its_programs_send(
    version: tuple[int, int, int], number: int
) -> None:
    assert mq_version.mq_version(*version) == number
    assert version_name(number) == "V{}_{}_{}".format(*version)
    assert version_name(number - 1) == "V{}_{}_{}_SNAPSHOT".format(*version)


def test_the_constants_stand_in_order_of_release() -> None:
    constants = [
        mq_version.V3_0_7_SNAPSHOT,
        mq_version.V3_0_11,
        mq_version.V3_1_8_SNAPSHOT,
        mq_version.V3_4_9,
        mq_version.V4_1_0,
        mq_version.V4_9_4,
        mq_version.V4_9_7,
        mq_version.V5_0_0,
        mq_version.V5_3_1,
        mq_version.V5_3_3,
        mq_version.V5_5_0,
    ]
    assert constants == sorted(set(constants))
    assert mq_version.CURRENT_VERSION == 513


@pytest.mark.parametrize("version", [(3, 5, 0), (6, 0, 0), (5, 10, 0), (4, 0, -1), (4, 9, 10)])
def test_a_version_outside_the_regular_part_of_the_list_has_no_computed_number(
    version: tuple[int, int, int],
) -> None:
    with pytest.raises(ValueError, match="no number can be computed"):
        mq_version.mq_version(*version)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "version 0"), (-1, "version -1"), (211, "version 211"), (612, "HIGHER_VERSION")],
)
def test_numbers_outside_the_computed_range_have_names_too(number: int, name: str) -> None:
    assert version_name(number) == name
