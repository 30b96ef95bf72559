"""Cached half messages: what a commit writes with and without them, and what they take."""

from __future__ import annotations

import errno

import pytest

from trocket.broker.messages.half_messages import final_message, half_message
from trocket.broker.messages.inner_message import InnerMessage
from trocket.broker.transactions.half_message_cache import (
    CACHE_SIZE_MAX,
    CachedHalf,
    HalfMessageCache,
    cache_size,
)
from trocket.common.connection_policy import BUDGET_MIN
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import RemotingCommand, encode
from trocket.remoting.message_codec import decode_messages
from trocket.store.config import FlushDiskType

from ...kit import (
    Broker,
    TrioClock,
    broker_and_client,
    broker_client,
    pull_fields,
    send_fields,
)
from .test_end_transaction import end_fields

SEND, PULL, END = 310, 11, 37
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ONEWAY = 2
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
ADDED = b"MSG_REGION\1DefaultRegion\2TRACE_ON\1true\2CLUSTER\1DefaultCluster\2"
USUAL = "UNIQ_KEY\1K\2TRAN_MSG\1true\2WAIT\1true\2PGROUP\1PG\2"
VARIANTS = [
    USUAL,
    USUAL[:-1],
    "UNIQ_KEY\1K\2PGROUP\1PG\2TRAN_MSG\1true",
    USUAL + "TAGS\1a\2KEYS\1k1 k2\2",
    USUAL + "TAGS\1a\2TAGS\1b\2",
    USUAL + "TAGS\1\2",
    USUAL + "own\1R_L_Y_TRAN\2",
    USUAL + "REAL_TOPIC\1Other\2REAL_QID\x019\2",
    USUAL + "TRANSACTION_CHECK_TIMES\x017\2",
    USUAL + "INNER_BASE\x017\2",
    USUAL + "__transactionId__\1old\2",
    USUAL + "__CRC32#\x011234567890\2",
    USUAL + "own\1a\0b\2",
    USUAL + "own\1a\1b\2",
    USUAL + "CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\2",
    USUAL + "DELAY\x010\2",
    USUAL + "\2\2",
    USUAL + "UNIQ_KEY\1second\2",
    USUAL + "XUNIQ_KEY\1second\2",
    USUAL + "PGROUP\1second\2",
    USUAL.replace("WAIT\1true", "WAIT\1false"),
    USUAL.replace("\1K\2", "\1k y\2"),
    USUAL.replace("\1K\2", "\1ké\2"),
    USUAL.replace("\1K\2", "\1" + "k" * 255 + "\2"),
    USUAL.replace("\1K\2", "\1" + "k" * 256 + "\2"),
]


def half_of(number: int, physical_offset: int, size: int = 100) -> CachedHalf:
    return CachedHalf(
        "T", 0, bytes(size), b"", 0, bytes(8), 8, 0, physical_offset, number, f"K{number}", "PG",
        waits=True,
    )  # fmt: skip


def test_the_oldest_are_dropped_when_the_cache_is_full():
    cache = HalfMessageCache(10_000)
    for number in range(100):
        cache.add(half_of(number, 1000 * number))
        assert cache.find(1000 * number) is not None
        assert len(cache) <= 10
    assert cache.find(0) is None
    assert len(cache) >= 5


def test_a_removed_one_makes_room():
    cache = HalfMessageCache(10_000)
    first = half_of(0, 0)
    cache.add(first)
    for number in range(1, 100):
        half = half_of(number, number)
        cache.add(half)
        cache.remove(number)
        cache.remove(number)
    assert cache.find(0) is first
    assert len(cache) == 1


def test_one_larger_than_the_cache_drops_no_other():
    cache = HalfMessageCache(10_000)
    cache.add(half_of(0, 0))
    cache.add(half_of(1, 1, size=10_000))
    assert [cache.find(0) is None, cache.find(1) is None] == [False, True]
    nothing = HalfMessageCache(0)
    nothing.add(half_of(0, 0, size=0))
    assert len(nothing) == 0


def test_the_cache_takes_a_small_part_of_the_budget():
    assert cache_size(BUDGET_MIN) == 1 << 20
    assert cache_size(1 << 40) == CACHE_SIZE_MAX


async def stored(broker: Broker, topic: str, offset: int):
    client = await broker.connect()
    fields = pull_fields(topic, 0, sysFlag=4, queueOffset=offset, maxMsgNums=1)
    answer = await client.ask(PULL, fields)
    (message,) = decode_messages(answer.body)
    return message


def log_of(disk: MemoryDisk) -> dict[str, bytes]:
    """The files of the log and of the queues."""
    return {
        path: bytes(contents)
        for path, contents in disk.contents.items()
        if "/commitlog/" in path or "/consumequeue/" in path
    }


class StoppedClock(TrioClock):
    """A clock that stands still."""

    def wall_ms(self) -> int:
        return 1_700_000_000_000


async def ends_after(restarts: bool, ends, serialize_type: int):
    """Store a half message of each variant, and end them; after a restart, none is cached.

    Returns: the answers to the ends, and the files.
    """
    disk = MemoryDisk()
    async with broker_client(disk, clock=StoppedClock()) as client:
        halves = []
        for number, properties in enumerate(VARIANTS):
            fields = send_fields(i=properties, f=4 if number % 2 else 5, h=number % 3)
            body = b"%d" % number
            answer = await client.ask(SEND, fields, body, serialize_type=serialize_type)
            assert answer.code == 0
            halves.append(answer.ext_fields)
        if not restarts:
            return await _ended(client, halves, ends, serialize_type), log_of(disk)
    async with broker_client(disk, clock=StoppedClock()) as client:
        return await _ended(client, halves, ends, serialize_type), log_of(disk)


async def _ended(client, halves, ends, serialize_type: int):
    answers = []
    for half in halves:
        for fields in ends(half):
            answer = await client.ask(END, fields, serialize_type=serialize_type)
            answers.append((answer.code, answer.remark, answer.ext_fields, answer.serialize_type))
    return answers


def commits(half):
    return [end_fields(half), end_fields(half)]


def wrong_ends_and_a_rollback(half):
    offset = int(half["msgId"][-16:], 16)
    return [
        end_fields(half, producerGroup="other"),
        end_fields(half, tranStateTableOffset=99),
        end_fields(half, transactionId="other"),
        end_fields(half, commitLogOffset=offset + 1),
        end_fields(half, commitLogOffset=f"0{offset}x"),
        {name: text for name, text in end_fields(half).items() if name != "producerGroup"},
        {name: text for name, text in end_fields(half).items() if name != "commitLogOffset"},
        end_fields(half, ROLLBACK, transactionId="", fromTransactionCheck="true"),
        end_fields(half, COMMIT),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("ends", [commits, wrong_ends_and_a_rollback])
async def test_an_end_does_the_same_with_and_without_the_cache(
    autojump_clock, ends, serialize_type
):
    cached = await ends_after(False, ends, serialize_type)
    read_back = await ends_after(True, ends, serialize_type)
    assert cached[0] == read_back[0]
    for path, contents in cached[1].items():
        assert contents == read_back[1][path], path


async def test_a_usual_half_message_and_its_final_one_have_the_bytes_of_the_general_rules():
    async with broker_and_client(clock=StoppedClock()) as (broker, client):
        hosts = None
        for number, properties in enumerate(VARIANTS[:7]):
            sent = send_fields(i=properties, f=4)
            answer = await client.ask(SEND, sent, b"b")
            assert len(broker.controller.transactions.cache) == 1
            half = await stored(broker, HALF, number)
            separator = b"" if properties.endswith("\2") else b"\2"
            message = InnerMessage(
                "T", 0, b"b", properties.encode() + separator + ADDED, half.born_timestamp_ms,
                half.born_host, half.store_host, sys_flag=4,
            )  # fmt: skip
            expected = half_message(message)
            assert half.properties_bytes == expected.properties
            assert (half.sys_flag, half.topic) == (expected.sys_flag, expected.topic)
            assert (await client.ask(END, end_fields(answer.ext_fields))).code == 0
            assert len(broker.controller.transactions.cache) == 0
            final = await stored(broker, "T", number)
            expected = final_message(half)
            assert final.properties_bytes == expected.properties
            assert final.sys_flag == expected.sys_flag
            assert final.prepared_transaction_offset == half.physical_offset
            hosts = hosts or (half.born_host, half.store_host)
            assert (final.born_host, final.store_host) == hosts


async def test_a_half_message_that_was_not_written_is_not_cached():
    disk = MemoryDisk()
    async with broker_and_client(disk) as (broker, client):
        await client.ask(SEND, send_fields(), b"plain")
        faults = [OSError(errno.ENOSPC, "full")]
        disk.fault = lambda call, path: (
            faults.pop() if faults and call == "pwrite" and "commitlog" in path else None
        )
        assert (await client.ask(SEND, send_fields(i=USUAL, f=4), b"lost")).code == 14
        # The next one gets the same offsets, and is not of the kind that is cached.
        other = send_fields(i=USUAL + "DELAY\x010\2", f=4)
        half = (await client.ask(SEND, other, b"written")).ext_fields
        assert (await client.ask(END, end_fields(half, transactionId=""))).code == 0
        assert (await stored(broker, "T", 1)).body == b"written"


@pytest.mark.parametrize("flush", list(FlushDiskType))
async def test_an_end_in_the_turn_of_its_half_message_is_refused(flush):
    """A client may guess the offsets of a message that is not committed yet."""
    async with broker_and_client(flush_disk_type=flush) as (broker, client):
        await client.ask(SEND, send_fields(), b"plain")
        at = broker.controller.store.max_physical_offset
        half = {"queueOffset": "0", "msgId": f"{at:032X}", "transactionId": "K"}
        frames = []
        for opaque, code, fields in (
            (101, SEND, send_fields(i=USUAL, f=4)), (102, END, end_fields(half)),
        ):  # fmt: skip
            texts = {name: str(value) for name, value in fields.items()}
            frames.append(encode(RemotingCommand(code, texts, b"", opaque=opaque)))
        await client.write(b"".join(frames))
        assert (await client.answer(101)).code == 0
        refused = await client.answer(102)
        assert (refused.code, "Find prepared" in refused.remark) == (1, True)
        assert (await client.ask(END, end_fields(half))).code == 0


async def test_under_sync_flush_an_end_before_the_fsync_is_refused(monkeypatch):
    async with broker_and_client(flush_disk_type=FlushDiskType.SYNC_FLUSH) as (broker, client):
        await client.ask(SEND, send_fields(), b"plain")
        store = broker.controller.store
        at = store.max_physical_offset
        with monkeypatch.context() as slow:
            slow.setattr(store.flusher, "want", lambda: None)
            texts = {name: str(value) for name, value in send_fields(i=USUAL, f=4).items()}
            opaque = await client.send(RemotingCommand(SEND, texts))
            half = {"queueOffset": "0", "msgId": f"{at:032X}", "transactionId": "K"}
            answer = await client.ask(END, end_fields(half))
            assert store.max_physical_offset > at
            assert len(broker.controller.transactions.cache) == 1
            assert (answer.code, "Find prepared" in answer.remark) == (1, True)
        store.flusher.want()
        assert (await client.answer(opaque)).code == 0
        assert (await client.ask(END, end_fields(half))).code == 0


async def test_an_end_whose_half_message_was_deleted_with_its_file_is_refused():
    async with broker_and_client() as (broker, client):
        half = (await client.ask(SEND, send_fields(i=USUAL, f=4), b"old")).ext_fields
        for _ in range(3):
            assert (await client.ask(SEND, send_fields(), bytes(120_000))).code == 0
        store = broker.controller.store
        assert store.log.min_offset == 0
        store.log.detach(0)
        assert store.log.min_offset > 0
        answer = await client.ask(END, end_fields(half))
        assert (answer.code, "Find prepared" in answer.remark) == (1, True)


async def test_oneway_ends_of_one_turn_commit_in_their_order(autojump_clock):
    async with broker_and_client() as (broker, client):
        halves = []
        for number in range(3):
            properties = USUAL.replace("\1K\2", f"\1K{number}\2")
            fields = send_fields(i=properties, f=4)
            halves.append((await client.ask(SEND, fields, b"%d" % number)).ext_fields)
        frames = [
            encode(
                RemotingCommand(
                    END,
                    {name: str(value) for name, value in end_fields(half).items()},
                    opaque=number,
                    flag=ONEWAY,
                )
            )
            for number, half in enumerate(halves)
        ]
        await client.write(b"".join(frames[::-1]))
        await client.ask(SEND, send_fields(queue_id=1), b"")
        bodies = [(await stored(broker, "T", offset)).body for offset in range(3)]
        op = await stored(broker, OP, 0)
    assert bodies == [b"2", b"1", b"0"]
    assert op.body == b"2,1,0,"
    assert client.unasked == []
