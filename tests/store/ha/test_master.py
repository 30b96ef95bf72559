"""What a master sends and believes, seen by a slave that says whatever the test wants."""

from __future__ import annotations

import struct
from contextlib import asynccontextmanager
from socket import SO_LINGER, SOL_SOCKET
from zlib import crc32

import pytest
import trio

from trocket.store.config import BrokerRole, MessageStoreConfig
from trocket.store.ha.log_check import CHECKED_SIZE, QUESTIONS_MAX
from trocket.store.ha.master import (
    CONNECTIONS_MAX,
    HaMaster,
    is_allowed,
    open_ha_listener,
    parse_allowed,
)
from trocket.store.ha.sender import FRAMES_PER_SEND
from trocket.store.ha.wire import CHECKSUM, HELLO, NO_CHECKSUM, READY, REFUSED

from ..support import open_store, send
from .peers import master_under_test
from .support import fill

BATCH = 32 * 1024


def log_of(store):
    return b"".join(bytes(store.log.view(base)) for base in store.log.files)


async def test_frames_are_whole_batches_and_never_cross_a_file(autojump_clock):
    async with master_under_test() as master:
        fill(master.store, 150)
        peer = master.connect()
        await peer.report(0)
        data, end = b"", master.store.max_physical_offset
        while len(data) < end:
            offset, size, body = await peer.next_frame()
            assert offset == len(data)
            assert size == min(BATCH, end - offset, 65536 - offset % 65536)
            data += body
        assert data == log_of(master.store)[:end]


async def test_a_batch_may_be_of_another_size(autojump_clock):
    async with master_under_test(ha_transfer_batch_size=1000) as master:
        fill(master.store, 70)
        peer = master.connect()
        await peer.report(0)
        sizes = {(await peer.next_frame())[1] for _ in range(70)}
        assert sizes == {1000, 65536 % 1000}


async def test_nothing_is_sent_before_the_first_report_which_may_come_in_pieces(autojump_clock):
    async with master_under_test() as master:
        fill(master.store, 3)
        peer = master.connect()
        report = struct.pack(">q", 1111)
        await peer.stream.send_all(report[:3])
        with trio.move_on_after(10) as scope:
            await peer.next_frame()
        assert scope.cancelled_caught
        assert master.ha.state().slaves == []
        await peer.stream.send_all(report[3:])
        offset, size, _ = await peer.next_frame()
        assert (offset, size) == (1111, master.store.max_physical_offset - 1111)


@pytest.mark.parametrize("last_file", [False, True])
@pytest.mark.parametrize("count", [0, 150])
async def test_an_empty_slave_is_sent_all_or_the_last_file(autojump_clock, last_file, count):
    async with master_under_test(sync_from_last_file=last_file) as master:
        fill(master.store, count)
        peer = master.connect()
        await peer.report(0)
        end = master.store.max_physical_offset
        offset, _, _ = await peer.next_frame()
        assert offset == (end - end % 65536 if last_file else 0)


async def test_a_slave_is_sent_what_follows_at_any_byte_it_names(autojump_clock):
    async with master_under_test() as master:
        fill(master.store, 100)
        data, end = log_of(master.store), master.store.max_physical_offset
        for start in (1, 500, 65535, 65536, 65537, end - 1, end):
            peer = master.connect()
            await peer.report(start)
            offset, size, body = await peer.next_frame()
            assert (offset, body) == (start, data[start : start + size])
            assert (size == 0) == (start == end)


async def test_under_sync_flush_only_what_is_on_the_device_is_sent(autojump_clock):
    """Else a master that loses its power would come back with less than its slave has."""
    async with master_under_test(sync=True) as master:
        store = master.store
        send(store)
        await trio.sleep(0.1)
        end = store.max_physical_offset
        peer = master.connect()
        await peer.report(end)
        await trio.sleep(0.1)
        store.disk.fault = lambda name, path: OSError(5, "") if name == "sync" else None
        send(store, b"not on the device")
        await trio.sleep(1)
        assert store.read_only
        assert await peer.next_frame() == (end, 0, b"")
        assert not (await peer.next_frame())[1]


async def test_a_sign_of_life_comes_after_5_s_without_a_write(autojump_clock):
    async with master_under_test() as master:
        peer = master.connect()
        await peer.report(0)
        began_s = trio.current_time()
        assert await peer.next_frame() == (0, 0, b"")
        assert trio.current_time() - began_s == pytest.approx(5)
        await peer.report(0)
        await trio.sleep(3)
        send(master.store)
        _, size, _ = await peer.next_frame()
        written_s = trio.current_time()
        assert size > 0
        assert await peer.next_frame() == (size, 0, b"")
        assert trio.current_time() - written_s == pytest.approx(5)


async def test_a_slave_that_says_nothing_for_20_s_is_closed(autojump_clock, caplog):
    async with master_under_test() as master:
        began_s = trio.current_time()
        assert await master.connect().is_closed()
        assert trio.current_time() - began_s == pytest.approx(20)
        peer = master.connect()
        await trio.sleep(15)
        await peer.report(0)
        began_s = trio.current_time()
        assert await peer.is_closed()
        assert trio.current_time() - began_s == pytest.approx(20)
        assert "nothing came for 20 s (haHousekeepingInterval)" in caplog.text


async def test_the_rate_to_a_slave_can_be_limited(autojump_clock):
    limits = {"ha_flow_control_enable": True, "max_ha_transfer_byte_in_second": 50_000}
    async with master_under_test(**limits) as master:
        fill(master.store, 240)
        peer = master.connect()
        await peer.report(0)
        began_s, received = trio.current_time(), 0
        while received < 250_000:
            received += (await peer.next_frame())[1]
            await peer.report(0)
            assert received <= 50_000 * (1 + int(trio.current_time()) - int(began_s))
        assert trio.current_time() - began_s == pytest.approx(4, abs=1)
        await trio.sleep(1)
        assert 0 < master.ha.state().slaves[0].per_second <= 50_000


async def test_a_slow_slave_is_given_a_bounded_number_of_frames(autojump_clock):
    async with master_under_test(ha_transfer_batch_size=100) as master:
        fill(master.store, 100)
        peer = master.connect(is_slow=True)
        await peer.report(0)
        await trio.testing.wait_all_tasks_blocked()
        (state,) = master.ha.state().slaves
        assert state.send_offset == FRAMES_PER_SEND * 100


# ---- where no slave can be ---------------------------------------------------------------


async def test_a_slave_ahead_is_refused_and_logged_with_advice(autojump_clock, caplog):
    async with master_under_test() as master:
        fill(master.store, 3)
        end = master.store.max_physical_offset
        peer = master.connect()
        await peer.report(end + 1)
        assert await peer.is_closed()
        assert f"its log ends at {end + 1}, this one at {end}" in caplog.text
        assert "make it the master; otherwise stop it, empty its store" in caplog.text
        assert master.store.durability.slaves.acked_offset == 0


async def test_a_slave_with_the_extension_is_refused_by_a_frame(autojump_clock):
    async with master_under_test() as master:
        fill(master.store, 3)
        peer = master.connect()
        await peer.words(HELLO, 1 << 40)
        assert await peer.next_frame() == (master.store.max_physical_offset, REFUSED, b"")
        assert await peer.is_closed()


async def test_a_slave_in_a_file_that_is_missing_is_refused(autojump_clock, caplog):
    async with master_under_test() as master:
        fill(master.store, 200)
        del master.store.log.files[65536]
        peer = master.connect()
        await peer.report(70_000)
        assert await peer.is_closed()
        assert "this log has no file with offset 70000" in caplog.text
        peer = master.connect()
        await peer.report(60_000)
        assert (await peer.next_frame())[0] == 60_000
        assert await peer.is_closed()
        assert "the file with offset 65536 was deleted" in caplog.text


async def test_a_slave_that_is_refused_repeatedly_is_logged_once(autojump_clock, caplog):
    async with master_under_test() as master:
        for _ in range(5):
            peer = master.connect()
            await peer.report(7)
            assert await peer.is_closed()
        assert caplog.text.count("its log ends at 7") == 1


# ---- questions ---------------------------------------------------------------------------


async def test_a_slave_of_ours_may_ask_and_then_begins(autojump_clock):
    async with master_under_test() as master:
        fill(master.store, 100)
        data, end = log_of(master.store), master.store.max_physical_offset
        peer = master.connect()
        await peer.words(HELLO, 70_000)
        assert await peer.next_frame() == (master.store.checkpoints.own_from, READY, b"")
        for start, stop in ((0, 70_000), (65_000, 66_000), (5, 5), (end - 1, end)):
            await peer.words(-2, start, stop)
            assert await peer.next_frame() == (crc32(data[start:stop]), CHECKSUM, b"")
        for start, stop in ((0, end + 1), (-1, 5), (6, 5), (-(2**63), 2**63 - 1)):
            await peer.words(-2, start, stop)
            assert await peer.next_frame() == (NO_CHECKSUM, CHECKSUM, b"")
        assert master.store.durability.slaves.acked_offset == 0
        await peer.words(-3, 77, 70_000)
        assert (await peer.next_frame())[0] == 70_000
        assert master.store.durability.slaves.acked_offset == 70_000


async def test_checksums_are_of_what_is_there_and_not_of_too_much(autojump_clock):
    async with master_under_test(mapped_file_size_commit_log=1 << 20) as master:
        fill(master.store, 60, 150_000)
        assert master.store.max_physical_offset > CHECKED_SIZE
        del master.store.log.files[1 << 20]
        peer = master.connect()
        await peer.words(HELLO, 0)
        await peer.next_frame()
        for start, stop in ((0, CHECKED_SIZE + 1), (1 << 20, (1 << 20) + 5), (0, 2 << 20)):
            await peer.words(-2, start, stop)
            assert await peer.next_frame() == (NO_CHECKSUM, CHECKSUM, b"")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        pytest.param(
            (HELLO, -2, 0, 1), "it asked a question before its first report", id="asks first"
        ),
        pytest.param((HELLO, 0, 5), "it reported 5 after 0", id="another offset"),
        pytest.param(
            (HELLO, 0, 0, -2, 0, 1), "it asked a question during the transfer", id="asks later"
        ),
        pytest.param((HELLO, 0, *(-2, 0, 0) * (QUESTIONS_MAX + 1)), "more than", id="many"),
        pytest.param((-2, 0, 0), "a report of -2", id="without hello"),
        pytest.param((-5,), "a report of -5", id="unknown"),
    ],
)
async def test_what_no_slave_of_ours_says_ends_the_connection(
    autojump_clock, caplog, words, reason
):
    async with master_under_test() as master:
        peer = master.connect()
        await peer.words(*words)
        assert await peer.is_closed()
        assert reason in caplog.text


async def test_a_slave_that_connects_anew_takes_the_place_of_its_old_connection(
    autojump_clock, caplog
):
    async with master_under_test(broker_role=BrokerRole.SYNC_MASTER, in_sync_replicas=3) as master:
        fill(master.store, 3)
        end = master.store.max_physical_offset
        peers = []
        for identity, acked in ((77, 0), (77, 0), (78, end)):
            peer = master.connect()
            await peer.words(HELLO, end)
            await peer.next_frame()
            await peer.words(-3, identity, end)
            await trio.testing.wait_all_tasks_blocked()
            assert master.store.durability.slaves.acked_offset == acked
            peers.append(peer)
        assert await peers[0].is_closed()
        assert "the same slave has connected anew" in caplog.text
        assert len(master.ha.state().slaves) == 2


# ---- real sockets ------------------------------------------------------------------------


def test_a_master_listens_on_this_machine_only_by_default(caplog):
    config = MessageStoreConfig()
    with open_ha_listener(config) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
    assert caplog.text == ""
    config.ha_listen_address = "0.0.0.0"
    with open_ha_listener(config, 0) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    assert (
        "any host that can connect to 0.0.0.0 can copy every message: set haAllowedSlaves"
        in caplog.text
    )
    caplog.clear()
    config.ha_allowed_slaves = "10.0.0.0/8"
    open_ha_listener(config).close()
    config.ha_allowed_slaves, config.ha_listen_address = "", "localhost"
    open_ha_listener(config).close()
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("text", "host", "allowed"),
    [
        ("", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.7", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("192.0.2.7; 10.0.0.0/8;", "10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("fe80::/10", "fe80::1%eth0", True),
        ("::1", "127.0.0.1", False),
    ],
)
def test_slaves_come_from_where_they_may(text, host, allowed):
    assert is_allowed(host, parse_allowed(text)) is allowed


def test_a_list_of_slaves_that_is_none_is_an_error():
    with pytest.raises(ValueError, match="slave-1"):
        HaMaster(open_store(ha_allowed_slaves="slave-1"))


def test_slaves_have_no_slaves():
    with pytest.raises(AssertionError, match="slaves have no slaves"):
        HaMaster(open_store(broker_role=BrokerRole.SLAVE))


class Served:
    """A master on a socket; `connect` makes connections from this machine."""

    def __init__(self, **changes):
        self.streams = []
        self.store = open_store(**changes)
        self.ha = HaMaster(self.store)
        self.listener = open_ha_listener(self.store.config)
        self.port = self.listener.getsockname()[1]

    async def connect(self):
        """A connection, closed when the nursery is done."""
        stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        self.streams.append(stream)
        return stream


@asynccontextmanager
async def served(**changes):
    master = Served(**changes)
    async with trio.open_nursery() as nursery:
        await nursery.start(master.ha.serve, [master.listener])
        yield master
        nursery.cancel_scope.cancel()
    for stream in master.streams:
        await trio.aclose_forcefully(stream)


async def read_all(stream):
    data = b""
    with trio.fail_after(10):
        try:
            while piece := await stream.receive_some(1 << 20):
                data += piece
        except trio.BrokenResourceError:
            pass
    return data


async def test_over_tcp_the_log_comes_straight_from_its_maps():
    async with served() as master:
        fill(master.store, 600, 5000)
        stream = await master.connect()
        await stream.send_all(struct.pack(">q", 0))
        end, data, raw = master.store.max_physical_offset, b"", b""
        with trio.fail_after(10):
            while len(data) < end:
                while len(raw) < 12 or len(raw) < 12 + struct.unpack(">qi", raw[:12])[1]:
                    raw += await stream.receive_some(1 << 20)
                offset, size = struct.unpack(">qi", raw[:12])
                assert offset == len(data)
                data += raw[12 : 12 + size]
                raw = raw[12 + size :]
        assert data == log_of(master.store)[:end]
        (state,) = master.ha.state().slaves
        assert state.address == f"127.0.0.1:{stream.socket.getsockname()[1]}"
        assert state.send_offset == end


async def test_a_slave_that_is_not_allowed_gets_nothing(caplog):
    async with served(ha_allowed_slaves="192.0.2.7") as master:
        fill(master.store, 3)
        assert await read_all(await master.connect()) == b""
        assert "haAllowedSlaves does not name it" in caplog.text


@pytest.mark.parametrize("is_sending", [False, True])
async def test_a_slave_whose_connection_is_reset_is_gone_at_once(caplog, is_sending):
    async with served() as master:
        fill(master.store, 600 if is_sending else 0, 50_000)
        stream = await master.connect()
        await stream.send_all(struct.pack(">q", 0))
        with trio.fail_after(10):
            while not master.ha.state().slaves:
                await trio.lowlevel.checkpoint()
            stream.socket.setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
            await stream.aclose()
            while master.ha.state().slaves:
                await trio.lowlevel.checkpoint()
        # The kernel tells of the reset once: of the reader and the writer, either may hear it.
        assert "is disconnected: the " in caplog.text


async def test_a_slave_that_is_gone_before_it_is_looked_at_is_let_go():
    class Gone(trio.abc.Stream):
        """A connection that was reset before it was accepted."""

        socket = trio.socket.socket()
        is_closed = False

        async def aclose(self):
            self.is_closed = True

        async def send_all(self, data): ...
        async def wait_send_all_might_not_block(self): ...
        async def receive_some(self, max_bytes=None): ...

    gone = Gone()
    with gone.socket:
        master = HaMaster(open_store())
        await master._accept(gone)
    assert gone.is_closed
    assert master.state().slaves == []


async def test_connections_beyond_the_limit_are_closed(caplog):
    async with served() as master:
        for _ in range(CONNECTIONS_MAX):
            await (await master.connect()).send_all(struct.pack(">q", 0))
        with trio.fail_after(10):
            while len(master.ha.state().slaves) < CONNECTIONS_MAX:
                await trio.lowlevel.checkpoint()
        assert await read_all(await master.connect()) == b""
        assert f"{CONNECTIONS_MAX} slaves are connected" in caplog.text


def test_a_port_that_is_taken_is_named():
    with open_ha_listener(MessageStoreConfig()) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{port}"):
            open_ha_listener(MessageStoreConfig(ha_listen_port=port))
