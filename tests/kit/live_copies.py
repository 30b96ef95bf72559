"""Copies of what a running broker writes to."""

from __future__ import annotations

import shutil
from pathlib import Path

from trocket.disk.os_disk import OsDisk
from trocket.store.offline.copying import copy_file
from trocket.store.offline.read_only import ReadOnlyDisk


def copy_running(folder: Path, copy: Path, *without: str) -> Path:
    """Copy a folder in which a broker saves tables meanwhile; the copy.

    Holes stay holes: the log's files are of a gibibyte, most of which nothing has been written to.
    A table is written to a temporary file, which takes the table's name: it may be gone between the
    moment it is listed and the moment it is copied.

    Args:
      copy: a folder, which may be there.
      without: patterns of names that are not copied.
    """
    ignored = shutil.ignore_patterns("*.tmp", *without)
    shutil.copytree(folder, copy, ignore=ignored, copy_function=_copy, dirs_exist_ok=True)
    return copy


def _copy(source: str, target: str) -> None:
    copy_file(ReadOnlyDisk(), source, OsDisk(), target)
