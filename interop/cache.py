"""The cache folder of fetched jars and built programs, which only the first run waits for."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "TROCKET_INTEROP_CACHE"
"""Environment variable with the folder, which grows to some 900 MB."""


def _cache_folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).expanduser().resolve()
    root = Path(__file__).resolve().parent.parent
    if (root / ".git").exists():
        return root / ".jars"
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches) / "trocket" / "interop"


CACHE_FOLDER = _cache_folder()
"""`.jars` in a checkout (ignored by git), else a folder among the user's caches."""
