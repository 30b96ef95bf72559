"""Popped messages that come again, in a whole broker and virtual time."""

from __future__ import annotations

import logging
from functools import partial

import pytest
import trio
import trio.testing

from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.config import FlushDiskType
from trocket.store.status import PutMessageStatus, PutRefusal

from ...kit import START_MS, TrioClock, embedded_broker, put_record
from .revive_harness import (
    RETRY,
    REVIVE_GROUP,
    REVIVE_TOPIC,
    bodies,
    committed,
    create,
    point,
    put,
    revived,
    store_ack,
    store_point,
)

INVISIBLE_S = 10
LATEST_S = INVISIBLE_S + 2
"""The latest redelivery after a lost ack."""


async def test_a_message_without_ack_comes_again_soon_after_its_time(autojump_clock):
    async with embedded_broker() as broker:
        create(broker)
        put(broker)
        check_point = point(broker, [0, 1, 2])
        store_point(broker, check_point)
        store_ack(broker, check_point, [1])
        await trio.sleep(INVISIBLE_S + 0.9)
        assert bodies(broker) == []
        await trio.sleep(LATEST_S - INVISIBLE_S - 0.9)
        first, second = revived(broker)
    assert [first.body, second.body] == [b"0", b"2"]
    assert first.properties == {
        "UNIQ_KEY": "0", "ORIGIN_GROUP": "G", "1ST_POP_TIME": str(START_MS),
    }  # fmt: skip
    assert (first.reconsume_times, first.born_timestamp_ms) == (1, START_MS)
    assert first.store_host == first.born_host


async def test_waiting_pops_learn_of_a_revived_message(autojump_clock):
    seen: list[tuple[str, int]] = []
    async with embedded_broker() as broker:
        broker.controller.parts.foundation.new_messages.subscribe(seen.extend)
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
    assert (RETRY, 0) in seen


async def test_the_retry_topic_begins_at_its_first_message_for_the_group(autojump_clock):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        topic = broker.controller.topics.select(RETRY)
        assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (1, 1, 6)
        assert broker.controller.offsets.query_offset("G", RETRY, 0) == 0


async def test_retry_topics_have_the_form_and_queues_that_are_configured(autojump_clock):
    options = {"enable_retry_topic_v2": True, "use_separate_retry_queue": True}
    async with embedded_broker(**options) as broker:
        create(broker)
        put(broker, 1, queue_id=2)
        store_point(broker, point(broker, [0], queue_id=2))
        await trio.sleep(LATEST_S)
        assert [message.body for message in revived(broker, "%RETRY%G+T", 2)] == [b"0"]


@pytest.mark.slow
async def test_a_message_of_the_retry_topic_goes_there_again(autojump_clock):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        store_point(broker, point(broker, [0], topic=RETRY))
        await trio.sleep(LATEST_S)
        store_point(broker, point(broker, [1], topic=RETRY, suspend=True))
        await trio.sleep(LATEST_S)
        messages = revived(broker)
    assert [message.body for message in messages] == [b"0"] * 3
    assert [message.reconsume_times for message in messages] == [1, 2, 2]
    times = {message.properties["1ST_POP_TIME"] for message in messages}
    assert times == {str(START_MS)}


async def test_an_ack_that_is_a_little_late_counts(autojump_clock):
    async with embedded_broker() as broker:
        create(broker)
        put(broker)
        check_point = point(broker, [0, 1, 2])
        store_point(broker, check_point)
        await trio.sleep(INVISIBLE_S + 0.5)
        store_ack(broker, check_point, [0, 2])
        await trio.sleep(2)
        assert bodies(broker) == [b"1"]


async def test_acks_that_are_stored_while_the_broker_was_away_count(autojump_clock):
    """They are read before their check point, which the timer service delivers after a restart."""
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        create(broker)
        put(broker)
        check_point = point(broker, [0, 1, 2])
        for _ in range(100):  # they are read from the timer topic in slices
            store_point(broker, point(broker, [0, 1, 2], topic="gone"))
        store_point(broker, check_point)
    await trio.sleep(60)
    async with embedded_broker(disk, clock=clock) as broker:
        store_ack(broker, check_point, [0, 1])
        await trio.sleep(3)
        assert bodies(broker) == [b"2"]


async def test_the_progress_is_that_of_the_last_record_that_is_done(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        create(broker)
        put(broker)
        store_point(broker, point(broker, [0]))
        await trio.sleep(1.5)
        store_point(broker, point(broker, [1]))
        await trio.sleep(INVISIBLE_S - 0.3)  # the second one is read, and not yet due
        assert bodies(broker) == [b"0"]
        assert broker.controller.store.max_offset(REVIVE_TOPIC, 0) == 2
        await trio.sleep(0.5)
        assert committed(broker) == 0
    async with embedded_broker(disk, clock=clock) as broker:
        assert committed(broker) == 0
        await trio.sleep(3)
        assert bodies(broker) == [b"0", b"1"]
        assert committed(broker) == 1


async def test_a_restart_repeats_nothing_after_a_clean_stop(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        create(broker)
        put(broker)
        store_point(broker, point(broker, [0, 1, 2]))
        await trio.sleep(LATEST_S)
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"0", b"1", b"2"]


@pytest.mark.slow
async def test_a_recorded_offset_past_the_end_goes_back(autojump_clock):
    """After a power cut the offsets may be newer than the log: Apache's saves them unsynced."""
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock) as broker:
        create(broker)
        put(broker)
        offsets = broker.controller.offsets
        offsets.commit_offset(REVIVE_GROUP, REVIVE_TOPIC, 0, 7)
        offsets.commit_offset(REVIVE_GROUP, REVIVE_TOPIC, 1, 7)
        store_point(broker, point(broker, [0]), 1)
        await trio.sleep(INVISIBLE_S + 0.5)  # read, and not yet due
    async with embedded_broker(disk, clock=clock) as broker:
        store_point(broker, point(broker, [1]))
        await trio.sleep(LATEST_S)
        store_point(broker, point(broker, [2]), 1)
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"1", b"2"]
        assert (committed(broker, 0), committed(broker, 1)) == (0, 1)


async def test_a_topic_that_was_created_again_revives_no_other_message(autojump_clock):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 5)
        store_point(broker, point(broker, [3, 4]))
        store_point(broker, point(broker, [1, 2]))
        broker.controller.topics.delete(["T"])
        broker.controller.store.delete_topics(["T"])
        create(broker)
        put(broker, 2)
        await trio.sleep(LATEST_S + 60)
        assert bodies(broker) == [b"1"]  # at its offset; 2, 3 and 4 are gone
        assert broker.controller.parts.pop.services.revive.re_puts == 0
        assert committed(broker) == 1


@pytest.mark.parametrize("deleted", ["topic", "group"])
async def test_nothing_comes_again_for_what_was_deleted(deleted, autojump_clock, caplog):
    async with embedded_broker(auto_create_subscription_group=False) as broker:
        broker.controller.config.auto_create_subscription_group = True
        create(broker)
        broker.controller.config.auto_create_subscription_group = False
        put(broker)
        store_point(broker, point(broker, [0, 1]))
        if deleted == "topic":
            broker.controller.topics.delete(["T"])
        else:
            broker.controller.groups.delete("G")
        await trio.sleep(LATEST_S)
        assert broker.controller.topics.select(RETRY) is None
        await trio.sleep(1)
        assert committed(broker) == 0
    assert f"the {deleted} was deleted" in caplog.text


async def test_a_deleted_group_is_served_where_that_is_wanted(autojump_clock):
    options = {"pop_revive_skip_if_group_absent": False, "auto_create_subscription_group": False}
    async with embedded_broker(**options) as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"0"]


async def test_a_message_that_cannot_be_read_is_tried_again_later(
    autojump_clock, monkeypatch, caplog
):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 2)
        store_point(broker, point(broker, [0, 1]))
        store = broker.controller.store
        real = store.get_message

        def failing(topic, queue_id, offset, *more):
            if (topic, offset) == ("T", 0):
                raise StoreIOError("/store/commitlog/0", "Input/output error")
            return real(topic, queue_id, offset, *more)

        with monkeypatch.context() as broken:
            broken.setattr(store, "get_message", failing)
            await trio.sleep(LATEST_S + 5)
            assert bodies(broker) == [b"1"]
            assert broker.controller.parts.pop.services.revive.re_puts == 1
        await trio.sleep(8)
        assert bodies(broker) == [b"1", b"0"]
        await trio.sleep(1)
        assert committed(broker) == 1
    assert "the next try follows in 10 s: /store/commitlog/0: Input/output error" in caplog.text


@pytest.mark.parametrize("skips", [True, False])
async def test_a_message_is_given_up_only_where_that_is_wanted(skips, autojump_clock, monkeypatch):
    async with embedded_broker(skip_when_ck_re_put_reach_max_times=skips) as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0], re_put_times=17))
        store = broker.controller.store
        real = store.get_message

        def failing(topic, *more):
            if topic == "T":
                raise StoreIOError("/store/commitlog/0", "Input/output error")
            return real(topic, *more)

        monkeypatch.setattr(store, "get_message", failing)
        await trio.sleep(LATEST_S + 1)
        assert broker.controller.parts.pop.services.revive.re_puts == (0 if skips else 1)
        assert committed(broker) == 0


async def test_a_message_that_is_too_large_now_comes_when_the_limit_is_raised(autojump_clock):
    disk, clock = MemoryDisk(), TrioClock()
    body = b"x" * 2_000
    async with embedded_broker(disk, clock=clock) as broker:
        create(broker)
        put_record(broker, "T", "UNIQ_KEY\1a\2", body)
        store_point(broker, point(broker, [0]))
    async with embedded_broker(disk, clock=clock, max_message_size=1_000) as broker:
        await trio.sleep(LATEST_S)
        assert bodies(broker) == []
        assert broker.controller.parts.pop.services.revive.re_puts == 1
    async with embedded_broker(disk, clock=clock) as broker:
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [body]


async def test_a_changed_name_of_the_cluster_is_noticed(autojump_clock, caplog):
    disk, clock = MemoryDisk(), TrioClock()
    async with embedded_broker(disk, clock=clock, broker_cluster_name="C") as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"0"]
    warning = "topic rmq_sys_REVIVE_LOG_C is that of another brokerClusterName"
    assert warning not in caplog.text
    async with embedded_broker(disk, clock=clock, broker_cluster_name="D"):
        assert warning in caplog.text


async def test_messages_of_another_broker_are_not_taken_for_own_ones(autojump_clock, caplog):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 1)
        store_point(broker, point(broker, [0], broker_name="other"))
        await trio.sleep(LATEST_S)
        assert bodies(broker) == []
        assert broker.controller.parts.pop.services.revive.re_puts == 1
    assert "they are messages of broker other, not of this one" in caplog.text


async def test_what_the_store_refuses_comes_later(autojump_clock, monkeypatch):
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 2)
        store_point(broker, point(broker, [0, 1]))
        await trio.sleep(INVISIBLE_S)
        with monkeypatch.context() as refusing:
            refused = (PutRefusal(PutMessageStatus.SERVICE_NOT_AVAILABLE), -1, -1)
            refusing.setattr(broker.controller.store, "put", lambda *a, **more: refused)
            await trio.sleep(5)
        assert committed(broker) == -1
        await trio.sleep(1)
        assert bodies(broker) == [b"0", b"1"]
        assert committed(broker) == 0


@pytest.mark.slow
async def test_what_the_store_cannot_write_comes_later(autojump_clock, monkeypatch, caplog):
    def failing():
        raise StoreIOError("log", "no space left")

    async with embedded_broker() as broker:
        create(broker)
        put(broker)
        check_point = point(broker, [0, 1, 2])
        store_point(broker, check_point)
        store_ack(broker, check_point, [1])
        await trio.sleep(INVISIBLE_S + 0.5)
        with monkeypatch.context() as broken:
            broken.setattr(broker.controller.store, "commit", failing)
            await trio.sleep(LATEST_S)
            assert "popped messages are revived later" in caplog.text
            assert bodies(broker) == []
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"0", b"2"]


async def test_properties_without_room_stay_as_they_are(autojump_clock):
    from ...kit import put_record

    long = "UNIQ_KEY\1k\2X\1" + "x" * 32_700 + "\2"
    async with embedded_broker() as broker:
        create(broker)
        put_record(broker, "T", long, b"long")
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        (message,) = revived(broker)
    assert (message.body, len(message.properties["X"])) == (b"long", 32_700)


async def test_broken_records_are_skipped(autojump_clock, caplog):
    from ...kit import put_record

    async with embedded_broker() as broker:
        create(broker)
        put(broker, 1)
        put_record(broker, REVIVE_TOPIC, "TAGS\1ck\2", b"{")
        put_record(broker, REVIVE_TOPIC, "TAGS\1ack\2", b"[]")
        store_point(broker, point(broker, [0]))
        await trio.sleep(LATEST_S)
        assert bodies(broker) == [b"0"]
        await trio.sleep(1)
        assert committed(broker) == 2
    assert len([each for each in caplog.records if "is skipped" in each.message]) == 2


async def test_an_unexpected_error_delays_one_check_point_only(autojump_clock, monkeypatch, caplog):
    caplog.set_level(logging.CRITICAL, logger="trocket.broker.pop.revive_service")
    async with embedded_broker() as broker:
        create(broker)
        put(broker, 2)
        store_point(broker, point(broker, [0]))
        store_point(broker, point(broker, [1]))
        store = broker.controller.store
        real = store.get_message

        def failing(topic, queue_id, offset, *more):
            if (topic, offset) == ("T", 0):
                raise ZeroDivisionError
            return real(topic, queue_id, offset, *more)

        with monkeypatch.context() as broken:
            broken.setattr(store, "get_message", failing)
            await trio.sleep(LATEST_S + 3)
            assert bodies(broker) == [b"1"]
            assert committed(broker) == -1
        await trio.sleep(2)
        assert bodies(broker) == [b"1", b"0"]
        assert committed(broker) == 1


async def test_acks_count_under_sync_flush(autojump_clock):
    """What the timer service has delivered can be read only after an fsync."""
    async with embedded_broker(flush_disk_type=FlushDiskType.SYNC_FLUSH) as broker:
        create(broker)
        put(broker, 3)
        await trio.sleep(1)
        check_point = point(broker, [0, 1, 2])
        store_point(broker, check_point)
        store_ack(broker, check_point, [0, 1])
        await trio.sleep(LATEST_S + 1)
        assert bodies(broker) == [b"2"]


@pytest.mark.slow
async def test_many_that_are_due_at_once_leave_the_broker_answering(autojump_clock):
    longest = 0
    async with embedded_broker() as broker:
        create(broker)
        count = 2_000
        put(broker, count)
        for first in range(0, count, 8):
            store_point(broker, point(broker, range(first, first + 8)), first // 8 % 8)
        done = 0
        seen: list[int] = []

        def note(_: object) -> None:
            nonlocal longest, done
            now = broker.controller.store.max_offset(RETRY, 0)
            longest, done = max(longest, now - done), now
            seen.append(now)

        broker.controller.parts.foundation.new_messages.subscribe(partial(note))
        await trio.sleep(LATEST_S)
        assert sorted(bodies(broker), key=int) == [b"%d" % number for number in range(count)]
    assert longest <= 72
