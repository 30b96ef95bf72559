"""Numbers from files of the store were believed before log and clock were asked.

The offset of `fsync_doubt.trocket`, the offsets of `queue_ends.trocket`, the times in the headers
of index files.
"""

from __future__ import annotations

import json
import struct
import zlib

import pytest

from trocket.common.clock import ManualClock
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import QueueEnds

from ..store.support import ROOT, bodies, open_store, send

DOUBT = f"{ROOT}/fsync_doubt.trocket"
ENDS = f"{ROOT}/queue_ends.trocket"
HUGE = (1 << 63) - 1


def stopped(clock: ManualClock, *, clean: bool = True) -> MemoryDisk:
    """A store of 100 messages with keys, closed or killed; two index files are full."""
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    for number in range(100):
        send(store, b"%d" % number, properties=b"KEYS\x01k%d\x02" % number)
        store.index.work(60.0)
        store.index.finish_full_files()
    store.flusher.flush()
    if clean:
        store.close()
    disk.process_death()
    return disk


@pytest.mark.parametrize("text", [b"9" * 20, b"00000000000099999999", b"", b"-1", b"\xb2", b"x"])
def test_a_doubt_behind_the_logs_end_is_a_doubt_of_all(text, caplog):
    clock = ManualClock()
    disk = stopped(clock, clean=False)
    disk.contents[DOUBT] = bytearray(text)
    rewritten: list[str] = []

    def note(operation: str, path: str) -> None:
        if operation == "pwrite" and "/commitlog/" in path:
            rewritten.append(path)

    disk.fault = note
    store = open_store(disk, clock=clock)
    assert rewritten, "what may not be on the device was not written again"
    assert f"{DOUBT}: its offset is" in caplog.text
    assert "0 is used in its place" in caplog.text
    assert not disk.exists(DOUBT)
    assert len(bodies(store)) == 100


@pytest.mark.parametrize(
    "name", ["logStart", "ownFrom", "beginsAt", "dispatchedOffset", "fileSize"]
)
@pytest.mark.parametrize("value", [1 << 63, -2, "7", None, 1.5, [], True])
def test_ends_with_a_number_that_is_no_offset_do_not_count(name, value, caplog):
    clock = ManualClock()
    disk = stopped(clock)
    content = json.loads(bytes(disk.contents[ENDS]).partition(b"\n")[2])
    content[name] = value
    text = json.dumps(content).encode()
    disk.contents[ENDS] = bytearray(b"%08x\n%s" % (zlib.crc32(text), text))
    store = open_store(disk, clock=clock)
    assert len(bodies(store)) == 100
    assert f"{ENDS} is ignored: its {name} is" in caplog.text
    disk.process_death()
    assert QueueEnds.from_bytes(bytes(disk.contents[ENDS])).ends == {("T", 0): 100}


@pytest.mark.parametrize("text", [b"[]", b"{}", b'{"version":1}', b'{"version":1,"queues":[1]}'])
def test_ends_of_another_kind_do_not_count(text):
    with pytest.raises(ValueError, match="missing or of a wrong kind"):
        QueueEnds.from_bytes(b"%08x\n%s" % (zlib.crc32(text), text))


@pytest.mark.parametrize("clean", [True, False])
def test_an_index_file_of_a_time_to_come_is_built_again(clean, caplog):
    """Neither its name nor its time is vouched for once the checkpoint is gone, too."""
    clock = ManualClock()
    disk = stopped(clock, clean=clean)
    index = min(path for path in disk.contents if path.startswith(f"{ROOT}/index/"))
    struct.pack_into(">q", disk.contents[index], 8, HUGE)
    disk.contents[f"{ROOT}/checkpoint"] = bytearray(struct.pack(">3q", *[clock.now_ms] * 3))
    store = open_store(disk, clock=clock)
    while store.index.is_behind:
        store.index.work(60.0)
        store.index.finish_full_files()
    assert index in caplog.text
    found = [store.query_by_key("T", f"k{number}", 9, 0, 1 << 62).buffers for number in range(100)]
    assert [len(each) for each in found] == [1] * 100
    store.close()
    times = struct.unpack_from(">3q", disk.contents[f"{ROOT}/checkpoint"])
    assert max(times) <= clock.now_ms


def test_a_queue_whose_last_unit_lies_before_the_log_is_built_again(caplog):
    """A negative physical offset was taken for that of a message that retention has deleted."""
    clock = ManualClock()
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    send(store)
    store.flusher.flush()
    store.queue_store.write()
    store.checkpoints.write(store.dispatched_offset, clock.now_ms)
    disk.process_death()
    queue = disk.contents[f"{ROOT}/consumequeue/T/0/{0:020d}"]
    for unit in range(20):
        struct.pack_into(">qiq", queue, 20 * unit, -(1 << 62) if unit == 0 else 7, 1000, 0)
    assert bodies(open_store(disk, clock=clock)) == [b"body"]
    assert "queue 0 of topic T is rebuilt from the log" in caplog.text


@pytest.mark.parametrize("unit", [5, 10, 19, 25, 30])
def test_a_unit_of_a_negative_offset_hides_no_message_before_it(unit):
    """The search for the queue's first message halved to it, and took all before it for deleted."""
    clock = ManualClock()
    disk = MemoryDisk()
    store = open_store(disk, clock=clock)
    for number in range(40):
        send(store, b"%d" % number)
    store.close()
    name = f"{unit // 20 * 400:020d}"
    queue = disk.contents[f"{ROOT}/consumequeue/T/0/{name}"]
    struct.pack_into(">qiq", queue, unit % 20 * 20, -5, 1000, 0)
    again = open_store(disk, clock=clock)
    assert again.min_offset("T", 0) == 0
    assert again.get_message("T", 0, 0, unit).count == min(unit, 20)  # a get ends with its file
