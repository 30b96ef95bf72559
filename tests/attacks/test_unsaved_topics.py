"""Sends were answered SEND_OK in topics that `topics.json` could not take: a crash lost the topic.

The log has room, the folder of the tables has none. What is answered with success must be readable
after a crash, and what is refused must not be stored.
"""

from __future__ import annotations

import errno
import math

import pytest
import trio
import trio.testing

from trocket.common.clock import SystemClock
from trocket.common.connection_policy import BUDGET_MIN
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.bodies import (
    ConsumerData,
    HeartbeatData,
    SubscriptionGroupConfig,
    TopicConfig,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import Message
from trocket.remoting.message_codec import encode_batch
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import FlushDiskType

from ..kit import (
    Broker,
    bodies,
    broker_and_client,
    broker_client,
    embedded_broker,
    send_fields,
    topic_fields,
)

SEND, PULL, SEND_BACK, HEARTBEAT = 310, 11, 36, 34
TOPICS, GROUPS = "topics.json", "subscriptionGroup.json"
FLUSHES = [FlushDiskType.ASYNC_FLUSH, FlushDiskType.SYNC_FLUSH]
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


class TightDisk(MemoryDisk):
    """A disk in memory that has no room for some files.

    Args:
      threaded: whether worker threads save, as on a real disk; time is real then.
    """

    def __init__(self, *, threaded: bool = False) -> None:
        super().__init__()
        self.threaded = threaded
        self.without_room: frozenset[str] = frozenset()
        self.fault = self._fault

    def _fault(self, operation: str, path: str) -> OSError | None:
        if any(name in path for name in self.without_room):
            return OSError(errno.ENOSPC, "no space left on device")
        return None


async def after_kill(disk: TightDisk, topic: str) -> list[bytes]:
    """What can be read of a topic by the broker that comes after a kill."""
    async with embedded_broker(disk.copy(), flush_disk_type=FLUSHES[0]) as broker:
        return await bodies(await broker.connect(), topic)


async def retried(broker: Broker) -> None:
    """Wait until the broker has saved what it could not: it tries again each second."""
    controller = broker.controller
    with trio.fail_after(60):
        while controller.topics.unsaved or not controller.groups.is_saved("G"):  # noqa: ASYNC110
            await trio.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("flush", FLUSHES)
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_send_into_a_topic_that_cannot_be_saved_is_refused_and_comes_back(
    flush: FlushDiskType, threaded: bool, mock_clock: trio.testing.MockClock
) -> None:
    disk = TightDisk(threaded=threaded)
    mock_clock.rate = 1.0 if threaded else 0.0
    mock_clock.autojump_threshold = math.inf if threaded else 0.0
    async with broker_and_client(disk, clock=SystemClock(), flush_disk_type=flush) as (
        broker,
        client,
    ):
        assert (await client.ask(SEND, send_fields("Old"), b"old")).code == 0
        disk.without_room = frozenset({TOPICS})
        for _ in range(3):
            answer = await client.ask(SEND, send_fields("New"), b"refused")
            assert answer.code == REFUSED
            assert "topic[New] is new" in (answer.remark or "")
            assert "No space left" in (answer.remark or "")
        assert (await client.ask(SEND, send_fields("Old"), b"too")).code == 0
        assert await after_kill(disk, "Old") == [b"old", b"too"]
        disk.without_room = frozenset()
        await retried(broker)
        assert (await client.ask(SEND, send_fields("New"), b"new")).code == 0
        assert await bodies(client, "New") == [b"new"]
        assert await after_kill(disk, "New") == [b"new"]


async def test_sends_that_wait_for_one_topic_are_stored_in_the_order_in_which_they_came() -> None:
    async with broker_client(TightDisk(threaded=True), clock=SystemClock()) as client:
        count = 20
        opaques = []
        for number in range(count):
            topic = "New" if number % 2 == 0 else f"Other{number}"
            fields = {name: str(value) for name, value in send_fields(topic).items()}
            opaques.append(await client.send(RemotingCommand(SEND, fields, b"%d" % number)))
        for opaque in opaques:
            assert (await client.answer(opaque)).code == 0
        assert await bodies(client, "New") == [b"%d" % number for number in range(0, count, 2)]


async def test_a_batch_into_a_topic_that_cannot_be_saved_is_refused(
    autojump_clock: object,
) -> None:
    disk = TightDisk()
    disk.without_room = frozenset({TOPICS})
    async with broker_and_client(disk) as (broker, client):
        batch = encode_batch([Message("New", b"1"), Message("New", b"2")])
        assert (await client.ask(320, send_fields("New", m="true"), batch)).code == REFUSED
        disk.without_room = frozenset()
        await retried(broker)
        assert await bodies(client, "New") == []
        assert (await client.ask(320, send_fields("New", m="true"), batch)).code == 0
        assert await after_kill(disk, "New") == [b"1", b"2"]


@pytest.mark.parametrize("name", [TOPICS, GROUPS])
async def test_what_is_sent_back_is_refused_while_its_group_or_topic_cannot_be_saved(
    name: str, autojump_clock: object
) -> None:
    disk = TightDisk()
    async with broker_and_client(disk) as (broker, client):
        assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
        disk.without_room = frozenset({name})
        fields = {"group": "G", "offset": 0, "delayLevel": -1, "maxReconsumeTimes": 0}
        answer = await client.ask(SEND_BACK, fields)
        assert answer.code == REFUSED
        assert "%RETRY%G" in answer.remark if name == TOPICS else "group[G]" in answer.remark
        disk.without_room = frozenset()
        await retried(broker)
        assert await bodies(client, "%DLQ%G") == []
        assert (await client.ask(SEND_BACK, fields)).code == 0
        assert await after_kill(disk, "%DLQ%G") == [b"x"]


async def test_a_transaction_and_a_delayed_message_wait_for_their_topic(
    autojump_clock: object,
) -> None:
    disk = TightDisk()
    disk.without_room = frozenset({TOPICS})
    async with broker_and_client(disk) as (broker, client):
        for more in ("TRAN_MSG\x01true\x02PGROUP\x01PG\x02", "DELAY\x013\x02"):
            fields = send_fields("New", i=f"UNIQ_KEY\x01A\x02{more}")
            assert (await client.ask(SEND, fields, b"x")).code == REFUSED
        assert broker.controller.store.max_physical_offset == 0


@pytest.mark.parametrize("name", [TOPICS, GROUPS])
async def test_a_heartbeat_whose_group_cannot_be_saved_is_refused(
    name: str, autojump_clock: object
) -> None:
    disk = TightDisk()
    disk.without_room = frozenset({name})
    data = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="G")])
    async with broker_client(disk) as client:
        for _ in range(2):
            answer = await client.ask(HEARTBEAT, {}, data.to_body())
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "No space left" in (answer.remark or "")
        disk.without_room = frozenset()
        assert (await client.ask(HEARTBEAT, {}, data.to_body())).code == 0
        contents = disk.copy().contents
    assert b"%RETRY%G" in contents[f"/store/config/{TOPICS}"]
    assert b'"G"' in contents[f"/store/config/{GROUPS}"]


async def test_queues_that_an_administrator_adds_take_messages_once_they_are_saved(
    autojump_clock: object,
) -> None:
    disk = TightDisk()
    async with broker_and_client(disk) as (broker, client):
        assert (await client.ask(SEND, send_fields("T"), b"x")).code == 0
        disk.without_room = frozenset({TOPICS})
        assert (await client.ask(17, topic_fields("T", 16))).code == ResponseCode.SYSTEM_ERROR
        answer = await client.ask(SEND, send_fields("T", 12), b"y")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        disk.without_room = frozenset()
        await retried(broker)
        assert (await client.ask(SEND, send_fields("T", 12), b"y")).code == 0


@pytest.mark.slow
@pytest.mark.parametrize("code", [17, 18, 200, 225, 215, 207])
async def test_an_administrator_is_refused_what_cannot_be_saved(
    code: int, autojump_clock: object
) -> None:
    disk = TightDisk()
    async with broker_client(disk) as client:
        group = SubscriptionGroupConfig(group_name="G").to_body()
        topic = topic_fields()
        if code in (215, 207):
            assert (await client.ask(17, topic)).code == 0
            assert (await client.ask(200, {}, group)).code == 0
        disk.without_room = frozenset({"/store/config"})
        body = {
            18: b'{"topicConfigList":[%b]}' % TopicConfig(topic_name="T").to_body(),
            200: group,
            225: b'{"groupConfigList":[%b]}' % group,
        }.get(code, b"")
        fields = {17: topic, 215: {"topic": "T"}, 207: {"groupName": "G"}}.get(code, {})
        for _ in range(2):
            answer = await client.ask(code, fields, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "No space left" in (answer.remark or "")


@pytest.mark.slow
async def test_no_more_sends_wait_for_a_save_than_there_is_memory_for() -> None:
    # The share for held requests is a quarter of the budget: 16 MiB, so four such bodies.
    body = bytes(4 * 1024 * 1024 - 100_000)
    async with broker_client(
        TightDisk(threaded=True),
        clock=SystemClock(),
        remoting_bytes_max=BUDGET_MIN,
        mapped_file_size_commit_log=32 * 1024 * 1024,
    ) as client:
        fields = {name: str(value) for name, value in send_fields("New").items()}
        frames = [await client.send(RemotingCommand(SEND, fields, body)) for _ in range(6)]
        codes = [(await client.answer(opaque)).code for opaque in frames]
        assert set(codes) <= {0, ResponseCode.SYSTEM_BUSY}
        assert codes[:4] == [0] * 4
        assert (await client.ask(SEND, send_fields("Other"), bytes(900))).code == 0
