"""The checksum of the extension's C sources: built into the extension, and compared at import.

`setup.py` runs this file by its path, so it imports nothing of the package.
"""

from __future__ import annotations

import zlib
from pathlib import Path


def sources_of(folder: Path) -> list[Path]:
    """The extension's sources in a folder; none where only the built extension was installed."""
    return sorted([*folder.glob("*.c"), *folder.glob("*.h")])


def sources_crc(folder: Path) -> int:
    """CRC32 of all sources and their names, 0 … 2^31 - 1."""
    crc = 0
    for path in sources_of(folder):
        crc = zlib.crc32(path.read_bytes(), zlib.crc32(path.name.encode(), crc))
    return crc & 0x7FFFFFFF
