"""A start after RocketMQ's broker, or without queue_ends.trocket, finds queues that were lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trocket.disk.memory_disk import MemoryDisk
from trocket.store.queues.queue_ends import FILE_NAME as QUEUE_ENDS
from trocket.store.recovery.checkpoint import read_checkpoint, write_checkpoint

from .damaged import assert_whole
from .support import ROOT, bodies, open_store, put, send

COUNT = 200


def closed_by_rocketmq(count=COUNT, *, half=False):
    """A store as RocketMQ's broker stops it: nothing of this program says where queues end."""
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(count):
        # The lost queue has no message in the newest file, which a start reads anyway.
        topic = "Lost" if number < count // 4 else "T"
        send(store, b"%d" % number + b"." * 2000, topic=topic, queue_id=0)
        if half and number % 10 == 0:
            assert put(store, b"half", sys_flag=4)[0] is None
            store.commit()
    store.close()
    forget(disk)
    return disk


def forget(disk):
    disk.unlink(f"{ROOT}/{QUEUE_ENDS}")
    path = f"{ROOT}/checkpoint"
    page = read_checkpoint(disk, path)
    write_checkpoint(disk, path, replace(page, dispatched_offset=-1, index=None))


def topics(disk, *names):
    table = b",".join(b'"%b":{"topicName":"%b"}' % (name, name) for name in names)
    disk.make_folder(f"{ROOT}/config")
    text = b'{"topicConfigTable":{%b}}' % table
    disk.contents[f"{ROOT}/config/topics.json"] = bytearray(text)


@pytest.mark.parametrize("half", [False, True])
def test_a_queue_whose_folder_was_lost_is_built_again_after_a_stop_of_rocketmq(caplog, half):
    disk = closed_by_rocketmq(half=half)
    topics(disk, b"T", b"Lost")
    disk.remove_folder(f"{ROOT}/consumequeue/Lost")
    store = open_store(disk)
    assert len(bodies(store, "Lost")) == COUNT // 4
    assert send(store, topic="Lost") == COUNT // 4
    assert_whole(store)
    assert "queue 0 of topic Lost is rebuilt from the log: the log has messages" in caplog.text


def test_a_queue_that_lost_its_oldest_file_is_built_again_after_a_stop_of_rocketmq():
    disk = closed_by_rocketmq()
    disk.unlink(f"{ROOT}/consumequeue/Lost/0/{0:020d}")
    store = open_store(disk)
    assert len(bodies(store, "Lost")) == COUNT // 4


def test_a_queue_is_built_again_when_only_the_file_of_queue_ends_was_lost_with_it():
    disk = closed_by_rocketmq()
    store = open_store(disk)
    store.close()
    disk.unlink(f"{ROOT}/{QUEUE_ENDS}")
    disk.remove_folder(f"{ROOT}/consumequeue/Lost")
    assert len(bodies(open_store(disk), "Lost")) == COUNT // 4


@pytest.mark.parametrize("half", [False, True])
def test_a_whole_store_of_rocketmq_is_opened_without_a_word(caplog, half):
    store = open_store(closed_by_rocketmq(half=half))
    assert len(bodies(store, "Lost")) == COUNT // 4
    assert "rebuilt" not in caplog.text


def test_a_topic_that_rocketmq_deleted_does_not_come_back():
    disk = closed_by_rocketmq()
    topics(disk, b"T")
    disk.remove_folder(f"{ROOT}/consumequeue/Lost")
    store = open_store(disk)
    assert ("Lost", 0) not in store.queue_store.queues


def test_a_topic_that_was_deleted_and_created_again_is_no_lost_queue(caplog):
    disk = MemoryDisk()
    store = open_store(disk)
    for number in range(60):
        send(store, b"old %d" % number + b"." * 2000)
    store.delete_topics(["T"])
    for number in range(40):
        send(store, b"new %d" % number + b"." * 2000)
    store.close()
    forget(disk)
    store = open_store(disk)
    assert len(bodies(store)) == 40
    assert "rebuilt" not in caplog.text
