"""Reading from a slave: who is sent there, who is sent back, and who reads on without a master."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message_codec import decode_messages

from ...kit import Client, broker_client, pull_fields, send_fields
from ..group import Group, Node, group
from ..harness import consumer, heartbeat, subscription

SEND, PULL, UPDATE_GROUP = 310, 11, 200
QUERY_OFFSET, UPDATE_OFFSET, MAX_OFFSET, MIN_OFFSET = 14, 15, 30, 31
CONSUMERS, HEART_BEAT, UNREGISTER = 38, 34, 35
FOUND, NOT_FOUND, RETRY, MOVED = 0, 19, 20, 21
FAR = {"access_message_in_memory_max_ratio": 0}
"""Every message counts as not in memory."""


async def pair(made: Group, count: int = 3, **options: object) -> tuple[Node, Node]:
    """A master with messages, and a slave that has copied them."""
    master = await made.master(slave_read_enable=True)
    client = await master.connect()
    for number in range(count):
        assert (await client.ask(SEND, send_fields(), b"%d" % number)).code == 0
    slave = await made.slave(slave_read_enable=True, **options)
    await made.has_log(slave, master)
    await trio.testing.wait_all_tasks_blocked()
    return master, slave


async def pull(client: Client, offset: int = 0, **more: object) -> RemotingCommand:
    return await client.ask(PULL, pull_fields(queueOffset=offset, **more))


# ---- at the master -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "options", "broker_id"),
    [(True, FAR, "1"), (True, {}, "0"), (False, FAR, "0")],
)
async def test_who_is_far_behind_is_sent_to_a_slave_if_that_may_be_read(
    enabled, options, broker_id
):
    async with broker_client(slave_read_enable=enabled, **options) as client:
        for _ in range(2):
            await client.ask(SEND, send_fields(), b"x")
        answer = await pull(client)
        assert (answer.code, answer.remark) == (FOUND, "FOUND")
        assert answer.ext_fields["suggestWhichBrokerId"] == broker_id
        assert answer.ext_fields["nextBeginOffset"] in "12"


@pytest.mark.parametrize(("options", "broker_id"), [(FAR, "3"), ({}, "2")])
async def test_the_group_says_which_slave(options, broker_id):
    async with broker_client(slave_read_enable=True, **options) as client:
        body = b'{"groupName":"CG","whichBrokerWhenConsumeSlowly":3,"brokerId":2}'
        await client.ask(UPDATE_GROUP, {}, body)
        await client.ask(SEND, send_fields(), b"x")
        assert (await pull(client)).ext_fields["suggestWhichBrokerId"] == broker_id


async def test_an_offset_past_the_end_is_moved_and_no_consumer_is_sent_away():
    async with broker_client(slave_read_enable=True, **FAR) as client:
        await client.ask(SEND, send_fields(), b"x")
        answer = await pull(client, 5)
        fields = answer.ext_fields
        assert (answer.code, fields["nextBeginOffset"]) == (MOVED, "1")
        assert fields["suggestWhichBrokerId"] == "0"


# ---- at a slave that follows its master ----------------------------------------------------


@pytest.mark.parametrize(("options", "broker_id"), [(FAR, "1"), ({}, "0")])
async def test_who_has_come_up_is_sent_back_to_the_master(options, broker_id, autojump_clock):
    async with group() as made:
        _, slave = await pair(made, **options)
        answer = await pull(await slave.connect())
        assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (FOUND, broker_id)
        assert decode_messages(answer.body)[0].body == b"0"


@pytest.mark.parametrize("offset", [3, 4, 1000])
async def test_at_the_end_and_behind_it_the_client_is_sent_to_the_master_at_once(
    offset, autojump_clock
):
    async with group() as made:
        _, slave = await pair(made)
        start_s = trio.current_time()
        answer = await pull(await slave.connect(), offset)
        fields = answer.ext_fields
        assert (answer.code, fields["nextBeginOffset"]) == (RETRY, str(offset))
        assert (fields["suggestWhichBrokerId"], fields["maxOffset"]) == ("0", "3")
        assert trio.current_time() == start_s


async def test_with_offset_check_in_slave_it_is_moved_as_at_a_master(autojump_clock):
    async with group() as made:
        _, slave = await pair(made, offset_check_in_slave=True)
        answer = await pull(await slave.connect(), 1000)
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (MOVED, "3")


# ---- at a slave without a master -----------------------------------------------------------


async def test_a_fresh_consumer_reads_everything_from_the_slave(autojump_clock):
    """The requests that a Java 5.5.0 push consumer sends."""
    async with group() as made:
        master, slave = await pair(made, 7)
        writer = await master.connect()
        await pull(writer)
        await writer.ask(
            UPDATE_OFFSET, {"consumerGroup": "CG", "topic": "T", "queueId": 0, "commitOffset": 2}
        )
        await trio.sleep(21)
        await master.kill()
        await trio.sleep(1)
        reader = await slave.connect()
        queue = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        beat = heartbeat("c1", consumer("CG", subscription("T"))).to_body()
        assert (await reader.ask(HEART_BEAT, {}, beat)).code == 0
        members = await reader.ask(CONSUMERS, {"consumerGroup": "CG"})
        assert members.body == b'{"consumerIdList":["c1"]}'
        assert (await reader.ask(QUERY_OFFSET, queue)).ext_fields["offset"] == "2"
        assert (await reader.ask(MIN_OFFSET, queue)).ext_fields["offset"] == "0"
        assert (await reader.ask(MAX_OFFSET, queue)).ext_fields["offset"] == "7"
        answer = await pull(reader, 2)
        assert [m.body for m in decode_messages(answer.body)] == [b"%d" % n for n in range(2, 7)]
        assert (await reader.ask(UPDATE_OFFSET, {**queue, "commitOffset": 7})).code == 0
        assert (await reader.ask(QUERY_OFFSET, queue)).ext_fields["offset"] == "7"
        leave = {"clientID": "c1", "consumerGroup": "CG"}
        assert (await reader.ask(UNREGISTER, leave)).code == 0


@pytest.mark.parametrize(("offset", "code"), [(3, NOT_FOUND), (1000, RETRY)])
async def test_without_a_master_a_pull_is_held_and_not_asked_again_and_again(
    offset, code, autojump_clock
):
    async with group() as made:
        master, slave = await pair(made)
        await master.kill()
        await trio.testing.wait_all_tasks_blocked()
        start_s = trio.current_time()
        answer = await pull(await slave.connect(), offset)
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (code, str(offset))
        assert 15 <= trio.current_time() - start_s <= 16.1


async def test_a_pull_that_is_held_is_answered_when_the_master_has_sent_more(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        await master.kill()
        await trio.testing.wait_all_tasks_blocked()
        reader = await slave.connect()
        waiting = RemotingCommand(
            PULL, {name: str(value) for name, value in pull_fields(queueOffset=4).items()}
        )
        opaque = await reader.send(waiting)
        await trio.testing.wait_all_tasks_blocked()
        await master.start()
        writer = await master.connect()
        for number in (3, 4):
            await writer.ask(SEND, send_fields(), b"%d" % number)
        start_s = trio.current_time()
        answer = await reader.answer(opaque)
        assert [m.body for m in decode_messages(answer.body)] == [b"4"]
        assert trio.current_time() - start_s < 6  # the slave connects anew after 5 s
