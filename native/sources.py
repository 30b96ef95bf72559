"""The extension's C sources, their checksum, and the switch that leaves the extension out.

The checksum is built into the extension and compared at import. `setup.py` runs this file by its
path, so it imports nothing of the package.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

PURE_SWITCH: Final = "TROCKET_PURE"
"""The environment variable that switches the extension off; where a wheel is built, the wheel is
pure Python and for all systems."""

_OFF: Final = frozenset({"", "0", "false", "no", "off"})


def is_pure(environment: Mapping[str, str]) -> bool:
    """Whether `PURE_SWITCH` is set."""
    return is_on(environment.get(PURE_SWITCH, ""))


def is_on(text: str) -> bool:
    """Whether the text of a switch means yes."""
    return text.strip().lower() not in _OFF


def sources_of(folder: Path) -> list[Path]:
    """The extension's sources in a folder; none where only the built extension was installed."""
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")])


def sources_crc(folder: Path) -> int:
    """CRC32 of all sources and their names, 0 … 2^31 - 1."""
    crc = 0
    for path in sources_of(folder):
        crc = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), crc))
    return crc & 0x7FFFFFFF
