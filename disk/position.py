"""Positions in a file, a type of their own, because they must not be mixed with offsets."""

from __future__ import annotations

from typing import Final, NewType

Position = NewType("Position", int)
"""Bytes from the start of one file."""
START: Final = Position(0)
"""Where a file begins."""
