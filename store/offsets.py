"""Distinct types for the kinds of offsets, which must not be mixed; see `disk/position.py`, too."""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the start of the commit log, deleted files included."""

QueueOffset = NewType("QueueOffset", int)
"""Messages from the start of a queue, deleted ones included."""
