"""Differences between the C extension and pure Python that fuzzing found, each as a small case."""

from __future__ import annotations

import pytest
import trio.testing

from trocket import native

from ..kit import broker_and_client
from .frames import frame, properties
from .traffic import topic_frames

pytestmark = pytest.mark.skipif(native.extension is None, reason=native.choice.description)

SEND = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
    "h": "0", "i": properties(("UNIQ_KEY", "K" * 32)).decode(), "j": "0", "k": "false",
}  # fmt: skip


async def test_an_incomplete_send_begins_no_turn(mock_clock: trio.testing.MockClock) -> None:
    """It moved the store's time, which is in the checkpoint, and committed nothing."""
    times = []
    for extension in (native.extension, None):
        async with broker_and_client(native=extension) as (broker, client):
            for piece in (
                topic_frames(),
                frame(310, SEND, b"whole"),
                frame(310, SEND, b"cut")[:-1],
            ):
                await client.write(piece)
                await trio.testing.wait_all_tasks_blocked()
                times.append(broker.controller.store.store_time_ms)
                mock_clock.jump(0.005)
    assert times[1] == times[2]
    assert times[4] == times[5]
