"""The kinds of a start's warnings: damage, leftovers of a crash, strange files.

fsck reports every warning of a start. One that is logged without `extra` speaks of damage: it is an
error there. The others have a kind, in `extra`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

logger = logging.getLogger(__name__)

_KIND: Final = "start_kind"

LEFTOVER: Final = {_KIND: "leftover"}
"""Left by a crash or a setting: nothing is wrong with the files, so it is a warning of fsck."""

STRAY: Final = {_KIND: "stray"}
"""A file or folder that is not the store's, `path` in the line's values."""


def kind_of(record: logging.LogRecord) -> str:
    """The kind of a warning: "damage", or what its `extra` says."""
    return str(getattr(record, _KIND, "damage"))


def file_names(folder: str, names: Iterable[str]) -> list[str]:
    """The names in a folder of numbered files that are numbers, with a warning of each other."""
    names = list(names)
    warn_of_strays(folder, names)
    return [name for name in names if name.isascii() and name.isdigit()]


def warn_of_strays(folder: str, names: Iterable[str]) -> None:
    """Warn of the names in a folder of numbered files that are no numbers."""
    for name in names:
        if not (name.isascii() and name.isdigit()):
            warn_of_stray(f"{folder}/{name}")


def warn_of_stray(path: str) -> None:
    """Warn of a file or folder that is not the store's."""
    logger.warning(
        "%(path)s is ignored: it is not a file of the store, and RocketMQ's broker may not "
        "start with it. Move it out of the data folder",
        {"path": path},
        extra=STRAY,
    )
