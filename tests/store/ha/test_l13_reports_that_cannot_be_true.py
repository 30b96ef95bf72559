"""L13. A peer that wrote 8 bytes to the HA port was a slave, and a huge offset acknowledged all
later sends. Here a report is valid only up to the bytes that its connection was sent, and must not
decrease; anything else ends the connection."""

from __future__ import annotations

import pytest
import trio

from trocket.store.config import BrokerRole
from trocket.store.status import PutMessageStatus

from .peers import master_under_test
from .support import fill
from .test_acks import put_and_wait

HELLO, IDENTITY = -1, -3
SYNC = {"broker_role": BrokerRole.SYNC_MASTER}


@pytest.mark.parametrize("offset", [2**63 - 1, 1 << 40, 3334])
async def test_a_first_report_beyond_our_end_counts_for_nothing(autojump_clock, offset, caplog):
    async with master_under_test(**SYNC) as master:
        fill(master.store, 3)
        assert master.store.max_physical_offset == 3333
        peer = master.connect()
        await peer.report(offset)
        assert await peer.is_closed()
        assert master.store.durability.slaves.acked_offset == 0
        assert put_and_wait(master.store, 1) == [PutMessageStatus.SLAVE_NOT_AVAILABLE]
        assert f"its log ends at {offset}" in caplog.text


@pytest.mark.parametrize("beyond", [1, 1 << 60])
async def test_a_later_report_beyond_what_was_sent_ends_the_connection(
    autojump_clock, beyond, caplog
):
    async with master_under_test(**SYNC) as master:
        fill(master.store, 3)
        peer = master.connect()
        await peer.report(0)
        assert (await peer.next_frame())[1] == 3333
        outcomes = put_and_wait(master.store, 1)
        end = master.store.max_physical_offset
        offset = end + beyond
        await peer.report(offset)
        assert await peer.is_closed()
        assert outcomes == []
        assert f"it reported {offset}, but was sent the log up to {end}" in caplog.text
        assert master.store.durability.slaves.acked_offset == 0
        await trio.sleep(3.1)
        assert outcomes == [PutMessageStatus.FLUSH_SLAVE_TIMEOUT]


async def test_what_is_not_sent_yet_cannot_be_acknowledged(autojump_clock):
    """Though it is in the master's log: the check of 4.9 would let this pass."""
    async with master_under_test(ha_transfer_batch_size=100, **SYNC) as master:
        fill(master.store, 10)
        peer = master.connect(is_slow=True)
        await peer.report(0)
        await trio.testing.wait_all_tasks_blocked()
        sent = master.ha.state().slaves[0].send_offset
        assert sent < master.store.max_physical_offset
        await peer.report(sent + 1)
        assert await peer.is_closed()
        assert master.store.durability.slaves.acked_offset == 0


async def test_a_report_that_goes_back_ends_the_connection(autojump_clock, caplog):
    async with master_under_test(**SYNC) as master:
        fill(master.store, 3)
        peer = master.connect()
        await peer.report(1111)
        await peer.report(1111)
        await peer.next_frame()
        await peer.report(2222)
        await peer.report(2221)
        assert await peer.is_closed()
        assert "it reported 2221 after 2222" in caplog.text
        assert master.store.durability.slaves.acked_offset == 2222


async def test_only_true_reports_answer_sends(autojump_clock):
    async with master_under_test(**SYNC) as master:
        peer = master.connect()
        await peer.report(0)
        await trio.testing.wait_all_tasks_blocked()
        outcomes = put_and_wait(master.store, 2)
        end = master.store.max_physical_offset
        received = 0
        while received < end:
            received += (await peer.next_frame())[1]
        await peer.report(end // 2)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [PutMessageStatus.PUT_OK]
        await peer.report(end)
        await trio.testing.wait_all_tasks_blocked()
        assert outcomes == [PutMessageStatus.PUT_OK] * 2


async def test_a_slave_that_is_connected_twice_counts_once(autojump_clock):
    async with master_under_test(in_sync_replicas=3, **SYNC) as master:
        fill(master.store, 3)
        end = master.store.max_physical_offset
        peers = []
        for _ in range(2):
            peers.append(master.connect())
            await peers[-1].words(HELLO, end)
            await peers[-1].next_frame()
            await peers[-1].words(IDENTITY, 77, end)
            await trio.testing.wait_all_tasks_blocked()
        assert master.store.durability.slaves.acked_offset == 0
        assert put_and_wait(master.store, 1) == [PutMessageStatus.SLAVE_NOT_AVAILABLE]


async def test_a_slave_that_is_gone_counts_no_more(autojump_clock):
    async with master_under_test(**SYNC) as master:
        fill(master.store, 3)
        peer = master.connect()
        await peer.report(master.store.max_physical_offset)
        await trio.testing.wait_all_tasks_blocked()
        await peer.stream.aclose()
        await trio.testing.wait_all_tasks_blocked()
        assert put_and_wait(master.store, 1) == [PutMessageStatus.SLAVE_NOT_AVAILABLE]
