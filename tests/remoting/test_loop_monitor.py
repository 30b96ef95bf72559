"""The monitor of the event loop, with times that the tests make up."""

from __future__ import annotations

import logging
import re

import pytest
import trio
import trio.testing

from trocket.remoting import connection
from trocket.remoting.channel import Channel, Deferred
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.loop_monitor import (
    LAG_INTERVAL_S,
    LOG_INTERVAL_S,
    SLOW_BURST_S,
    Histogram,
    LoopMonitor,
)
from trocket.remoting.server import RemotingServer

pytestmark = pytest.mark.slow_turns

LOGGER = "trocket.remoting.loop_monitor"


class FakeChannel:
    remote_address = "192.0.2.2:40000"


def requests(*codes: int) -> list[RemotingCommand]:
    return [RemotingCommand(code) for code in codes]


def test_a_histogram_knows_its_percentiles_and_its_maximum() -> None:
    histogram = Histogram()
    assert histogram.percentile(99) == 0
    for _ in range(98):
        histogram.add(0.0004)
    histogram.add(0.03)
    histogram.add(30.0)
    assert histogram.count == 100
    assert histogram.percentile(50) == 0.001
    assert histogram.percentile(99) == 0.05
    assert histogram.percentile(100) == histogram.largest == 30.0


def test_a_slow_burst_is_logged_with_code_peer_and_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    monitor = LoopMonitor(lambda: 0.0)
    monitor.served(requests(34), FakeChannel(), 0.9 * SLOW_BURST_S)
    assert not caplog.records
    assert monitor.bursts.count == 0
    monitor.served(requests(34, 11), FakeChannel(), 0.045)
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert "192.0.2.2:40000: 2 request(s) of code 11, 34 took 45 ms" in record.getMessage()
    assert monitor.bursts.largest == 0.045


def test_a_burst_of_many_requests_may_take_longer(caplog: pytest.LogCaptureFixture) -> None:
    monitor = LoopMonitor()
    monitor.served(requests(*[310] * 500), FakeChannel(), 0.2)
    assert monitor.bursts.count == 0


def test_lines_are_spaced_and_those_between_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    now_s = 0.0
    monitor = LoopMonitor(lambda: now_s)
    for _ in range(10_000):
        monitor.served(requests(34), FakeChannel(), 0.2)
    assert len(caplog.records) == 1
    assert caplog.records[0].levelname == "WARNING"
    now_s = LOG_INTERVAL_S
    monitor.served(requests(34), FakeChannel(), 0.2)
    assert "(9999 more since the last such line)" in caplog.records[1].getMessage()
    assert monitor.bursts.count == 10_001


async def test_the_lag_is_how_late_a_sleeping_task_wakes(
    mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, LOGGER)
    monitor = LoopMonitor()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(monitor.run)
        nursery.start_soon(monitor.run)  # of another server that shares the turn
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(LAG_INTERVAL_S)
        await trio.testing.wait_all_tasks_blocked()
        assert (monitor.lags.count, monitor.lags.largest) == (1, 0.0)
        monitor.served(requests(103), FakeChannel(), 0.0)
        mock_clock.jump(LAG_INTERVAL_S + 0.3)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert monitor.lags.largest == pytest.approx(0.3)
    (record,) = caplog.records
    assert re.search(r"300 ms late.*code 103 of 192.0.2.2:40000", record.getMessage())


async def test_a_server_notes_its_slow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(connection, "perf_counter", lambda: now_s)

    def slow(request: RemotingCommand, channel: Channel) -> RemotingCommand:
        nonlocal now_s
        now_s += 0.5
        return request.answer()

    def quick(request: RemotingCommand, channel: Channel) -> Deferred:
        async def run() -> RemotingCommand:
            return request.answer()

        return Deferred(run)

    server = RemotingServer({1: slow, 2: quick})
    near, far = trio.testing.memory_stream_pair()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        nursery.start_soon(server.serve_stream, near, "192.0.2.2:40000")
        for code in (1, 2):
            await far.send_all(encode(RemotingCommand(code)))
            await far.receive_some(1000)
        nursery.cancel_scope.cancel()
    assert (server.monitor.bursts.count, server.monitor.bursts.largest) == (1, 0.5)
