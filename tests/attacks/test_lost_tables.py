"""Messages were lost in silence where `topics.json`, or its folder, was gone or held nothing.

The broker started, its log had the messages, and reads failed with TOPIC_NOT_EXIST. Now the
topics are made again from the consume queues, and the log says what the loss of each table means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from trocket.disk.errors import CorruptRecordError
from trocket.disk.memory_disk import MemoryDisk
from trocket.store.offline.fsck import check_store
from trocket.store.offline.mend import carry_out, plan_for

from ..kit import (
    Broker,
    Client,
    bodies,
    broker_client,
    embedded_broker,
    pull_fields,
    send_fields,
    topic_fields,
)
from .test_unsaved_topics import TightDisk

SEND, PULL, SEND_BACK = 310, 11, 36
CONFIG = "/store/config/"
TOPICS, GROUPS = f"{CONFIG}topics.json", f"{CONFIG}subscriptionGroup.json"
OFFSETS, DELAYS = f"{CONFIG}consumerOffset.json", f"{CONFIG}delayOffset.json"


def removed(disk: MemoryDisk, path: str) -> None:
    for each in [name for name in disk.contents if name.startswith(path)]:
        del disk.contents[each]


def holding(text: bytes, *, with_spare: bool) -> Callable[[MemoryDisk, str], None]:
    def damage(disk: MemoryDisk, path: str) -> None:
        if not with_spare:
            removed(disk, path)
        disk.contents[path] = bytearray(text)

    return damage


def halved(disk: MemoryDisk, path: str) -> None:
    del disk.contents[path][len(disk.contents[path]) // 2 :]


def zeroed(disk: MemoryDisk, path: str) -> None:
    disk.contents[path][:] = bytes(len(disk.contents[path]))


async def filled(disk: MemoryDisk, *, clean: bool = True) -> MemoryDisk:
    """A store with messages of every kind, whose broker was stopped or killed."""
    async with broker_client(disk) as client:
        for queue_id in (0, 2):
            for number in range(3):
                fields = send_fields("T", queue_id)
                assert (await client.ask(SEND, fields, b"t%d" % number)).code == 0
        assert (await client.ask(SEND, send_fields("U"), b"u")).code == 0
        delayed = send_fields("U", i="UNIQ_KEY\x01A\x02DELAY\x0118\x02")
        assert (await client.ask(SEND, delayed, b"later")).code == 0
        fields = {"group": "G", "offset": 0, "delayLevel": -1, "maxReconsumeTimes": 0}
        assert (await client.ask(SEND_BACK, fields)).code == 0
        commit = pull_fields("T", sysFlag=1 | 4, commitOffset=1)
        assert (await client.ask(PULL, commit)).code == 0
        killed = disk.copy()
    return disk if clean else killed


async def all_is_there(broker: Broker, client: Client) -> None:
    for queue_id in (0, 2):
        assert await bodies(client, "T", queue_id) == [b"t0", b"t1", b"t2"]
    assert await bodies(client, "U") == [b"u"]
    assert await bodies(client, "%DLQ%G") == [b"t0"]
    for topic in ("T", "U", "%DLQ%G"):
        known = broker.controller.topics.select(topic)
        assert known is not None
        assert known.perm == 6
    assert (await client.ask(SEND, send_fields("T", 2), b"more")).code == 0


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("path", "damage"),
    [
        (TOPICS, removed),
        (CONFIG, removed),
        (TOPICS, holding(b"{}", with_spare=False)),
        (TOPICS, holding(b'{"topicConfigTable":{}}', with_spare=False)),
        (TOPICS, holding(b"{}", with_spare=True)),
        (TOPICS, holding(b"null", with_spare=True)),
        (TOPICS, holding(b"[]", with_spare=True)),
        (TOPICS, holding(b"", with_spare=True)),
        (TOPICS, halved),
        (TOPICS, zeroed),
    ],
)
async def test_topics_that_the_table_has_lost_are_made_again_from_the_queues(
    path: str,
    damage: Callable[[MemoryDisk, str], None],
    clean: bool,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = await filled(MemoryDisk(), clean=clean)
    damage(disk, path)
    caplog.clear()
    async with embedded_broker(disk) as broker:
        await all_is_there(broker, await broker.connect())
    assert any(record.levelno >= logging.WARNING for record in caplog.records)
    if not any(name.startswith(f"{TOPICS}.bak") for name in disk.contents):
        assert "topics.json" in caplog.text
        assert "topic 'T' is in no table, but the store has 6 messages" in caplog.text
        assert "writeQueueNums 3 and perm 6" in caplog.text
    caplog.clear()
    async with embedded_broker(disk) as broker:  # they were saved
        assert b"more" in await bodies(await broker.connect(), "T", 2)
    assert "in no table" not in caplog.text


@pytest.mark.parametrize("text", [b"null", b"[]", b"", b"\0\0\0\0"])
async def test_a_broker_that_has_only_garbage_for_a_table_says_what_to_do(text: bytes) -> None:
    disk = await filled(MemoryDisk())
    holding(text, with_spare=False)(disk, OFFSETS)
    with pytest.RaisesGroup(
        pytest.RaisesExc(CorruptRecordError, match="restore one or remove both"),
        flatten_subgroups=True,
    ):
        async with embedded_broker(disk):
            pass
    removed(disk, OFFSETS)
    async with embedded_broker(disk) as broker:
        await all_is_there(broker, await broker.connect())


@pytest.mark.parametrize("text", [b"null", b"[]", b"", b"\0\0\0\0", b"{bad"])
async def test_garbage_for_the_topics_is_replaced_from_the_queues_and_kept(
    text: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await filled(MemoryDisk())
    holding(text, with_spare=False)(disk, TOPICS)
    async with embedded_broker(disk) as broker:
        await all_is_there(broker, await broker.connect())
    assert "config/topics.json cannot be used, nor can its .bak" in caplog.text
    assert bytes(disk.contents[f"{TOPICS}.damaged"]) == text
    caplog.clear()
    async with embedded_broker(disk) as broker:
        assert b"more" in await bodies(await broker.connect(), "T", 2)
    assert "cannot be used" not in caplog.text


@pytest.mark.parametrize("is_empty", [True, False])
@pytest.mark.parametrize(
    ("path", "words"),
    [
        (GROUPS, ["autoCreateSubscriptionGroup", "offsets and retry topics: CG"]),
        (OFFSETS, ["consumeFromWhere", "resetOffsetByTime"]),
        (DELAYS, ["delayed messages that are still in the log are delivered again"]),
    ],
)
async def test_the_loss_of_another_table_is_reported_with_what_it_means(
    path: str,
    words: list[str],
    is_empty: bool,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = await filled(MemoryDisk())
    removed(disk, path)
    if is_empty:
        disk.contents[path] = bytearray(b"{}")
    caplog.clear()
    async with embedded_broker(disk):
        pass
    name = path.removeprefix("/store/")
    (line,) = [
        record.getMessage() for record in caplog.records if record.getMessage().startswith(name)
    ]
    assert ("has no entry" if is_empty else "is missing") in line
    assert "restore it from a backup" in line
    for word in words:
        assert word in line


async def test_a_new_broker_and_one_that_only_takes_messages_report_nothing(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    for _ in range(2):
        async with broker_client(disk) as client:
            assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_deleted_topic_does_not_come_back(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Not after a kill, by which recovery builds its queues again, and not from a delayed one."""
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
        assert (await client.ask(SEND, send_fields("Again"), b"old")).code == 0
        for topic in ("T", "Again"):
            assert (await client.ask(215, {"topic": topic})).code == 0
        assert (await client.ask(SEND, send_fields("Again"), b"new")).code == 0
        killed = disk.copy()
    for damaged in (disk, killed):
        removed(damaged, CONFIG)
        caplog.clear()
        async with embedded_broker(damaged) as broker:
            topics = broker.controller.topics
            assert topics.select("T") is None
            assert topics.select("Again") is not None
            assert b"new" in await bodies(await broker.connect(), "Again")
        assert "topic 'T'" not in caplog.text


async def test_what_may_have_been_deleted_before_deletions_were_noted_is_only_reported(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    disk = await filled(MemoryDisk())
    del disk.contents["/store/deleted_topics.trocket"]
    text = bytes(disk.contents[TOPICS])
    removed(disk, TOPICS)
    disk.contents[TOPICS] = bytearray(text.replace(b'"U"', b'"V"')[:-33])
    caplog.clear()
    async with embedded_broker(disk) as broker:
        assert broker.controller.topics.select("U") is None
        assert broker.controller.topics.select("T") is not None
    assert "topic 'U' is in no table" in caplog.text
    assert "may have been deleted" in caplog.text


async def test_a_deletion_that_cannot_be_noted_is_refused(autojump_clock: object) -> None:
    disk = TightDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
        disk.without_room = frozenset({"deleted_topics"})
        answer = await client.ask(215, {"topic": "T"})
        assert answer.code == 1
        assert "was not deleted" in (answer.remark or "")
        assert await bodies(client, "T") == [b"x"]
        disk.without_room = frozenset()
        assert (await client.ask(215, {"topic": "T"})).code == 0


async def test_repair_adds_topics_that_the_table_lacks(autojump_clock: object) -> None:
    disk = await filled(MemoryDisk())
    holding(b'{"dataVersion":{"counter":3},"topicConfigTable":{}}', with_spare=False)(disk, TOPICS)
    before, plan = plan_for(disk, "/store")
    after = carry_out(disk, disk, before, plan)
    assert before.unknown_topics == {"%DLQ%G": 1, "T": 3, "U": 1}
    assert {step.kind for step in plan.steps} >= {"config.topics"}
    assert after.unknown_topics == {}
    assert b'"counter":4' in bytes(disk.contents[TOPICS]).replace(b" ", b"")
    async with embedded_broker(disk) as broker:
        await all_is_there(broker, await broker.connect())


async def test_repair_does_not_add_a_topic_that_was_deleted(autojump_clock: object) -> None:
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
        assert (await client.ask(215, {"topic": "T"})).code == 0
    before = check_store(disk, "/store")
    assert before.unknown_topics == {}


@pytest.mark.parametrize("sent", [[b"x"], []], ids=["a message", "an empty log"])
async def test_a_topic_of_another_broker_with_an_attribute_that_is_not_served_is_warned_of(
    sent, caplog
):
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        assert (await client.ask(17, topic_fields("T"))).code == 0
        for body in sent:
            assert (await client.ask(SEND, send_fields("T"), body)).code == 0
    text = disk.contents[TOPICS].decode()
    head, _, rest = text.partition('"T":{')
    assert rest
    before, _, after = rest.partition('"attributes":{')
    text = f'{head}"T":{{{before}"attributes":{{"cleanup.policy":"COMPACTION"{after}'
    disk.contents[TOPICS][:] = text.rstrip().encode()  # without the checksum
    async with broker_client(disk) as client:
        assert await bodies(client, "T") == sent
    lines = [each.getMessage() for each in caplog.records if "COMPACTION" in each.getMessage()]
    assert len(lines) == 1
    assert "topic 'T' has the attribute cleanup.policy=COMPACTION" in lines[0]
