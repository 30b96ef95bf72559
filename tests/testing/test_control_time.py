"""The time of `trocket up --test-clock`: all that waits for it follows an advance at once.

Real sockets throughout, and no wait for time: the answer to an advance comes after the due work.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trocket.common.clock import SystemClock
from trocket.common.message_properties import PROPERTY_TIMER_DELAY_SEC
from trocket.remoting.bodies import ConsumerData, HeartbeatData, ProducerData
from trocket.remoting.codec import RemotingCommand

from .blocking_client import Client, Code, pull_fields, send_fields
from .controlled import Controlled, Refused, controlled

HOUR_MS = 3_600_000
LEVEL_2_H = "18"
HALF_MESSAGE = 4
POP = 200050
POLLING_TIMEOUT = 210
"""A pop found nothing."""
TOO_LONG_AHEAD_MS = 10 * 366 * 24 * HOUR_MS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controlled]:
    with controlled(tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture
def client(broker: Controlled) -> Iterator[Client]:
    with Client(broker.broker) as connected:
        yield connected


def pop_fields(topic: str, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "consumerGroup": f"G{topic}", "topic": topic, "queueId": -1, "maxMsgNums": 32,
        "invisibleTime": 60_000, "pollTime": 0, "bornTime": 0, "initMode": 0, "order": "false",
    }  # fmt: skip
    return fields | more


def popped(client: Client, topic: str, **more: object) -> bytes:
    """The records that a pop gets; b"" if it gets none."""
    answer = client.ask(POP, pop_fields(topic, **more))
    assert answer.code in {0, POLLING_TIMEOUT}, answer.remark
    return answer.body


def end_now(client: Client, opaque: int) -> RemotingCommand:
    """The answer, which came before that of the advance. Raises: BlockingIOError: it did not."""
    client.socket.setblocking(False)
    return client.end(opaque)


def test_a_message_for_in_two_hours_comes_with_the_answer(
    broker: Controlled, client: Client
) -> None:
    assert client.send("Delayed", b"late", DELAY=LEVEL_2_H).code == 0
    broker.advance(2 * HOUR_MS - 2_000)
    assert client.pull("Delayed") == []
    broker.advance(2_000)
    assert client.pull("Delayed") == [b"late"]


def test_a_timer_of_a_day(broker: Controlled, client: Client) -> None:
    client.send("Timer", b"tomorrow", **{PROPERTY_TIMER_DELAY_SEC: "86400"})
    broker.advance(23 * HOUR_MS)
    assert client.pull("Timer") == []
    broker.advance(HOUR_MS)
    assert client.pull("Timer") == [b"tomorrow"]


def test_a_held_pull_is_answered(broker: Controlled, client: Client) -> None:
    client.send("Held", b"late", DELAY=LEVEL_2_H)
    with Client(broker.broker) as consumer:
        opaque = consumer.begin(Code.PULL_MESSAGE, pull_fields("Held", wait_ms=15_000))
        client.pull("Held")  # the broker has the held one, too: it came before
        broker.advance(2 * HOUR_MS)
        assert b"late" in end_now(consumer, opaque).body


def test_sixteen_retries_and_the_dead_letter(broker: Controlled, client: Client) -> None:
    client.send("Work", b"cannot be done")
    heartbeat = HeartbeatData(client_id="c", consumer_data_set=[ConsumerData(group_name="Ladder")])
    assert client.ask(Code.HEART_BEAT, {}, heartbeat.to_body()).code == 0
    topic, offset, tries = "Work", 0, 0
    while messages := client.pull_messages(topic, offset=offset):
        (message,) = messages
        assert message.reconsume_times == tries
        tries += 1
        back = {
            "offset": message.physical_offset, "group": "Ladder", "delayLevel": 0,
            "originTopic": "Work", "maxReconsumeTimes": 16,
        }  # fmt: skip
        assert client.ask(Code.CONSUMER_SEND_MSG_BACK, back).code == 0
        offset = message.queue_offset + 1 if topic != "Work" else 0
        topic = "%RETRY%Ladder"
        broker.advance(2 * HOUR_MS)
    assert tries == 17
    assert client.pull("%DLQ%Ladder") == [b"cannot be done"]


def test_a_transaction_is_checked_before_the_answer(broker: Controlled, client: Client) -> None:
    heartbeat = HeartbeatData(client_id="p", producer_data_set=[ProducerData(group_name="PG")])
    assert client.ask(Code.HEART_BEAT, {}, heartbeat.to_body()).code == 0
    fields = send_fields("Orders", UNIQ_KEY="0" * 32, TRAN_MSG="true", PGROUP="PG")
    assert client.ask(Code.SEND_MESSAGE_V2, fields | {"f": HALF_MESSAGE}, b"half").code == 0
    broker.advance(5_000)
    assert client.pushed == []
    broker.advance(1_000)
    client.socket.setblocking(False)  # it is there already
    client.receive()
    (check,) = client.pushed
    assert (check.code, b"half" in check.body) == (Code.CHECK_TRANSACTION_STATE, True)


def test_what_was_popped_comes_again_and_again(broker: Controlled, client: Client) -> None:
    client.send("Popped", b"come again")
    assert b"come again" in popped(client, "Popped")
    for _ in range(3):
        assert popped(client, "Popped") == b""
        broker.advance(59_000)
        assert popped(client, "Popped") == b""
        broker.advance(1_000)
        assert b"come again" in popped(client, "Popped")


def test_what_was_popped_in_order_comes_again(broker: Controlled, client: Client) -> None:
    client.send("Ordered", b"first")
    assert b"first" in popped(client, "Ordered", order="true", queueId=0)
    assert popped(client, "Ordered", order="true", queueId=0) == b""
    broker.advance(60_000)
    assert b"first" in popped(client, "Ordered", order="true", queueId=0)


@pytest.mark.parametrize("order", ["false", "true"])
def test_a_pop_that_waits_gets_what_comes_again(
    broker: Controlled, client: Client, order: str
) -> None:
    topic = f"Waiting{order}"
    client.send(topic, b"come again")
    assert b"come again" in popped(client, topic, order=order)
    with Client(broker.broker) as consumer:
        fields = pop_fields(topic, order=order, pollTime=15_000, bornTime=SystemClock().wall_ms())
        opaque = consumer.begin(POP, fields)
        client.pull(topic)  # the broker has the waiting one, too: it came before
        broker.advance(60_000)
        assert b"come again" in end_now(consumer, opaque).body


def test_a_frozen_clock_stands_and_can_be_advanced(broker: Controlled, client: Client) -> None:
    client.send("Frozen", b"late", DELAY="1")
    frozen = broker.ask("POST", "/freeze")
    assert frozen["frozen"] is True
    assert broker.ask("POST", "/freeze") == frozen == broker.ask("GET", "/time")
    assert popped(client, "Frozen") == b""
    now_ms = broker.advance(60_000)
    assert now_ms == frozen["now_ms"] + 60_000
    assert b"late" in popped(client, "Frozen")
    assert broker.advance(60_000) == now_ms + 60_000
    assert b"late" in popped(client, "Frozen")
    moving = broker.ask("POST", "/unfreeze")
    assert moving["frozen"] is False
    assert now_ms + 60_000 <= moving["now_ms"] < now_ms + 120_000


def test_the_time_is_set_and_never_back(broker: Controlled) -> None:
    now_ms = broker.ask("GET", "/time")["now_ms"]
    later = broker.ask("POST", "/set", {"now_ms": now_ms + HOUR_MS})
    assert now_ms + HOUR_MS <= later["now_ms"] < now_ms + HOUR_MS + 10_000
    with pytest.raises(Refused, match="time cannot go back") as refused:
        broker.ask("POST", "/set", {"now_ms": now_ms})
    assert refused.value.status == 409
    with pytest.raises(Refused, match="ten years ahead") as refused:
        broker.ask("POST", "/set", {"now_ms": later["now_ms"] + TOO_LONG_AHEAD_MS})
    assert refused.value.status == 400


def test_expired_files_are_deleted_with_the_answer(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=5242880\nfileReservedTime=72\n")
    with controlled(tmp_path, "-c", str(conf)) as broker, Client(broker.broker) as client:

        def first() -> str:
            fields = {"topic": "Old", "queueId": 0}
            return client.ask(Code.GET_MIN_OFFSET, fields).ext_fields["offset"]

        for _ in range(6):
            assert client.send("Old", bytes(2 << 20)).code == 0  # two of them fill a file
        broker.advance(71 * HOUR_MS)
        assert first() == "0"
        broker.advance(25 * HOUR_MS)  # deleteWhen has come
        assert first() == "4"


def test_in_memory_time_is_the_same(tmp_path: Path) -> None:
    with controlled(tmp_path, "--memory") as broker, Client(broker.broker) as client:
        client.send("Delayed", b"late", DELAY=LEVEL_2_H)
        client.send("Popped", b"come again")
        assert b"come again" in popped(client, "Popped")
        broker.advance(2 * HOUR_MS)
        assert client.pull("Delayed") == [b"late"]
        assert b"come again" in popped(client, "Popped")


def test_a_full_disk_keeps_no_advance_waiting(tmp_path: Path) -> None:
    with controlled(tmp_path) as broker, Client(broker.broker) as client:
        client.send("Delayed", b"late", DELAY=LEVEL_2_H)
        broker.ask("POST", "/disk", {"full": True})
        broker.advance(2 * HOUR_MS)
        assert client.pull("Delayed") == []
        broker.ask("POST", "/disk", {"full": False})
        broker.advance(0)
        assert client.pull("Delayed") == [b"late"]
