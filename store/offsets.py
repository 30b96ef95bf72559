"""The kinds of offsets: numbers that must not be mixed."""

from __future__ import annotations

from typing import Final, NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the start of the commit log, deleted files included."""

QueueOffset = NewType("QueueOffset", int)
"""Messages from the start of a queue, deleted ones included."""

Position = NewType("Position", int)
"""Bytes from the start of one file."""
START: Final = Position(0)
"""Where a file begins."""
