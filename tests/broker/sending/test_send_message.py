"""Sends, against a whole broker in memory."""

from __future__ import annotations

import errno

import pytest
import trio
import trio.testing

from trocket.disk.memory_disk import MemoryDisk
from trocket.native import extension
from trocket.remoting.bodies import TopicConfig
from trocket.remoting.codec import RemotingCommand
from trocket.remoting.errors import RequestRefused
from trocket.remoting.hosts import host_bytes
from trocket.remoting.message import Message
from trocket.remoting.message_codec import decode_messages, encode_batch
from trocket.remoting.message_id import encode_offset_id
from trocket.remoting.request_codes import RequestCode
from trocket.remoting.response_codes import ResponseCode
from trocket.store.config import FlushDiskType

from ...kit import (
    START_MS,
    broker_and_client,
    broker_client,
    embedded_broker,
    long_names,
    pull_fields,
    send_fields,
    stored,
)

SEND_V1, SEND_V2, SEND_BATCH, PULL = 10, 310, 320, 11


@pytest.fixture
def memory_disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize("code", [SEND_V1, SEND_V2])
async def test_a_send_is_answered_with_its_place_and_stored_with_its_fields(
    code: int, serialize_type: int
) -> None:
    fields = send_fields(h=-7, i="TAGS\1TagA\2UNIQ_KEY\1AB\2KEYS\1k1 k2", j=3, e=2)
    if code == SEND_V1:
        fields = long_names(fields)
    async with broker_client() as client:
        first = await client.ask(code, fields, b"one", serialize_type)
        second = await client.ask(code, fields, b"two", serialize_type)
        messages = await stored(client, queue_id=2)
    assert first.code == second.code == ResponseCode.SUCCESS
    assert first.serialize_type == serialize_type
    assert dict(first.ext_fields) == {
        "msgId": encode_offset_id(host_bytes("127.0.0.1", 10911), 0),
        "queueId": "2",
        "queueOffset": "0",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
    }
    assert second.ext_fields["queueOffset"] == "1"
    message = messages[0]
    assert (message.body, message.topic, message.queue_id) == (b"one", "T", 2)
    assert (message.flag, message.reconsume_times) == (-7, 3)
    assert message.born_timestamp_ms == START_MS
    assert message.properties == {
        "TAGS": "TagA",
        "UNIQ_KEY": "AB",
        "KEYS": "k1 k2",
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "CLUSTER": "DefaultCluster",
    }
    assert messages[1].body == b"two"


async def test_a_message_without_a_unique_key_gets_one() -> None:
    async with broker_client() as client:
        for _ in range(2):
            await client.ask(SEND_V2, send_fields(i=""), b"x")
        first, second = await stored(client)
    assert len(first.properties["UNIQ_KEY"]) == 32
    assert first.properties["UNIQ_KEY"] != second.properties["UNIQ_KEY"]


async def test_a_forwarded_message_keeps_one_of_each_property() -> None:
    properties = "UNIQ_KEY\1AB\2MSG_REGION\1elsewhere\2CLUSTER\1other\2"
    async with broker_client() as client:
        await client.ask(SEND_V2, send_fields(i=properties), b"x")
        record = (await client.ask(PULL, pull_fields(sysFlag=4))).body
    assert record.count(b"MSG_REGION") == record.count(b"CLUSTER") == 1
    assert b"MSG_REGION\1DefaultRegion" in record


async def test_a_negative_queue_id_lets_the_broker_choose() -> None:
    async with broker_client() as client:
        answers = [await client.ask(SEND_V2, send_fields(e=-1), b"x") for _ in range(40)]
    assert {answer.ext_fields["queueId"] for answer in answers} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("native", [extension, None])
@pytest.mark.parametrize("serialize_type", [0, 1])
@pytest.mark.parametrize(("flag", "count"), [("true", 3), ("TRUE", 3), ("false", 1), ("no", 1)])
@pytest.mark.parametrize("code", [SEND_V1, SEND_V2])
async def test_the_field_batch_says_whether_a_body_is_a_batch(
    code, flag, count, serialize_type, native
):
    body = encode_batch([Message("T", text) for text in (b"1", b"2", b"3")])
    fields = send_fields(m=flag)
    if code == SEND_V1:
        fields = long_names(fields)
    async with broker_client(native=native) as client:
        answer = await client.ask(code, fields, body, serialize_type)
        messages = await stored(client)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["msgId"].count(",") == count - 1
    wanted = [b"1", b"2", b"3"] if count == 3 else [body]
    assert [message.body for message in messages] == wanted


async def test_a_batch_is_stored_as_its_messages_in_one_answer() -> None:
    body = encode_batch(
        [Message("T", b"one", properties={"TAGS": "a"}), Message("T", b"two", flag=5)]
    )
    async with broker_client() as client:
        answer = await client.ask(SEND_BATCH, send_fields(m="true", i=""), body)
        messages = await stored(client)
    assert answer.code == 0
    ids = answer.ext_fields["msgId"].split(",")
    assert ids == [message.offset_message_id for message in messages]
    assert answer.ext_fields["queueOffset"] == "0"
    assert [(m.body, m.flag, m.tags) for m in messages] == [(b"one", 0, "a"), (b"two", 5, None)]


async def test_a_oneway_send_is_stored_and_not_answered() -> None:
    async with broker_client() as client:
        fields = {name: str(value) for name, value in send_fields().items()}
        await client.send(RemotingCommand(SEND_V2, fields, b"quiet", flag=2))
        body = encode_batch([Message("T", b"and these")])
        await client.send(RemotingCommand(SEND_BATCH, fields | {"m": "true"}, body, flag=2))
        answer = await client.ask(SEND_V2, send_fields(), b"loud")
        messages = await stored(client)
    assert answer.ext_fields["queueOffset"] == "2"
    assert [message.body for message in messages] == [b"quiet", b"and these", b"loud"]
    assert client.unasked == []


REFUSED = [
    pytest.param({"b": "../x"}, b"x", 29, "illegal characters", id="path as topic"),
    pytest.param({"b": ""}, b"x", 29, "blank", id="blank topic"),
    pytest.param({"b": "t" * 128}, b"x", 29, "longer than topic max length", id="long topic"),
    pytest.param({"b": "SCHEDULE_TOPIC_XXXX"}, b"x", 16, "is forbidden", id="system topic"),
    pytest.param({"b": "N", "c": "none"}, b"x", 17, "topic[N] not exist", id="no such topic"),
    pytest.param({"e": 99}, b"x", 29, "request queueId[99] is illegal", id="queue id"),
    pytest.param({"e": "one"}, b"x", 1, "'one'", id="queue id is no number"),
    pytest.param({"h": 2**31}, b"x", 1, str(2**31), id="flag beyond int32"),
    pytest.param({"g": -1}, b"x", 29, "<g> is -1", id="born before 1970"),
    pytest.param({"i": "A\1" + "b" * 32_768}, b"x", 13, "the message is illegal", id="properties"),
    pytest.param({}, bytes(4 * 2**20 + 1), 13, "body length limit 4194304B", id="body"),
    pytest.param({"i": "DELAY\001soon\2"}, b"x", 1, "not a delay level", id="delay"),
    pytest.param({"i": "TIMER_DELAY_SEC\1soon\2"}, b"x", 13, "timer message illegal", id="timer"),
]


@pytest.mark.parametrize(("change", "body", "code", "words"), REFUSED)
async def test_a_bad_send_is_refused_in_words_and_the_next_one_works(
    change: dict[str, object], body: bytes, code: int, words: str
) -> None:
    async with broker_client() as client:
        await client.ask(SEND_V2, send_fields(), b"before")
        answer = await client.ask(SEND_V2, send_fields(**change), body)
        after = await client.ask(SEND_V2, send_fields(), b"after")
        messages = await stored(client)
    assert answer.code == code
    assert words in (answer.remark or "")
    assert after.code == 0
    assert [message.body for message in messages] == [b"before", b"after"]


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["e", "f", "g", "h", "j"])
@pytest.mark.parametrize("text", [" 1", "1_0", "٣", "1e3", "0x10", "1.0", "²", "9" * 5_000])
async def test_a_number_that_only_python_reads_is_refused_and_named(letter: str, text: str) -> None:
    async with broker_client() as client:
        answer = await client.ask(SEND_V2, send_fields(**{letter: text}), b"x")
    assert answer.code == 1
    assert f"<{letter}> is not an integer" in (answer.remark or "")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"f": -1}, "f"),
        ({"g": 2**63}, "g"),
        ({"h": -(2**31) - 1}, "h"),
        ({"j": -1}, "j"),
        ({"e": 2**31}, "e"),
        ({"b": "New", "d": 2**31}, "d"),
    ],
    ids=str,
)
async def test_a_number_outside_of_its_range_is_refused_and_named(
    change: dict[str, object], field: str
) -> None:
    async with broker_client() as client:
        answer = await client.ask(SEND_V2, send_fields(**change), b"x")
    assert answer.code in {1, 29}
    assert f"<{field}> is " in (answer.remark or "")


@pytest.mark.parametrize(
    ("change", "name", "value"),
    [
        ({"g": "+5"}, "born_timestamp_ms", 5),
        ({"g": "0"}, "born_timestamp_ms", 0),
        ({"g": str(2**63 - 1)}, "born_timestamp_ms", 2**63 - 1),
        ({"e": "+1"}, "queue_id", 1),
        ({"e": "001"}, "queue_id", 1),
        ({"h": "-7"}, "flag", -7),
        ({"f": "3"}, "sys_flag", 3),
        ({"j": "2"}, "reconsume_times", 2),
    ],
    ids=str,
)
async def test_numbers_that_are_not_the_usual_ones_are_stored_as_they_came(
    change: dict[str, object], name: str, value: int
) -> None:
    async with broker_client() as client:
        assert (await client.ask(SEND_V2, send_fields(**change), b"x")).code == 0
        queue_id = 1 if name == "queue_id" else 0
        answer = await client.ask(PULL, pull_fields(queue_id=queue_id))
        (message,) = decode_messages(answer.body, inflate=False)
    assert getattr(message, name) == value


@pytest.mark.parametrize(
    "properties",
    [{"DELAY": "1"}, {"TIMER_DELAY_MS": "5"}, {"TIMER_DELIVER_MS": "1"}],
    ids=str,
)
async def test_what_would_be_delivered_too_early_is_refused_in_a_batch(
    properties: dict[str, str],
) -> None:
    body = encode_batch([Message("T", b"1"), Message("T", b"2", properties=properties)])
    async with broker_client() as client:
        answer = await client.ask(SEND_BATCH, send_fields(m="true"), body)
        assert (answer.code, "in a batch" in (answer.remark or "")) == (3, True)
        assert await stored(client) == []


async def test_sends_beyond_what_may_wait_for_the_disk_are_refused_until_it_is_done(
    autojump_clock: trio.testing.MockClock,
) -> None:
    options = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "send_thread_pool_queue_capacity": 3}
    async with broker_and_client(**options) as (broker, client):
        assert (await client.ask(SEND_V2, send_fields(), b"made")).code == 0
        flusher = broker.controller.store.flusher
        await flusher._turn.acquire()  # the disk is slow
        fields = {name: str(value) for name, value in send_fields().items()}
        held = [await client.send(RemotingCommand(SEND_V2, fields, b"%d" % n)) for n in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        answer = await client.ask(SEND_V2, send_fields(), b"refused")
        assert (answer.code, answer.remark) == (
            2,
            "[OVERLOAD]system busy, start flow control for a while",
        )
        flusher._turn.release()
        assert [(await client.answer(opaque)).code for opaque in held] == [0, 0, 0]
        assert (await client.ask(SEND_V2, send_fields(), b"after")).code == 0
        messages = await stored(client)
    assert [message.body for message in messages] == [b"made", b"0", b"1", b"2", b"after"]


async def test_a_broker_that_may_not_be_written_takes_no_ordered_messages() -> None:
    ordered = TopicConfig(topic_name="Ordered", read_queue_nums=1, write_queue_nums=1, order=True)
    async with embedded_broker(broker_permission=4) as broker:
        broker.controller.topics.update([ordered])
        client = await broker.connect()
        refused = await client.ask(SEND_V2, send_fields("Ordered"), b"x")
        # Any other topic is taken, as in Apache: clients go by the route's permission.
        other = await client.ask(SEND_V2, send_fields(), b"x")
    assert refused.code == ResponseCode.NO_PERMISSION
    assert "sending message is forbidden" in (refused.remark or "")
    assert other.code == ResponseCode.SUCCESS


def command(**changes: object) -> RemotingCommand:
    fields = {name: str(value) for name, value in send_fields(**changes).items()}
    return RemotingCommand(SEND_V2, fields, b"x", opaque=1)


async def test_sends_of_several_connections_share_a_turn_with_refused_ones() -> None:
    # Called as the poller does: what several connections sent is one turn.
    async with embedded_broker() as broker:
        for _ in range(3):
            await broker.connect()
        server, turn = broker.controller.server, broker.controller.turn
        assert server is not None
        send = server._processors[SEND_V2]
        rude, first, second = server.channels
        turn.active = True
        with pytest.raises(RequestRefused):
            send(command(b="../x"), rude)
        assert send(command(), first) is None
        with pytest.raises(RequestRefused):
            send(command(b="../x"), rude)
        assert send(command(), second) is None
        turn.end()
        assert (rude.outbox_size, first.outbox_size > 0, second.outbox_size > 0) == (0, True, True)
        await trio.testing.wait_all_tasks_blocked()
        messages = await stored(await broker.connect())
    assert len(messages) == 2


async def test_turns_of_refused_sends_only_leave_nothing_behind() -> None:
    async with embedded_broker() as broker:
        first, second = await broker.connect(), await broker.connect()
        for _ in range(5):
            for client in (first, second):
                answer = await client.ask(SEND_V2, send_fields("../x"))
                assert answer.code == ResponseCode.INVALID_PARAMETER
        good = await second.ask(SEND_V2, send_fields(), b"x")
        assert good.code == 0
        assert (await first.ask(SEND_V2, send_fields(), b"x")).ext_fields["queueOffset"] == "1"


@pytest.mark.parametrize("missing", ["b", "e", "f", "g", "h"])
async def test_a_missing_field_is_named(missing: str) -> None:
    fields = send_fields()
    del fields[missing]
    async with embedded_broker() as broker:
        answer = await (await broker.connect()).ask(SEND_V2, fields, b"x")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"<{missing}>" in (answer.remark or "") or missing in (answer.remark or "")


@pytest.mark.parametrize(
    ("topic", "body", "words"),
    [("T", b"\0\0\0\x09junk", "batch"), ("%RETRY%g", b"", "does not support retry group")],
)
async def test_a_bad_batch_is_refused_whole(topic: str, body: bytes, words: str) -> None:
    async with broker_client() as client:
        answer = await client.ask(SEND_BATCH, send_fields(topic, m="true", i=""), body)
        assert await stored(client, topic) == []
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert words in (answer.remark or "")


async def test_a_full_disk_refuses_the_whole_turn_and_sends_come_back(
    memory_disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_client(memory_disk) as client:
        assert (await client.ask(SEND_V2, send_fields(), b"before")).code == 0

        def full_once(operation: str, path: str) -> OSError | None:
            if operation == "pwrite" and "commitlog" in path:
                memory_disk.fault = None  # what the failed write left can be wiped out
                return OSError(errno.ENOSPC, "No space left on device")
            return None

        memory_disk.fault = full_once
        refused = await client.ask(SEND_V2, send_fields(), b"refused")
        after = await client.ask(SEND_V2, send_fields(), b"after")
        messages = await stored(client)
    assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "No space left" in (refused.remark or "")
    assert after.ext_fields["queueOffset"] == "1"
    assert [message.body for message in messages] == [b"before", b"after"]


async def test_without_room_for_another_file_sends_are_refused_until_there_is(
    memory_disk: MemoryDisk,
) -> None:
    def full(operation: str, path: str) -> OSError | None:
        if operation == "allocate" and "commitlog" in path:
            return OSError(errno.ENOSPC, "No space left on device")
        return None

    body = bytes(100_000)  # of a file of 256 KiB
    async with broker_client(memory_disk) as client:
        memory_disk.fault = full
        answers = [await client.ask(SEND_V2, send_fields(), body) for _ in range(4)]
        # What was made ahead may still take some; then it is over.
        assert answers[0].code == 0
        refused = answers[-1]
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "create mapped file failed" in (refused.remark or "")
        assert "No space left" in (refused.remark or "")
        pulled = await client.ask(PULL, pull_fields(sysFlag=4))
        assert pulled.code == 0
        memory_disk.fault = None
        with trio.fail_after(10):
            while (await client.ask(SEND_V2, send_fields(), b"after")).code != 0:
                await trio.testing.wait_all_tasks_blocked(0.01)


async def test_on_a_disk_that_is_too_full_the_refusal_says_why_reads_go_on_and_sends_come_back(
    memory_disk: MemoryDisk, autojump_clock: trio.testing.MockClock
) -> None:
    async with broker_client(memory_disk) as client:
        assert (await client.ask(SEND_V2, send_fields(), b"before")).code == 0
        memory_disk.taken = memory_disk.capacity * 95 // 100
        await trio.sleep(11)
        assert (await client.ask(SEND_V2, send_fields(), b"enough is free")).code == 0
        memory_disk.taken = memory_disk.capacity - (3 << 30)
        await trio.sleep(11)
        batch = await client.ask(
            SEND_BATCH, send_fields(m="true"), encode_batch([Message("T", b"x")])
        )
        refused = await client.ask(SEND_V2, send_fields(), b"refused")
        for answer in (batch, refused):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            remark = answer.remark or ""
            assert remark.startswith("service not available now: the disk of /store/commitlog is")
            assert "100 % full, 3.0 GiB are free" in remark
            assert "slave" not in remark
        assert len(await stored(client)) == 2
        memory_disk.taken = 0
        await trio.sleep(11)
        assert (await client.ask(SEND_V2, send_fields(), b"after")).code == 0
        assert [message.body[:6] for message in await stored(client)][2:] == [b"after"]


async def test_what_was_answered_is_there_after_a_stop_and_a_start(
    memory_disk: MemoryDisk,
) -> None:
    async with broker_client(memory_disk) as client:
        for number in range(50):
            answer = await client.ask(SEND_V2, send_fields(e=number % 4), b"%d" % number)
            assert answer.code == 0
    async with broker_and_client(memory_disk) as (broker, client):
        bodies = [m.body for queue in range(4) for m in await stored(client, queue_id=queue)]
        assert "T" in broker.controller.topics.topic_config_table
    assert sorted(map(int, bodies)) == list(range(50))


async def test_under_sync_flush_an_answer_waits_for_the_disk_and_unwaited_ones_do_not(
    memory_disk: MemoryDisk,
) -> None:
    from trocket.store.config import FlushDiskType

    async with broker_client(memory_disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as client:
        with trio.fail_after(10):
            waited = await client.ask(SEND_V2, send_fields(), b"waits")
            quick = await client.ask(SEND_V2, send_fields(i="UNIQ_KEY\1A\2WAIT\1false"), b"not")
            assert (waited.code, quick.code) == (0, 0)
            while len(await stored(client)) < 2:
                await trio.testing.wait_all_tasks_blocked(0.001)
        assert memory_disk.contents["/store/commitlog/" + "0" * 20]


async def test_a_failed_fsync_is_told_as_flush_disk_timeout_and_later_sends_are_refused(
    memory_disk: MemoryDisk,
) -> None:
    from trocket.store.config import FlushDiskType

    async with broker_client(memory_disk, flush_disk_type=FlushDiskType.SYNC_FLUSH) as client:

        def broken(operation: str, path: str) -> OSError | None:
            if operation == "sync" and "commitlog" in path:
                return OSError(errno.EIO, "Input/output error")
            return None

        memory_disk.fault = broken
        with trio.fail_after(10):
            answer = await client.ask(SEND_V2, send_fields(), b"x")
            later = await client.ask(SEND_V2, send_fields(), b"y")
        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert answer.ext_fields["queueOffset"] == "0"
        assert later.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "read-only until restart" in (later.remark or "")
        memory_disk.fault = None


def test_request_codes_are_those_of_the_protocol() -> None:
    assert (SEND_V1, SEND_V2, SEND_BATCH, PULL) == (
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
    )


@pytest.mark.parametrize("native", [extension, None])
@pytest.mark.parametrize("kind", ["plain", "special", "batch", "half", "delayed"])
async def test_too_long_properties_are_refused_with_their_size_and_its_limit(kind, native):
    more = {"special": {"R_": "1"}, "half": {"TRAN_MSG": "true"}, "delayed": {"DELAY": "1"}}
    own = {"x": "y" * 32_757} | more.get(kind, {})
    text = "".join(f"{name}\1{value}\2" for name, value in own.items())
    async with broker_and_client(native=native) as (broker, client):
        if kind == "batch":
            body = encode_batch([Message("T", b"x", properties=own)])
            answer = await client.ask(SEND_BATCH, send_fields(m="true", i=""), body)
        else:
            answer = await client.ask(SEND_V2, send_fields(i=text), b"x")
        ends = broker.controller.store.max_offset("T", 0)
    assert (answer.code, ends) == (ResponseCode.MESSAGE_ILLEGAL, 0)
    assert "bytes of properties, at most 32767 are allowed" in answer.remark
