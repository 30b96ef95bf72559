"""Numbers in `config/*.json` and `config/timercheck` were believed, or ended the start untold.

A delay offset behind its queue made the broker pass over what waits; so did a progress of the
transactions or of the timers; a float beyond all numbers was a traceback.
"""

from __future__ import annotations

import re
import struct
from contextlib import asynccontextmanager

import pytest
import trio

from trocket.disk.errors import CorruptRecordError
from trocket.disk.json_config import load_newest, unsealed
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.number_fields import QUEUE_COUNT_MAX

from ..kit import START_MS, bodies, embedded_broker, send_fields

SEND, PULL, QUERY_OFFSET, UPDATE_OFFSET, END_TRANSACTION = 310, 11, 14, 15, 37
CONFIG = "/store/config"
HUGE = (1 << 63) - 1


def properties(**more: object) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in more.items())


def edit(disk: MemoryDisk, name: str, pattern: str, replacement: str) -> None:
    """Change a file by hand: as an operator would, without the seal."""
    for path in (f"{CONFIG}/{name}", f"{CONFIG}/{name}.bak"):
        if path in disk.contents:
            text, _ = unsealed(bytes(disk.contents[path]))
            changed, count = re.subn(pattern, replacement, text.decode())
            if not path.endswith(".bak"):
                assert count, text
            disk.contents[path] = bytearray(changed.encode())


@asynccontextmanager
async def broker_of(disk: MemoryDisk):
    disk.process_death()
    async with embedded_broker(disk=disk) as broker:
        yield await broker.connect()


async def left_behind(**more: object) -> MemoryDisk:
    """What a broker leaves that got one message, whose group CG has consumed it."""
    disk = MemoryDisk()
    async with broker_of(disk) as client:
        await client.ask(SEND, send_fields(**more), b"body")
        queue_id = more.get("e", 0)
        offset = {"consumerGroup": "CG", "topic": "T", "queueId": queue_id, "commitOffset": 1}
        await bodies(client)
        await client.ask(UPDATE_OFFSET, offset)
    return disk


@pytest.mark.parametrize("value", ["-5", "65537", "2147483647"])
@pytest.mark.parametrize("member", ["readQueueNums", "writeQueueNums", "perm"])
async def test_topics_keep_their_messages_whatever_their_numbers(
    autojump_clock, caplog, member, value
):
    disk = await left_behind(e=3)
    edit(disk, "topics.json", rf'"{member}":-?\d+', f'"{member}":{value}')
    async with broker_of(disk) as client:
        assert await bodies(client, "T", 3) == [b"body"]
        assert (await client.ask(SEND, send_fields(e=3), b"more")).code == 0
    assert f"topics.json: the {member} of topic 'T' is {value}, which is not in" in caplog.text
    caplog.clear()
    async with broker_of(disk) as client:
        assert await bodies(client, "T", 3) == [b"body", b"more"]
    assert not [record for record in caplog.records if record.levelname != "INFO"]


async def test_the_numbers_of_groups_and_versions_are_put_right(autojump_clock, caplog):
    disk = await left_behind()
    name = "subscriptionGroup.json"
    edit(disk, name, r'"retryQueueNums":\d+', '"retryQueueNums":2147483647')
    edit(disk, name, r'"retryMaxTimes":\d+', '"retryMaxTimes":-7')
    edit(disk, name, r'"counter":\d+', f'"counter":{HUGE}')
    async with broker_of(disk):
        pass
    for member, used in (("retryQueueNums", QUEUE_COUNT_MAX), ("retryMaxTimes", 16)):
        assert re.search(rf"{name}: the {member} of group 'CG' is .*: {used} is used", caplog.text)
    assert f"the counter of its dataVersion is {HUGE}" in caplog.text
    text, _ = unsealed(bytes(disk.contents[f"{CONFIG}/{name}"]))
    assert b"2147483647" not in text
    assert str(HUGE).encode() not in text


@pytest.mark.parametrize(("value", "used"), [("-3", 0), (str(1 << 63), 0), (str(10**15), 1)])
async def test_an_offset_that_cannot_be_is_replaced(autojump_clock, caplog, value, used):
    disk = await left_behind()
    edit(disk, "consumerOffset.json", r'("T@CG":\{\s*0:)\d+', rf"\g<1>{value}")
    async with broker_of(disk) as client:
        fields = {"consumerGroup": "CG", "topic": "T", "queueId": 0}
        answer = await client.ask(QUERY_OFFSET, fields)
        assert answer.ext_fields["offset"] == str(used)
        text, _ = unsealed(bytes(disk.contents[f"{CONFIG}/consumerOffset.json"]))
        assert value.encode() not in text
    assert "consumerOffset.json: the offset of T@CG queue 0 is" in caplog.text


@pytest.mark.parametrize("value", ["1e999", "NaN", '"x"', "null", "1.5", "true", "[]", "-Infinity"])
@pytest.mark.parametrize("name", ["consumerOffset.json", "delayOffset.json"])
async def test_a_number_of_a_wrong_kind_is_refused_by_name(autojump_clock, name, value):
    disk = await left_behind()
    disk.contents[f"{CONFIG}/{name}"] = bytearray(b'{"offsetTable":{1:%b}}' % value.encode())
    if name == "consumerOffset.json":
        disk.contents[f"{CONFIG}/{name}"] = bytearray(
            b'{"offsetTable":{"T@CG":{0:%b}}}' % value.encode()
        )
    disk.contents.pop(f"{CONFIG}/{name}.bak", None)
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as raised:
            async with broker_of(disk):
                pass
        assert raised.group_contains(CorruptRecordError, match=f"{CONFIG}/{name}: .*not a table")


async def test_a_bak_that_was_read_is_the_file_again(autojump_clock, caplog):
    disk = await left_behind()
    path = f"{CONFIG}/topics.json"
    disk.contents[path][20] ^= 1
    async with broker_of(disk) as client:
        assert "is used instead" in caplog.text
        caplog.clear()
        load_newest(disk, path, bytes)
        assert caplog.text == ""
        assert await bodies(client) == [b"body"]


async def test_a_bak_that_was_read_for_want_of_entries_is_the_file_again(autojump_clock, caplog):
    disk = await left_behind()
    path = f"{CONFIG}/topics.json"
    disk.contents[f"{path}.bak"] = bytearray(disk.contents[path])
    disk.contents[path] = bytearray(b"{}")
    async with broker_of(disk) as client:
        assert "topics.json has no entry; its .bak" in caplog.text
        assert b'"T"' in disk.contents[path]
        assert f"{path}.bak.bak" not in disk.contents
        assert await bodies(client) == [b"body"]


@pytest.mark.parametrize("value", [10**15, HUGE])
async def test_a_delay_offset_behind_its_queue_passes_over_nothing(autojump_clock, caplog, value):
    disk = MemoryDisk()
    async with broker_of(disk) as client:
        await client.ask(SEND, send_fields(i=properties(DELAY=1)), b"first")
        await trio.sleep(100)
        assert await bodies(client) == [b"first"]
        await client.ask(SEND, send_fields(i=properties(DELAY=4)), b"later")
        await client.ask(SEND, send_fields(i=properties(DELAY=1)), b"second")
        await trio.sleep(2)
    path = f"{CONFIG}/delayOffset.json"
    disk.contents[path] = bytearray(b'{"offsetTable":{1:%d,4:%d}}' % (value, value))
    async with broker_of(disk) as client:
        await trio.sleep(100)
        # What was due long before the log's end is not delivered twice, what waits comes.
        came = await bodies(client)
        assert came.count(b"first") == 1
        assert came.count(b"later") == 1
    assert f"delayOffset.json: the offset of level 4 is {value}" in caplog.text


@pytest.mark.parametrize("damage", ["time", "offset", "both"])
async def test_a_wrong_progress_of_the_timers_passes_over_nothing(autojump_clock, caplog, damage):
    disk = MemoryDisk()
    async with broker_of(disk) as client:
        due_ms = START_MS + int(trio.current_time() * 1000) + 60_000
        await client.ask(SEND, send_fields(i=properties(TIMER_DELIVER_MS=due_ms)), b"timer")
        await trio.sleep(5)
    page = bytearray(4096)
    time_ms = HUGE if damage != "offset" else START_MS
    offset = HUGE if damage != "time" else 1
    struct.pack_into(">4q", page, 0, time_ms, 0, offset, offset)
    disk.contents[f"{CONFIG}/timercheck"] = page
    async with broker_of(disk) as client:
        await trio.sleep(100)
        assert await bodies(client) == [b"timer"]
    assert f"{CONFIG}/timercheck says" in caplog.text
    caplog.clear()
    async with broker_of(disk) as client:
        await trio.sleep(100)
        assert await bodies(client) == [b"timer"]
    assert f"{CONFIG}/timercheck says" not in caplog.text


async def test_a_wrong_progress_of_the_transactions_loses_none(autojump_clock, caplog):
    disk = MemoryDisk()
    async with broker_of(disk) as client:
        half = properties(TRAN_MSG="true", PGROUP="PG", UNIQ_KEY="A" * 32)
        answer = await client.ask(SEND, send_fields(i=half, f=4), b"half")
        assert answer.code == 0, answer.remark
    place = answer.ext_fields
    halves = "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS"
    disk.contents[f"{CONFIG}/consumerOffset.json"] = bytearray(
        b'{"offsetTable":{"%b":{0:%d}}}' % (halves.encode(), 10**15)
    )
    async with broker_of(disk) as client:
        message_id = place["msgId"]
        fields = {
            "producerGroup": "PG",
            "tranStateTableOffset": place["queueOffset"],
            "commitLogOffset": int(message_id[16:], 16),
            "commitOrRollback": 8,
            "msgId": "A" * 32,
            "transactionId": "A" * 32,
        }
        answer = await client.ask(END_TRANSACTION, fields)
        assert answer.code == 0, answer.remark
        assert await bodies(client) == [b"half"]
    assert f"the offset of {halves} queue 0 is {10**15}" in caplog.text
