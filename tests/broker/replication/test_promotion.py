"""A slave's disk, started as the master: nothing that was promised is lost.

The operator changes brokerRole and brokerId, and starts the broker again. What the old master had
delivered may come twice.
"""

from __future__ import annotations

import pytest
import trio
import trio.testing

from trocket.store.config import BrokerRole

from ...kit import Client, bodies, pull_fields, send_fields
from ..group import Group, Node, group
from ..harness import heartbeat
from ..transactions.test_end_transaction import COMMIT, END, asked, end_fields, prepare

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET, HEART_BEAT = 310, 11, 14, 15, 34
ROUND_S = 10
MASTER = {"broker_role": BrokerRole.ASYNC_MASTER, "broker_id": 0}
SYNC_MASTER = {"broker_role": BrokerRole.SYNC_MASTER}


def properties(key: str, **more: object) -> str:
    own = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
    return f"UNIQ_KEY\x01{key}\x02{own}"


async def pair(made: Group, **options: object) -> tuple[Node, Node]:
    master = await made.master(**options)
    slave = await made.slave()
    await trio.sleep(1)
    return master, slave


async def promote(master: Node, slave: Node) -> Client:
    """The master dies, the operator notices in a minute and makes the slave one; its clients."""
    await master.kill()
    await trio.sleep(60)
    await slave.stop()
    await slave.start(**MASTER)
    return await slave.connect()


@pytest.mark.slow
async def test_it_has_what_the_master_had_and_takes_messages(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        for number in range(300):
            await client.ask(SEND, send_fields(), b"%d" % number)
        await made.has_log(slave, master)
        client = await promote(master, slave)
        answer = await client.ask(SEND, send_fields(), b"300")
        assert (answer.code, answer.ext_fields["queueOffset"]) == (0, "300")
        assert await bodies(client) == [b"%d" % number for number in range(301)]
        (broker,) = (await made.route("T")).broker_datas
        assert broker.broker_addrs == {0: slave.address}


@pytest.mark.slow
async def test_groups_go_on_where_they_were_at_the_last_round(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        for number in range(10):
            await client.ask(SEND, send_fields(), b"%d" % number)
        await client.ask(PULL, pull_fields(sysFlag=4))
        queue = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        for offset in (4, 7):
            await client.ask(UPDATE_OFFSET, {**queue, "commitOffset": offset})
            await trio.sleep(ROUND_S + 0.1)
        await client.ask(UPDATE_OFFSET, {**queue, "commitOffset": 9})
        client = await promote(master, slave)
        assert (await client.ask(QUERY_OFFSET, queue)).ext_fields["offset"] == "7"


@pytest.mark.slow
async def test_delayed_messages_are_delivered_when_due_and_those_before_are_not_again(
    autojump_clock,
):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        sent_s = trio.current_time()
        await client.ask(SEND, send_fields(i=properties("A", DELAY=2)), b"5 s")
        await client.ask(SEND, send_fields(i=properties("B", DELAY=8)), b"4 min")
        await client.ask(SEND, send_fields(i=properties("C", DELAY=5)), b"1 min")
        await trio.sleep(3 * ROUND_S)  # the first is delivered, and the slave knows
        client = await promote(master, slave)
        await trio.sleep(0.1)
        assert await bodies(client) == [b"5 s", b"1 min"]
        await trio.sleep(sent_s + 239 - trio.current_time())
        client = await slave.connect()
        assert len(await bodies(client)) == 2
        await trio.sleep(2)
        assert await bodies(client) == [b"5 s", b"1 min", b"4 min"]
        assert slave.running.parts.tables.delay_offsets.offset_table == {2: 1, 5: 1, 8: 1}


@pytest.mark.slow
async def test_timer_messages_too(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        for delay_s in (5, 200, 70):
            fields = send_fields(i=properties(f"K{delay_s}", TIMER_DELAY_SEC=delay_s))
            await client.ask(SEND, fields, b"%d s" % delay_s)
        await trio.sleep(3 * ROUND_S)
        client = await promote(master, slave)
        await trio.sleep(0.1)
        assert await bodies(client) == [b"5 s", b"70 s"]
        await trio.sleep(115)
        assert await bodies(await slave.connect()) == [b"5 s", b"70 s", b"200 s"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_SEC"])
async def test_what_was_delivered_and_not_copied_is_delivered_again(name, autojump_clock):
    """The master has delivered, and says so; the copy of what it delivered never came."""
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        value = {"DELAY": 4, "TIMER_DELAY_SEC": 30}[name]
        await client.ask(SEND, send_fields(i=properties("A", **{name: value})), b"30 s")
        await made.has_log(slave, master)
        await trio.sleep(20)
        made.ha_refused = True  # and what is connected is broken
        made.cut_ha()
        await trio.sleep(6 * ROUND_S)
        assert await bodies(client) == [b"30 s"]
        assert slave.running.store.max_physical_offset < master.running.store.max_physical_offset
        client = await promote(master, slave)
        await trio.sleep(1)
        assert await bodies(client) == [b"30 s"]


@pytest.mark.slow
async def test_an_open_transaction_is_asked_about_by_the_new_master(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        ended = await prepare(client, "K1", b"ended")
        await prepare(client, "K2", b"open")
        assert (await client.ask(END, end_fields(ended, COMMIT))).code == 0
        await trio.sleep(3 * ROUND_S)
        await promote(master, slave)
        producer = await slave.connect()
        beat = heartbeat("c1", producers=["PG"]).to_body()
        assert (await producer.ask(HEART_BEAT, {}, beat)).code == 0
        await trio.sleep(40)
        (check,) = await asked(producer)
        assert check.ext_fields["transactionId"] == "K2"
        fields = {
            "producerGroup": "PG", "tranStateTableOffset": check.ext_fields["tranStateTableOffset"],
            "commitLogOffset": check.ext_fields["commitLogOffset"], "commitOrRollback": COMMIT,
            "msgId": check.ext_fields["msgId"], "fromTransactionCheck": "true",
        }  # fmt: skip
        assert (await producer.ask(END, fields)).code == 0
        assert await bodies(producer) == [b"ended", b"open"]


@pytest.mark.slow
async def test_an_end_that_was_not_copied_is_asked_about_again(autojump_clock):
    """Its table of offsets says that all are through; the committed message never came."""
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        half = await prepare(client, "K1", b"order")
        await made.has_log(slave, master)
        made.ha_refused = True
        made.cut_ha()
        assert (await client.ask(END, end_fields(half, COMMIT))).code == 0
        await trio.sleep(6 * ROUND_S)
        await promote(master, slave)
        producer = await slave.connect()
        beat = heartbeat("c1", producers=["PG"]).to_body()
        await producer.ask(HEART_BEAT, {}, beat)
        await trio.sleep(40)
        (check,) = await asked(producer)
        assert check.ext_fields["transactionId"] == "K1"


@pytest.mark.slow
async def test_a_slave_delivers_nothing_and_asks_no_producer(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        await client.ask(SEND, send_fields(i=properties("A", DELAY=3)), b"delayed")
        await client.ask(SEND, send_fields(i=properties("B", TIMER_DELAY_SEC=9)), b"timed")
        await prepare(client, "K1", b"half")
        await made.has_log(slave, master)
        producer = await slave.connect()
        beat = heartbeat("c1", producers=["PG"]).to_body()
        assert (await producer.ask(HEART_BEAT, {}, beat)).code == 0
        end = slave.running.store.max_physical_offset
        await master.kill()
        await trio.sleep(100)
        here = slave.running
        assert here.store.max_physical_offset == end
        assert (here.schedule.delivered, here.timers.delivered, await asked(producer)) == (0, 0, [])


@pytest.mark.parametrize("ends_cleanly", [True, False])
async def test_every_send_that_a_sync_master_called_ok_is_there(ends_cleanly, autojump_clock):
    async with group() as made:
        master, slave = await pair(made, **SYNC_MASTER)
        client = await master.connect()
        sent = []
        for number in range(50):
            answer = await client.ask(SEND, send_fields(), b"%d" % number)
            assert answer.code == 0
            sent.append(b"%d" % number)
        await master.kill()  # and its disk is lost
        await (slave.stop() if ends_cleanly else slave.kill())
        await slave.start(**MASTER)
        assert await bodies(await slave.connect()) == sent


@pytest.mark.slow
async def test_the_old_master_comes_back_as_a_slave_of_the_new_one(autojump_clock):
    async with group() as made:
        master, slave = await pair(made)
        client = await master.connect()
        await client.ask(SEND, send_fields(), b"old")
        await made.has_log(slave, master)
        client = await promote(master, slave)
        await client.ask(SEND, send_fields(), b"new")
        await master.start(broker_role=BrokerRole.SLAVE, broker_id=1, slave_read_enable=True)
        await made.has_log(master, slave)
        await trio.testing.wait_all_tasks_blocked()
        assert await bodies(await master.connect()) == [b"old", b"new"]
