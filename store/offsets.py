"""Distinct types for the two kinds of offsets, which must not be mixed.

A position, the third kind, counts bytes from the start of one file; it stays inside the module that
reads and writes the file, so it needs no type.
"""

from __future__ import annotations

from typing import NewType

PhysicalOffset = NewType("PhysicalOffset", int)
"""Bytes from the start of the commit log, deleted files included."""

QueueOffset = NewType("QueueOffset", int)
"""Messages from the start of a queue, deleted ones included."""
