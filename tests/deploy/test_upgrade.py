"""Data folders go from an earlier version to today's and back, as docs/upgrade.md promises."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from trocket.cli.main import main

from .data_folders import (
    EARLIER,
    Contents,
    Servers,
    add,
    check,
    create,
    delivered,
    extract_sources,
    has_history,
    imported_from,
)

pytestmark = pytest.mark.slow

RECORDED: Final = Path(__file__).with_name("recorded") / f"{EARLIER}.tar.gz"

DELAY_S: Final = 8
"""As delay level 1: longer than one version takes to stop and the next to start."""

NO_DELAYS: Final[Mapping[str, dict[str, Any]]] = {}

needs_history = pytest.mark.skipif(
    not has_history(EARLIER),
    reason=f"the checkout has no commit {EARLIER}: it is no clone, or a shallow one",
)


def is_whole(home: Path) -> bool:
    """Whether `trocket store fsck` finds no fault."""
    return main(["store", "fsck", str(home / "store"), "-c", str(home / "broker.conf")]) == 0


def both_delays(name: str) -> dict[str, dict[str, Any]]:
    """A message delayed by a level and one by a timer."""
    return {f"{name}, level": {"delay_level": 1}, f"{name}, timer": {"delay_s": DELAY_S}}


def check_delivered(home: Path, count: int, begin: float) -> None:
    """The delayed messages sent since `begin` wait for the next version.

    A machine so busy that they are due before their version has stopped cannot show it.
    """
    if time.monotonic() - begin < DELAY_S:
        assert delivered(home) == count


def test_a_recorded_folder_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    with tarfile.open(RECORDED) as archive:
        archive.extractall(tmp_path, filter="data")
    contents = msgspec.json.decode((tmp_path / "contents.json").read_bytes(), type=Contents)
    assert len(contents.sent) == 12
    assert len(contents.delayed) == 2
    assert delivered(tmp_path) == 0
    with Servers(tmp_path) as servers:
        # Both delayed messages were due a minute after the recording.
        check(servers.url, contents)
        add(servers.url, contents, "today", NO_DELAYS)
        check(servers.url, contents)
    assert is_whole(tmp_path)


@needs_history
def test_a_folder_goes_to_todays_version_and_back(tmp_path: Path) -> None:
    sources, home = extract_sources(EARLIER, tmp_path / "sources"), tmp_path / "home"
    assert imported_from(sources) == sources / "trocket"
    contents = Contents()
    with Servers(home, sources) as earlier:
        create(earlier.url)
        begin = time.monotonic()
        add(earlier.url, contents, "earlier", both_delays("earlier"))
    check_delivered(home, 0, begin)
    with Servers(home) as today:
        check(today.url, contents)
        begin = time.monotonic()
        add(today.url, contents, "today", both_delays("today"))
    check_delivered(home, 2, begin)
    with Servers(home, sources) as earlier:
        check(earlier.url, contents)
        add(earlier.url, contents, "back", NO_DELAYS)
    with Servers(home) as today:
        check(today.url, contents)
    assert is_whole(home)
