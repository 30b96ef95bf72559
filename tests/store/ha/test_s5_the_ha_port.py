"""S5. The HA port of Apache's broker listens everywhere and trusts every peer: one that reaches it
copies the whole log, and can acknowledge what no slave has."""

from __future__ import annotations

import struct

import pytest
import trio

import trocket.store.ha.master
from trocket.disk.errors import CopyError
from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.log_check import CHECKED_SIZE, QUESTIONS_MAX
from trocket.store.ha.master import open_ha_listener
from trocket.store.ha.wire import CHECKSUM, NO_CHECKSUM

from ..support import bodies
from .peers import master_under_test, slave_under_test
from .support import fill
from .test_copier import GOOD, broken, copy, flip, open_slave, put_at
from .test_master import read_all, served

HELLO, QUESTION = -1, -2


def test_it_is_reached_from_this_machine_only_by_default():
    with open_ha_listener(MessageStoreConfig()) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


async def test_only_the_allowed_slaves_get_a_byte(caplog):
    async with served(ha_allowed_slaves="192.0.2.0/24") as master:
        fill(master.store, 3)
        stream = await master.connect()
        with trio.move_on_after(1):
            await stream.send_all(struct.pack(">q", 0))
        assert await read_all(stream) == b""
        assert master.store.durability.slaves.acked_offset == 0


async def test_acknowledgements_of_what_was_not_sent_count_for_nothing(autojump_clock):
    async with master_under_test(broker_role=BrokerRole.SYNC_MASTER) as master:
        for words in ((2**63 - 1,), (0, 2**63 - 1), (0, 1 << 20)):
            peer = master.connect()
            await peer.words(*words)
            assert await peer.is_closed()
        assert master.store.durability.slaves.acked_offset == 0


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", bytes(range(256)), b"\xff" * 64]
)
async def test_what_is_no_slave_is_closed(autojump_clock, data):
    async with master_under_test() as master:
        fill(master.store, 3)
        peer = master.connect()
        await peer.stream.send_all(data)
        assert await peer.is_closed()
        assert master.ha.state().slaves == []


async def test_what_is_no_master_fills_no_memory(autojump_clock):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await peer.answer(0, 2**31 - 1)
        assert await peer.is_closed()
        assert slave.store.max_physical_offset == 0


def test_a_bad_record_is_never_shown():
    slave = open_slave()
    with pytest.raises(CopyError, match="CRC"):
        copy(slave, broken(flip(90)))
    assert bodies(slave) == [b"good"]
    assert slave.max_physical_offset == len(GOOD)


def test_a_record_of_any_size_that_cannot_be_is_refused_before_it_has_come():
    slave = open_slave()
    with pytest.raises(CopyError, match="a record of 1073741824 bytes"):
        copy(slave, broken(put_at(0, ">i", 1 << 30)))
    assert bodies(slave) == [b"good"]


async def test_no_peer_makes_the_master_read_its_log_without_end(autojump_clock, caplog):
    async with master_under_test(mapped_file_size_commit_log=1 << 20) as master:
        fill(master.store, 60, 150_000)
        peer = master.connect()
        await peer.words(HELLO, 0)
        await peer.next_frame()
        await peer.words(QUESTION, 0, CHECKED_SIZE + 1)
        assert await peer.next_frame() == (NO_CHECKSUM, CHECKSUM, b"")
        await peer.words(*(QUESTION, 0, 0) * QUESTIONS_MAX)
        assert await peer.is_closed()
        assert f"it asked for more than {QUESTIONS_MAX} checksums" in caplog.text


async def test_more_connections_than_a_group_has_slaves_are_closed(monkeypatch):
    monkeypatch.setattr(trocket.store.ha.master, "CONNECTIONS_MAX", 2)
    async with served() as master:
        for _ in range(2):
            await (await master.connect()).send_all(struct.pack(">q", 0))
        with trio.fail_after(10):
            while len(master.ha.state().slaves) < 2:
                await trio.lowlevel.checkpoint()
        assert await read_all(await master.connect()) == b""
