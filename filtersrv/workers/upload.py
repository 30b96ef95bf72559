"""Looks at what was uploaded before anything is done with it. Pure."""

from __future__ import annotations

import re
from typing import Final

from ..filters import FilterCompileError
from .limits import CLASS_NAME_LENGTH_MAX, SOURCE_BYTES_MAX

_CLASS_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*(\.[A-Za-z_$][A-Za-z0-9_$]*)*", re.ASCII)


def check_class_name(class_name: str) -> None:
    """A full class name, as Java and Python have it: identifiers of ASCII and dots between them.

    Raises: FilterCompileError: it is none, so it may be a path, or words for a shell.
    """
    if len(class_name) > CLASS_NAME_LENGTH_MAX:
        raise FilterCompileError(
            f"a class name has at most {CLASS_NAME_LENGTH_MAX} characters, not {len(class_name)}"
        )
    if not _CLASS_NAME.fullmatch(class_name):
        raise FilterCompileError(f"{class_name!r} is no class name")


def check_source(source: bytes) -> None:
    """The size of a source. Raises: FilterCompileError: too large."""
    if len(source) > SOURCE_BYTES_MAX:
        raise FilterCompileError(
            f"the source of a class has at most {SOURCE_BYTES_MAX} bytes, not {len(source)}"
        )


def clean_text(text: str, *, length_max: int, keep: str = "") -> str:
    """What a worker said, fit for a log: it may have been written to forge lines.

    Args:
      length_max: characters.
      keep: characters that stay though they are not printable.
    """
    shown = text[:length_max]
    return "".join([each if each.isprintable() or each in keep else " " for each in shown]).strip()
