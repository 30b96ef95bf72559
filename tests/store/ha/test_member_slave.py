"""What a slave in controller mode says and takes, seen by a master made for the test."""

from __future__ import annotations

import errno
import struct
from itertools import pairwise
from zlib import crc32

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import BrokerRole
from trocket.store.ha.copier import LogCopier
from trocket.store.ha.epoch_wire import Handshake
from trocket.store.ha.epochs import EpochFile, Epochs
from trocket.store.ha.slave import RECONNECT_FIRST_S, RECONNECT_S
from trocket.store.ha.wire import CHECKSUM, NO_CHECKSUM, READY, REFUSED, Question

from ..support import bodies, open_store
from .peers import member, slave_under_test
from .test_copier import record

ONE = record(0, 0, b"one")
TWO = record(len(ONE), 1, b"two")
THREE = record(len(ONE) + len(TWO), 2, b"three")
A, B, C = len(ONE), len(ONE) + len(TWO), len(ONE) + len(TWO) + len(THREE)
LOG = ONE + TWO + THREE

SLAVE = 2
HELLO = Handshake(SLAVE, can_ask=True)


def with_log(log):
    """A disk of a store that has these records."""
    disk = MemoryDisk(journalled=True)
    store = open_store(disk, broker_role=BrokerRole.SLAVE)
    LogCopier(store, is_ours=True).take(log)
    store.close()
    return disk


async def begin(peer, end, *entries, log_end=C):
    """As Apache's master: take the handshake, send the epochs, hear the report."""
    assert await peer.next_message() == HELLO
    await peer.epochs(log_end, *entries)
    assert await peer.next_message() == end


def problem_of(slave):
    return slave.ha.state().problem


async def test_an_empty_slave_reports_at_once_and_follows(autojump_clock):
    place = member(SLAVE)
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0))
        assert trio.current_time() == 0
        await peer.epoch_frame(-1)  # as Apache's master that has nothing yet
        await peer.epoch_frame(0, ONE)
        assert await peer.next_message() == A
        await peer.epoch_frame(A, TWO + THREE, confirmed=B)
        assert await peer.next_message() == C
        assert trio.current_time() == 0
        assert bodies(slave.store) == [b"one", b"two"]
        assert place.epochs.epochs == Epochs([(1, 0)])
        assert slave.store.durability.confirm_offset == B
        assert slave.ha.is_following


@pytest.mark.parametrize(
    ("changes", "handshake"),
    [
        ({"ha_log_check_enable": False}, Handshake(SLAVE)),
        ({"async_learner": True}, Handshake(SLAVE, is_async_learner=True, can_ask=True)),
        ({"sync_from_last_file": True}, Handshake(SLAVE, True, can_ask=True)),
    ],
)
async def test_the_handshake_says_what_is_configured(autojump_clock, changes, handshake):
    async with slave_under_test(member=member(SLAVE), **changes) as slave:
        assert await (await slave.next_connection()).next_message() == handshake


async def test_only_an_empty_log_begins_with_the_newest_file(autojump_clock):
    place = member(SLAVE, (1, 0))
    async with slave_under_test(with_log(ONE), place, sync_from_last_file=True) as slave:
        assert await (await slave.next_connection()).next_message() == HELLO


async def test_a_silent_slave_reports_every_5_s(autojump_clock):
    async with slave_under_test(with_log(ONE), member(SLAVE, (1, 0))) as slave:
        peer = await slave.next_connection()
        await begin(peer, A, (1, 0))
        for number in range(1, 4):
            await peer.epoch_frame(A)
            assert await peer.next_message() == A
            assert trio.current_time() == pytest.approx(5 * number)


# ---- where the logs part -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("own", "theirs", "their_end", "point"),
    [
        pytest.param([(1, 0)], [(1, 0)], B, B, id="the master's log is shorter"),
        pytest.param([(1, 0)], [(1, 0), (2, A)], C, A, id="a new master began earlier"),
        pytest.param([(1, 0), (2, A)], [(1, 0), (3, B)], C, A, id="another master was in between"),
        pytest.param([(1, 0)], [(1, 0), (2, A + 7)], C, A + 7, id="inside of a record"),
        pytest.param([(1, 0)], [(1, 0)], 0, 0, id="the master's log is empty"),
    ],
)
async def test_a_log_that_parts_is_handed_to_its_owner_to_cut(
    autojump_clock, own, theirs, their_end, point
):
    cuts = []
    place = member(SLAVE, *own, on_cut=cuts.append)
    async with slave_under_test(with_log(LOG), place) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epochs(their_end, *theirs)
        assert await peer.is_closed()
        assert cuts == [point]
        assert f"the same as the master's up to {point}, and is cut there" in problem_of(slave)
        assert slave.store.max_physical_offset == C
        assert place.epochs.epochs == Epochs(own)


async def test_a_log_without_a_common_epoch_is_refused_with_the_way_out(autojump_clock):
    cuts = []
    place = member(SLAVE, (1, 0), on_cut=cuts.append)
    async with slave_under_test(with_log(ONE), place) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epochs(C, (1, 5), (2, A))
        assert await peer.is_closed()
        assert (
            "nothing in common with the master's (epochs here: 1 from 0 on; there: 1 from 5 on"
        ) in problem_of(slave)
        assert "copy its store; then stop it, empty its store" in problem_of(slave)
        assert cuts == []


@pytest.mark.parametrize("confirmed", [0, A])
async def test_a_log_of_which_nothing_is_confirmed_is_cut_at_its_begin(autojump_clock, confirmed):
    """The first master of a set wrote while its slave, which is now the master, was away."""
    cuts = []
    place = member(SLAVE, (1, 0), on_cut=cuts.append)
    async with slave_under_test(with_log(ONE), place) as slave:
        slave.store.durability.confirmed(confirmed)
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epochs(C, (2, 0), (3, B))
        assert await peer.is_closed()
        assert cuts == ([] if confirmed else [0])
        assert ("nothing in common" in problem_of(slave)) == bool(confirmed)


async def test_a_log_that_begins_after_the_common_part_is_refused(autojump_clock):
    """A cut would leave nothing, and what is left may be confirmed."""
    disk = MemoryDisk()
    store = open_store(disk, broker_role=BrokerRole.SLAVE)
    copier = LogCopier(store, is_ours=True)
    copier.begin_at(65536)
    copier.take(record(65536, 0, b"late"))
    store.close()
    cuts = []
    place = member(SLAVE, (1, 0), on_cut=cuts.append)
    async with slave_under_test(disk, place) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epochs(70_000, (1, 0), (2, 500))
        assert await peer.is_closed()
        assert "nothing in common" in problem_of(slave)
        assert cuts == []


async def test_an_empty_log_forgets_epochs_that_the_master_does_not_know(autojump_clock):
    place = member(SLAVE, (1, 0), (2, 0))
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (7, 0))
        assert place.epochs.epochs == Epochs([(7, 0)])


async def test_an_epoch_without_bytes_that_the_master_does_not_know_is_dropped(autojump_clock):
    place = member(SLAVE, (1, 0), (2, C))
    async with slave_under_test(with_log(LOG), place) as slave:
        peer = await slave.next_connection()
        await begin(peer, C, (1, 0), log_end=C + 500)
        assert place.epochs.epochs == Epochs([(1, 0)])


async def test_a_log_older_than_the_set_takes_over_the_masters_epochs(autojump_clock):
    """A pair without a controller that becomes a set: only bytes can prove that it is the same."""
    place = member(SLAVE)
    async with slave_under_test(with_log(ONE + TWO), place) as slave:
        peer = await slave.next_connection()
        assert await peer.next_message() == HELLO
        await peer.epoch_answer(0, READY)
        await peer.epochs(C, (1, 0), (2, A), (3, C))
        assert await peer.next_message() == Question(0, B)
        await peer.epoch_answer(crc32(ONE + TWO), CHECKSUM)
        assert await peer.next_message() == B
        assert place.epochs.epochs == Epochs([(1, 0), (2, A)])


async def test_an_older_log_is_refused_by_a_master_that_cannot_compare(autojump_clock):
    async with slave_under_test(with_log(ONE), member(SLAVE)) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epochs(C, (1, 0))
        assert await peer.is_closed()
        assert "(epochs here: none; there: 1 from 0 on)" in problem_of(slave)


async def test_the_master_of_an_older_epoch_is_not_followed(autojump_clock):
    cuts = []
    place = member(SLAVE, (1, 0), epoch=5, on_cut=cuts.append)
    async with slave_under_test(with_log(LOG), place) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        await peer.epoch_answer(0, READY, 4)
        await peer.epochs(A, (1, 0))
        assert await peer.is_closed()
        assert problem_of(slave) == "it is the master of epoch 4, and the set is in epoch 5"
        assert cuts == []


# ---- comparing bytes ---------------------------------------------------------------------


async def answer_from(peer, log):
    """Answer questions about a log until the slave says something else; returns that."""
    while True:
        message = await peer.next_message()
        if not isinstance(message, Question):
            return message
        start, end = message
        value = crc32(log[start:end]) if end <= len(log) else NO_CHECKSUM
        await peer.epoch_answer(value, CHECKSUM)


async def compare(peer, log, *entries):
    """As a trocket master with another log."""
    assert await peer.next_message() == HELLO
    await peer.epoch_answer(0, READY, entries[-1][0])
    await peer.epochs(len(log), *entries)


async def test_equal_epochs_do_not_hide_different_bytes(autojump_clock):
    cuts = []
    other = record(A, 1, b"TWO")
    place = member(SLAVE, (1, 0), on_cut=cuts.append)
    async with slave_under_test(with_log(LOG), place) as slave:
        slave.store.durability.confirmed(A)
        peer = await slave.next_connection()
        await compare(peer, ONE + other + THREE, (1, 0))
        with pytest.raises(AssertionError, match="has closed"):
            await answer_from(peer, ONE + other + THREE)
        (point,) = cuts
        assert A < point < B


async def test_different_bytes_that_are_confirmed_are_never_cut(autojump_clock):
    """A slave of another set, for instance."""
    cuts = []
    others = record(0, 0, b"another") + TWO
    place = member(SLAVE, (1, 0), on_cut=cuts.append)
    async with slave_under_test(with_log(LOG), place) as slave:
        slave.store.durability.confirmed(C)
        peer = await slave.next_connection()
        await compare(peer, others, (1, 0))
        with pytest.raises(AssertionError, match="has closed"):
            await answer_from(peer, others)
        await trio.testing.wait_all_tasks_blocked()
        assert cuts == []
        assert f"and is confirmed up to {C}: it is of another set" in problem_of(slave)
        assert "copy its store; then stop it, empty its store" in problem_of(slave)


async def test_equal_bytes_are_followed(autojump_clock):
    place = member(SLAVE, (1, 0), (2, A))
    async with slave_under_test(with_log(ONE + TWO), place) as slave:
        peer = await slave.next_connection()
        await compare(peer, LOG, (1, 0), (2, A))
        assert await answer_from(peer, LOG) == B
        await peer.epoch_frame(B, THREE, epoch=2, start=A)
        assert await peer.next_message() == C


# ---- epochs in the transfer --------------------------------------------------------------


async def test_a_new_epoch_is_recorded_before_its_first_byte(autojump_clock):
    disk = MemoryDisk(journalled=True)
    place = member(SLAVE, disk=disk)
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0))
        await peer.epoch_frame(0, ONE)
        assert await peer.next_message() == A
        await peer.epoch_frame(A, TWO[:20], epoch=2, start=A)
        await trio.testing.wait_all_tasks_blocked()
        assert slave.store.max_physical_offset == A
        disk.power_loss()
        saved = EpochFile(disk, place.epochs.path).load()
        assert saved == place.epochs.epochs == Epochs([(1, 0), (2, A)])


async def test_an_epoch_without_bytes_is_learned_from_an_empty_frame(autojump_clock):
    place = member(SLAVE, (1, 0))
    async with slave_under_test(with_log(ONE), place) as slave:
        peer = await slave.next_connection()
        await begin(peer, A, (1, 0), log_end=A)
        await peer.epoch_frame(A, epoch=2, start=A)
        await peer.epoch_frame(A, epoch=3, start=A)
        await peer.epoch_frame(A, TWO, epoch=3, start=A)
        assert await peer.next_message() == B
        assert place.epochs.epochs == Epochs([(1, 0), (3, A)])


async def test_apaches_master_names_the_next_epoch_in_the_last_frame_of_one(autojump_clock):
    place = member(SLAVE)
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0), (2, B))
        await peer.epoch_frame(0, ONE, epoch=1)
        assert await peer.next_message() == A
        await peer.epoch_frame(A, TWO[:9], epoch=1)
        await peer.epoch_frame(A + 9, TWO[9:], epoch=2, start=B)
        assert await peer.next_message() == B
        await peer.epoch_frame(B, THREE, epoch=2, start=B)
        assert await peer.next_message() == C
        assert place.epochs.epochs == Epochs([(1, 0), (2, B)])


async def test_epochs_that_expired_at_the_master_are_not_recorded(autojump_clock):
    place = member(SLAVE)
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0), (2, 50), (3, 80), log_end=1 << 20)
        moved = record(65536, 0, b"first")
        await peer.epoch_frame(65536, moved, epoch=3, start=80)
        assert await peer.next_message() == 65536 + len(moved)
        assert place.epochs.epochs == Epochs([(3, 80)])


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        pytest.param((A, TWO, 1, 0), "the master sent epoch 1 from offset 0 on", id="older"),
        pytest.param((A, TWO, 2, 0), "the master sent epoch 2 from offset 0 on", id="moved"),
        pytest.param((A, TWO, 3, 10), "after it had sent bytes from its start", id="too early"),
        pytest.param((A, TWO, 3, C), "which begins at offset", id="too late"),
        pytest.param((B, THREE, 2, A), f"this log continues at {A}", id="a gap"),
        pytest.param((0, ONE, 2, A), f"this log continues at {A}", id="again"),
        pytest.param((0, ONE, 1, 0), f"this log continues at {A}", id="the past"),
    ],
)
async def test_a_frame_that_cannot_follow_ends_the_connection(autojump_clock, frame, why):
    offset, body, epoch, start = frame
    place = member(SLAVE, (1, 0))
    async with slave_under_test(with_log(ONE), place) as slave:
        peer = await slave.next_connection()
        await begin(peer, A, (1, 0), (2, A))
        await peer.epoch_frame(offset, body, epoch=epoch, start=start)
        assert await peer.is_closed()
        assert why in problem_of(slave)
        assert slave.store.max_physical_offset == A


async def test_an_epoch_that_begins_inside_of_a_record_ends_the_connection(autojump_clock):
    place = member(SLAVE)
    async with slave_under_test(member=place) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0))
        await peer.epoch_frame(0, ONE + TWO[:9])
        assert await peer.next_message() == A
        await peer.epoch_frame(A + 9, TWO[9:], epoch=2, start=A + 9)
        assert await peer.is_closed()
        assert f"epoch 2 of the master begins at {A + 9}, inside of the record at {A}" in (
            problem_of(slave)
        )
        assert place.epochs.epochs == Epochs([(1, 0)])


async def test_a_frame_beyond_the_end_of_its_epoch_ends_the_connection(autojump_clock):
    async with slave_under_test(member=member(SLAVE)) as slave:
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0), (2, A))
        await peer.epoch_frame(0, ONE + TWO)
        assert await peer.is_closed()
        assert f"bytes beyond offset {A}, where their epoch ends" in problem_of(slave)


async def test_an_epoch_that_cannot_be_saved_ends_the_connection_before_its_bytes(autojump_clock):
    disk = MemoryDisk()
    place = member(SLAVE, (1, 0), disk=disk)
    async with slave_under_test(with_log(ONE), place) as slave:
        peer = await slave.next_connection()
        await begin(peer, A, (1, 0))
        disk.fault = lambda operation, path: (
            OSError(errno.ENOSPC, "") if operation == "pwrite" else None
        )
        await peer.epoch_frame(A, TWO, epoch=2, start=A)
        assert await peer.is_closed()
        assert "epochFileCheckpoint" in problem_of(slave)
        assert slave.store.max_physical_offset == A


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([(1, 0), (2, C + 1)], f"epoch 2 begins at offset {C + 1}, and the log ends at {C}"),
        ([(number, 0) for number in range(1001)], "a list of epochs of 12012 bytes"),
        ([(2, 0), (1, 0)], "epoch 1 at offset 0 after epoch 2 at offset 0"),
    ],
)
async def test_a_list_that_cannot_be_true_ends_the_connection(autojump_clock, entries, why):
    async with slave_under_test(member=member(SLAVE)) as slave:
        peer = await slave.next_connection()
        await peer.next_message()
        body = b"".join(struct.pack(">iq", *entry) for entry in entries)
        await peer.send(struct.pack(">iiqi", 1, len(body), C, 1) + body)
        assert await peer.is_closed()
        assert why in problem_of(slave)


@pytest.mark.parametrize("garbage", [bytes(40), b"\xff" * 40, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
async def test_garbage_ends_the_connection_and_the_next_one_comes(autojump_clock, garbage):
    async with slave_under_test(member=member(SLAVE)) as slave:
        peer = await slave.next_connection()
        await peer.send(garbage)
        assert await peer.is_closed()
        assert ("enableControllerMode" in problem_of(slave)) == (garbage[0] != 0xFF)
        await slave.next_connection()


async def test_a_refusal_is_explained(autojump_clock):
    async with slave_under_test(with_log(LOG), member(SLAVE, (1, 0))) as slave:
        peer = await slave.next_connection()
        await compare(peer, LOG, (1, 0))
        assert await answer_from(peer, LOG) == C
        await peer.epoch_answer(70_000, REFUSED)
        assert await peer.is_closed()
        assert f"this log ends at {C}, the master's begins at 70000" in problem_of(slave)


# ---- connecting again --------------------------------------------------------------------


async def test_it_connects_again_after_a_tenth_of_a_second_then_later_and_later(autojump_clock):
    async with slave_under_test(member=member(SLAVE)) as slave:
        for _ in range(9):
            peer = await slave.next_connection()
            await peer.stream.aclose()
        times = [at for at, _ in slave.connects]
        pauses = [after - before for before, after in pairwise(times)]
        expected = [min(RECONNECT_FIRST_S * 2**n, RECONNECT_S) for n in range(8)]
        assert pauses == pytest.approx(expected)
        peer = await slave.next_connection()
        await begin(peer, 0, (1, 0))
        await peer.epoch_frame(0, ONE)
        assert await peer.next_message() == A
        now = trio.current_time()
        await peer.stream.aclose()
        await slave.next_connection()
        assert trio.current_time() - now == pytest.approx(RECONNECT_FIRST_S)
