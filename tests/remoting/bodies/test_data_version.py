"""Versions of tables."""

from __future__ import annotations

from trocket.remoting.bodies import DataVersion


def test_versions_are_equal_when_all_three_numbers_are() -> None:
    one = DataVersion(timestamp=1, counter=2, state_version=3)
    assert one == DataVersion(1, 2, 3)
    assert one != DataVersion(9, 2, 3)
    assert one != DataVersion(1, 9, 3)
    assert one != DataVersion(1, 2, 9)


def test_the_version_of_a_4_9_broker_has_state_version_0() -> None:
    assert DataVersion.from_body(b'{"counter":3,"timestamp":1795239519982}') == DataVersion(
        1795239519982, 3, 0
    )


def test_a_change_counts_up_and_takes_the_time() -> None:
    version = DataVersion(1, 2, 7)
    version.next_version(500)
    assert version == DataVersion(500, 3, 0)
    version.next_version(400, state_version=9)
    assert version == DataVersion(400, 4, 9)


def test_assigning_copies_all_three_numbers() -> None:
    version, other = DataVersion(1, 2, 3), DataVersion(4, 5, 6)
    version.assign(other)
    other.next_version(7)
    assert version == DataVersion(4, 5, 6)


def test_a_version_is_written_as_5_x_does() -> None:
    assert DataVersion(1, 2, 0).to_body() == b'{"timestamp":1,"counter":2,"stateVersion":0}'
