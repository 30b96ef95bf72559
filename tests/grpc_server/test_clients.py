"""Who clients are: settings, heartbeats, what the broker knows of them and asks them."""

from __future__ import annotations

import queue
from typing import Any

import grpc
import pytest
import trio

from trocket.client import Admin
from trocket.grpc_protocol.enums import ClientType
from trocket.testing import Broker

from .caller import MESSAGES, Caller


class Commands:
    """The commands that a client sends on its stream, one after the other."""

    def __init__(self, *commands: Any) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for command in commands:
            self._queue.put(command)

    def put(self, command: Any) -> None:
        self._queue.put(command)

    def __iter__(self) -> Any:
        return iter(self._queue.get, None)


def test_settings_are_the_services(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Settings")
    given = caller.producer_settings("Settings")
    given.settings.backoff_policy.max_attempts = 99
    given.settings.metric.on = True
    commands = Commands(given)
    answer = next(iter(caller.telemetry(commands)))
    commands.put(None)
    settings = answer.settings
    assert answer.status.code == 20000
    assert [each.name for each in settings.publishing.topics] == ["Settings"]
    assert settings.publishing.max_body_size == 4 * 1024 * 1024
    assert settings.publishing.validate_message_type
    assert settings.backoff_policy.max_attempts == 3
    assert settings.backoff_policy.exponential_backoff.multiplier == 2
    assert settings.HasField("metric")
    assert not settings.metric.on


def test_settings_of_a_consumer_are_those_of_its_group(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Settings")
    broker.create_group("InOrder", consume_message_orderly=True, retry_max_times=3)
    commands = Commands(caller.consumer_settings("InOrder", "Settings"))
    settings = next(iter(caller.telemetry(commands))).settings
    commands.put(None)
    assert settings.client_type == ClientType.SIMPLE_CONSUMER
    assert settings.subscription.fifo
    assert settings.subscription.receive_batch_size == 32
    assert settings.subscription.long_polling_timeout.seconds == 20
    assert settings.backoff_policy.max_attempts == 4
    assert len(settings.backoff_policy.customized_backoff.next) == 18


def status_of(stream: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        list(stream)
    return caught.value.code(), caught.value.details()


@pytest.mark.parametrize(
    "command",
    [
        {"settings": {}},
        {"settings": {"publishing": {"topics": [{"name": "a b"}]}}},
        {"settings": {"subscription": {"group": {"name": ""}}}},
        {"settings": {"publishing": {}, "client_properties": {"a": "x" * 5000}}},
        {"settings": {"client_type": 5, "subscription": {"group": {"name": "G"}}}},
    ],
)
def test_settings_that_are_refused_end_the_stream(caller: Caller, command: dict[str, Any]) -> None:
    stream = caller.telemetry([MESSAGES.TelemetryCommand(**command)])
    code, text = status_of(stream)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"subscription": {"group": {"name": "G"}}}, "Client type is not consumer, type: CLIENT_"),
        ({"client_type": 9, "subscription": {"group": {"name": "G"}}}, "type: UNRECOGNIZED"),
        ({"client_type": 9, "publishing": {}}, "Can't get the number of an unknown enum value."),
    ],
)
def test_settings_of_no_client_are_the_proxys_error(
    caller: Caller, settings: dict[str, Any], text: str
) -> None:
    code, found = status_of(caller.telemetry([MESSAGES.TelemetryCommand(settings=settings)]))
    assert code is grpc.StatusCode.INTERNAL
    assert found.startswith("process client telemetryCommand failed. ")
    assert text in found


def test_commands_that_mean_nothing_to_a_server_are_passed_over(
    broker: Broker, caller: Caller
) -> None:
    broker.create_topic("Over")
    others: tuple[dict[str, Any], ...] = (
        {},
        {"verify_message_result": {"nonce": "1"}},
        {"status": {"code": 20000}},
    )
    commands = Commands(*(MESSAGES.TelemetryCommand(**each) for each in others))
    commands.put(caller.producer_settings("Over"))
    assert next(iter(caller.telemetry(commands))).status.code == 20000
    commands.put(None)


def test_a_stream_without_a_command_ends_with_its_client(caller: Caller) -> None:
    assert list(caller.telemetry([])) == []


@pytest.mark.parametrize(("client_type", "code"), [(0, 40015), (2, 40003), (4, 40015), (1, 20000)])
def test_a_heartbeat_is_that_of_the_clients_type(
    broker: Broker, caller: Caller, client_type: int, code: int
) -> None:
    broker.create_topic("Beating")
    settings = {"client_type": client_type, "publishing": {"topics": [{"name": "Beating"}]}}
    commands = Commands(MESSAGES.TelemetryCommand(settings=settings))
    next(iter(caller.telemetry(commands)))
    for method in ("Heartbeat", "NotifyClientTermination"):
        assert caller.call(method).status.code == code
    commands.put(None)


def test_a_client_without_settings_is_unknown(caller: Caller) -> None:
    for method in ("Heartbeat", "NotifyClientTermination"):
        assert caller.call(method).status.code == 40015


def test_a_call_needs_a_client_id(broker: Broker) -> None:
    for client_id in ("", "x" * 256):
        with Caller(broker.broker_address, client_id) as caller:
            assert caller.call("QueryRoute", topic={"name": "T"}).status.code == 40017


async def test_the_broker_knows_producers_and_consumers(broker: Broker) -> None:
    broker.create_topic("Known")
    with (
        Caller(broker.broker_address, "consumer@1") as consumer,
        Caller(broker.broker_address, "producer@1") as producer,
    ):
        commands = [
            Commands(consumer.consumer_settings("KnownGroup", "Known")),
            Commands(producer.producer_settings("Known")),
        ]
        for caller, each in zip((consumer, producer), commands, strict=True):
            assert next(iter(caller.telemetry(each))).status.code == 20000
            answer = caller.call("Heartbeat", group={"name": "KnownGroup"})
            assert answer.status.code == 20000
        async with Admin(broker.url) as admin:
            members = await admin.clients("KnownGroup")
            assert [each.client_id for each in members.clients] == ["consumer@1"]
            assert members.clients[0].language == "PYTHON"
            assert [each.topic for each in members.subscriptions] == ["Known"]
            (found,) = await admin.producers("Known")
            assert found.client_id == "producer@1"
            for caller in (consumer, producer):
                answer = caller.call("NotifyClientTermination", group={"name": "KnownGroup"})
                assert answer.status.code == 20000
            assert await admin.producers("Known") == ()
        for each in commands:
            each.put(None)


def half_message(caller: Caller, topic: str, body: bytes) -> Any:
    return caller.send(topic, body, message_id=body.decode(), message_type=4)


def test_transactions_are_committed_rolled_back_and_checked() -> None:
    with Broker() as broker, Caller(broker.broker_address) as caller:
        broker.create_topic("Deals", message_type="TRANSACTION")
        commands = Commands(caller.producer_settings("Deals"))
        stream = iter(caller.telemetry(commands, 60))
        assert next(stream).status.code == 20000
        entries = {
            each: half_message(caller, "Deals", each) for each in (b"kept", b"dropped", b"asked")
        }
        assert not broker.messages("Deals")
        for body, resolution in ((b"kept", 1), (b"dropped", 2)):
            answer = caller.call(
                "EndTransaction",
                topic={"name": "Deals"},
                message_id=body.decode(),
                transaction_id=entries[body].transaction_id,
                resolution=resolution,
                source=1,
            )
            assert answer.status.code == 20000
        assert [each.body for each in broker.messages("Deals")] == [b"kept"]
        broker.advance(seconds=120)
        order = next(stream).recover_orphaned_transaction_command
        assert order.message.body == b"asked"
        answer = caller.call(
            "EndTransaction",
            topic={"name": "Deals"},
            message_id=order.message.system_properties.message_id,
            transaction_id=order.transaction_id,
            resolution=1,
            source=2,
        )
        assert answer.status.code == 20000
        assert [each.body for each in broker.messages("Deals")] == [b"kept", b"asked"]
        commands.put(None)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 40008),
        (" ", 40008),
        ("x", 50001),
        ("1-2-", 50001),
        ("G-1-b", 50001),
        ("0" * 17 + "-1-b", 50001),
        ("F" * 16 + "-1-b", 50001),
    ],
)
def test_what_is_no_transaction_id_is_refused(
    broker: Broker, caller: Caller, text: str, code: int
) -> None:
    broker.create_topic("Deals", message_type="TRANSACTION")
    answer = caller.call(
        "EndTransaction", topic={"name": "Deals"}, transaction_id=text, resolution=1
    )
    assert answer.status.code == code


def test_a_transaction_that_is_not_decided_yet_stays_open(broker: Broker, caller: Caller) -> None:
    broker.create_topic("Open", message_type="TRANSACTION")
    entry = half_message(caller, "Open", b"open")
    for resolution, count in ((0, 0), (1, 1)):
        answer = caller.call(
            "EndTransaction",
            topic={"name": "Open"},
            message_id="open",
            transaction_id=entry.transaction_id,
            resolution=resolution,
        )
        assert answer.status.code == 20000
        assert len(broker.messages("Open")) == count


async def test_the_broker_asks_a_consumer_for_its_stacks(broker: Broker) -> None:
    broker.create_topic("Asked")
    with Caller(broker.broker_address, "asked@1") as caller:
        commands = Commands(caller.consumer_settings("AskedGroup", "Asked"))
        stream = iter(caller.telemetry(commands))
        assert next(stream).status.code == 20000
        assert caller.call("Heartbeat", group={"name": "AskedGroup"}).status.code == 20000

        def report() -> None:
            nonce = next(stream).print_thread_stack_trace_command.nonce
            stack = {"nonce": nonce, "thread_stack_trace": "main: waits"}
            commands.put(MESSAGES.TelemetryCommand(thread_stack_trace=stack))

        async with Admin(broker.url) as admin, trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, report)
            info = await admin.running_info("AskedGroup", "asked@1", with_stacks=True)
        assert info.stacks == "main: waits"
        commands.put(None)


async def test_a_client_is_one_on_all_its_connections(broker: Broker) -> None:
    broker.create_topic("Spread")
    broker.create_group("SpreadGroup", retry_max_times=0)
    with (
        Caller(broker.broker_address, "spread@1") as first,
        Caller(broker.broker_address, "spread@1") as second,
    ):
        commands = Commands(first.consumer_settings("SpreadGroup", "Spread"))
        assert next(iter(first.telemetry(commands))).status.code == 20000
        for caller in (second, first, second):
            assert caller.call("Heartbeat", group={"name": "SpreadGroup"}).status.code == 20000
        async with Admin(broker.url) as admin:
            members = await admin.clients("SpreadGroup")
            assert [each.client_id for each in members.clients] == ["spread@1"]
            first.send("Spread", b"tried once")
            (received,) = second.receive("Spread", "SpreadGroup")
            changed = second.call(
                "ChangeInvisibleDuration",
                group={"name": "SpreadGroup"},
                topic={"name": "Spread"},
                receipt_handle=received.system_properties.receipt_handle,
                message_id="01AB",
                invisible_duration={"seconds": 1},
            )
            assert changed.status.code == 20000
            # The settings of the other connection say how often it may be tried.
            assert second.receive("Spread", "SpreadGroup") == []
            assert [each.body for each in broker.messages("%DLQ%SpreadGroup")] == [b"tried once"]
            ended = second.call("NotifyClientTermination", group={"name": "SpreadGroup"})
            assert ended.status.code == 20000
            assert first.call("Heartbeat", group={"name": "SpreadGroup"}).status.code == 40015
            assert (await admin.clients("SpreadGroup")).clients == ()
        commands.put(None)


def test_checks_arrive_whichever_connection_the_producer_sent_by() -> None:
    with (
        Broker() as broker,
        Caller(broker.broker_address, "spread@1") as first,
        Caller(broker.broker_address, "spread@1") as second,
    ):
        broker.create_topic("Deals", message_type="TRANSACTION")
        commands = Commands(first.producer_settings("Deals"))
        stream = iter(first.telemetry(commands, 60))
        assert next(stream).status.code == 20000
        assert second.call("Heartbeat").status.code == 20000
        half_message(second, "Deals", b"asked")
        broker.advance(seconds=120)
        assert next(stream).recover_orphaned_transaction_command.message.body == b"asked"
        commands.put(None)


def test_a_client_whose_stream_has_ended_is_still_known(broker: Broker) -> None:
    broker.create_topic("Left")
    with Caller(broker.broker_address, "left@1") as second:
        with Caller(broker.broker_address, "left@1") as first:
            commands = Commands(first.consumer_settings("LeftGroup", "Left"))
            assert next(iter(first.telemetry(commands))).status.code == 20000
            assert second.call("Heartbeat", group={"name": "LeftGroup"}).status.code == 20000
            commands.put(None)
        assert second.call("Heartbeat", group={"name": "LeftGroup"}).status.code == 20000
