"""Static topics on two brokers: sends, pulls and offsets, before and after a queue moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trio

from trocket.remoting.bodies import (
    LogicQueueMappingItem,
    TopicConfigAndQueueMapping,
    TopicQueueMappingDetail,
    TopicStatsTable,
)
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.message import Message, MessageExt
from trocket.remoting.message_codec import decode_messages, encode_batch
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import FlushDiskType

from ...kit import Client, pull_fields, send_fields, topic_fields
from ..group import Group, Node, group
from ..harness import consumer, heartbeat, subscription

SEND, BATCH, STATIC, PULL, QUERY, UPDATE, HEART_BEAT, ALL_TOPICS = 310, 320, 513, 11, 14, 15, 34, 21
SEARCH, MAX, MIN, EARLIEST, CONFIG, STATS, DELETE = 29, 30, 31, 32, 351, 202, 215
TOPIC, EPOCH = "Static", 1_700_000_000_000
NEXT = 10_000
"""Logic offset at which a moved queue goes on: RocketMQ's tool leaves a gap."""


def item(broker: str, gen: int = 0, logic: int = 0, queue_id: int = 0) -> LogicQueueMappingItem:
    return LogicQueueMappingItem(gen=gen, queue_id=queue_id, bname=broker, logic_offset=logic)


def detail(
    broker: str,
    hosted: dict[int, list[LogicQueueMappingItem]],
    *,
    epoch: int = EPOCH,
    total: int = 2,
    topic: str = TOPIC,
) -> TopicQueueMappingDetail:
    return TopicQueueMappingDetail(
        topic=topic, total_queues=total, bname=broker, epoch=epoch, hosted_queues=hosted
    )


async def put(
    client: Client, mapping: TopicQueueMappingDetail, queues: int = 1, **more: object
) -> RemotingCommand:
    """Send 513."""
    return await client.ask(STATIC, topic_fields(TOPIC, queues, **more), mapping.to_body())


class Two:
    """Brokers `a` and `b`, which lead a queue each."""

    def __init__(self, network: Group, a: Node, b: Node) -> None:
        self.network = network
        self.nodes = {"a": a, "b": b}
        self.clients: dict[str, Client] = {}

    async def connect(self) -> None:
        for name, node in self.nodes.items():
            self.clients[name] = await node.connect()

    @property
    def a(self) -> Client:
        return self.clients["a"]

    @property
    def b(self) -> Client:
        return self.clients["b"]

    async def create(self) -> None:
        for queue_id, (name, client) in enumerate(self.clients.items()):
            answer = await put(client, detail(name, {queue_id: [item(name)]}))
            assert answer.code == 0, answer.remark

    async def move(self, logic: int = NEXT) -> None:
        """Move queue 0 from a to b, as the tool does: undecided, forbidden, decided."""
        undecided = [item("a"), item("b", 1, -1, 1)]
        decided = [item("a"), item("b", 1, logic, 1)]
        own = {1: [item("b")]}
        epoch = EPOCH + 1
        for client, mapping, queues in (
            (self.b, detail("b", {0: undecided, **own}, epoch=epoch), 2),
            (self.a, detail("a", {0: undecided}, epoch=epoch), 1),
            (self.b, detail("b", {0: decided, **own}, epoch=epoch), 2),
        ):
            answer = await put(client, mapping, queues)
            assert answer.code == 0, answer.remark


async def two(network: Group) -> Two:
    made = Two(
        network,
        await network.master(broker_name="a"),
        await network.master(broker_name="b"),
    )
    await made.connect()
    await made.create()
    return made


async def send(client: Client, body: bytes, queue_id: int = 0, **more: object) -> dict[str, str]:
    answer = await client.ask(SEND, send_fields(TOPIC, queue_id, **more), body)
    assert answer.code == 0, answer.remark
    return dict(answer.ext_fields)


async def pull(client: Client, offset: int, queue_id: int = 0, **more: object) -> RemotingCommand:
    fields = pull_fields(TOPIC, queue_id, sysFlag=4, queueOffset=offset)
    return await client.ask(PULL, fields | more)


async def consume(client: Client, offset: int = 0, queue_id: int = 0) -> list[tuple[int, bytes]]:
    """Every message from an offset on, with its logic offset, as a client sees them."""
    found: list[tuple[int, bytes]] = []
    while True:
        answer = await pull(client, offset, queue_id)
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            return found
        if answer.code == ResponseCode.SUCCESS:
            delta = int(answer.ext_fields["offsetDelta"])
            messages: list[MessageExt] = decode_messages(answer.body)
            found += [(each.queue_offset + delta, each.body) for each in messages]
        offset = int(answer.ext_fields["nextBeginOffset"])


async def offset_of(client: Client, code: int, **more: object) -> int:
    answer = await client.ask(code, {"topic": TOPIC, "queueId": 0} | more)
    assert answer.code == 0, answer.remark
    return int(answer.ext_fields["offset"])


async def test_a_static_topic_is_in_the_route_and_in_the_answers_of_its_brokers():
    async with group() as network:
        made = await two(network)
        route = await network.route(TOPIC)
        mappings = route.topic_queue_mapping_by_broker
        assert {name: each["currIdMap"] for name, each in mappings.items()} == {
            "a": {"0": 0},
            "b": {"1": 0},
        }
        assert {each["totalQueues"] for each in mappings.values()} == {2}
        answer = await made.a.ask(CONFIG, {"topic": TOPIC, "lo": "true"})
        config = TopicConfigAndQueueMapping.from_body(answer.body)
        assert (config.topic_name, config.write_queue_nums) == (TOPIC, 1)
        assert config.mapping_detail == detail("a", {0: [item("a")]})
        plain = await made.a.ask(CONFIG, {"topic": TOPIC})
        assert b"mappingDetail" not in plain.body
        everything = json.loads((await made.a.ask(ALL_TOPICS, {})).body)
        assert list(everything["topicQueueMappingDetailMap"]) == [TOPIC]


async def test_sends_and_pulls_use_logic_queues_and_another_broker_refuses():
    async with group() as network:
        made = await two(network)
        first = await send(made.b, b"one", 1)
        assert (first["queueId"], first["queueOffset"]) == ("1", "0")
        assert (await send(made.b, b"two", -1))["queueId"] == "1"
        assert await consume(made.b, queue_id=1) == [(0, b"one"), (1, b"two")]
        refused = await made.a.ask(SEND, send_fields(TOPIC, 1), b"x")
        assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert refused.remark == f"{TOPIC}-1 does not exit in request process of current broker a"
        assert (await pull(made.a, 0, 1)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
        assert (await pull(made.a, 0, 9)).code == ResponseCode.NOT_LEADER_FOR_QUEUE
        for code in (QUERY, UPDATE, SEARCH, MAX, MIN, EARLIEST):
            fields = {"topic": TOPIC, "queueId": 1, "consumerGroup": "CG", "commitOffset": 0,
                      "timestamp": 0}  # fmt: skip
            assert (await made.a.ask(code, fields)).code == ResponseCode.NOT_LEADER_FOR_QUEUE


async def test_several_sends_at_once_are_stored_in_the_physical_queue_in_order():
    async with group() as network:
        made = await two(network)
        opaques = []
        for number in range(20):
            fields = {name: str(value) for name, value in send_fields(TOPIC, 1).items()}
            command = RemotingCommand(SEND, fields, b"%d" % number)
            opaques.append(await made.b.send(command))
        answers = [await made.b.answer(opaque) for opaque in opaques]
        assert [answer.ext_fields["queueOffset"] for answer in answers] == list(map(str, range(20)))
        assert {answer.ext_fields["queueId"] for answer in answers} == {"1"}
        assert made.nodes["b"].running.store.max_offset(TOPIC, 0) == 20


@pytest.mark.slow
async def test_a_pull_is_held_until_a_message_comes():
    async with group() as network:
        made = await two(network)
        waiting = await made.a.send(
            RemotingCommand(PULL, {name: str(v) for name, v in pull_fields(TOPIC).items()})
        )
        other = await made.nodes["a"].connect()
        await trio.sleep(3)
        began_s = trio.current_time()
        await send(other, b"late")
        answer = await made.a.answer(waiting)
        assert answer.code == 0
        assert trio.current_time() < began_s + 0.1
        assert [each.body for each in decode_messages(answer.body)] == [b"late"]
        nothing = await pull(made.a, 1, sysFlag=6, suspendTimeoutMillis=2_000)
        assert nothing.code == ResponseCode.PULL_NOT_FOUND
        assert 2 <= trio.current_time() - began_s < 2.1


async def test_a_moved_queue_is_consumed_from_both_brokers_and_nothing_is_lost():
    async with group() as network:
        made = await two(network)
        before = [await send(made.a, b"old %d" % number) for number in range(3)]
        assert [each["queueOffset"] for each in before] == ["0", "1", "2"]
        await made.move()
        refused = await made.a.ask(SEND, send_fields(TOPIC, 0), b"x")
        assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        after = await send(made.b, b"new")
        assert (after["queueId"], after["queueOffset"]) == ("0", str(NEXT))
        expected = [(0, b"old 0"), (1, b"old 1"), (2, b"old 2"), (NEXT, b"new")]
        assert await consume(made.b) == expected
        assert await consume(made.b, 2) == expected[2:]
        assert await consume(made.b, 500) == expected[3:], "in the gap"
        route = await network.route(TOPIC)
        mappings = route.topic_queue_mapping_by_broker
        assert (mappings["a"]["currIdMap"], mappings["b"]["currIdMap"]) == ({}, {"0": 1, "1": 0})


async def test_offsets_of_a_moved_queue_are_asked_from_the_broker_that_has_them():
    async with group() as network:
        made = await two(network)
        for number in range(3):
            await send(made.a, b"%d" % number)
        middle = await made.a.ask(EARLIEST, {"topic": TOPIC, "queueId": 0})
        for client in made.clients.values():
            await client.ask(HEART_BEAT, {}, heartbeat_of_cg())
        commit = {"consumerGroup": "CG", "topic": TOPIC, "queueId": 0}
        assert (await made.a.ask(UPDATE, commit | {"commitOffset": 2})).code == 0
        await made.move()
        assert await offset_of(made.b, MAX) == NEXT
        assert await offset_of(made.b, MIN) == 0
        assert await offset_of(made.b, SEARCH, timestamp=0) == 0
        assert await offset_of(made.b, SEARCH, timestamp=2**50) == NEXT
        again = await made.b.ask(EARLIEST, {"topic": TOPIC, "queueId": 0})
        assert again.ext_fields == middle.ext_fields
        assert await offset_of(made.b, QUERY, consumerGroup="CG") == 2
        assert (await made.b.ask(UPDATE, commit | {"commitOffset": 3})).code == 0
        assert made.nodes["a"].running.offsets.query_offset("CG", TOPIC, 0) == 3
        await send(made.b, b"new")
        assert (await made.b.ask(UPDATE, commit | {"commitOffset": NEXT + 1})).code == 0
        assert made.nodes["b"].running.offsets.query_offset("CG", TOPIC, 1) == 1
        assert await offset_of(made.b, QUERY, consumerGroup="CG") == NEXT + 1
        unknown = await made.b.ask(QUERY, commit | {"consumerGroup": "Never"})
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND


def heartbeat_of_cg() -> bytes:
    return heartbeat("c1", consumer("CG", subscription(TOPIC))).to_body()


@pytest.mark.slow
async def test_a_queue_that_is_being_moved_takes_sends_and_its_old_messages_are_served():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"old")
        undecided = {0: [item("a"), item("b", 1, -1, 1)], 1: [item("b")]}
        assert (await put(made.b, detail("b", undecided, epoch=EPOCH + 1), 2)).code == 0
        assert (await send(made.b, b"new"))["queueOffset"] == "-1"
        assert await consume(made.b) == [(0, b"old")]
        waiting = await made.b.send(
            RemotingCommand(
                PULL, {k: str(v) for k, v in pull_fields(TOPIC, 0, queueOffset=1).items()}
            )
        )
        await trio.sleep(2)
        decided = {**undecided, 0: [item("a"), item("b", 1, NEXT, 1)]}
        other = await made.nodes["b"].connect()
        assert (await put(other, detail("b", decided, epoch=EPOCH + 1), 2)).code == 0
        answer = await made.b.answer(waiting)  # not after the 15 s of the pull
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert int(answer.ext_fields["nextBeginOffset"]) == NEXT
        assert await consume(made.b) == [(0, b"old"), (NEXT, b"new")]


async def test_a_broker_that_is_gone_costs_the_time_out_and_blocks_nobody():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"old")
        await made.move()
        await send(made.b, b"other queue", 1)
        await made.nodes["a"].kill()
        other = await made.nodes["b"].connect()
        asked = await other.send(RemotingCommand(MAX, {"topic": TOPIC, "queueId": "1"}))
        answer = await pull(made.b, 0)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "broker a" in answer.remark
        assert (await other.answer(asked)).ext_fields["offset"] == "1"
        assert [each[1] for each in await consume(made.b, NEXT)] == []


@pytest.mark.slow
async def test_a_mapping_outlives_the_broker():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"old")
        await made.move()
        await send(made.b, b"new")
        for node in made.nodes.values():
            await node.kill()
        for node in made.nodes.values():
            await node.start()
        await made.connect()
        await trio.sleep(1)
        assert await consume(made.b) == [(0, b"old"), (NEXT, b"new")]
        text = bytes(made.nodes["b"].disk.contents["/store/config/topicQueueMapping.json"])
        assert b'"hostedQueues":{\n\t\t\t\t0:[' in text


@pytest.mark.slow
async def test_a_slave_has_its_masters_mappings():
    async with group() as network:
        made = await two(network)
        slave = await network.slave(
            broker_name="a", slave_sync_interval=1_000, slave_read_enable=True
        )
        await trio.sleep(3)
        await send(made.a, b"copied")
        await network.has_log(slave, made.nodes["a"])
        client = await slave.connect()
        answer = await client.ask(CONFIG, {"topic": TOPIC, "lo": "true"})
        config = TopicConfigAndQueueMapping.from_body(answer.body)
        assert config.mapping_detail == detail("a", {0: [item("a")]})
        found = await pull(client, 0)
        assert found.code == 0, found
        assert [each.body for each in decode_messages(found.body)] == [b"copied"]
        assert "offsetDelta" in found.ext_fields


async def test_a_deleted_topic_is_no_longer_static():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"gone")
        assert (await made.a.ask(DELETE, {"topic": TOPIC})).code == 0
        assert not made.nodes["a"].running.parts.tables.mappings.topic_queue_mapping_table
        answer = await made.a.ask(SEND, send_fields(TOPIC, 0), b"x")
        assert answer.code == 0, "created again, as any topic"
        assert "offsetDelta" not in (await pull(made.a, 0)).ext_fields


async def test_statistics_are_of_physical_queues():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"1")
        await made.move()
        answer = await made.a.ask(STATS, {"topic": TOPIC})
        table = TopicStatsTable.from_body(answer.body).offset_table
        assert {(each.broker_name, each.queue_id): offset.max_offset
                for each, offset in table.items()} == {("a", 0): 1}  # fmt: skip


@contextmanager
def unchanged(node: Node) -> Iterator[None]:
    table = node.running.parts.tables.mappings.topic_queue_mapping_table
    before, topics = dict(table), dict(node.running.topics.topic_config_table)
    yield
    assert (table, node.running.topics.topic_config_table) == (before, topics)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mapping", "remark"),
    [
        (detail("b", {0: [item("b")]}), "the mapping is of broker 'b', and this is broker 'a'"),
        (
            detail("a", {0: [item("a")]}, epoch=EPOCH - 1),
            f"Can't accept data with small epoch {EPOCH - 1} < {EPOCH}",
        ),
        (
            detail("a", {0: [item("a"), item("b", 1, 0)]}, epoch=EPOCH + 1),
            "The base logic offset does not increase monotonically",
        ),
        (
            detail("a", {0: [item("a", 1), item("b", 1, NEXT)]}, epoch=EPOCH + 1),
            "The gen does not increase monotonically",
        ),
        (
            detail("a", {0: [item("a"), item("b", 1, -1), item("a", 2, NEXT)]}, epoch=EPOCH + 1),
            "The non-latest item has negative logic offset",
        ),
        (
            detail("a", {0: [item("a", -1)]}, epoch=EPOCH + 1),
            "The field is illegal, should not be negative",
        ),
        (
            detail("a", {0: [item("a")], 1: [item("a")]}, epoch=EPOCH + 1),
            f"Topic {TOPIC} global queue id 1 and 0 shared the same physical queue a-0",
        ),
        (
            detail("a", {2: [item("a")]}, epoch=EPOCH + 1),
            "the logic queue 2 is not one of 2, as totalQueues says",
        ),
        (
            detail("a", {0: [item("a", queue_id=1)]}, epoch=EPOCH + 1),
            (
                "The physical queue id is overflow the write queues: logic queue 0 has the "
                "physical queue 1, and the topic 1 queues"
            ),
        ),
        (
            detail("a", {0: [item("b", 1)]}),
            "The new leader is different but epoch equal",
        ),
        (detail("a", {}), "Cannot accept equal epoch with null data"),
        (
            detail("a", {0: [item("a", logic=7)]}, epoch=EPOCH + 1),
            "the logic offset of item 0 must not change from 0 to 7",
        ),
        (
            detail("a", {}, epoch=EPOCH + 1, total=1),
            "Cannot decrease the queue num for static topic 1 < 2",
        ),
        (
            detail("a", {}, topic="Other"),
            f"the mapping is of topic 'Other', and the request of '{TOPIC}'",
        ),
    ],
)
async def test_a_mapping_that_cannot_be_is_refused_and_changes_nothing(mapping, remark):
    async with group() as network:
        made = await two(network)
        with unchanged(made.nodes["a"]):
            answer = await put(made.a, mapping, perm=2)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"hostedQueues":{"x":[]}}', b'{"epoch":"y"}'])
async def test_a_body_that_is_no_mapping_is_refused(body):
    async with group() as network:
        made = await two(network)
        with unchanged(made.nodes["a"]):
            answer = await made.a.ask(STATIC, topic_fields(TOPIC), body)
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_force_replaces_a_newer_mapping():
    async with group() as network:
        made = await two(network)
        older = detail("a", {0: [item("a")]}, epoch=EPOCH - 5)
        assert (await put(made.a, older)).code == ResponseCode.SYSTEM_ERROR
        assert (await put(made.a, older, force="true")).code == 0
        table = made.nodes["a"].running.parts.tables.mappings.topic_queue_mapping_table
        assert table[TOPIC].epoch == EPOCH - 5


async def test_a_broker_without_queues_of_the_topic_is_told_of_it():
    async with group() as network:
        made = await two(network)
        third = await network.master(broker_name="c")
        client = await third.connect()
        assert (await put(client, detail("c", {}), 0)).code == 0
        refused = await client.ask(SEND, send_fields(TOPIC, 0), b"x")
        assert refused.code == ResponseCode.NOT_LEADER_FOR_QUEUE
        await send(made.a, b"1")


async def test_a_batch_goes_to_a_logic_queue():
    body = encode_batch([Message(TOPIC, b"1"), Message(TOPIC, b"2")])
    async with group() as network:
        made = await two(network)
        answer = await made.b.ask(BATCH, send_fields(TOPIC, 1, m="true"), body)
        assert answer.code == 0, answer.remark
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("1", "0")
        assert [body for _, body in await consume(made.b, queue_id=1)] == [b"1", b"2"]


async def test_messages_behind_the_known_end_of_an_item_are_left_out():
    async with group() as network:
        made = await two(network)
        for body in (b"0", b"1", b"2"):
            await send(made.a, body)
        items = [LogicQueueMappingItem(bname="a", end_offset=2), item("b", 1, NEXT, 2)]
        assert (await put(made.b, detail("b", {0: items}, epoch=EPOCH + 1), 3)).code == 0
        assert await consume(made.b) == [(0, b"0"), (1, b"1")]


async def test_items_without_messages_are_cleaned():
    async with group() as network:
        made = await two(network)
        await made.move()
        await send(made.b, b"new")
        table = made.nodes["b"].running.parts.tables.mappings.topic_queue_mapping_table
        cleaner = made.nodes["b"].running.parts.static_topics.cleaner
        assert len(table[TOPIC].hosted_queues[0]) == 2
        await cleaner.clean()
        assert table[TOPIC].hosted_queues == {0: [item("b", 1, NEXT, 1)], 1: [item("b")]}
        assert await offset_of(made.b, MIN) == NEXT
        assert await consume(made.b) == [(NEXT, b"new")]


async def test_items_with_messages_or_of_a_broker_that_is_gone_are_kept():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"old")
        await made.move()
        table = made.nodes["b"].running.parts.tables.mappings.topic_queue_mapping_table
        cleaner = made.nodes["b"].running.parts.static_topics.cleaner
        before = table[TOPIC]
        await cleaner.clean()
        assert table[TOPIC] is before
        await made.nodes["a"].kill()
        await cleaner.clean()
        assert table[TOPIC] is before


async def test_a_queue_that_moved_on_is_forgotten_by_the_broker_before_the_last():
    async with group() as network:
        made = await two(network)
        await made.move()
        third = await network.master(broker_name="c")
        client = await third.connect()
        moved = [item("a"), item("b", 1, NEXT, 1), item("c", 2, 2 * NEXT)]
        epoch = EPOCH + 2
        for each, mapping, queues in (
            (client, detail("c", {0: moved}, epoch=epoch), 1),
            (made.b, detail("b", {0: moved, 1: [item("b")]}, epoch=epoch), 2),
            (made.a, detail("a", {}, epoch=epoch), 1),
        ):
            answer = await put(each, mapping, queues)
            assert answer.code == 0, answer.remark
        table = made.nodes["a"].running.parts.tables.mappings.topic_queue_mapping_table
        assert list(table[TOPIC].hosted_queues) == [0]
        await made.nodes["a"].running.parts.static_topics.cleaner.clean()
        assert table[TOPIC].hosted_queues == {}


async def test_a_pull_of_a_logic_queue_commits_no_offset():
    async with group() as network:
        made = await two(network)
        await send(made.a, b"1")
        await made.move()
        answer = await pull(made.b, NEXT, sysFlag=1 | 4, commitOffset=NEXT)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        for node in made.nodes.values():
            assert not node.running.offsets.offset_table.get(f"{TOPIC}@CG")


async def test_pulls_of_a_topic_that_becomes_static_are_rewritten_from_then_on():
    async with group() as network:
        made = Two(network, await network.master(broker_name="a"), network.node(broker_name="b"))
        made.clients["a"] = await made.nodes["a"].connect()
        await send(made.a, b"1")
        for _ in range(3):
            assert "offsetDelta" not in (await pull(made.a, 0)).ext_fields
        config = made.nodes["a"].running.topics.select(TOPIC)
        queues = config.write_queue_nums
        assert (await put(made.a, detail("a", {0: [item("a")]}), queues)).code == 0
        assert (await pull(made.a, 0)).ext_fields["offsetDelta"] == "0"
        assert await consume(made.a) == [(0, b"1")]


async def test_brokers_that_name_each_other_do_not_forward_in_circles():
    async with group() as network:
        made = await two(network)
        epoch = EPOCH + 1
        for name, other, client in (("a", "b", made.a), ("b", "a", made.b)):
            items = {0: [item(other), item(name, 1, NEXT, 1)]}
            if name == "b":
                items[1] = [item("b", queue_id=2)]
            answer = await put(client, detail(name, items, epoch=epoch), 3, force="true")
            assert answer.code == 0, answer.remark
        began_s = trio.current_time()
        for client in made.clients.values():
            answer = await pull(client, 0)
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            assert answer.ext_fields["nextBeginOffset"] == str(NEXT)
            assert await offset_of(client, MIN) == 0
        assert trio.current_time() - began_s < 1


async def test_a_change_is_answered_when_the_messages_before_it_are_visible():
    async with group() as network:
        a = await network.master(broker_name="a", flush_disk_type=FlushDiskType.SYNC_FLUSH)
        made = Two(network, a, network.node(broker_name="b"))
        made.clients["a"] = await a.connect()
        assert (await put(made.a, detail("a", {0: [item("a")]}))).code == 0
        other = await a.connect()
        fields = {name: str(value) for name, value in send_fields(TOPIC, 0).items()}
        opaques = [await made.a.send(RemotingCommand(SEND, fields, b"x")) for _ in range(50)]
        gone = {0: [item("a"), item("b", 1, -1)]}
        assert (await put(other, detail("a", gone, epoch=EPOCH + 1))).code == 0
        end = a.running.store.max_offset(TOPIC, 0)
        answers = [await made.a.answer(opaque) for opaque in opaques]
        assert [answer.code for answer in answers].count(0) == end > 0
