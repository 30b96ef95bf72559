"""Breaks of trocket that mutants of several scopes have: what waits for no device."""

from __future__ import annotations

from trocket.store.ha.slave import LogFollower
from trocket.store.writing.durability import Durability
from trocket.store.writing.flush import FlushService

from .mutant import Patch


def answered_before_fsync(patch: Patch) -> None:
    """Under SYNC_FLUSH nothing waits for the device: no send, and no acknowledgement."""
    patch.setattr(FlushService, "when_flushed", lambda self, offset, callback: callback(True))


def reported_before_fsync(patch: Patch) -> None:
    """A slave under SYNC_FLUSH reports what it has read, as Apache's does (L11)."""
    patch.setattr(
        LogFollower, "_reportable", property(lambda self: self._store.max_physical_offset)
    )


def sent_before_fsync(patch: Patch) -> None:
    """A master under SYNC_FLUSH sends its slaves what a power cut may take from it, as Apache's."""
    patch.setattr(
        Durability, "sendable_offset", property(lambda self: self._writer.committed_offset)
    )
