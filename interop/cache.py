"""Where what was fetched and built is kept, so that only the first run waits for it."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "TROCKET_INTEROP_CACHE"
"""Names the folder; some 600 MB come together there."""


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
"""`.jars` in a checkout (outside git), else a folder of the user's caches."""
