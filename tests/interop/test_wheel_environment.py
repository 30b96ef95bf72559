"""The environment of a client that is a wheel, where several processes want it at once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from trocket.interop import wheel_environment


def test_two_that_want_an_environment_make_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    is_making = threading.Event()

    def create(place: Path, *, with_pip: bool, clear: bool) -> None:
        is_making.set()
        place.mkdir()
        made.append(place)

    monkeypatch.setattr(wheel_environment, "CACHE_FOLDER", tmp_path)
    monkeypatch.setattr(wheel_environment.venv, "create", create)
    monkeypatch.setattr(wheel_environment, "_run", lambda command, timeout_s: None)
    threads = [
        threading.Thread(target=wheel_environment.wheel_python, args=("c", "client==1", "client"))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert is_making.is_set()
    assert made == [tmp_path / "c"]
