"""The memory budget: shares, who gives way, and what the log says of it."""

from __future__ import annotations

import logging
import random

import pytest
import trio
import trio.testing

from trocket.common.connection_policy import BUDGET_MIN, ConnectionPolicy
from trocket.remoting.channel import OUTBOX_TIGHT_HIGH_WATER, Channel, Deferred
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.connection import ConnectionLimits
from trocket.remoting.memory_budget import (
    BUDGET_DEFAULT_MAX,
    LARGE_PARTS,
    MemoryBudget,
    MemoryShare,
    request_size,
)
from trocket.remoting.server import RemotingServer
from trocket.remoting.turn import Turn

MIB = 1 << 20


class Holder:
    """A connection that only knows whether it is closed."""

    def __init__(self, name: str) -> None:
        self.remote_address = name
        self.closed = False

    def close(self, reason: str = "") -> None:
        self.closed = True


def test_the_largest_holders_are_closed_until_the_rest_fits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    share = MemoryShare("half frames", 100)
    small, middle, large = Holder("small"), Holder("middle"), Holder("large")
    share.hold(large, 60)
    share.hold(middle, 30)
    assert caplog.messages == []
    share.hold(small, 20)
    assert (small.closed, middle.closed, large.closed) == (False, False, True)
    assert share.used == 50
    (line,) = caplog.messages
    assert line == (
        "large: closed: it holds 60 bytes of half frames, more than any other; all connections "
        "hold 110 bytes, the limit is 100; remotingBytesMax sets the sum of all shares"
    )


def test_a_request_is_refused_and_only_a_large_holder_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    share = MemoryShare("held requests", 800)
    crowd = [Holder(f"crowd {number}") for number in range(LARGE_PARTS)]
    for holder in crowd:
        assert share.take(holder, 100)
    asker = Holder("asker")
    assert not share.take(asker, 1)
    assert not share.take(asker, 1)
    assert not any(holder.closed for holder in crowd)
    (line,) = caplog.messages  # one for both refusals
    assert line.startswith("asker: a request of 1 bytes is refused")
    share.give_back(crowd[0], 100)
    assert share.take(crowd[1], 100)
    assert not share.take(asker, 1)
    assert [holder for holder in crowd if holder.closed] == [crowd[1]]
    assert share.size_of(crowd[1]) == 200  # given back by those who answer its requests
    share.give_back(crowd[1], 200)
    assert share.take(asker, 1)


def test_the_sum_is_always_that_of_the_parts() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    noise = random.Random(seed)
    share = MemoryShare("anything", 10_000)
    holders = [Holder(str(number)) for number in range(20)]
    taken = dict.fromkeys(holders, 0)
    for _ in range(5_000):
        holder, size = noise.choice(holders), noise.randrange(1, 900)
        if noise.random() < 0.5:
            if share.take(holder, size):
                taken[holder] += size
        elif taken[holder]:
            share.give_back(holder, part := noise.randrange(1, taken[holder] + 1))
            taken[holder] -= part
        holder.closed = False
        assert share.used == sum(taken.values()) == sum(map(share.size_of, holders))
        assert share.used <= share.limit
    for holder in holders:
        share.forget(holder)
    assert share.used == 0


def test_the_shares_are_parts_of_the_total_and_the_least_holds_a_frame() -> None:
    for total in (BUDGET_MIN, BUDGET_DEFAULT_MAX, 12_345_678_901):
        budget = MemoryBudget(total)
        assert total - 4 <= sum(share.limit for share in budget.shares) <= total
    assert MemoryBudget(BUDGET_MIN).half_frames.limit > 16 * MIB + 4


def test_half_of_the_half_frames_go_when_an_allocation_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    budget = MemoryBudget()
    holders = [Holder(str(number)) for number in range(10)]
    for size, holder in enumerate(holders, start=1):
        budget.half_frames.hold(holder, size * MIB)
    failed = Holder("failed")
    budget.run_out(failed, "reading what it sent")
    assert failed.closed
    assert budget.half_frames.used <= 55 * MIB // 2
    assert not holders[0].closed
    line = caplog.messages[-1]
    assert line.startswith("failed: closed: the process has no memory for reading what it sent")
    assert "remotingBytesMax" in line


def test_the_size_of_a_request_is_mostly_that_of_its_content() -> None:
    fields = {"topic": "t" * 1_000, "group": "g" * 1_000}
    assert 6_000 < request_size(RemotingCommand(1, fields, b"x" * 4_000)) < 7_500


class Mute:
    """A transport whose peer takes nothing."""

    remote_address = local_address = "192.0.2.1:1"

    def send_nowait(self, buffers: list[bytes | memoryview]) -> list[bytes | memoryview]:
        return buffers

    async def send_all(self, buffers: list[bytes | memoryview]) -> None:
        await trio.sleep_forever()

    def abort(self) -> None:
        pass


def mute_channel(memory: MemoryBudget) -> Channel:
    return Channel(Mute(), Turn(), memory)


def test_unread_answers_are_counted_and_the_largest_reader_of_nothing_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    memory = MemoryBudget(BUDGET_MIN)
    share = memory.unread_answers
    channels = [mute_channel(memory) for _ in range(20)]
    channels[0].write(bytes(2 * MIB))
    for channel in channels:
        for _ in range(10):
            channel.write(bytes(MIB // 10))
        assert share.used <= share.limit
    assert channels[0].closed
    assert not channels[-1].closed
    assert "unread answers" in caplog.text
    for channel in channels:
        channel.close()
    assert memory.used == 0


def test_views_of_a_mapped_file_take_no_memory_and_views_of_bytes_do() -> None:
    memory = MemoryBudget()
    share = memory.unread_answers
    mapped = bytearray(MIB)  # stands for bytes of ours
    mute_channel(memory).write([memoryview(mapped)[:500_000], memoryview(mapped)[500_000:]])
    assert share.used > MIB
    import mmap

    before = share.used
    with mmap.mmap(-1, MIB) as file:
        channel = mute_channel(memory)
        channel.write([memoryview(file)])
        assert channel.outbox_size == MIB
        assert share.used - before < 1_000
        channel.close()


async def test_what_was_sent_is_counted_no_more() -> None:
    memory = MemoryBudget()
    near, far = trio.testing.memory_stream_pair()
    server = RemotingServer({900: lambda request, channel: request.answer(body=bytes(MIB))})
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        nursery.start_soon(server.serve_stream, near)
        await far.send_all(encode(RemotingCommand(900)) * 3)
        await trio.testing.wait_all_tasks_blocked()
        assert server.memory.used == 0
        nursery.cancel_scope.cancel()
    assert memory.used == 0


def test_slow_peers_are_read_from_later_when_the_share_is_tight() -> None:
    memory = MemoryBudget(BUDGET_MIN)
    slow = mute_channel(memory)
    slow.write(bytes(2 * OUTBOX_TIGHT_HIGH_WATER))
    assert not slow.is_backlogged
    for _ in range(3):
        mute_channel(memory).write(bytes(3 * MIB))
    assert memory.unread_answers.is_tight
    assert slow.is_backlogged


async def test_requests_that_are_awaited_are_held_in_their_share(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gate = trio.Event()

    async def later() -> None:
        await gate.wait()

    caplog.set_level(logging.WARNING)
    limits = ConnectionLimits(policy=ConnectionPolicy(remoting_bytes_max=BUDGET_MIN))
    server = RemotingServer({900: lambda request, channel: Deferred(later)}, limits=limits)
    share = server.memory.held_requests
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve, [])
        streams = []
        for _ in range(20):
            near, far = trio.testing.memory_stream_pair()
            streams.append(far)
            nursery.start_soon(server.serve_stream, near)
            await far.send_all(encode(RemotingCommand(900, body=bytes(MIB))))
            await trio.testing.wait_all_tasks_blocked()
            assert share.used <= share.limit
        assert share.used > 15 * MIB
        assert b"system busy" in bytes(await streams[-1].receive_some())
        gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert share.used == 0
        nursery.cancel_scope.cancel()
    assert "held requests" in caplog.text
