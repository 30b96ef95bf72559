"""12 and 33: single messages by key, by unique key and by place."""

from __future__ import annotations

import json

import pytest
import trio
import trio.testing

from trocket.broker.admin import query_message
from trocket.broker.admin.query_message import (
    ANSWER_SIZE_MAX,
    UNIQUE_KEY_COUNT_MAX,
    QueryMessageProcessor,
    newest_that_fit,
)
from trocket.common.clock import ManualClock
from trocket.common.steps import Steps
from trocket.disk.errors import StoreIOError
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.codec import FRAME_SIZE_MAX, RemotingCommand, decode_frame, encode
from trocket.remoting.errors import RequestRefused
from trocket.remoting.message_codec import decode_messages
from trocket.remoting.message_id import decode_offset_id
from trocket.remoting.response_codes import ResponseCode
from trocket.store.reading.message_reader import QueryResult
from trocket.store.retention_service import Retention
from trocket.store.services import checkpoint_now

from ...kit import START_MS, broker_and_client, broker_client, embedded_broker
from ...store.support import HOST_V6, open_store, put, send
from .queries import bodies_of, properties, query, query_fields, store_message

QUERY, VIEW, SEND, DELETE_TOPIC = 12, 33, 310, 215
LONG_MAX = 2**63 - 1
NOT_FOUND = "can not find message, maybe time range not correct"
NOTHING = {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}


@pytest.mark.parametrize("keys", ["K " * 64, "0123456789ABCDEF", "K 0123456789ABCDEF K"])
async def test_a_message_with_a_key_twice_comes_once_and_hides_no_other(keys):
    key = keys.split()[0]
    async with broker_and_client() as (broker, client):
        for body in (b"1", b"2", b"3"):
            await store_message(client, body, keys)
        answer = await query(broker, client, key)
        assert bodies_of(answer) == [b"1", b"2", b"3"]
        assert bodies_of(await query(broker, client, key, maxNum=2)) == [b"2", b"3"]


class Wire:
    """A channel that keeps what is written to it."""

    remote_address = "192.0.2.2:40000"

    def __init__(self) -> None:
        self.written: list[list[bytes | memoryview]] = []

    def write(self, frame: list[bytes | memoryview], size: int) -> None:
        assert sum(map(len, frame)) == size
        self.written.append(frame)


class FakeStore:
    """Answers the same to every question, and notes it."""

    def __init__(self, *records: bytes, timestamp_ms: int = 7, physical_offset: int = 9) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.result = QueryResult([memoryview(r) for r in records], timestamp_ms, physical_offset)

    def message_at(self, physical_offset: int) -> memoryview | None:
        self.asked.append((physical_offset,))
        return self.result.buffers[0] if self.result.buffers else None

    dispatched_offset = 0

    @property
    def reader(self) -> FakeStore:
        return self

    def query_by_key(self, *question: object, by_tags: bool = False) -> Steps[QueryResult]:
        assert not by_tags
        self.asked.append(question[:-1])
        return self.result
        yield  # makes this a generator


def serve(store: object, request: RemotingCommand) -> RemotingCommand:
    """A request served as the server does, refusals included, its answer through the codec."""
    wire = Wire()
    try:
        answer = QueryMessageProcessor(store).processors[request.code](request, wire)
    except RequestRefused as refusal:
        answer = request.answer(refusal.code, refusal.remark)
    if answer is None:
        (frame,) = wire.written
        return decode_frame(b"".join(frame))
    assert not wire.written
    return decode_frame(encode(answer))


def ask(store: object, code: int, fields: dict[str, object]) -> RemotingCommand:
    return serve(store, RemotingCommand(code, {k: str(v) for k, v in fields.items()}))


# ---- by place


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_the_record_at_an_offset_is_answered_as_it_is_stored(serialize_type: int) -> None:
    async with broker_client() as client:
        ids = [await store_message(client, body) for body in (b"zero", b"one", b"two")]
        place = decode_offset_id(ids[1])
        fields = {"topic": "T", "offset": place.physical_offset}
        answer = await client.ask(VIEW, fields, serialize_type=serialize_type)
        without_topic = await client.ask(VIEW, {"offset": place.physical_offset})
    assert (answer.code, answer.remark, dict(answer.ext_fields)) == (0, None, {})
    assert answer.serialize_type == serialize_type
    assert bodies_of(answer) == [b"one"]
    assert decode_messages(answer.body)[0].physical_offset == place.physical_offset > 0
    assert without_topic.body == answer.body


async def test_an_id_with_an_ipv6_address_leads_to_its_message() -> None:
    async with broker_and_client(broker_ip1="fd00::1", broker_ip2="fd00::1") as (broker, client):
        ids = [await store_message(client, body, "k") for body in (b"zero", b"one")]
        place = decode_offset_id(ids[1])
        viewed = await client.ask(VIEW, {"topic": "T", "offset": place.physical_offset})
        found = await query(broker, client, "k")
    assert (len(ids[1]), place.ip) == (56, "fd00::1")
    (message,) = decode_messages(viewed.body)
    assert (message.body, message.offset_message_id) == (b"one", ids[1])
    assert [message.offset_message_id for message in decode_messages(found.body)] == ids


@pytest.mark.parametrize("offset", [-1, 1, 50, "end", 1_048_575, LONG_MAX, -LONG_MAX])
async def test_where_no_message_begins_there_is_none(offset: int | str) -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"zero")
        asked = broker.controller.store.dispatched_offset if offset == "end" else offset
        answer = await client.ask(VIEW, {"topic": "T", "offset": asked})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == f"can not find message by the offset, {asked}"


# ---- by key


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_each_key_of_a_message_finds_it_and_several_come_oldest_first(
    serialize_type: int,
) -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"zero", "a b")
        await store_message(client, b"one", "b c", e=3)
        await store_message(client, b"two", "c  a")
        newest = await store_message(client, b"three", "d")
        broker.controller.store.index.work(60.0)
        answers = {
            key: await client.ask(QUERY, query_fields(key), serialize_type=serialize_type)
            for key in "abcd"
        }
    assert {key: bodies_of(answer) for key, answer in answers.items()} == {
        "a": [b"zero", b"two"],
        "b": [b"zero", b"one"],
        "c": [b"one", b"two"],
        "d": [b"three"],
    }
    answer = answers["a"]
    assert (answer.remark, answer.serialize_type) == (None, serialize_type)
    assert int(answer.ext_fields["indexLastUpdateTimestamp"]) >= START_MS
    assert answer.ext_fields["indexLastUpdatePhyoffset"] == str(
        decode_offset_id(newest).physical_offset
    )
    assert len(answer.ext_fields) == 2


@pytest.mark.parametrize("more", [{}, {"indexType": "U"}, {"indexType": "K", "lastKey": "x"}])
async def test_a_unique_key_finds_its_message(more: dict[str, object]) -> None:
    async with broker_and_client() as (broker, client):
        for name in ("AAAA0001", "AAAA0002", "AAAA0003"):
            await store_message(client, name.encode(), i=properties("k", name))
        more = {"_UNIQUE_KEY_QUERY": "true", "maxNum": 32} | more
        answer = await query(broker, client, "AAAA0002", **more)
    assert bodies_of(answer) == [b"AAAA0002"]


@pytest.mark.parametrize(
    ("flag", "count"), [("true", UNIQUE_KEY_COUNT_MAX), ("false", 3), (None, 3)]
)
async def test_a_look_up_by_unique_key_has_its_own_count(flag: str | None, count: int) -> None:
    async with broker_and_client() as (broker, client):
        for number in range(40):
            await store_message(client, b"%d" % number)
        fields = query_fields("0123456789ABCDEF", maxNum=3, _UNIQUE_KEY_QUERY=flag)
        if flag is None:
            del fields["_UNIQUE_KEY_QUERY"]
        broker.controller.store.index.work(60.0)
        answer = await client.ask(QUERY, fields)
    assert bodies_of(answer) == [b"%d" % number for number in range(40 - count, 40)]


@pytest.mark.parametrize(
    ("asked", "found"), [(1, 1), (3, 3), (5, 5), (6, 5), (2**31 - 1, 5), (0, 0), (-1, 0)]
)
async def test_the_newest_are_answered_as_many_as_asked_for_and_allowed(
    asked: int, found: int
) -> None:
    async with broker_and_client(max_msgs_num_batch=5) as (broker, client):
        for number in range(8):
            await store_message(client, b"%d" % number, "k")
        answer = await query(broker, client, "k", maxNum=asked)
    if found:
        assert bodies_of(answer) == [b"%d" % number for number in range(8 - found, 8)]
    else:
        assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)


TIMES = [
    pytest.param(0, 9_000, [0, 1, 2], id="all"),
    pytest.param(0, 0, [0], id="the first moment"),
    pytest.param(2_000, 4_000, [1, 2], id="both ends are included"),
    pytest.param(2_001, 4_000, [2], id="a millisecond later it begins"),
    pytest.param(0, 3_999, [0, 1], id="a millisecond earlier it ends"),
    pytest.param(4_000, 2_000, [], id="end before begin"),
    pytest.param(-9, -1, [], id="before all"),
    pytest.param(4_001, 9_000, [], id="after all"),
]


@pytest.mark.parametrize(("begin", "end", "numbers"), TIMES)
async def test_messages_of_a_time_are_found_both_ends_included(
    autojump_clock: trio.testing.MockClock, begin: int, end: int, numbers: list[int]
) -> None:
    async with broker_and_client() as (broker, client):
        for number in range(3):
            await trio.sleep(number * 2 - trio.current_time())
            await store_message(client, b"%d" % number, "k")
        times = {"beginTimestamp": START_MS + begin, "endTimestamp": START_MS + end}
        answer = await query(broker, client, "k", **times)
    if numbers:
        assert bodies_of(answer) == [b"%d" % number for number in numbers]
    else:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND


@pytest.mark.parametrize(
    ("begin", "end", "numbers"),
    [(2_400, 9_000, [1, 2]), (2_001, 9_000, [1, 2]), (2_401, 9_000, [2]), (2_400, 2_400, [1])],
)
async def test_a_message_of_a_part_of_a_second_is_found_from_its_millisecond_on(
    autojump_clock: trio.testing.MockClock, begin: int, end: int, numbers: list[int]
) -> None:
    async with broker_and_client() as (broker, client):
        for number, at_s in enumerate((0, 2.4, 4.999)):
            await trio.sleep(at_s + 0.0001 - trio.current_time())
            await store_message(client, b"%d" % number, "k")
        times = {"beginTimestamp": START_MS + begin, "endTimestamp": START_MS + end}
        answer = await query(broker, client, "k", **times)
    assert bodies_of(answer) == [b"%d" % number for number in numbers]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "topic"), [("none", "T"), ("k", "Unknown"), ("K", "T"), ("", "T"), ("k", "../T")]
)
async def test_missing_messages_are_answered_as_rocketmq_does_and_create_nothing(
    key: str, topic: str
) -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"zero", "k")
        topics = set(broker.controller.topics.topic_config_table)
        answer = await query(broker, client, key, topic=topic)
        assert set(broker.controller.topics.topic_config_table) == topics
        assert bodies_of(await query(broker, client, "k")) == [b"zero"]
    assert (answer.code, answer.remark) == (ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)
    assert (dict(answer.ext_fields), answer.body) == (NOTHING, b"")


async def test_without_an_index_nothing_is_found_by_key() -> None:
    async with broker_client(message_index_enable=False) as client:
        await store_message(client, b"zero", "k")
        answer = await client.ask(QUERY, query_fields("k"))
    assert answer.code == ResponseCode.QUERY_NOT_FOUND


async def test_messages_are_found_by_tag_and_not_by_a_key_of_the_same_name() -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"key", i=properties("TagA") + "TAGS\1TagB\2")
        await store_message(client, b"tag", i=properties("TagB") + "TAGS\1TagA\2")
        by_tag = await query(broker, client, "TagA", indexType="T")
        by_key = await query(broker, client, "TagA", indexType="K")
        other = await query(broker, client, "TagA", indexType="t")
        missing = await query(broker, client, "Tag", indexType="T")
        # A key that has the text of a tag's entry is not taken for the tag.
        odd = await query(broker, client, "T#TagA")
    assert bodies_of(by_tag) == [b"tag"]
    assert bodies_of(by_key) == bodies_of(other) == [b"key"]
    assert missing.code == odd.code == ResponseCode.QUERY_NOT_FOUND


async def test_a_long_look_up_lets_other_requests_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trocket.store.index.index_file.CHAIN_STEP_COUNT", 1)
    async with embedded_broker() as broker:
        client, other = await broker.connect(), await broker.connect()
        for number in range(20):
            i = properties("", f"{number:016X}") + "TAGS\1a\2"
            await store_message(client, b"%d" % number, i=i)
        broker.controller.store.index.work(60.0)
        fields = query_fields("a", indexType="T") | {"maxNum": 32}
        texts = {name: str(value) for name, value in fields.items()}
        opaque = await client.send(RemotingCommand(QUERY, texts))
        quick = await other.ask(QUERY, query_fields("nothing"))
        answer = await client.answer(opaque)
    assert quick.code == ResponseCode.QUERY_NOT_FOUND
    assert bodies_of(answer) == [b"%d" % number for number in range(20)]


async def test_a_look_up_by_unique_key_is_one_whatever_its_index_type() -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"one", i=properties("", "0123456789ABCDEF") + "TAGS\1a\2")
        more = {"_UNIQUE_KEY_QUERY": "true", "indexType": "T"}
        answer = await query(broker, client, "0123456789ABCDEF", **more)
    assert bodies_of(answer) == [b"one"]


# ---- what is there and what is not


async def test_messages_of_a_deleted_topic_are_found_while_the_log_has_them() -> None:
    async with broker_and_client() as (broker, client):
        place = decode_offset_id(await store_message(client, b"zero", "k"))
        assert (await client.ask(DELETE_TOPIC, {"topic": "T"})).code == 0
        viewed = await client.ask(VIEW, {"offset": place.physical_offset})
        found = await query(broker, client, "k")
    assert bodies_of(viewed) == bodies_of(found) == [b"zero"]


async def test_messages_that_retention_took_are_not_found_and_later_ones_are() -> None:
    clock = ManualClock()
    hours = ";".join(map(str, range(24)))
    store = open_store(clock=clock, delete_when=hours, file_reserved_time=30)
    offsets = []
    for day in range(3):
        store.begin_burst()
        for _ in range(2):  # one log file
            keys = b"KEYS\1k %d" % day
            refusal, physical_offset, _ = put(store, bytes(30_000), properties=keys)
            assert refusal is None
            store.commit()
            offsets.append(physical_offset)
        clock.advance(24 * 3_600_000)
    store.index.work(60.0)
    assert [m.physical_offset for m in decode_messages(by_key(store, "k").body)] == offsets
    await checkpoint_now(store)
    Retention(store).clean()
    assert store.min_physical_offset == offsets[4]
    assert [m.physical_offset for m in decode_messages(by_key(store, "k").body)] == offsets[4:]
    assert by_key(store, "0").code == ResponseCode.QUERY_NOT_FOUND
    gone, there = (ask(store, VIEW, {"offset": offsets[number]}) for number in (0, 4))
    assert (gone.code, gone.remark) == (1, "can not find message by the offset, 0")
    assert [m.physical_offset for m in decode_messages(there.body)] == [offsets[4]]
    store.close()


def by_key(store: object, key: str) -> RemotingCommand:
    return ask(store, QUERY, query_fields(key))


def test_under_sync_flush_a_message_is_found_when_it_is_on_the_device_and_not_before() -> None:
    store = open_store(sync=True)
    send(store, b"old", properties=b"KEYS\1k")
    store.flusher.flush()
    store.index.work(60.0)
    refusal, physical_offset, _ = put(store, b"new", properties=b"KEYS\1k", store_host=HOST_V6)
    assert refusal is None
    store.commit()
    store.index.work(60.0)
    assert bodies_of(by_key(store, "k")) == [b"old"]
    assert ask(store, VIEW, {"offset": physical_offset}).code == ResponseCode.SYSTEM_ERROR
    store.flusher.flush()
    store.index.work(60.0)
    assert bodies_of(by_key(store, "k")) == [b"old", b"new"]
    assert bodies_of(ask(store, VIEW, {"offset": physical_offset})) == [b"new"]
    store.close()


async def test_a_damaged_message_is_refused_in_words_and_all_else_is_served() -> None:
    disk = MemoryDisk()
    async with broker_client(disk) as client:
        ids = [await store_message(client, b, f"k {b.decode()}") for b in (b"zero", b"one", b"two")]
    places = [decode_offset_id(text).physical_offset for text in ids]
    log = disk.contents[f"/store/commitlog/{0:020d}"]
    log[log.index(b"one")] ^= 1
    async with broker_and_client(disk) as (broker, client):
        for damaged in (
            await client.ask(VIEW, {"offset": places[1]}),
            await query(broker, client, "one"),
            await query(broker, client, "k"),
        ):
            assert damaged.code == ResponseCode.SYSTEM_ERROR
            assert f"/store/commitlog/{0:020d}: at offset {places[1]}:" in (damaged.remark or "")
            assert "CRC of the body" in (damaged.remark or "")
        assert bodies_of(await client.ask(VIEW, {"offset": places[2]})) == [b"two"]
        assert bodies_of(await query(broker, client, "zero")) == [b"zero"]
        await store_message(client, b"three", "new")
        assert bodies_of(await query(broker, client, "new")) == [b"three"]


@pytest.mark.parametrize("code", [QUERY, VIEW])
async def test_a_store_that_cannot_be_read_is_reported_and_the_broker_keeps_serving(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_and_client() as (broker, client):
        await store_message(client, b"zero", "k")
        broker.controller.store.index.work(60.0)

        def unreadable(*_: object, **__: object) -> None:
            raise StoreIOError("/store/commitlog/0", "Input/output error")

        fields = query_fields("k") | {"offset": 0}
        with monkeypatch.context() as broken:
            broken.setattr(broker.controller.store.reader, "query_by_key", unreadable)
            broken.setattr(broker.controller.store, "message_at", unreadable)
            answer = await client.ask(code, fields)
        again = await client.ask(code, fields)
    assert (answer.code, answer.remark) == (1, "/store/commitlog/0: Input/output error")
    assert bodies_of(again) == [b"zero"]
    assert "Input/output error" in caplog.text


# ---- answers


def test_records_are_sent_from_the_stores_own_buffers() -> None:
    store, wire = FakeStore(b"one", b"three"), Wire()
    fields = {name: str(value) for name, value in query_fields("k").items()}
    processor = QueryMessageProcessor(store)
    assert processor.query_message(RemotingCommand(QUERY, fields), wire) is None
    processor.view_message(RemotingCommand(VIEW, {"offset": "5"}), wire)
    by_key, by_place = wire.written
    assert by_key[1] is store.result.buffers[0]
    assert by_key[2] is store.result.buffers[1]
    assert by_place[1] is store.result.buffers[0]


def test_an_answer_is_never_larger_than_a_frame_and_has_the_newest() -> None:
    records = [bytes([number]) * 4_194_304 for number in range(5)]
    store = FakeStore(*records, timestamp_ms=2**63 - 1, physical_offset=2**63 - 1)
    answer = by_key(store, "k")
    # Apache's clients count the length word too.
    assert len(encode(answer)) <= FRAME_SIZE_MAX
    assert answer.body == b"".join(records[2:])


@pytest.mark.parametrize(
    ("sizes", "left"),
    [
        ([], []),
        ([10], [10]),
        ([11], [11]),
        ([3, 4, 3], [3, 4, 3]),
        ([4, 4, 3], [4, 3]),
        ([1, 10], [10]),
        ([1, 11], [11]),
        ([1, 8, 3, 1], [3, 1]),
    ],
)
def test_the_newest_that_fit_are_left_and_always_the_last_one(
    sizes: list[int], left: list[int]
) -> None:
    records = [memoryview(bytes(size)) for size in sizes]
    assert [len(record) for record in newest_that_fit(records, 10)] == left


async def test_over_the_wire_an_answer_is_cut_at_whole_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_message, "ANSWER_SIZE_MAX", 1000)
    async with broker_and_client() as (broker, client):
        for number in range(5):
            await store_message(client, b"%d" % number * 300, "k")
        answer = await query(broker, client, "k")
    assert [body[:1] for body in bodies_of(answer)] == [b"3", b"4"]
    assert ANSWER_SIZE_MAX < FRAME_SIZE_MAX


@pytest.mark.parametrize(
    ("code", "change", "remark"),
    [
        *(
            (QUERY, {name: None}, f"the custom field <{name}> is null")
            for name in ("topic", "key", "maxNum", "beginTimestamp", "endTimestamp")
        ),
        (VIEW, {"offset": None}, "the custom field <offset> is null"),
        (VIEW, {"offset": "x"}, "the custom field <offset> is not an integer of 64 bits: 'x'"),
        (
            QUERY,
            {"maxNum": 2**31},
            "the custom field <maxNum> is not an integer of 32 bits: '2147483648'",
        ),
    ],
)
def test_a_bad_header_is_refused_and_names_the_field(
    code: int, change: dict[str, object], remark: str
) -> None:
    store = FakeStore(b"record")
    fields = query_fields("k") | {"offset": 0} | change
    answer = ask(store, code, {k: v for k, v in fields.items() if v is not None})
    assert (answer.code, answer.remark) == (1, remark)
    assert not store.asked


# ---- recorded


def exchanges(golden):
    """Request and answer of every recorded 12 and 33, and where they stand."""
    for path in sorted((golden / "wire").glob("*.jsonl")):
        requests = {}
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record["request_code"] not in (QUERY, VIEW):
                continue
            frame = decode_frame(bytes.fromhex(record["frame_hex"]))
            if record["dir"] == "request":
                requests[record["pair"]] = frame
            else:
                yield f"{path.name}: {record['pair']}", requests[record["pair"]], frame


def test_recorded_requests_are_answered_as_apaches_broker_did(golden) -> None:
    seen = set()
    for where, request, recorded in exchanges(golden):
        fields = recorded.ext_fields
        store = FakeStore(
            *([recorded.body] if recorded.body else []),
            timestamp_ms=int(fields.get("indexLastUpdateTimestamp", "0")),
            physical_offset=int(fields.get("indexLastUpdatePhyoffset", "0")),
        )
        answer = serve(store, request)
        assert (answer.code, answer.remark, dict(answer.ext_fields), answer.body) == (
            recorded.code,
            recorded.remark,
            dict(fields),
            recorded.body,
        ), where
        assert (answer.opaque, answer.flag, answer.serialize_type) == (
            request.opaque,
            1,
            request.serialize_type,
        )
        asked = request.ext_fields
        if request.code == VIEW:
            assert store.asked == [(int(asked["offset"]),)]
        else:
            times = int(asked["beginTimestamp"]), int(asked["endTimestamp"])
            question = asked["topic"], asked["key"], int(asked["maxNum"]), *times
            assert store.asked == [question]
        seen.add((request.code, recorded.code, request.serialize_type))
    codes = [(QUERY, 0), (QUERY, 22), (VIEW, 0), (VIEW, 1)]
    assert seen == {(*pair, serialize_type) for pair in codes for serialize_type in (0, 1)}
