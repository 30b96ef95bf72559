"""What a master in controller mode sends and believes, seen by a slave made for the test."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
import trio
import trio.testing

from trocket.store.config import BrokerRole
from trocket.store.ha.epochs import Epochs
from trocket.store.ha.sender import CONFIRM_DELAY_S
from trocket.store.ha.wire import CHECKSUM, NO_CHECKSUM, READY, REFUSED, encode_report
from trocket.store.status import PutMessageStatus

from ..support import put
from .peers import master_under_test, member
from .support import fill
from .test_master import log_of

MASTER, SLAVE, OTHER = 1, 2, 3


async def begin(peer, offset, number=SLAVE, **flags):
    """Shake hands and report; returns the master's epochs."""
    await peer.handshake(number, **flags)
    epochs = await peer.next_list()
    await peer.report(offset)
    return epochs


async def data_frames(peer, end, offset=0):
    """The frames with bytes up to an offset."""
    frames = []
    while offset < end:
        frame = await peer.next_epoch_frame()
        if frame.body:
            frames.append(frame)
            offset = frame.offset + len(frame.body)
    return frames


async def test_the_first_answer_is_the_list_of_epochs_and_the_log_follows(autojump_clock):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 150)
        end = master.store.max_physical_offset
        peer = master.connect_member()
        assert await begin(peer, 0) == (end, Epochs([(1, 0)]))
        frames = await data_frames(peer, end)
        assert b"".join(frame.body for frame in frames) == log_of(master.store)[:end]
        assert {frame[3:5] for frame in frames} == {(1, 0)}
        assert all(frame.offset % 65536 + len(frame.body) <= 65536 for frame in frames)
        (state,) = master.ha.state().slaves
        assert (state.controller_id, state.is_async_learner) == (SLAVE, False)


async def test_nothing_is_sent_before_a_whole_handshake_and_no_frame_before_a_report(
    autojump_clock,
):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 3)
        peer = master.connect_member()
        handshake = struct.pack(">ihhq", 1, 0, 0, SLAVE)
        await peer.send(handshake[:9])
        with trio.move_on_after(10) as scope:
            await peer.next_list()
        assert scope.cancelled_caught
        await peer.send(handshake[9:])
        await peer.next_list()
        with trio.move_on_after(10) as scope:
            await peer.next_epoch_frame()
        assert scope.cancelled_caught
        assert master.ha.state().slaves == []
        await peer.report(0)
        assert (await peer.next_epoch_frame()).offset == 0


@pytest.mark.parametrize("half", [b"", struct.pack(">ihh", 1, 0, 0)])
async def test_a_slave_without_a_handshake_is_left_after_20_s(autojump_clock, half):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        if half:
            await peer.send(half)
        assert await peer.is_closed()
        assert trio.current_time() == pytest.approx(20)


async def test_a_slave_of_the_default_mode_is_refused(autojump_clock, caplog):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        await peer.send(encode_report(5))
        assert await peer.is_closed()
        assert "is enableControllerMode=true there?" in caplog.text


@pytest.mark.parametrize("from_last", [False, True])
async def test_an_empty_slave_decides_whether_it_is_sent_all_or_the_last_file(
    autojump_clock, from_last
):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 150)
        end = master.store.max_physical_offset
        peer = master.connect_member()
        await begin(peer, 0, sync_from_last_file=from_last)
        first = await peer.next_epoch_frame()
        assert first.offset == (end - end % 65536 if from_last else 0)


async def test_frames_end_with_their_epoch(autojump_clock):
    """Epochs of many bytes, of one record, and an end of a file between them."""
    place = member(MASTER)
    async with master_under_test(place) as master:
        epochs = Epochs()
        for number, count in enumerate([3, 1, 70, 1, 80], 1):
            epochs = epochs.append(number, master.store.max_physical_offset)
            fill(master.store, count)
        place.epochs.save(epochs)
        end = master.store.max_physical_offset
        peer = master.connect_member()
        assert await begin(peer, 0) == (end, epochs)
        for frame in await data_frames(peer, end):
            index = epochs.index_at(frame.offset)
            assert frame[3:5] == epochs[index]
            assert frame.offset + len(frame.body) <= epochs.end_of(index, end)


async def test_an_epoch_that_begins_while_a_slave_is_connected_reaches_it(autojump_clock):
    """The same master, elected again: the list is searched for each frame (F8)."""
    place = member(MASTER, (1, 0))
    async with master_under_test(place, broker_role=BrokerRole.SYNC_MASTER) as master:
        fill(master.store, 2)
        peer = master.connect_member()
        start = master.store.max_physical_offset
        await begin(peer, start)
        assert (await peer.next_epoch_frame())[:5] == (start, 0, b"", 1, 0)
        place.epochs.save(place.epochs.epochs.append(2, start))
        fill(master.store, 1)
        assert (await data_frames(peer, start + 1, start))[0][3:5] == (2, start)
        place.epochs.save(Epochs([(2, start)]))
        fill(master.store, 1)
        assert (await peer.next_epoch_frame())[3:5] == (2, start)


async def test_bytes_before_all_epochs_are_not_sent(autojump_clock, caplog):
    async with master_under_test(member(MASTER, (1, 5000))) as master:
        fill(master.store, 9)
        peer = master.connect_member()
        await begin(peer, 0)
        assert await peer.is_closed()
        assert "the epochs of this log begin after offset 0" in caplog.text


async def test_an_idle_master_sends_a_sign_of_life_after_5_s(autojump_clock):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        await begin(peer, 0)
        for expected in (CONFIRM_DELAY_S, 5, 10):
            assert (await peer.next_epoch_frame())[:5] == (0, 0, b"", 1, 0)
            assert trio.current_time() == pytest.approx(expected, abs=0.1)
            await peer.report(0)


# ---- who the slave is --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (MASTER, "this broker's own controller id, 1: one of the two has a copy"),
        (0, "its controller id is 0"),
        (-1, "its controller id is -1"),
        (-(2**63), "its controller id is -9223372036854775808"),
    ],
)
async def test_an_id_that_no_slave_has_is_refused(autojump_clock, caplog, number, why):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        await peer.handshake(number)
        assert await peer.is_closed()
        assert why in caplog.text


async def test_a_newer_connection_of_a_member_ends_the_older_one(autojump_clock):
    reports = []
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 2)
        end = master.store.max_physical_offset
        slaves = master.store.durability.slaves
        slaves.report = lambda key, offset: reports.append((key, offset))
        slaves.forget = lambda key: reports.append((key, None))
        old, other = master.connect_member(), master.connect_member()
        await begin(old, end)
        await begin(other, end, OTHER)
        await old.next_epoch_frame()
        new = master.connect_member()
        await begin(new, 0)
        assert await old.is_closed()
        await data_frames(new, end)
        assert {state.controller_id for state in master.ha.state().slaves} == {SLAVE, OTHER}
        # What the end of the older connection forgets is not what the newer one has reported.
        assert reports == [(SLAVE, end), (OTHER, end), (SLAVE, None), (SLAVE, 0)]


async def test_a_report_that_comes_with_the_newer_connection_does_not_count(autojump_clock):
    """Trio wakes both tasks in the same turn, in any order."""
    reports = []
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 2)
        end = master.store.max_physical_offset
        slaves = master.store.durability.slaves
        slaves.report = lambda key, offset: reports.append((key, offset))
        slaves.forget = lambda key: reports.append((key, None))
        for count in range(1, 21):
            old, new = master.connect_member(), master.connect_member()
            await begin(old, end)
            await old.next_epoch_frame()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(old.report, end)
                nursery.start_soon(new.handshake, SLAVE)
            await trio.testing.wait_all_tasks_blocked()
            # Else the end of the older connection would forget the slave once more.
            assert reports.count((SLAVE, None)) == count


async def test_a_learner_is_shown_as_one(autojump_clock):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        await begin(peer, 0, is_async_learner=True)
        await peer.next_epoch_frame()
        (state,) = master.ha.state().slaves
        assert state.is_async_learner


# ---- reports -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"), [(1, "was sent the log up to"), (-1, "no log gets shorter")]
)
async def test_a_report_that_cannot_be_true_ends_the_connection(
    autojump_clock, caplog, change, why
):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 2)
        end = master.store.max_physical_offset
        peer = master.connect_member()
        await begin(peer, end)
        await peer.next_epoch_frame()
        await peer.report(end + change)
        assert await peer.is_closed()
        assert why in caplog.text


async def test_a_first_report_beyond_the_log_is_refused_with_the_way_out(autojump_clock, caplog):
    async with master_under_test(member(MASTER, (1, 0))) as master:
        fill(master.store, 2)
        end = master.store.max_physical_offset
        apaches = master.connect_member()
        await begin(apaches, end + 1)
        assert await apaches.is_closed()
        assert "To keep its additional messages, make it the master" in caplog.text
        ours = master.connect_member()
        await ours.handshake(SLAVE, can_ask=True)
        assert (await ours.next_answer())[0] == READY
        await ours.next_list()
        await ours.report(end + 1)
        assert await ours.next_answer() == (REFUSED, end, 0)
        assert await ours.is_closed()


async def test_a_send_is_answered_by_the_report_of_a_member(autojump_clock):
    place = member(MASTER, (1, 0))
    async with master_under_test(place, broker_role=BrokerRole.SYNC_MASTER) as master:
        peer = master.connect_member()
        await begin(peer, 0)
        await peer.next_epoch_frame()
        answers = []
        _, physical_offset, _ = put(master.store)
        master.store.commit()
        master.store.when_replicated(physical_offset, answers.append)
        frame = await peer.next_epoch_frame()
        assert not answers
        await peer.report(len(frame.body))
        await trio.testing.wait_all_tasks_blocked()
        assert answers == [PutMessageStatus.PUT_OK]


# ---- comparing logs ----------------------------------------------------------------------


async def test_a_trocket_slave_may_ask_for_checksums_before_its_report(autojump_clock):
    place = member(MASTER, (3, 0), epoch=4)
    async with master_under_test(place) as master:
        fill(master.store, 5)
        end = master.store.max_physical_offset
        peer = master.connect_member()
        await peer.handshake(SLAVE, can_ask=True)
        assert await peer.next_answer() == (READY, 0, 4)
        await peer.next_list()
        await peer.ask(10, 500)
        assert await peer.next_answer() == (CHECKSUM, crc32(log_of(master.store)[10:500]), 0)
        for wrong in ((0, end + 1), (-5, 3), (9, 8)):
            await peer.ask(*wrong)
            assert await peer.next_answer() == (CHECKSUM, NO_CHECKSUM, 0)
        await peer.report(end)
        assert (await peer.next_epoch_frame()).offset == end
        await peer.ask(0, 1)
        assert await peer.is_closed()


async def test_apaches_slave_is_sent_nothing_but_apaches_messages(autojump_clock):
    """Seen by `next_list`, which takes no answer before the epochs."""
    async with master_under_test(member(MASTER, (1, 0))) as master:
        peer = master.connect_member()
        await begin(peer, 0)
        await peer.next_epoch_frame()
        await peer.ask(0, 0)
        assert await peer.is_closed()
