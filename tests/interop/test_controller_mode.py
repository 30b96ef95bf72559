"""The harness of controller mode: a set of Apache's, whose master is killed and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from trocket.interop.controller_mode import ControlledSet, Mix
from trocket.interop.wire import Outgoing, WireClient

# Apache's brokers alone: `test_controller.py` does the same to them under our controller.
pytestmark = [
    pytest.mark.interop,
    pytest.mark.matrix,
    pytest.mark.slow,
    pytest.mark.usefixtures("java"),
]

TOPIC = "Orders"


def test_a_killed_master_is_replaced_and_returns_as_a_slave(tmp_path: Path) -> None:
    with ControlledSet(Mix(), tmp_path) as brokers:
        brokers.start()
        first, second = brokers.members
        before = brokers.state()
        assert before is not None
        assert before.master_address == first.address
        with WireClient(first.address) as client:
            client.create_topic(TOPIC, queue_count=1)
            client.send_all([Outgoing(TOPIC, 0, b"before")])
        first.kill()
        master, state = brokers.wait_other_master(first)
        # Not by one: a member whose heartbeats are late on a busy machine is elected once more.
        assert state.master_epoch > before.master_epoch
        assert (master, state.in_sync) == (second, {2})
        first.start()
        state = brokers.wait_in_sync(2)
        assert state.master_address == second.address
        assert state.addresses == {1: first.address, 2: second.address}


def test_a_frozen_master_is_replaced_and_goes_on_as_a_slave(tmp_path: Path) -> None:
    with ControlledSet(Mix(), tmp_path) as brokers:
        brokers.start()
        first, second = brokers.members
        first.freeze()
        master, _ = brokers.wait_other_master(first)
        assert master is second
        first.thaw()
        state = brokers.wait_in_sync(2)
        assert state.master_address == second.address
