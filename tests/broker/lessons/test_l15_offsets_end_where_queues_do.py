"""L15: what a group has noted does not reach beyond what a power cut left of its queue.

Apache keeps the offsets as they were saved: what is sent next takes the offsets that were consumed
already, and is never seen.
"""

from __future__ import annotations

import pytest
import trio

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages

from ...kit import (
    TrioClock,
    broker_and_client,
    broker_client,
    pull_fields,
    send_fields,
)
from ..group import group
from ..replication.test_promotion import promote

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET = 310, 11, 14, 15
SYSTEM_BUSY = 2
QUEUE = {"consumerGroup": "CG", "topic": "T", "queueId": 0}


async def test_offsets_of_messages_that_are_lost_go_back_to_the_end(autojump_clock, caplog):
    disk, clock = MemoryDisk(journalled=True), TrioClock()
    async with broker_and_client(disk, clock=clock) as (broker, client):
        await client.ask(SEND, send_fields(), b"old")
        broker.controller.store.flusher.flush()
        await client.ask(SEND, send_fields(), b"lost")
        await client.ask(PULL, pull_fields(sysFlag=4))
        assert (await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": 2})).code == 0
        broker.controller.offsets.file.persist_changed()
        after = disk.copy()
        after.power_loss()
    async with broker_client(after, clock=clock) as client:
        answer = await client.ask(QUERY_OFFSET, QUEUE)
        assert answer.ext_fields["offset"] == "1"
        await client.ask(SEND, send_fields(), b"new")
        fields = pull_fields(sysFlag=4, queueOffset=1)
        (message,) = decode_messages((await client.ask(PULL, fields)).body)
    assert message.body == b"new"
    logged = [each for each in caplog.records if "to the queue's end" in each.message]
    assert len(logged) == 1


async def test_offsets_within_their_queues_stay(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    for count in (1, 2):
        async with broker_and_client(disk, clock=clock) as (broker, client):
            await client.ask(SEND, send_fields(), b"x")
            await client.ask(PULL, pull_fields(sysFlag=4))
            known = broker.controller.offsets.query_offset("CG", "T", 0)
            assert known == (-1 if count == 1 else 1)
            await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": count})


async def test_the_log_is_synced_before_offsets_are_saved(autojump_clock):
    """What a group has sent back must not be lost while the group is noted to be past it."""
    disk, calls = MemoryDisk(), []
    async with broker_client(disk, flush_interval_commit_log=60_000) as client:
        await client.ask(SEND, send_fields(), b"x")
        await client.ask(PULL, pull_fields(sysFlag=4))
        await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": 1})
        disk.fault = lambda call, path: calls.append((call, path.rpartition("/")[2]))
        await trio.sleep(5.1)
        disk.fault = None
    names = [name for call, name in calls if call in ("sync", "rename", "pwrite")]
    offsets = [position for position, name in enumerate(names) if "consumerOffset" in name]
    assert offsets
    assert names.index("00000000000000000000") < offsets[0]


@pytest.mark.slow
async def test_a_new_master_has_no_offsets_beyond_what_it_has_of_the_log(autojump_clock):
    """The old one had more messages, and its groups had consumed them."""
    async with group() as made:
        master, slave = await made.master(), await made.slave()
        client = await master.connect()
        for body in (b"0", b"1"):
            await client.ask(SEND, send_fields(), body)
        await made.has_log(slave, master)
        made.ha_refused = True
        made.cut_ha()
        await client.ask(SEND, send_fields(), b"lost")
        await client.ask(PULL, pull_fields(sysFlag=4))
        assert (await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": 3})).code == 0
        await trio.sleep(60)
        client = await promote(master, slave)
        answer = await client.ask(SEND, send_fields(), b"new")
        assert answer.ext_fields["queueOffset"] == "2"
        known = slave.running.offsets.query_offset("CG", "T", 0)
        assert known <= 2
        fields = pull_fields(sysFlag=4, queueOffset=max(known, 0))
        messages = decode_messages((await client.ask(PULL, fields)).body)
        assert messages[-1].body == b"new"


@pytest.mark.slow
async def test_no_slave_becomes_a_master_by_itself(autojump_clock):
    """Two of them would lose the messages of one."""
    async with group() as made:
        master, slave = await made.master(), await made.slave()
        await (await master.connect()).ask(SEND, send_fields(), b"x")
        await made.has_log(slave, master)
        await master.kill()
        await trio.sleep(3600)
        answer = await (await slave.connect()).ask(SEND, send_fields(), b"y")
        assert answer.code == SYSTEM_BUSY
        (broker,) = (await made.route("T")).broker_datas
        assert broker.broker_addrs.keys() == {1}
