"""Copies of what a running broker writes to."""

from __future__ import annotations

import shutil
from pathlib import Path


def copy_running(folder: Path, copy: Path, *without: str) -> Path:
    """Copy a folder in which a broker saves tables meanwhile; the copy.

    A table is written to a temporary file, which takes the table's name: it may be gone between the
    moment it is listed and the moment it is copied.

    Args:
      copy: a folder, which may be there.
      without: patterns of names that are not copied.
    """
    ignored = shutil.ignore_patterns("*.tmp", *without)
    return Path(shutil.copytree(folder, copy, ignore=ignored, dirs_exist_ok=True))
