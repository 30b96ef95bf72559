"""What a slave says and takes, seen by a master that sends whatever the test wants."""

from __future__ import annotations

from zlib import crc32

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.ha.slave import BACKLOG_SIZE, INDEX_REST_S, HaSlave, connect_tcp
from trocket.store.ha.wire import CHECKSUM, HELLO, NO_CHECKSUM, READY, REFUSED, encode_header

from ..support import bodies, open_store
from .peers import slave_under_test
from .test_copier import FILE_SIZE, record

OLD = record(0, 0, b"old")
NEXT = record(len(OLD), 1, b"next")


def with_old():
    """A disk of a store that has one message."""
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, broker_role=BrokerRole.SLAVE)
    LogCopier(store, is_ours=True).take(OLD)
    store.close()
    return disk


async def begin(peer, end):
    """As Apache's master: hear the report, whatever stands before it."""
    assert [await peer.next_word(), await peer.next_word()] == [HELLO, end]


def found_by_key(store):
    return bool(store.query_by_key("T", "k", 8, 0, 1 << 60).buffers)


async def test_a_slave_reports_at_once_then_what_it_has_appended(autojump_clock):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        assert trio.current_time() == 0
        await begin(peer, 0)
        await peer.frame(0, OLD)
        assert await peer.next_word() == len(OLD)
        await peer.frame(len(OLD), NEXT)
        assert await peer.next_word() == len(OLD) + len(NEXT)
        assert trio.current_time() == 0
        assert bodies(slave.store) == [b"old", b"next"]


async def test_without_the_check_the_first_word_is_the_report(autojump_clock):
    async with slave_under_test(with_old(), ha_log_check_enable=False) as slave:
        peer = await slave.next_connection()
        assert await peer.next_word() == len(OLD)
        await peer.frame(len(OLD), NEXT)
        assert await peer.next_word() == len(OLD) + len(NEXT)


async def test_a_record_in_several_frames_is_reported_when_it_is_whole(autojump_clock):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(0, OLD[:50])
        assert await peer.next_word() == 0  # 5 s later: it lives
        assert trio.current_time() == pytest.approx(5)
        await peer.frame(50, OLD[50:] + NEXT[:1])
        assert await peer.next_word() == len(OLD)
        await peer.frame(len(OLD) + 1, b"")  # a sign of life says what comes next
        await peer.frame(len(OLD) + 1, NEXT[1:])
        assert await peer.next_word() == len(OLD) + len(NEXT)


@pytest.mark.parametrize("share", [1.5, 0.5])
async def test_look_ups_by_key_wait_while_much_comes_at_once(autojump_clock, share):
    async with slave_under_test(mapped_file_size_commit_log=1 << 20) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(0, b"")
        await trio.testing.wait_all_tasks_blocked()
        log = b""
        while len(log) < BACKLOG_SIZE * share:
            log += record(len(log), len(log) // 8999, bytes(8900), properties=b"KEYS\x01k\x02")
        pieces = [log[at : at + 32768] for at in range(0, len(log), 32768)]
        headers = [encode_header(32768 * n, len(piece)) for n, piece in enumerate(pieces)]
        await peer.stream.send_all(b"".join(map(b"".join, zip(headers, pieces, strict=True))))
        while await peer.next_word() < len(log):
            pass
        assert slave.store.max_offset("T", 0) == len(log) // 8999
        await trio.sleep(INDEX_REST_S * 0.8)
        assert found_by_key(slave.store) == (share < 1)
        await trio.sleep(1)
        assert found_by_key(slave.store)


async def test_a_sign_of_life_goes_out_5_s_after_the_last_word(autojump_clock):
    async with slave_under_test(with_old()) as slave:
        peer = await slave.next_connection()
        await begin(peer, len(OLD))
        for number in range(1, 4):
            await peer.frame(len(OLD))
            assert await peer.next_word() == len(OLD)
            assert trio.current_time() == pytest.approx(5 * number)
        assert slave.ha.state().is_connected
        assert slave.ha.state().last_write_s == pytest.approx(0)


async def test_a_master_that_is_silent_for_20_s_is_left_and_looked_for_anew(autojump_clock):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(0)
        assert await peer.is_closed()
        assert trio.current_time() == pytest.approx(20)
        await slave.next_connection()
        assert trio.current_time() == pytest.approx(25)


@pytest.mark.parametrize(
    ("offset", "body"),
    [
        pytest.param(len(OLD) - 1, b"x", id="behind our end"),
        pytest.param(len(OLD) + 1, b"x", id="beyond it"),
        pytest.param(0, OLD, id="from the beginning"),
        pytest.param(len(OLD) + 5, b"", id="a sign of life elsewhere"),
    ],
)
async def test_what_does_not_follow_our_log_ends_the_connection(autojump_clock, offset, body):
    async with slave_under_test(with_old()) as slave:
        for _ in range(2):
            peer = await slave.next_connection()
            await begin(peer, len(OLD))
            await peer.frame(offset, body)
            assert await peer.is_closed()
        assert [at for at, _ in slave.connects] == [0, pytest.approx(5)]
        assert f"sent offset {offset}, this log continues at {len(OLD)}" in slave.ha.state().problem
        assert bodies(slave.store) == [b"old"]


async def test_signs_of_life_to_an_empty_slave_may_say_anything(autojump_clock):
    """4.9.7 sends one before the first bytes."""
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(3 * FILE_SIZE)
        late = record(3 * FILE_SIZE, 7, b"late")
        await peer.frame(3 * FILE_SIZE, late)
        assert await peer.next_word() == 3 * FILE_SIZE + len(late)
        assert slave.store.min_physical_offset == 3 * FILE_SIZE
        assert bodies(slave.store) == [b"late"]


async def test_an_empty_slave_begins_only_at_a_file_of_its_file_size(autojump_clock):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(1000, record(1000, 0))
        assert await peer.is_closed()
        await slave.next_connection()
        assert "mappedFileSizeCommitLog" in slave.ha.state().problem
        assert slave.store.log.files == {}


@pytest.mark.parametrize("size", [-1, -5, 4 * 1024 * 1024, 2**31 - 1])
async def test_a_frame_of_an_impossible_size_ends_the_connection(autojump_clock, size):
    async with slave_under_test() as slave:
        peer = await slave.next_connection()
        await begin(peer, 0)
        await peer.frame(0, OLD)
        await peer.next_word()
        await peer.answer(len(OLD), size)
        assert await peer.is_closed()
        await slave.next_connection()
        assert bodies(slave.store) == [b"old"]


async def test_a_bad_record_ends_the_copy_and_is_logged_once(autojump_clock, caplog):
    bad = bytearray(NEXT)
    bad[90] ^= 1
    async with slave_under_test(with_old()) as slave:
        for _ in range(4):
            peer = await slave.next_connection()
            await begin(peer, len(OLD))
            await peer.frame(len(OLD), bytes(bad))
            assert await peer.is_closed()
        assert caplog.text.count("the CRC of the body is wrong") == 1
        assert f"at offset {len(OLD)} of the log" in slave.ha.state().problem
        assert bodies(slave.store) == [b"old"]
        peer = await slave.next_connection()
        await begin(peer, len(OLD))
        await peer.frame(len(OLD), NEXT)
        assert await peer.next_word() == len(OLD) + len(NEXT)
        assert slave.ha.state().problem == ""


# ---- masters of ours ---------------------------------------------------------------------


async def test_a_trocket_master_is_asked_about_the_end_and_sent_the_identity(autojump_clock):
    async with slave_under_test(with_old()) as slave:
        identities = set()
        for _ in range(2):
            peer = await slave.next_connection()
            await begin(peer, len(OLD))
            await peer.answer(0, READY)
            assert [await peer.next_word() for _ in range(3)] == [-2, 0, len(OLD)]
            await peer.answer(crc32(OLD), CHECKSUM)
            assert await peer.next_word() == -3
            identities.add(await peer.next_word())
            assert await peer.next_word() == len(OLD)
            await peer.frame(len(OLD))
            await trio.testing.wait_all_tasks_blocked()
            assert slave.ha.state().is_connected
            await peer.stream.aclose()
        assert len(identities) == 1


async def test_a_master_that_cannot_compare_is_followed(autojump_clock):
    async with slave_under_test(with_old()) as slave:
        peer = await slave.next_connection()
        await begin(peer, len(OLD))
        await peer.answer(0, READY)
        assert [await peer.next_word() for _ in range(3)] == [-2, 0, len(OLD)]
        await peer.answer(NO_CHECKSUM, CHECKSUM)
        assert await peer.next_word() == -3


async def test_a_master_that_answers_something_else_is_left(autojump_clock):
    async with slave_under_test(with_old()) as slave:
        peer = await slave.next_connection()
        await begin(peer, len(OLD))
        await peer.answer(0, READY)
        await peer.frame(len(OLD), NEXT)
        assert await peer.is_closed()
        peer = await slave.next_connection()
        assert "did not answer the question" in slave.ha.state().problem
        await begin(peer, len(OLD))
        await peer.frame(len(OLD), b"")
        await peer.answer(7, CHECKSUM)
        assert await peer.is_closed()
        await slave.next_connection()
        assert "sent an answer without a question" in slave.ha.state().problem


@pytest.mark.parametrize(("limit", "side"), [(5, "ends at 5"), (1 << 30, "begins at 1073741824")])
async def test_a_refusal_names_the_masters_end(autojump_clock, limit, side):
    async with slave_under_test(with_old()) as slave:
        peer = await slave.next_connection()
        await begin(peer, len(OLD))
        await peer.answer(limit, REFUSED)
        assert await peer.is_closed()
        await slave.next_connection()
        assert f"this log ends at {len(OLD)}, the master's {side}" in slave.ha.state().problem


async def test_only_what_ours_wrote_is_held_to_be_ours(autojump_clock):
    for own_from, is_ours in ((0, True), (len(OLD), True), (len(OLD) + 1, False)):
        async with slave_under_test(with_old()) as slave:
            peer = await slave.next_connection()
            await begin(peer, len(OLD))
            await peer.answer(own_from, READY)
            await peer.next_word()
            await peer.next_word()
            await peer.next_word()
            await peer.answer(NO_CHECKSUM, CHECKSUM)
            for _ in range(3):
                await peer.next_word()
            await peer.frame(len(OLD), NEXT)
            await peer.next_word()
            assert (slave.store.checkpoints.own_from == 0) is is_ours


# ---- addresses ---------------------------------------------------------------------------


async def test_the_masters_address_may_stand_in_the_file(autojump_clock):
    store = open_store(broker_role=BrokerRole.SLAVE, ha_master_address="192.0.2.3:10912")
    assert HaSlave(store).state().master_address == "192.0.2.3:10912"
    assert HaSlave(store).state().last_read_s == -1


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999", "127.0.0.1:1"])
async def test_an_address_without_a_listener_becomes_the_problem(address):
    store = open_store(broker_role=BrokerRole.SLAVE)
    slave = HaSlave(store)
    slave.set_master(address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(slave.run)
        with trio.fail_after(10):
            while not slave.state().problem:
                await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert "no connection" in slave.state().problem


async def test_a_connection_that_does_not_come_about_is_given_up(autojump_clock, monkeypatch):
    async def never(host, port):
        await trio.sleep_forever()

    monkeypatch.setattr(trio, "open_tcp_stream", never)
    with pytest.raises(TimeoutError, match="no connection within 3 s"):
        await connect_tcp("192.0.2.1:10912")


def test_a_master_follows_no_broker():
    store = open_store()
    with pytest.raises(AssertionError, match="a master follows no other broker"):
        HaSlave(store)
