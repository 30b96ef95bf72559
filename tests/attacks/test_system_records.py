"""A client wrote records that the broker keeps for itself, and the broker believed it.

A plain send to rmq_sys_wheel_timer with a REAL_TOPIC made the broker write an op
message. After a restart another producer's open transaction had ended, and its message was lost.
The walk below tries each cell of the tables in `broker/messages/admission.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from enum import Enum

import pytest
import trio

from trocket.broker.messages.admission import (
    STRIPPED_NAMES,
    TIMER_NAMES,
    TOPIC_RULES,
    TopicKind,
    TopicKinds,
)
from trocket.disk.memory_disk import MemoryDisk
from trocket.remoting.message import Message
from trocket.remoting.message_codec import (
    decode_messages,
    decode_record,
    encode_batch,
    encode_record,
)
from trocket.remoting.message_id import encode_offset_id
from trocket.remoting.recall_handle import RecallHandle
from trocket.remoting.request_codes import RequestCode

from ..kit import (
    START_MS,
    Broker,
    Client,
    TrioClock,
    bodies,
    broker_and_client,
    broker_client,
    embedded_broker,
    long_names,
    pull_fields,
    put_record,
    send_fields,
    topic_fields,
)

SEND, SEND_BATCH, PULL, SEND_BACK, END, RECALL = 310, 320, 11, 36, 37, 370
COMMIT = 8
NO_PERMISSION, INVALID_PARAMETER, MESSAGE_ILLEGAL = 16, 29, 13
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TIMER, SCHEDULE = "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"
PARKED = "TRANS_CHECK_MAX_TIME_TOPIC"

TOPICS = {
    TopicKind.USER: ["T"],
    TopicKind.RETRY: ["%RETRY%G"],
    TopicKind.DEAD_LETTER: ["%DLQ%G"],
    TopicKind.CLIENT_SYSTEM: [
        "RMQ_SYS_TRACE_TOPIC", "rmq_sys_TRACE_DATA_eu", "TBW102", "BenchmarkTest",
        "DefaultCluster_REPLY_TOPIC",
    ],
    TopicKind.NOTICE: [PARKED, "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"],
    TopicKind.RECORDS: [TIMER, SCHEDULE, HALF, OP, "CHECKPOINT_TOPIC", "rmq_sys_of_a_newer_broker"],
    TopicKind.REVIVE: ["rmq_sys_REVIVE_LOG_DefaultCluster"],
}  # fmt: skip
EACH_TOPIC = [(kind, topic) for kind, topics in TOPICS.items() for topic in topics]
VALUES = {"REAL_TOPIC": OP, "TIMER_OUT_MS": str(START_MS)}
"""What a stranger would say; of other names 1."""
ASKS = {"": "", "DELAY": "1", "TIMER_DELAY_SEC": "1", "TRAN_MSG": "true"}
"""Properties by which a client has the broker keep a record of the message."""


class Verdict(Enum):
    """What becomes of a property, or of the message that has it."""

    STORED = "the property is stored as it came"
    STRIPPED = "the message is stored without the property"
    REFUSED = "the message is refused"


_STRIPPING = dict.fromkeys(STRIPPED_NAMES, Verdict.STRIPPED)
PROPERTY_RULES = {
    RequestCode.SEND_MESSAGE: _STRIPPING,
    RequestCode.SEND_MESSAGE_V2: _STRIPPING,
    RequestCode.SEND_REPLY_MESSAGE: _STRIPPING,
    RequestCode.SEND_REPLY_MESSAGE_V2: _STRIPPING,
    # The messages of a batch lie inside its body, and the batch is stored whole or not at all.
    RequestCode.SEND_BATCH_MESSAGE: _STRIPPING
    | dict.fromkeys((*TIMER_NAMES, "DELAY", "TIMER_DEL_UNIQKEY"), Verdict.REFUSED),
}
"""What a send may say of itself; a property that is not listed is stored."""
SENDS = sorted(PROPERTY_RULES)


def text(properties: dict[str, str]) -> str:
    return "".join(f"{name}\1{value}\2" for name, value in properties.items() if name)


async def prepare(client: Client, topic: str = "victim", **properties: str) -> dict[str, object]:
    """Send a half message; the fields of the request that commits it."""
    own = {"UNIQ_KEY": "VK", "PGROUP": "PG", "TRAN_MSG": "true"} | properties
    answer = await client.ask(SEND, send_fields(topic, i=text(own)), b"committed")
    assert answer.code == 0, answer.remark
    return {
        "producerGroup": "PG", "tranStateTableOffset": answer.ext_fields["queueOffset"],
        "commitLogOffset": int(answer.ext_fields["msgId"][-16:], 16), "commitOrRollback": COMMIT,
        "msgId": own["UNIQ_KEY"], "transactionId": own["UNIQ_KEY"], "fromTransactionCheck": "false",
    }  # fmt: skip


@asynccontextmanager
async def attacked(**options: object) -> AsyncIterator[tuple[Broker, Client]]:
    """A broker that keeps a half message, a delayed and a timer message of a victim.

    Behind the block the broker is killed and started again, and all three must come once.
    """
    disk, clock = MemoryDisk(), TrioClock()
    options = {"recall_message_enable": True, "transaction_check_interval": 10**9} | options
    async with broker_and_client(disk, clock=clock, **options) as (broker, client):
        end = await prepare(client, CHECK_IMMUNITY_TIME_IN_SECONDS="100000")
        for key, body, properties in (
            ("D", b"delayed", {"DELAY": "5"}),
            ("W", b"timed", {"TIMER_DELIVER_MS": str(START_MS + 60_000)}),
        ):
            fields = send_fields("victim", i=text({"UNIQ_KEY": key} | properties))
            assert (await client.ask(SEND, fields, body)).code == 0
        yield broker, client
        await trio.sleep(3)  # what the attack delays is delivered
        killed = disk.copy()
    async with embedded_broker(killed, clock=clock, **options) as broker:
        assert broker.controller.sends_refused == ""
        client = await broker.connect()
        answer = await client.ask(END, end)
        assert (answer.code, answer.remark) == (0, None)
        await trio.sleep(70)
        client = await broker.connect()  # the older one has been idle for too long
        assert sorted(await bodies(client, "victim")) == [b"committed", b"delayed", b"timed"]


# ---- the walk --------------------------------------------------------------------------------


def cells() -> Iterator[tuple[str, str]]:
    """A property and what the message asks for besides."""
    for name in (*STRIPPED_NAMES, "KEYS", "RETRY_TOPIC", "CORRELATION_ID", "INSTANCE_ID"):
        for ask in ASKS:
            yield name, ask


async def send_cell(client: Client, code: int, topic: str, own: dict[str, str]):
    properties = text(own)
    if code == SEND_BATCH:
        body = encode_batch([Message(topic, b"first"), Message(topic, b"x", properties=own)])
        return await client.ask(code, send_fields(topic, i="", m="true"), body)
    fields = send_fields(topic, i=properties)
    if code in (RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE):
        fields = long_names(fields)
    return await client.ask(code, fields, b"x")


def all_ends(broker: Broker) -> dict[tuple[str, int], int]:
    store = broker.controller.store
    return {
        (topic, queue_id): store.max_offset(topic, queue_id)
        for _, topic in EACH_TOPIC
        for queue_id in range(4)
    }


@pytest.mark.slow
@pytest.mark.parametrize("code", SENDS)
async def test_each_cell_of_the_table_is_stored_stripped_or_refused(code, autojump_clock):
    async with attacked() as (broker, client):
        for kind, topic in EACH_TOPIC:
            for name, ask in cells():
                own = {"UNIQ_KEY": "S", name: VALUES.get(name, "1")}
                if ask:
                    own[ask] = ASKS[ask]
                before = all_ends(broker)
                answer = await send_cell(client, code, topic, own)
                rules = PROPERTY_RULES[RequestCode(code)]
                if kind not in TOPIC_RULES[RequestCode(code)]:
                    is_retry_batch = kind is TopicKind.RETRY
                    wanted = MESSAGE_ILLEGAL if is_retry_batch else NO_PERMISSION
                    assert answer.code == wanted, (topic, own, answer)
                    assert all_ends(broker) == before, (topic, own)
                elif rules.get(ask) is Verdict.REFUSED and not was_timed(own):
                    assert (answer.code, all_ends(broker)) == (3, before), (topic, own, answer)
                else:
                    check_stored(broker, answer, topic, name, own)


def was_timed(own: dict[str, str]) -> bool:
    """Whether a message was delivered by the timer already: its delivery time is removed, too."""
    return "TIMER_OUT_MS" in own and any(name in own for name in TIMER_NAMES)


def _place(answer) -> int:
    """The physical offset of the last message that an answer to a send names."""
    return int(answer.ext_fields["msgId"].rpartition(",")[2][-16:], 16)


def check_stored(broker: Broker, answer, topic: str, name: str, own: dict[str, str]) -> None:
    record = decode_record(broker.controller.store.message_at(_place(answer)))
    what = (topic, own, record)
    stripped = name in STRIPPED_NAMES
    waits = record.topic in (SCHEDULE, TIMER, HALF)
    if waits:
        assert record.properties["REAL_TOPIC"] == topic, what
    else:
        assert record.topic == topic, what
        assert "REAL_TOPIC" not in record.properties, what
    set_by_broker = waits and name in ("REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS")
    if stripped and not set_by_broker:
        assert name not in record.properties, what
    elif not stripped:
        assert record.properties[name] == own[name], what


@pytest.mark.parametrize(("kind", "topic"), EACH_TOPIC)
def test_each_topic_has_its_kind(kind, topic):
    assert TopicKinds("DefaultCluster_REPLY_TOPIC").kind_of(topic) is kind


def test_a_trace_topic_that_the_configuration_names_is_for_clients_whatever_its_prefix():
    assert TopicKinds("rmq_sys_traces").kind_of("rmq_sys_traces") is TopicKind.CLIENT_SYSTEM
    assert TopicKinds().kind_of("rmq_sys_traces") is TopicKind.RECORDS


@pytest.mark.parametrize("topic", [t for k, t in EACH_TOPIC if k not in (
    TopicKind.USER, TopicKind.RETRY, TopicKind.DEAD_LETTER,
)])  # fmt: skip
async def test_no_administrator_changes_a_system_topic(topic):
    fields = topic_fields(topic, 0, perm=0)
    async with broker_client(trace_topic_enable=True) as client:
        for code in (RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER):
            assert (await client.ask(code, fields)).code == INVALID_PARAMETER


# ---- the attacks -----------------------------------------------------------------------------


async def test_a_send_to_the_timer_topic_makes_no_op_message(autojump_clock):
    async with attacked() as (broker, client):
        properties = text(
            {"TAGS": "d", "TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": OP, "REAL_QID": "0"}
        )
        answer = await client.ask(SEND, send_fields(TIMER, i=properties), b"0,")
        assert answer.code == NO_PERMISSION
        assert answer.remark == f"Sending message to topic[{TIMER}] is forbidden."
        await trio.sleep(3)
        assert broker.controller.store.max_offset(OP, 0) == 0


@pytest.mark.slow
async def test_a_timer_topic_that_an_older_broker_made_takes_no_sends_either(autojump_clock):
    async with attacked() as (broker, client):
        broker.controller.topics.create_topic_in_send_message_back(TIMER, queue_count=1)
        for code in (SEND, SEND_BATCH):
            answer = await send_cell(client, code, TIMER, {"UNIQ_KEY": "S"})
            assert answer.code == NO_PERMISSION


@pytest.mark.slow
async def test_a_message_that_says_it_was_written_again_hides_no_other(autojump_clock):
    async with attacked() as (_, client):
        own = {"UNIQ_KEY": "W", "TIMER_DELIVER_MS": str(START_MS + 60_000), "TIMER_ROLL_TIMES": "1"}
        await client.ask(SEND, send_fields("other", i=text(own)), b"x")
        own = {"UNIQ_KEY": "W", "TIMER_DELIVER_MS": str(START_MS + 60_000)}
        await client.ask(SEND, send_fields("other", i=text(own)), b"x")


async def test_a_recall_takes_back_messages_of_its_own_topic_only(autojump_clock):
    async with attacked() as (broker, client):
        own = {"UNIQ_KEY": "W", "TIMER_DELIVER_MS": str(START_MS + 60_000)}
        await client.ask(SEND, send_fields("other", i=text(own)), b"x")
        handle = RecallHandle("other", "b", str(START_MS + 60_000), "W").to_text()
        fields = {"producerGroup": "S", "topic": "other", "recallHandle": handle}
        assert (await client.ask(RECALL, fields)).code == 0
        broker.controller.topics.create_topic_in_send_message_back(TIMER, queue_count=1)
        handle = RecallHandle(TIMER, "b", str(START_MS + 60_000), "W").to_text()
        fields |= {"topic": TIMER, "recallHandle": handle}
        assert (await client.ask(RECALL, fields)).code == NO_PERMISSION


@pytest.mark.slow
async def test_a_message_in_no_light_queue_does_not_say_that_it_is(autojump_clock):
    light = {"INNER_MULTI_DISPATCH": "%LMQ%victim", "INNER_MULTI_QUEUE_OFFSET": "7"}
    async with attacked() as (broker, client):
        await client.ask(SEND, send_fields(i=text({"UNIQ_KEY": "S"} | light)), b"x")
        batch = encode_batch([Message("T", b"x", properties=light)])
        answer = await client.ask(SEND_BATCH, send_fields(i="", m="true"), batch)
        record = decode_record(broker.controller.store.message_at(_place(answer)))
        assert record.properties["INNER_MULTI_DISPATCH"] == "%LMQ%victim"
        assert "INNER_MULTI_QUEUE_OFFSET" not in record.properties
        assert (await client.ask(SEND_BATCH, send_fields(i="", m="true"), batch)).code == 0


@pytest.mark.slow
async def test_bytes_in_a_body_that_look_like_a_half_message_end_no_transaction(autojump_clock):
    async with attacked() as (broker, client):
        host = bytes([127, 0, 0, 1, 0, 0, 0, 1])
        store = broker.controller.store
        begin = store.max_physical_offset
        properties = text({"UNIQ_KEY": "VK", "PGROUP": "S", "REAL_TOPIC": "T", "REAL_QID": "0"})
        at = begin + 88
        forged = encode_record(
            HALF,
            0,
            0,
            at,
            b"forged",
            properties.encode(),
            born_timestamp_ms=START_MS,
            born_host=host,
            store_timestamp_ms=START_MS,
            store_host=host,
        )
        answer = await client.ask(SEND, send_fields(i="UNIQ_KEY\1S\2"), forged)
        assert int(answer.ext_fields["msgId"][-16:], 16) == begin
        assert decode_record(store.message_at(at)).body == b"forged"
        end = {
            "producerGroup": "S", "tranStateTableOffset": 0, "commitLogOffset": at, "msgId": "VK",
            "commitOrRollback": COMMIT, "fromTransactionCheck": "false",
        }  # fmt: skip
        answer = await client.ask(END, end)
        assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
        assert await bodies(await broker.connect(), "T") == [forged]


@pytest.mark.slow
@pytest.mark.parametrize("topic", [TIMER, SCHEDULE, HALF, OP])
async def test_the_brokers_own_records_are_not_sent_back(topic, autojump_clock):
    async with attacked() as (broker, client):
        own = text({"UNIQ_KEY": "R", "REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_OUT_MS": "9"})
        begin = broker.controller.store.max_physical_offset
        put_record(broker, topic, own, b"record")
        fields = {"offset": begin, "group": "TOOLS_CONSUMER", "delayLevel": 0, "unitMode": "false"}
        answer = await client.ask(SEND_BACK, fields)
        assert (answer.code, topic in answer.remark) == (NO_PERMISSION, True)


@pytest.mark.slow
async def test_a_notice_that_could_not_be_consumed_is_sent_back(autojump_clock):
    async with attacked() as (broker, client):
        begin = broker.controller.store.max_physical_offset
        put_record(broker, "OFFSET_MOVED_EVENT", "UNIQ_KEY\1R\2", b"notice")
        fields = {"offset": begin, "group": "TOOLS_CONSUMER", "delayLevel": 0, "unitMode": "false"}
        assert (await client.ask(SEND_BACK, fields)).code == 0


async def test_no_client_moves_or_removes_the_offsets_of_the_brokers_own_groups(autojump_clock):
    group = "CID_RMQ_SYS_TRANS"
    async with attacked() as (broker, client):
        for topic in (HALF, OP):
            own = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 10**15}
            assert (await client.ask(15, own)).code == NO_PERMISSION
            pull = pull_fields(topic, 0, consumerGroup=group, sysFlag=1 | 4, commitOffset=10**15)
            assert (await client.ask(PULL, pull)).code == NO_PERMISSION
            assert (await client.ask(PULL, pull | {"sysFlag": 4})).code != NO_PERMISSION
            known = broker.controller.offsets.query_offset(group, topic, 0)
            assert known in (-1, 0)
        gone = {"groupName": group, "cleanOffset": "true"}
        assert (await client.ask(207, gone)).code == NO_PERMISSION


# ---- stores that an older broker wrote -------------------------------------------------------

FORGED = [
    (TIMER, {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": OP, "REAL_QID": "0", "TAGS": "d"}, OP),
    (TIMER, {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": "../x", "REAL_QID": "0"}, "../x"),
    (TIMER, {"TIMER_OUT_MS": str(START_MS), "REAL_TOPIC": "T", "REAL_QID": "9" * 10}, "9" * 10),
    (TIMER, {"TIMER_OUT_MS": "9" * 30, "REAL_TOPIC": "T", "REAL_QID": "0"}, "9" * 30),
    (TIMER, {"TIMER_OUT_MS": "-1", "REAL_TOPIC": "T", "REAL_QID": "0"}, "-1"),
    (
        TIMER,
        {"TIMER_OUT_MS": "9", "TIMER_DEL_UNIQKEY": "W", "REAL_TOPIC": TIMER, "REAL_QID": "0"},
        TIMER,
    ),
    (SCHEDULE, {"DELAY": "1", "REAL_TOPIC": OP, "REAL_QID": "0", "TAGS": "d"}, OP),
    (SCHEDULE, {"DELAY": "1", "REAL_TOPIC": TIMER, "REAL_QID": "0"}, TIMER),
    (SCHEDULE, {"DELAY": "1", "REAL_TOPIC": "rmq_sys_x", "REAL_QID": "0"}, "rmq_sys_x"),
    (OP, {"TAGS": "d"}, "192.0.2.9:40000"),
    (HALF, {"REAL_TOPIC": OP, "REAL_QID": "0", "PGROUP": "S", "UNIQ_KEY": "S"}, OP),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("topic", "properties", "word"), FORGED)
async def test_a_forged_record_of_an_old_store_is_left_out_and_named(
    topic, properties, word, autojump_clock, caplog
):
    caplog.set_level(logging.ERROR)
    async with attacked() as (broker, _):
        put_record(broker, topic, text({"UNIQ_KEY": "F"} | properties), b"0,")
        await trio.sleep(3)
        assert broker.controller.store.max_offset(OP, 0) == (topic == OP)
    verb = "is ignored" if topic == OP else "is skipped"
    left_out = [each.message for each in caplog.records if verb in each.message]
    assert left_out
    assert word in left_out[0]


@pytest.mark.slow
async def test_an_old_half_message_for_a_system_topic_is_not_committed(autojump_clock):
    async with attacked() as (broker, client):
        own = {"UNIQ_KEY": "S", "PGROUP": "S", "REAL_TOPIC": OP, "REAL_QID": "0", "TAGS": "d"}
        at = broker.controller.store.max_physical_offset
        offset = put_record(broker, HALF, text(own), b"0,")
        broker.controller.transactions.put_half(offset, b"")
        broker.controller.transactions.after_commit(True)
        end = {
            "producerGroup": "S", "tranStateTableOffset": offset, "commitLogOffset": at,
            "commitOrRollback": COMMIT, "msgId": "S", "fromTransactionCheck": "false",
        }  # fmt: skip
        answer = await client.ask(END, end)
        assert (answer.code, OP in answer.remark) == (1, True)
        at = broker.controller.store.max_physical_offset
        put_record(broker, PARKED, text(own), b"0,")
        message_id = encode_offset_id(bytes([127, 0, 0, 1, 0, 0, 0, 1]), at)
        answer = await client.ask(323, {"msgId": message_id})
        assert (answer.code, OP in answer.remark) == (1, True)


# ---- what is accepted is delivered -----------------------------------------------------------

LONG_TOPIC = "T" * 127


@pytest.mark.slow
@pytest.mark.parametrize(
    "own", [{"DELAY": "1"}, {"TIMER_DELAY_SEC": "1"}, {"TIMER_DELIVER_MS": str(START_MS + 1000)}]
)
@pytest.mark.parametrize("grows", ["body", "properties"])
@pytest.mark.parametrize("has_nul", [False, True])
async def test_a_message_that_will_not_fit_when_it_is_delivered_is_refused_when_it_is_sent(
    own, grows, has_nul, autojump_clock
):
    own = own | {"K": "a\0b" if has_nul else "ab"}
    end = 64 * 1024 if grows == "body" else 32_767
    accepted = []
    codes = set()
    async with broker_and_client(mapped_file_size_commit_log=64 * 1024) as (broker, client):
        for size in range(end - 700, end - 60, 9):
            body, filler = (b"x" * size, "") if grows == "body" else (b"%d" % size, "x" * size)
            properties = text({"UNIQ_KEY": "A"} | own | {"F": filler})
            answer = await client.ask(SEND, send_fields(LONG_TOPIC, i=properties), body)
            codes.add(answer.code)
            if answer.code == 0:
                accepted.append(body)
        await trio.sleep(5)
        assert broker.controller.store.max_offset(LONG_TOPIC, 0) == len(accepted)
    assert codes == {0, MESSAGE_ILLEGAL}


@pytest.mark.slow
@pytest.mark.parametrize("timer", [{}, {"TIMER_DELAY_SEC": "1"}, {"DELAY": "1"}])
async def test_a_half_message_that_is_accepted_can_be_asked_about_and_committed(
    timer, autojump_clock, caplog
):
    caplog.set_level(logging.ERROR)
    ends = []
    async with broker_and_client() as (broker, client):
        await client.ask(34, {}, HEARTBEAT)
        for size in range(32_767 - 420, 32_767 - 60, 7):
            own = {"UNIQ_KEY": "A", "PGROUP": "PG", "TRAN_MSG": "true"} | timer | {"F": "x" * size}
            answer = await client.ask(SEND, send_fields(i=text(own)), b"half")
            assert answer.code in (0, MESSAGE_ILLEGAL)
            if answer.code == 0:
                ends.append(answer.ext_fields)
        assert 0 < len(ends) < 52
        await trio.sleep(10)
        await client.ask(PULL, pull_fields("none", 0, sysFlag=4))
        checks = [each for each in client.pushed if each.code == 39]
        assert len(checks) == len(ends)
        for check in checks:
            fields = check.ext_fields
            end = {
                "producerGroup": "PG", "tranStateTableOffset": fields["tranStateTableOffset"],
                "commitLogOffset": fields["commitLogOffset"], "commitOrRollback": COMMIT,
                "msgId": "A", "fromTransactionCheck": "true",
            }  # fmt: skip
            assert (await client.ask(END, end)).code == 0
        await trio.sleep(5)
        assert broker.controller.store.max_offset("T", 0) == len(ends)
    assert not [each.message for each in caplog.records if each.levelno >= logging.ERROR]


async def test_a_half_message_too_large_to_be_written_again_keeps_no_other_from_its_check(
    autojump_clock, caplog
):
    async with broker_and_client() as (broker, client):
        await client.ask(34, {}, HEARTBEAT)
        own = {"UNIQ_KEY": "S", "PGROUP": "PG", "REAL_TOPIC": "T", "REAL_QID": "0"}
        own["F"] = "x" * (32_767 - len(text(own | {"F": ""})))
        offset = put_record(broker, HALF, text(own), b"large")
        broker.controller.transactions.put_half(offset, b"")
        broker.controller.transactions.after_commit(True)
        await prepare(client)
        await trio.sleep(10)
        await client.ask(PULL, pull_fields("none", 0, sysFlag=4))
        checks = [decode_record(each.body).body for each in client.pushed if each.code == 39]
    assert checks == [b"committed"]
    assert any("stays open" in each.message for each in caplog.records)


HEARTBEAT = b'{"clientID":"c1","producerDataSet":[{"groupName":"PG"}],"consumerDataSet":[]}'


# ---- what clients need -----------------------------------------------------------------------


async def test_a_message_that_was_timed_and_is_sent_on_is_stored_at_once(autojump_clock):
    async with broker_client() as client:
        own = text({"UNIQ_KEY": "A", "TIMER_DELAY_SEC": "1"})
        await client.ask(SEND, send_fields(i=own), b"x")
        await trio.sleep(3)
        answer = await client.ask(PULL, pull_fields(sysFlag=4))
        (first,) = decode_messages(answer.body)
        assert "TIMER_OUT_MS" in first.properties
        await client.ask(SEND, send_fields("next", i=text(dict(first.properties))), b"x")
        answer = await client.ask(PULL, pull_fields("next", sysFlag=4))
        (second,) = decode_messages(answer.body)
    assert {"REAL_TOPIC", "REAL_QID"} & set(second.properties) == set()
    assert not [name for name in second.properties if name.startswith("TIMER")]
