"""The comparison of the logs of master and slave."""

from __future__ import annotations

from .alike import differences


def test_files_that_are_allocated_ahead_make_no_difference() -> None:
    assert (
        list(differences({"0": b"ab", "2": b"c\0"}, {"0": b"ab", "2": b"c", "4": bytes(2)})) == []
    )


def test_the_first_byte_that_differs_is_reported() -> None:
    found = list(differences({"0": b"abcd", "4": b"abcd"}, {"0": b"abcd", "4": b"abxy"}))
    assert found == ["4 at 2: master b'cd', slave b'xy'"]


def test_what_one_side_lacks_is_reported() -> None:
    assert len(list(differences({"0": b"ab", "2": b"c"}, {"0": b"ab"}))) == 1
    assert len(list(differences({"0": b"a"}, {"0": b"ab", "2": b"c"}))) == 2
