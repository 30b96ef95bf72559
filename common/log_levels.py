"""Levels of the log by part: the keys logLevel and logLevels.

Loggers have the names of their modules, so a part is a folder or a module: `broker`,
`broker.sending`, `store.retention_service`. A level counts for what is below it, too, unless
that has its own.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from .config import ConfigError

ROOT: Final = "trocket"
"""The logger above those of all parts."""

_FOLDER: Final = Path(__file__).parent.parent
_PART: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")

_FORMER_PARTS: Final = {
    "broker.pop.reviver": "broker.pop.redelivery",
    "broker.processors": "broker",
    "broker.statistics": "broker.stats",
    "store.disk": "disk",
    "store.state": "disk",
}
"""Folders and modules of earlier versions, and what they are called now."""

_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")

_set_now: set[str] = set()
"""The parts whose loggers have a level, so that the next change can take it away."""


class LogLevel(Enum):
    """The lowest level of lines that are written; DEFAULT: that of `--log-level`."""

    DEFAULT = "DEFAULT"
    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"


def parse_levels(text: str) -> dict[str, str]:
    """The levels by part of a logLevels value, `part:LEVEL,part:LEVEL`.

    Raises: ConfigError: it has another form, or names a part or a level that there is not.
    """
    levels: dict[str, str] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        part, colon, level = map(str.strip, pair.partition(":"))
        part = _moved(part.removeprefix(f"{ROOT}."))
        if not colon or level not in _LEVELS:
            raise ConfigError(
                f"logLevels: {pair!r} is not part:LEVEL with one of {', '.join(_LEVELS)}; "
                "several look like broker.sending:DEBUG,store:WARNING"
            )
        if not _PART.fullmatch(part) or not _exists(part):
            raise ConfigError(
                f"logLevels: there is no part {part!r}; a part is a folder or a module of the "
                "logger's name, such as store, broker.sending, or namesrv.controller"
            )
        if part in levels:
            raise ConfigError(f"logLevels: {part} is there twice")
        levels[part] = level
    return levels


def apply_levels(level: LogLevel, by_part: Mapping[str, str]) -> None:
    """Set the levels of this process, and take away those of an earlier call.

    Args:
      level: of all parts without their own; DEFAULT: that of `--log-level`.
      by_part: from `parse_levels`.
    """
    for part in _set_now - by_part.keys():
        logging.getLogger(f"{ROOT}.{part}").setLevel(logging.NOTSET)
    _set_now.clear()
    _set_now.update(by_part)
    base = logging.NOTSET if level is LogLevel.DEFAULT else level.name
    logging.getLogger(ROOT).setLevel(base)
    for part, name in by_part.items():
        logging.getLogger(f"{ROOT}.{part}").setLevel(name)


def _exists(part: str) -> bool:
    path = _FOLDER.joinpath(*part.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def _moved(part: str) -> str:
    """The present name of a part whose module or folder has moved; others as they are."""
    if part in _FORMER_PARTS:
        return _FORMER_PARTS[part]
    if not _PART.fullmatch(part) or _exists(part):
        return part
    uppermost, _, name = part.partition(".")
    file = f"{name.rpartition('.')[2]}.py"
    # A module that moved is found by its own name, under the same uppermost folder or on the ground
    # below all.
    found = list(_FOLDER.glob(f"{uppermost}/*/{file}")) or [
        _FOLDER / folder / file
        for folder in ("common", "disk")
        if (_FOLDER / folder / file).exists()
    ]
    return (
        ".".join(found[0].relative_to(_FOLDER).with_suffix("").parts) if len(found) == 1 else part
    )
