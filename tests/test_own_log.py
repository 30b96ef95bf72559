"""The log that a test sees is its own."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import trio

from trocket.testing import Broker
from trocket.testing.loop_thread import LoopThread

from .own_log import BROKER_THREAD, SLOW_TURNS, broker_threads, own_lines

LOG = logging.getLogger("trocket.tests")


@contextmanager
def speaker(name: str) -> Iterator[Callable[[logging.Logger, str], None]]:
    """A thread named as that of a broker; the function that it gives logs a line there."""

    async def main(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep_forever()

    async def log_line(log: logging.Logger, line: str) -> None:
        log.warning(line)

    thread = LoopThread(BROKER_THREAD + name)
    thread.start(main)
    try:
        yield lambda log, line: thread.call(log_line, log, line)
    finally:
        thread.close()


@pytest.mark.slow_turns
@pytest.mark.parametrize("slow_turns", [False, True])
def test_lines_of_brokers_that_ran_before_are_left_out(
    caplog: pytest.LogCaptureFixture, slow_turns: bool
) -> None:
    with speaker("other") as other:
        before = broker_threads()
        with own_lines(caplog.handler, before, slow_turns=slow_turns), speaker("own") as own:
            other(LOG, "other")
            own(LOG, "own")
            own(logging.getLogger(SLOW_TURNS), "late")
            LOG.warning("test")
    assert caplog.messages == ["own", *["late"] * slow_turns, "test"]


def test_a_broker_has_such_a_thread() -> None:
    before = broker_threads()
    with Broker():
        assert len(broker_threads() - before) == 1
