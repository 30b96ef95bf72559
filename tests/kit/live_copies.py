"""Copies of what a running broker writes to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


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
    shutil.copytree(
        folder, copy, ignore=ignored, copy_function=_copy_with_holes, dirs_exist_ok=True
    )
    return copy


def _copy_with_holes(source: str, target: str) -> None:
    with Path(source).open("rb") as old, Path(target).open("wb") as new:
        size = os.fstat(old.fileno()).st_size
        new.truncate(size)
        end = 0
        while end < size:
            try:
                start = os.lseek(old.fileno(), end, os.SEEK_DATA)
            except OSError:  # nothing but a hole is left
                break
            end = os.lseek(old.fileno(), start, os.SEEK_HOLE)
            os.pwrite(new.fileno(), os.pread(old.fileno(), end - start, start), start)
    shutil.copystat(source, target)
