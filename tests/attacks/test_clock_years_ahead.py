"""After a clock was years ahead, retention believed every later clock and deleted a file too early.

A restart compares its clock with the newest message, which was stored by the wrong one.
"""

from __future__ import annotations

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.retention.retention_rules import CLOCK_DOUBT_S, HOUR_MS
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now

from ..store.support import open_store, send

YEARS_MS = 10 * 365 * 24 * HOUR_MS
KEYS = {"delete_when": ";".join(map(str, range(24)))}
"""Every hour is one at which files may be deleted."""


@pytest.mark.parametrize("clean", [True, False])
async def test_a_start_after_a_clock_was_years_ahead_deletes_nothing_for_a_day(clean, caplog):
    disk, clock = MemoryDisk(), ManualClock()
    store = open_store(disk, clock=clock, **KEYS)
    while len(store.log.files) < 3:
        send(store, bytes(3000))
    clock.jump(YEARS_MS)
    store.begin_burst()
    send(store)
    await checkpoint_now(store)
    clock.jump(-YEARS_MS)
    clock.advance(70 * HOUR_MS)
    if clean:
        store.close()
    disk.process_death()
    clock.jump(5 * HOUR_MS)  # files are kept for 72 hours, and 70 have passed
    store = open_store(disk, clock=clock, **KEYS)
    await checkpoint_now(store)
    retention = Retention(store)
    retention.clean()
    clock.advance(int(CLOCK_DOUBT_S * 1000) - 1000)
    retention.clean()
    assert len(store.log.files) == 3
    assert "younger than this machine's clock says" in caplog.text
    clock.advance(2000)
    retention.clean()
    assert len(store.log.files) < 3
