"""Answers of a run in a turn: counted one by one, and replaced one by one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from trocket.broker.puts.send_turn import SendTurn
from trocket.common.clock import ManualClock
from trocket.remoting.codec import FrameDecoder, RemotingCommand, encode
from trocket.remoting.errors import RequestRefused
from trocket.remoting.loop_monitor import SLOW_BURST_S, LoopMonitor
from trocket.remoting.response_codes import ResponseCode
from trocket.store.status import PutMessageStatus
from trocket.store.writing.run_appender import AppendedRun


class Channel:
    """A connection that keeps what is written to it."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, frames: list[bytes]) -> None:
        self.written += b"".join(frames)


def test_answers_that_wait_are_counted_by_sends_and_get_the_code_of_a_late_disk() -> None:
    callbacks: list[Callable[[PutMessageStatus], None]] = []
    store: Any = SimpleNamespace(
        answers_later=True,
        durability=SimpleNamespace(in_sync=None),
        max_physical_offset=100,
        begin_burst=lambda: None,
        commit=lambda: (),
        clock=ManualClock(),
        when_replicated=lambda offset, callback: callbacks.append(callback),
    )
    transactions: Any = SimpleNamespace(before_commit=lambda: None, after_commit=lambda ok: None)
    turn = SendTurn(
        store,
        transactions,
        lambda keys: None,
        store_host=bytes(8),
        constants={},
        held_max=3,
        note_commit=lambda elapsed_s, count: None,
    )
    channel: Any = Channel()
    answers = b"".join(
        encode(RemotingCommand(0, {"msgId": "A"}, opaque=opaque, flag=1, serialize_type=1))
        for opaque in (7, 8, 9)
    )
    turn.begin(channel)
    turn.accept_run(AppendedRun(0, 3, answers))
    turn.end_turn()
    assert channel.written == b""
    with pytest.raises(RequestRefused):
        turn.begin(channel)

    (callback,) = callbacks
    callback(PutMessageStatus.FLUSH_DISK_TIMEOUT)
    written = FrameDecoder().receive_data(channel.written)
    assert [(each.opaque, each.code) for each in written] == [
        (opaque, ResponseCode.FLUSH_DISK_TIMEOUT) for opaque in (7, 8, 9)
    ]
    assert [dict(each.ext_fields) for each in written] == [{"msgId": "A"}] * 3
    turn.begin(channel)


@pytest.mark.slow_turns
def test_the_monitor_counts_the_sends_of_a_run(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    monitor = LoopMonitor()
    peer: Any = SimpleNamespace(remote_address="p")
    monitor.served([], peer, 2 * SLOW_BURST_S, {310: 100})
    assert monitor.bursts.count == 0, "a long burst of many sends is not slow"
    monitor.served([RemotingCommand(34)], peer, 0.2, {310: 9})
    assert "p: 10 request(s) of code 34, 310 took 200 ms" in caplog.text
