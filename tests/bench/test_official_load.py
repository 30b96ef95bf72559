"""A broker of ours that logged an error has no figures."""

from __future__ import annotations

from pathlib import Path

from trocket.bench.official_load import logged_errors

ERROR = "2026-11-23 16:05:27,009 ERROR trocket.store: queries by key fail until restart"


def test_errors_of_our_broker_are_found_and_warnings_are_not(tmp_path: Path) -> None:
    path = tmp_path / "up.err"
    path.write_text(f"2026-11-23 16:05:26,009 WARNING trocket: late\n{ERROR}\nTraceback\n")
    assert logged_errors(path) == [ERROR]


def test_a_broker_without_this_log_has_none(tmp_path: Path) -> None:
    assert logged_errors(tmp_path / "up.err") == []
