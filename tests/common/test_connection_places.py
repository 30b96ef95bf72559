"""Connections leave descriptors for files."""

from __future__ import annotations

import resource

import pytest

from trocket.common.machine import connection_places


@pytest.mark.parametrize(
    ("limit", "places"),
    [(256, 96), (1_024, 384), (4_096, 3_096), (65_536, 64_536), (1, 1)],
)
def test_a_low_limit_of_open_files_leaves_room_for_files(monkeypatch, limit, places) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert connection_places() == places


def test_without_a_limit_there_is_room_for_all_connections(monkeypatch) -> None:
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: infinite)
    assert connection_places() > 1_000_000
