"""A consumer offset past its queue's end was stored, 10**15 for instance: by request 15, by a pull.

The group would never have seen the messages that come next.
"""

from __future__ import annotations

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import BrokerRole

from ..kit import TrioClock, broker_and_client, embedded_broker, pull_fields, send_fields

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET = 310, 11, 14, 15
COMMIT, SUBSCRIPTION = 1, 4
QUEUE = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
END = 3
FAR = [END + 1, 10**15, 2**63 - 1]


async def filled(broker) -> object:
    """A client of a broker whose queue has END messages, and whose group has consumed one."""
    client = await broker.connect()
    for number in range(END):
        assert (await client.ask(SEND, send_fields(), b"%d" % number)).code == 0
    await client.ask(PULL, pull_fields(sysFlag=SUBSCRIPTION))
    assert (await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": 1})).code == 0
    return client


@pytest.mark.parametrize("offset", FAR)
async def test_a_commit_past_the_end_is_answered_as_apache_does_and_changes_nothing(
    autojump_clock, offset
):
    async with embedded_broker() as broker:
        client = await filled(broker)
        answer = await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": offset})
        assert answer.code == 0
        assert f"commitOffset[{offset}] is not stored" in answer.remark
        assert f"ends at {END}" in answer.remark
        assert broker.controller.offsets.query_offset("CG", "T", 0) == 1


@pytest.mark.parametrize("offset", FAR)
async def test_a_pull_with_an_offset_past_the_end_is_served_and_does_not_store_it(
    autojump_clock, offset
):
    async with embedded_broker() as broker:
        client = await filled(broker)
        fields = pull_fields(sysFlag=COMMIT | SUBSCRIPTION, commitOffset=offset)
        answer = await client.ask(PULL, fields)
        assert len(decode_messages(answer.body)) == END
        assert broker.controller.offsets.query_offset("CG", "T", 0) == 1
        # What comes next is still the group's.
        answer = await client.ask(PULL, fields | {"queueOffset": offset})
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert broker.controller.offsets.pull_offset_table.get("T@CG", {}).get(0, 0) <= END


async def test_the_end_itself_is_taken_however_it_comes(autojump_clock):
    async with embedded_broker() as broker:
        client = await filled(broker)
        assert (await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": END})).code == 0
        assert broker.controller.offsets.query_offset("CG", "T", 0) == END
        await client.ask(SEND, send_fields(), b"next")
        fields = pull_fields(sysFlag=COMMIT | SUBSCRIPTION, commitOffset=END + 1)
        await client.ask(PULL, fields)
        assert broker.controller.offsets.query_offset("CG", "T", 0) == END + 1


async def test_an_offset_of_a_topic_that_was_deleted_and_made_again_does_not_hide_its_messages(
    autojump_clock,
):
    async with embedded_broker() as broker:
        client = await filled(broker)
        assert (await client.ask(215, {"topic": "T"})).code == 0
        await client.ask(SEND, send_fields(), b"new")
        answer = await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": END})
        assert (answer.code, "is not stored" in answer.remark) == (0, True)
        (message,) = decode_messages(
            (await client.ask(PULL, pull_fields(sysFlag=SUBSCRIPTION))).body
        )
        assert message.body == b"new"


async def test_a_slave_notes_its_own_end_because_its_master_may_be_ahead(autojump_clock):
    """Consumers that read the master to its end commit at the slave when the master is away."""
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        await filled(broker)
    slave = {"broker_role": BrokerRole.SLAVE, "broker_id": 1, "slave_read_enable": True}
    async with broker_and_client(disk, clock=clock, **slave) as (broker, client):
        assert broker.controller.store.is_slave
        offsets = broker.controller.offsets
        assert (await client.ask(UPDATE_OFFSET, {**QUEUE, "commitOffset": END + 2})).code == 0
        assert offsets.query_offset("CG", "T", 0) == END
        offsets.commit_offset("CG", "T", 0, 1)
        fields = pull_fields(sysFlag=COMMIT | SUBSCRIPTION, commitOffset=10**15)
        answer = await client.ask(PULL, fields)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert offsets.query_offset("CG", "T", 0) == END
