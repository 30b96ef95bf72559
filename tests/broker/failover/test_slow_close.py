"""A broker that does not close for a change of its role: what is logged, and the end."""

from __future__ import annotations

import logging

import pytest
import trio

from trocket.broker.failover.slow_close import EXIT_STATUS, watch_close


class Ended(Exception):
    """Stands for the end of the process."""


async def test_it_says_where_it_waits_and_then_the_process_ends(
    autojump_clock: object,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def hangs(*, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope(shield=True) as scope:
            scopes.append(scope)
            task_status.started()
            await trio.sleep_forever()

    def end(status: int) -> None:
        raise Ended(status)

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    scopes: list[trio.CancelScope] = []
    async with trio.open_nursery() as nursery:
        await nursery.start(hangs)
        nursery.cancel_scope.cancel()
        with pytest.raises(Ended) as ended, trio.CancelScope(shield=True):
            await watch_close(nursery)
        scopes[0].cancel()
    assert ended.value.args == (EXIT_STATUS,)
    first, last = (record.getMessage() for record in caplog.records)
    assert "within 10 s" in first
    assert "hangs (test_slow_close.py:" in first
    assert "_traps.py" not in first
    assert "the process ends" in last
