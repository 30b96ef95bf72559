"""S5. The HA port of Apache's broker listens everywhere and trusts everybody: whoever reaches it
copies the whole log, and can acknowledge what no slave has."""

from __future__ import annotations

import struct

import pytest
import trio

from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.errors import CopyError
from trocket.store.ha.master import open_ha_listener

from ..support import bodies
from .peers import master_under_test, slave_under_test
from .support import fill
from .test_copier import GOOD, broken, copy, flip, open_slave
from .test_master import read_all, served


def test_it_is_reached_from_this_machine_only_by_default():
    with open_ha_listener(MessageStoreConfig()) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


async def test_nobody_but_the_allowed_slaves_gets_a_byte(caplog):
    async with served(ha_allowed_slaves="192.0.2.0/24") as master:
        fill(master.store, 3)
        stream = await master.connect()
        with trio.move_on_after(1):
            await stream.send_all(struct.pack(">q", 0))
        assert await read_all(stream) == b""
        assert master.store.slaves.acked_offset == 0


async def test_acknowledgements_of_what_was_not_sent_count_for_nothing(autojump_clock):
    async with master_under_test(broker_role=BrokerRole.SYNC_MASTER) as master:
        for words in ((2**63 - 1,), (0, 2**63 - 1), (0, 1 << 20)):
            peer = master.connect()
            await peer.words(*words)
            assert await peer.is_closed()
        assert master.store.slaves.acked_offset == 0


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
