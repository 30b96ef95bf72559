"""Answers of a SYNC_MASTER: success if a slave has the message, else the code of the slave."""

from __future__ import annotations

import struct

import pytest
import trio
import trio.testing

from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch
from trocket.store.config import BrokerRole, FlushDiskType

from ...kit import send_fields, stored
from ..group import HOST, Group, Node, group
from ..transactions.test_end_transaction import COMMIT, END, ROLLBACK, end_fields
from .test_send_back import SEND_BACK, back_fields

SEND, SEND_BATCH, PULL = 310, 320, 11
OK, NO_SLAVE, SLAVE_TIMEOUT = 0, 11, 12
SYNC = {"broker_role": BrokerRole.SYNC_MASTER}
KEY = "UNIQ_KEY\1AB\2"


def command(code: int, fields: dict[str, object]) -> RemotingCommand:
    return RemotingCommand(code, {name: str(value) for name, value in fields.items()}, b"x")


class StandIn:
    """A slave that takes the log and reports what the test says, as Apache's do."""

    def __init__(self, made: Group, master: Node) -> None:
        self._made, self._master = made, master

    async def attach(self) -> None:
        self._stream = await self._made.connect_ha(f"{HOST}:{self._master.port + 1}")
        await self.report(self._master.running.store.max_physical_offset)

    async def report(self, offset: int) -> None:
        await self._stream.send_all(struct.pack(">q", offset))
        await trio.testing.wait_all_tasks_blocked()

    async def report_all(self) -> None:
        await self.report(self._master.running.store.max_physical_offset)


async def test_without_a_slave_the_answer_is_11_at_once_and_the_message_is_stored(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        client = await master.connect()
        start_s = trio.current_time()
        answer = await client.ask(SEND, send_fields(i=KEY), b"x")
        assert (answer.code, answer.remark, trio.current_time()) == (NO_SLAVE, None, start_s)
        async_master = made.node(broker_name="other")
        await async_master.start()
        other = await async_master.connect()
        success = await other.ask(SEND, send_fields(i=KEY), b"x")
        assert success.code == OK
        assert answer.ext_fields.keys() == success.ext_fields.keys()
        same = {"queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}
        assert {k: answer.ext_fields[k] for k in same} == {k: success.ext_fields[k] for k in same}
        (message,) = await stored(client)
        assert message.body == b"x"
        assert message.offset_message_id == answer.ext_fields["msgId"]


async def test_with_a_slave_the_answer_is_success_when_that_has_it(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        slave = await made.slave()
        await trio.sleep(1)
        client = await master.connect()
        for number in range(20):
            answer = await client.ask(SEND, send_fields(), b"%d" % number)
            assert answer.code == OK
            there = slave.running.store.max_physical_offset
            assert there == master.running.store.max_physical_offset


async def test_a_slave_that_does_not_report_makes_it_12_after_three_seconds(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        slave = StandIn(made, master)
        await slave.attach()
        client = await master.connect()
        start_s = trio.current_time()
        answer = await client.ask(SEND, send_fields(i=KEY), b"x")
        assert answer.code == SLAVE_TIMEOUT
        assert 3.0 <= trio.current_time() - start_s <= 3.1
        assert {"msgId", "queueId", "queueOffset"} <= answer.ext_fields.keys()
        assert len(await stored(client)) == 1


async def test_many_sends_wait_for_one_report(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        slave = StandIn(made, master)
        await slave.attach()
        client = await master.connect()
        opaques = [await client.send(command(SEND, send_fields())) for _ in range(50)]
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(2) as waited:
            await client.answer(opaques[0])
        assert waited.cancelled_caught
        await slave.report_all()
        codes = [(await client.answer(opaque)).code for opaque in opaques]
        assert codes == [OK] * 50
        assert trio.current_time() < 3


@pytest.mark.parametrize("has_slave", [False, True])
async def test_who_does_not_wait_is_answered_at_once(has_slave, autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        if has_slave:
            await StandIn(made, master).attach()
        client = await master.connect()
        start_s = trio.current_time()
        answer = await client.ask(SEND, send_fields(i=KEY + "WAIT\1false\2"), b"x")
        assert (answer.code, trio.current_time()) == (OK, start_s)


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        ("DELAY\x013\2", {"msgId", "queueId", "queueOffset"}),
        ("TIMER_DELAY_SEC\x0190\2", {"msgId", "queueId", "queueOffset", "recallHandle"}),
        (
            "TRAN_MSG\1true\2PGROUP\1PG\2",
            {"msgId", "queueId", "queueOffset", "transactionId"},
        ),
    ],
    ids=["delayed", "timed", "half"],
)
async def test_every_kind_of_send_waits(properties, fields, autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        client = await master.connect()
        answer = await client.ask(SEND, send_fields(i=KEY + properties), b"x")
        assert answer.code == NO_SLAVE
        assert fields <= answer.ext_fields.keys()
        await made.slave()
        await trio.sleep(1)
        assert (await client.ask(SEND, send_fields(i=KEY + properties), b"x")).code == OK


async def test_a_batch_waits_as_one(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        client = await master.connect()
        body = encode_batch([Message("T", b"%d" % number) for number in range(3)])
        answer = await client.ask(SEND_BATCH, send_fields(i="", m="true"), body)
        assert answer.code == NO_SLAVE
        assert answer.ext_fields["msgId"].count(",") == 2
        answer = await client.ask(SEND_BATCH, send_fields(i="WAIT\1false\2", m="true"), body)
        assert answer.code == OK
        await made.slave()
        await trio.sleep(1)
        assert (await client.ask(SEND_BATCH, send_fields(i="", m="true"), body)).code == OK


async def test_what_is_sent_back_waits_and_is_a_success_in_any_case(autojump_clock):
    """A client that gets another code would store the message again."""
    async with group() as made:
        master = await made.master(**SYNC)
        client = await master.connect()
        await client.ask(SEND, send_fields(i=KEY), b"x")
        (message,) = await stored(client)
        assert (await client.ask(SEND_BACK, back_fields(message))).code == OK
        slave = StandIn(made, master)
        await slave.attach()
        start_s = trio.current_time()
        assert (await client.ask(SEND_BACK, back_fields(message))).code == OK
        assert 3.0 <= trio.current_time() - start_s <= 3.1


@pytest.mark.parametrize("kind", [COMMIT, ROLLBACK])
async def test_the_end_of_a_transaction_waits_and_is_a_success_in_any_case(kind, autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        client = await master.connect()
        properties = "UNIQ_KEY\1K{}\2PGROUP\1PG\2TRAN_MSG\1true\2"
        halves = [
            (await client.ask(SEND, send_fields(i=properties.format(n)), b"x")).ext_fields
            for n in range(2)
        ]
        assert (await client.ask(END, end_fields(halves[0], kind))).code == OK
        slave = StandIn(made, master)
        await slave.attach()
        start_s = trio.current_time()
        opaque = await client.send(command(END, end_fields(halves[1], kind)))
        await trio.sleep(1)
        await slave.report_all()
        assert (await client.answer(opaque)).code == OK
        assert trio.current_time() == start_s + 1


async def test_in_one_turn_each_is_answered_as_it_is(autojump_clock):
    """Sends that wait and sends that do not, of two connections."""
    async with group() as made:
        master = await made.master(**SYNC)
        clients = [await master.connect(), await master.connect()]
        opaques = []
        for client in clients:
            for wait in ("true", "false"):
                request = command(SEND, send_fields(i=f"{KEY}WAIT\1{wait}\2"))
                opaques.append((client, await client.send(request)))
        codes = [(await client.answer(opaque)).code for client, opaque in opaques]
        assert codes == [NO_SLAVE, OK, NO_SLAVE, OK]


async def test_with_sync_flush_both_have_it_on_the_device(autojump_clock):
    async with group() as made:
        flush = {"flush_disk_type": FlushDiskType.SYNC_FLUSH}
        master = await made.master(**SYNC, **flush)
        slave = await made.slave(**flush)
        await trio.sleep(1)
        client = await master.connect()
        assert (await client.ask(SEND, send_fields(i=KEY), b"x")).code == OK
        for node in (master, slave):
            store = node.running.store
            assert store.flusher.flushed_offset == store.max_physical_offset > 0


async def test_when_the_slave_is_gone_the_next_sends_get_its_code(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC)
        slave = await made.slave()
        await trio.sleep(1)
        client = await master.connect()
        assert (await client.ask(SEND, send_fields(), b"x")).code == OK
        await slave.kill()
        await trio.testing.wait_all_tasks_blocked()
        assert (await client.ask(SEND, send_fields(), b"x")).code == NO_SLAVE
        await slave.start()
        await trio.sleep(6)
        assert (await client.ask(SEND, send_fields(), b"x")).code == OK


async def test_more_waiting_sends_than_allowed_are_refused(autojump_clock):
    async with group() as made:
        master = await made.master(**SYNC, send_thread_pool_queue_capacity=2)
        await StandIn(made, master).attach()
        client = await master.connect()
        opaques = []
        for _ in range(4):
            opaques.append(await client.send(command(SEND, send_fields())))
            await trio.testing.wait_all_tasks_blocked()
        codes = [(await client.answer(opaque)).code for opaque in opaques]
        assert codes == [SLAVE_TIMEOUT, SLAVE_TIMEOUT, 2, 2]
