"""Advancing time by hours: delays, retries, timers, transactions; connections are unaffected.

Every wait here is for an answer on a real socket; nothing waits for time.
"""

from __future__ import annotations

import pytest

from trocket.blocking import Message, Producer
from trocket.common.clock import SystemClock
from trocket.common.message_properties import PROPERTY_TIMER_DELAY_SEC
from trocket.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from trocket.testing import Broker

from .blocking_client import Client, Code, ResponseCode, pull_fields, send_fields

LEVEL_2_H = "18"
HALF_MESSAGE = 4


@pytest.fixture
def client(broker):
    with Client(broker.broker_address) as connected:
        yield connected


def test_a_message_for_in_two_hours_comes_at_once(broker: Broker, client: Client) -> None:
    broker.create_topic("Delayed", queues=1)
    assert client.send("Delayed", b"late", DELAY=LEVEL_2_H).code == 0
    broker.advance(hours=1, minutes=59, seconds=58)
    assert client.pull("Delayed") == []
    broker.advance(seconds=2)
    assert client.pull("Delayed") == [b"late"]
    (message,) = broker.messages("Delayed")
    assert message.store_timestamp_ms - message.born_timestamp_ms > 7_200_000


def test_a_held_pull_is_answered_by_what_becomes_due(broker: Broker, client: Client) -> None:
    broker.create_topic("Held", queues=1)
    client.send("Held", b"late", DELAY=LEVEL_2_H)
    with Client(broker.broker_address) as consumer:
        opaque = consumer.begin(Code.PULL_MESSAGE, pull_fields("Held", wait_ms=15_000))
        client.pull("Held")  # the broker has the held one, too: it came before
        broker.advance(hours=2)
        answer = consumer.end(opaque)
    assert answer.code == 0
    assert b"late" in answer.body


def test_a_held_pull_does_not_end_by_a_jump(broker: Broker, client: Client) -> None:
    broker.create_topic("Quiet", queues=1)
    with Client(broker.broker_address) as consumer:
        opaque = consumer.begin(Code.PULL_MESSAGE, pull_fields("Quiet", wait_ms=15_000))
        client.pull("Quiet")
        broker.advance(hours=24)
        client.send("Quiet", b"came")
        answer = consumer.end(opaque)
    assert answer.code == 0
    assert b"came" in answer.body


def test_timer_messages_come_too(broker: Broker, client: Client) -> None:
    broker.create_topic("Timer", queues=1)
    properties = {PROPERTY_TIMER_DELAY_SEC: "86400"}
    assert client.send("Timer", b"tomorrow", **properties).code == 0
    broker.advance(hours=23)
    assert client.pull("Timer") == []
    broker.advance(hours=1, seconds=1)
    assert client.pull("Timer") == [b"tomorrow"]


def test_a_timer_of_two_hours_comes_after_two_hours(broker: Broker) -> None:
    with Producer(broker.url, group="shop") as producer:
        for topic in ("Exact1", "Exact2", "Exact3"):
            producer.send(Message(topic, "bill", delay_s=7200))
            broker.advance(hours=1.9)
            assert broker.messages(topic) == []
            broker.advance(hours=0.1)
            assert [message.text for message in broker.messages(topic)] == ["bill"]


def test_hundreds_that_become_due_together_are_all_there(broker: Broker, client: Client) -> None:
    broker.create_topic("Many", queues=1)
    opaques = [
        client.begin(Code.SEND_MESSAGE_V2, send_fields("Many", DELAY=str(2 + number % 16)), b"m")
        for number in range(400)
    ]
    assert {client.end(opaque).code for opaque in opaques} == {0}
    broker.advance(hours=1)
    assert len(broker.messages("Many")) == 400


def test_a_message_is_tried_sixteen_times_and_then_dead(broker: Broker, client: Client) -> None:
    broker.create_topic("Work", queues=1)
    client.send("Work", b"cannot be done")
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="Ladder")])
    assert client.ask(Code.HEART_BEAT, {}, heartbeat.to_body()).code == 0
    topic, tries = "Work", 0
    offset = 0
    while True:
        messages = client.pull_messages(topic, offset=offset)
        if not messages:
            break
        (message,) = messages
        assert message.reconsume_times == tries
        tries += 1
        back = {
            "offset": message.physical_offset,
            "group": "Ladder",
            "delayLevel": 0,
            "originTopic": "Work",
            "maxReconsumeTimes": 16,
        }
        assert client.ask(Code.CONSUMER_SEND_MSG_BACK, back).code == 0
        offset = message.queue_offset + 1 if topic != "Work" else 0
        topic = "%RETRY%Ladder"
        broker.advance(hours=2)
    assert tries == 17
    (dead,) = broker.messages("%DLQ%Ladder")
    assert dead.body == b"cannot be done"


def test_a_transaction_is_checked(broker: Broker, client: Client) -> None:
    producer = ProducerData(group_name="PG")
    heartbeat = HeartbeatData(client_id="p", producer_data_set=[producer])
    assert client.ask(Code.HEART_BEAT, {}, heartbeat.to_body()).code == 0
    broker.create_topic("Orders", queues=1)
    fields = send_fields("Orders", UNIQ_KEY="0" * 32, TRAN_MSG="true", PGROUP="PG")
    assert client.ask(Code.SEND_MESSAGE_V2, fields | {"f": HALF_MESSAGE}, b"half").code == 0
    broker.advance(seconds=7)
    while not client.pushed:
        client.receive()
    (check,) = client.pushed
    assert check.code == Code.CHECK_TRANSACTION_STATE
    end = {
        "producerGroup": "PG",
        "tranStateTableOffset": check.ext_fields["tranStateTableOffset"],
        "commitLogOffset": check.ext_fields["commitLogOffset"],
        "commitOrRollback": 8,
        "fromTransactionCheck": "true",
        "msgId": check.ext_fields["msgId"],
        "transactionId": check.ext_fields["transactionId"],
    }
    assert client.ask(Code.END_TRANSACTION, end).code == 0
    assert client.pull("Orders") == [b"half"]


def test_no_client_is_thought_to_be_gone(broker: Broker) -> None:
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="Stays")])
    queue = b'{"topic":"L","brokerName":"b","queueId":0}'
    lock = b'{"consumerGroup":"Stays","clientId":"%s","mqSet":[' + queue + b"]}"
    with Client(broker.broker_address) as idle, Client(broker.namesrv_address) as namesrv:
        assert idle.ask(Code.HEART_BEAT, {}, heartbeat.to_body()).code == 0
        assert idle.ask(Code.LOCK_BATCH_MQ, {}, lock % b"c").code == 0
        for _ in range(5):
            broker.advance(hours=24)
        servers = broker._running()

        async def scan() -> None:
            """What the services do every second and every ten seconds."""
            await servers.broker.parts.clients._scan()

        broker._call(scan)
        ids = idle.ask(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "Stays"})
        assert ids.code == 0
        assert b'"c"' in ids.body
        others = idle.ask(Code.LOCK_BATCH_MQ, {}, lock % b"another")
        assert b'"queueId"' not in others.body
        assert namesrv.route("TBW102") is not None


def test_time_does_not_go_back(broker: Broker) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        broker.advance(hours=-1)


def test_under_sync_flush_what_became_due_can_be_consumed(tmp_path) -> None:
    with (
        Broker(folder=tmp_path, config={"flushDiskType": "SYNC_FLUSH"}) as broker,
        Client(broker.broker_address) as client,
    ):
        broker.create_topic("T", queues=1)
        client.send("T", b"late", DELAY=LEVEL_2_H)
        broker.advance(hours=2)
        assert client.pull("T") == [b"late"]


def test_a_refusing_store_does_not_hold_advance_up(broker: Broker, client: Client) -> None:
    broker.create_topic("Full", queues=1)
    client.send("Full", b"late", DELAY=LEVEL_2_H)
    broker.faults.disk_full()
    broker.advance(hours=2)
    assert client.send("Full").code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert client.pull("Full") == []
    broker.faults.disk_ok()
    broker.advance()
    assert client.pull("Full") == [b"late"]


def test_time_goes_on_over_a_restart() -> None:
    with Broker() as broker:
        with Client(broker.broker_address) as client:
            client.send("T", b"late", DELAY=LEVEL_2_H)
        broker.advance(hours=1)
        broker.restart()
        broker.advance(hours=1)
        assert [message.body for message in broker.messages("T")] == [b"late"]


def pop_fields(topic: str, poll_ms: int, *, group: str = "CG") -> dict[str, object]:
    """The header of POP_MESSAGE as the Java client sends it: born by the machine's clock."""
    return {
        "consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": poll_ms, "bornTime": SystemClock().wall_ms(),
        "initMode": 0, "order": "false",
    }  # fmt: skip


def test_a_pop_born_by_the_machines_clock_is_served_after_two_hours(
    broker: Broker, client: Client
) -> None:
    broker.create_topic("Popped", queues=1)
    client.send("Popped", b"late", DELAY=LEVEL_2_H)
    broker.advance(hours=2)
    answer = client.ask(Code.POP_MESSAGE, pop_fields("Popped", 1_000))
    assert (answer.code, answer.remark) == (0, "FOUND")
    assert b"late" in answer.body
    assert int(answer.ext_fields["popTime"]) > SystemClock().wall_ms() + 7_100_000


@pytest.mark.parametrize("code", [Code.POP_MESSAGE, Code.NOTIFICATION])
def test_a_pop_born_by_the_machines_clock_waits_after_two_hours(
    broker: Broker, client: Client, code: Code
) -> None:
    topic = f"Waits{int(code)}"
    broker.create_topic(topic, queues=1)
    broker.advance(hours=2)
    with Client(broker.broker_address) as consumer:
        opaque = consumer.begin(code, pop_fields(topic, 9_000))
        client.pull(topic)  # the broker has the pop, too: it came before
        client.send(topic, b"came")
        answer = consumer.end(opaque)
    assert answer.code == 0
    assert b"came" in answer.body or answer.ext_fields["hasMsg"] == "true"
