"""Checks of uploaded names and sources, and cleaning of strings from workers. Pure."""

from __future__ import annotations

import re
from typing import Final

from ..filters import FilterCompileError
from .limits import CLASS_NAME_LENGTH_MAX, SOURCE_BYTES_MAX

_CLASS_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*", re.ASCII)


def check_class_name(class_name: str) -> None:
    """Check a full class name: ASCII identifiers, separated by dots.

    Raises: FilterCompileError: it is invalid; it might be a path or a shell command.
    """
    if len(class_name) > CLASS_NAME_LENGTH_MAX:
        raise FilterCompileError(
            f"a class name has at most {CLASS_NAME_LENGTH_MAX} characters, not {len(class_name)}"
        )
    if not _CLASS_NAME.fullmatch(class_name):
        raise FilterCompileError(f"{class_name!r} is not a class name")


def check_source(source: bytes) -> None:
    """Check the size of a source. Raises: FilterCompileError: it is too large."""
    if len(source) > SOURCE_BYTES_MAX:
        raise FilterCompileError(
            f"the source of a class has at most {SOURCE_BYTES_MAX} bytes, not {len(source)}"
        )


def clean_text(text: str, *, length_max: int, keep: str = "") -> str:
    """Clean a string of a worker for the log: it could have been written to forge log lines.

    Args:
      length_max: largest number of characters.
      keep: characters to keep although they are not printable.
    """
    shown = text[:length_max]
    return "".join([each if each.isprintable() or each in keep else " " for each in shown]).strip()
