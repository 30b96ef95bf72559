"""The optional C extension of the hot path, and the choice between it and pure Python.

`extension` is the built extension, or None: it was not built, was built from other sources, or
TROCKET_PURE is set. The code that uses it asks once, at import or in a constructor, and has a
function of pure Python that does the same. pip builds the extension where it finds a C compiler.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, cast

from .extension import Extension
from .sources import PURE_SWITCH, is_pure, sources_crc, sources_of

__all__ = ["PURE_SWITCH", "Choice", "Extension", "choice", "extension"]


class Choice(NamedTuple):
    """The implementation of the hot path that this process runs.

    Attributes:
      extension: None: pure Python.
      description: for people.
      is_stale: the extension was built from other sources, and is not used.
    """

    extension: Extension | None
    description: str
    is_stale: bool = False


def _choose(environment: Mapping[str, str]) -> Choice:
    if is_pure(environment):
        return Choice(None, f"pure Python ({PURE_SWITCH} is set)")
    try:
        built = cast(Extension, importlib.import_module("._native", __name__))
    except ImportError:
        return Choice(
            None,
            "pure Python (the extension was not built: that needs a C compiler and Python's "
            "headers)",
        )
    folder = Path(__file__).parent
    if sources_of(folder) and built.sources_crc != sources_crc(folder):
        return Choice(
            None,
            "pure Python (the extension was built from other sources: run `make run`, or install "
            "trocket again)",
            is_stale=True,
        )
    return Choice(built, "the C extension")


choice: Final = _choose(os.environ)
"""What was chosen when this process started."""

extension: Final = choice.extension
