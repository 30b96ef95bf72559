"""The data folder of `trocket up` when --home is not given."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ...common.config import ConfigError
from ...store.data_folder import SOURCES

logger = logging.getLogger(__name__)

EARLIER_HOME: Final = "trocket"
"""Below the user's folder: the default of 0.1. A clone of the repository often has this name."""


def default_home(environment: Mapping[str, str], user_home: Path) -> Path:
    """The folder for the data: that of earlier versions if it has data, else in XDG_DATA_HOME.

    Args:
      environment: that of the process.
      user_home: the user's folder.

    Source: XDG Base Directory Specification: the default is ~/.local/share, and a relative path
      counts as none.
    """
    given = Path(environment.get("XDG_DATA_HOME", ""))
    data_home = given if given.is_absolute() else user_home / ".local" / "share"
    home = data_home / "trocket"
    earlier = user_home / EARLIER_HOME
    if home.exists() or not (earlier / "store" / "commitlog").is_dir():
        return home
    if source_in(earlier, earlier / "store"):
        logger.warning(
            "%(earlier)s has messages of an earlier version, in a folder of source code: they are "
            "not used. To use them, move commitlog, consumequeue, index and config from "
            "there to %(new)s while no broker runs",
            {"earlier": earlier / "store", "new": home / "store"},
        )
        return home
    return earlier


def source_in(*folders: Path) -> Path | None:
    """The first file by which one of the folders is one of source code; None: none is."""
    files = (folder / name for folder in folders for name in SOURCES)
    return next((file for file in files if file.exists()), None)


def refuse_source_folder(home: Path, store: Path) -> None:
    """Refuse to keep data among source code: `git clean` would delete every message.

    Raises: ConfigError: one of the folders has a file of `SOURCES`.
    """
    found = source_in(home, store)
    if found is not None:
        raise ConfigError(
            f"{found.parent} is a folder of source code ({found.name} is there), where a clean "
            "checkout would delete all messages: give another folder, with --home or "
            "storePathRootDir"
        )
