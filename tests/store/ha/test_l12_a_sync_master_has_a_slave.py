"""L12. SYNC_MASTER with 5.x's default of inSyncReplicas, 1, waits for no slave and answers success.
Here it waits for one at least, whatever that key says, and says so where there is none (as 4.9)."""

from __future__ import annotations

import pytest
import trio

from trocket.store.config import BrokerRole
from trocket.store.status import PutMessageStatus

from ..support import bodies
from .support import group
from .test_acks import put_and_wait


@pytest.mark.parametrize("replicas", [1, 2])
async def test_no_send_succeeds_before_a_slave_has_it(autojump_clock, replicas):
    async with group(role=BrokerRole.SYNC_MASTER, in_sync_replicas=replicas) as both:
        master, slave, network = both
        await trio.sleep(1)
        network.delay_s = 0.5
        outcomes = put_and_wait(master.store, 1)
        await trio.sleep(0.4)
        assert (outcomes, bodies(slave.store)) == ([], [])
        await trio.sleep(1)
        assert (outcomes, bodies(slave.store)) == ([PutMessageStatus.PUT_OK], [b"body"])


@pytest.mark.parametrize("replicas", [1, 2, 3])
async def test_no_send_succeeds_without_slaves(autojump_clock, replicas):
    async with group(role=BrokerRole.SYNC_MASTER, in_sync_replicas=replicas) as both:
        master, slave, _ = both
        await slave.stop()
        assert put_and_wait(master.store, 1) == [PutMessageStatus.SLAVE_NOT_AVAILABLE]
        assert bodies(master.store) == [b"body"]
