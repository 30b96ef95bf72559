"""Workers in Java: a JDK is all they need. They are skipped, or fail, like all interop tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.filtersrv.workers.java import CACHE_VARIABLE


@pytest.fixture(scope="session")
def cache() -> Iterator[Path]:
    """Where our classes are compiled to. Not below pytest's folder, which is closed to others:
    workers would keep their user.
    """
    folder = Path(tempfile.mkdtemp(prefix="trocket-filtersrv-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(autouse=True)
def use_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, CACHE_VARIABLE, str(cache))
